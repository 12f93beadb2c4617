"""Logins at servers that use OAuth: authorization code with PKCE and dynamic registration, by the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from loom.errors import ToolError
from loom.tools.mcp.records import TokenFile
from loom.tools.mcp.specs import ServerSpec

MAX_REQUEST_BYTES: Final = 65_536
_PAGE: Final = b"<!doctype html><meta charset=utf-8><title>Loom</title><p>%b You can close this window."


class StoredLogin(BaseModel):
    """A login at one server at one URL."""

    url: str
    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    """The metadata of the authorization server, with the URL to refresh tokens."""


class _OAuthStorage:
    """The SDK's TokenStorage for one server. The SDK stores neither the expiry of a token nor the URL to refresh it:
    both are copied from and to `context`, its state of the login."""

    context: OAuthContext

    def __init__(self, spec: ServerSpec, file: TokenFile, login: StoredLogin) -> None:
        self._spec = spec
        self._file = file
        self._login = login

    def provider(
        self,
        redirect_uri: str,
        redirect: Callable[[str], Awaitable[None]],
        callback: Callable[[], Awaitable[AuthorizationCodeResult]],
    ) -> httpx2.Auth:
        """Return an authorization of requests that uses this storage."""
        metadata = OAuthClientMetadata(
            client_name="Loom",
            redirect_uris=[AnyUrl(redirect_uri)],
            grant_types=["authorization_code", "refresh_token"],
            token_endpoint_auth_method="none",  # noqa: S106  a public client: PKCE replaces the secret
        )
        provider = OAuthClientProvider(self._spec.url, metadata, self, redirect, callback)
        self.context = provider.context
        return provider

    async def get_tokens(self) -> OAuthToken | None:
        self.context.token_expiry_time = self._login.expires_at
        self.context.oauth_metadata = self._login.metadata or self.context.oauth_metadata
        return self._login.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._login.tokens = tokens
        self._login.expires_at = self.context.token_expiry_time
        self._login.metadata = self.context.oauth_metadata
        self._file.put(self._spec.name, self._login.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._login.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._login.client = client_info


def stored_login(spec: ServerSpec, file: TokenFile | None) -> httpx2.Auth | None:
    """Return the authorization of requests by a stored login, or None if there is none for this URL that can be
    read."""
    try:
        login = StoredLogin.model_validate(file.read().get(spec.name)) if file is not None else None
    except ValidationError:
        return None
    if file is None or login is None or login.url != spec.url or login.tokens is None:
        return None

    async def refuse(*_: object) -> Any:
        raise ToolError(f"its login has expired: run `loom mcp login {spec.name}`")

    return _OAuthStorage(spec, file, login).provider("http://127.0.0.1/callback", refuse, refuse)


@asynccontextmanager
async def login_auth(
    spec: ServerSpec, file: TokenFile, open_page: Callable[[str], Awaitable[None]]
) -> AsyncGenerator[httpx2.Auth]:
    """Yield an authorization that logs in again with the first request: `open_page` gets the URL where the user agrees,
    and the authorization server redirects the browser to a local URL."""
    arrived: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def answer_browser(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii", "replace")
            found = dict(parse_qsl(urlsplit(head.split(" ")[1]).query))
            if {"code", "error"} & found.keys() and not arrived.done():  # browsers also request an icon
                arrived.set_result(found)
            page = _PAGE % (b"The login is complete." if "code" in found else b"The login was refused.")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n" + page)
            await writer.drain()
        writer.close()

    async def wait_for_code() -> AuthorizationCodeResult:
        found = await arrived
        if "code" not in found:
            raise ToolError(f"the login was refused: {found.get('error_description') or found['error']}")
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    server = await asyncio.start_server(answer_browser, "127.0.0.1", 0, limit=MAX_REQUEST_BYTES)
    uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    login = StoredLogin(url=spec.url)  # a new registration: the local URL has another port each time
    try:
        yield _OAuthStorage(spec, file, login).provider(uri, open_page, wait_for_code)
    finally:
        server.close()
