"""Bedrock: base URL and request signing. Its protocols are `wire.bedrock_anthropic` and `wire.bedrock_converse`.

A request is authorized with a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK) if there is one, else signed with the
credentials that AWS's own tools would use. The signature covers the hash of the body, so the body is read twice, once
to hash it and once to send it, without holding it in memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from loom.errors import ExtraMissing, NotAuthorised
from loom.models import Model
from loom.providers.media_body import Body, sha256_of

SERVICE: Final = "bedrock"
WIRES: Final = ("bedrock_anthropic", "bedrock_converse")
"""The protocols whose requests are signed."""
_DEFAULT_REGION: Final = "us-east-1"


def base_url(model: Model) -> str:
    """Return the base URL of a model, with the region filled in if the catalog leaves it open."""
    return model.base_url.replace("{region}", region()) if "{region}" in model.base_url else model.base_url


def region() -> str:
    """Return the region that AWS's own tools would choose; a default if botocore, needed only to sign, is not
    installed."""
    stated = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if stated:
        return stated
    try:
        session = _botocore("session").get_session()
    except ExtraMissing:
        return _DEFAULT_REGION
    return str(session.get_config_variable("region") or _DEFAULT_REGION)


class Signer:
    """Signs requests (Signature Version 4) with the usual credentials: environment, profile, single sign-on, instance
    role."""

    def __init__(self) -> None:
        self._session: Any = None

    async def sign(self, url: str, headers: Mapping[str, str], body: Body) -> dict[str, str]:
        """Return the headers to add. Raise `NotAuthorised` if there are no credentials."""
        digest = await sha256_of(body)
        return await asyncio.to_thread(self._sign, url, headers, digest)

    def _sign(self, url: str, headers: Mapping[str, str], digest: str) -> dict[str, str]:
        """Sign in a thread, because credentials may have to be fetched first."""
        # Sign only headers that arrive unchanged: a proxy may change any other one.
        covered = {"content-type": headers["content-type"], "x-amz-content-sha256": digest}
        request = _botocore("awsrequest").AWSRequest(method="POST", url=url, headers=covered)
        _botocore("auth").SigV4Auth(self._credentials(), SERVICE, _region_of(url)).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}

    def _credentials(self) -> Any:
        if self._session is None:
            self._session = _botocore("session").get_session()
        try:
            found = self._session.get_credentials()
            if found is not None:
                return found.get_frozen_credentials()
        except _botocore("exceptions").BotoCoreError as error:
            raise _no_credentials(f"AWS credentials could not be fetched ({type(error).__name__})") from None
        raise _no_credentials("No AWS credentials found on this machine")


def _botocore(name: str) -> Any:
    try:
        return import_module(f"botocore.{name}")
    except ModuleNotFoundError:
        raise ExtraMissing(
            "Signing requests to Bedrock needs botocore, which is not installed",
            hint="Run: pip install 'loom-runtime[bedrock]', or set AWS_BEARER_TOKEN_BEDROCK.",
        ) from None


def _region_of(url: str) -> str:
    """Return the region in the URL, so that both always agree; that of the environment for a private endpoint."""
    labels = url.split("/")[2].split(".")
    return labels[1] if len(labels) > 2 and labels[0].startswith("bedrock") else region()


def _no_credentials(message: str) -> NotAuthorised:
    return NotAuthorised(
        message,
        provider="bedrock-anthropic",
        hint="Run aws configure (or aws sso login), or set AWS_BEARER_TOKEN_BEDROCK.",
    )
