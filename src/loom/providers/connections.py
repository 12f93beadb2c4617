"""Where requests go and what they carry: addresses, keys, and the one client that all of a runtime's requests share.

A key is sent to the address that its model is configured with and nowhere else: redirects are not followed, and a
server on this machine is never asked through a proxy.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from loom.errors import ConfigError, NotAuthorised
from loom.models import Model
from loom.providers.catalog import key_env

if TYPE_CHECKING:
    import httpx2

Keys: TypeAlias = Callable[[Model], str | None]
"""The secret for a model's service, or None where there is none."""

_LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_KEPT_CONNECTIONS: Final = 20
_KEPT_SECONDS: Final = 30.0
_MASKED_FROM: Final = 8


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, for what."""

    connect_seconds: float = 10.0
    silence_seconds: float = 300.0
    """Between two pieces of an answer; models think before they speak."""
    deadline_seconds: float = 600.0
    """For all attempts together, until an answer begins."""
    attempts: int = 5


class Connections:
    """The HTTP client, opened when it is first needed. Close it when done."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.patience: Final = patience or Patience()
        self._client: httpx2.AsyncClient | None = None

    def client(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            patience = self.patience
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(
                    connect=patience.connect_seconds, read=patience.silence_seconds, write=60.0, pool=None
                ),
                limits=httpx2.Limits(
                    max_connections=None,
                    max_keepalive_connections=_KEPT_CONNECTIONS,
                    keepalive_expiry=_KEPT_SECONDS,
                ),
                headers={"user-agent": "loom", "accept-encoding": "identity"},
                mounts=dict.fromkeys(_LOOPBACK),
                follow_redirects=False,
            )
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def transport_errors() -> tuple[type[Exception], ...]:
    """Everything that the client raises when the network, not a server, is the reason."""
    import httpx2

    return (httpx2.RequestError, httpx2.StreamError)


class Endpoint(msgspec.Struct, frozen=True):
    """`host` is what errors say; a name and password that stood in the address are in `headers`."""

    url: str
    host: str
    headers: dict[str, str]

    @property
    def is_local(self) -> bool:
        return is_local(self.url)


def endpoint(base_url: str, path: str) -> Endpoint:
    """A path behind a base URL. `/v1` is not doubled, and a query (`?api-version=…`) stays at the end."""
    try:
        parts, more = urlsplit(base_url), urlsplit(path)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, more, host, port = urlsplit(""), urlsplit(path), None, None
    if parts.scheme not in ("http", "https") or not host or any(mark.isspace() for mark in base_url):
        raise ConfigError(
            "a provider's address begins with http:// or https:// and names a host",
            key="base_url",
            hint="For example http://127.0.0.1:8080/v1.",
        )
    base = parts.path.rstrip("/")
    joined = base.removesuffix("/v1") + more.path if more.path.startswith("/v1/") else base + more.path
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if port is None else f"{shown}:{port}"
    query = "&".join(part for part in (parts.query, more.query) if part)
    headers: dict[str, str] = {}
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return Endpoint(urlunsplit((parts.scheme, netloc, joined, query, "")), netloc, headers)


def is_local(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def authorisation(model: Model, key: str | None) -> dict[str, str]:
    """The header that carries the key. A service that needs one and has none is told apart before anything is sent."""
    if not key:
        variable = key_env(model.provider)
        if variable:
            raise NotAuthorised(
                f"there is no key for {model.provider}",
                provider=model.provider,
                model=model.name,
                hint=f"Set {variable}, or run: loom keys set {model.provider}.",
            )
        return {}
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise NotAuthorised(
            f"the key for {model.provider} holds a character that no key has (a space, a line break, an accent)",
            provider=model.provider,
            model=model.name,
            hint=f"Copy it again: loom keys set {model.provider}.",
        )
    return {"x-goog-api-key": key} if model.provider == "gemini" else {"authorization": f"Bearer {key}"}


def without_key(text: str, key: str | None) -> str:
    """What a server says about a key may repeat it."""
    return text.replace(key, "****") if key and len(key) >= _MASKED_FROM else text
