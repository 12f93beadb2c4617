"""Connections: URLs, keys, headers, and the HTTP client that all requests of a runtime share.

A key is sent only to the URL that its model is configured with: redirects are not followed, and requests to a server on
this machine never go through a proxy.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from loom.errors import ConfigError, NotAuthorised
from loom.models import Model
from loom.network_environment import check_network_environment
from loom.providers.catalog import ALIASES, key_env

if TYPE_CHECKING:
    import httpx2

KeyLookup: TypeAlias = Callable[[Model], str | None]
"""Returns the API key for a model's service; None if there is none."""

Headers: TypeAlias = Callable[[Model], Mapping[str, str]]
"""Returns the user's headers for requests to a model's own host; their values are secrets."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_FRAMING: Final = ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding")
_KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_KEPT_CONNECTIONS: Final = 20
_KEPT_SECONDS: Final = 30.0
_MASKED_FROM: Final = 8


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of requests to providers, and the number of attempts."""

    connect_seconds: float = 10.0
    silence_seconds: float = 300.0
    """The longest pause within an answer; models think before they answer."""
    deadline_seconds: float = 600.0
    """The time for all attempts together, until an answer starts."""
    attempts: int = 5


class Connections:
    """The HTTP client, opened when it is first needed. Close it when done."""

    def __init__(self, patience: Timeouts | None = None, *, headers: Headers | None = None) -> None:
        self.patience: Final = patience or Timeouts()
        self._headers = headers
        self._client: httpx2.AsyncClient | None = None

    def client(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            patience = self.patience
            with check_network_environment():
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

    def access(self, model: Model, key: str | None) -> dict[str, str]:
        """Return the headers that authorize requests to a model's host: the key, and the user's headers, which may
        contain a key themselves. Raise `NotAuthorised` if a key is missing."""
        own = self.own_headers(model)
        return own if not key and any(name in own for name in _KEY_HEADERS) else authorization(model, key) | own

    def own_headers(self, model: Model) -> dict[str, str]:
        own: Mapping[str, str] = self._headers(model) if self._headers is not None else {}
        return checked_headers(own, f"models.{model.alias}.headers")

    def secrets(self, model: Model, key: str | None) -> tuple[str, ...]:
        """Return the secrets that must not appear in a message."""
        return (key or "", *self.own_headers(model).values())

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def checked_headers(headers: Mapping[str, str], key: str) -> dict[str, str]:
    """Return a user's headers with lower-case names. Raise `ConfigError`, with `key`, for a header that cannot be
    sent."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value) or name.lower() in _FRAMING:
            raise ConfigError(
                f"{name!r} cannot be sent as a header",
                key=key,
                hint="Use a name without spaces and a value of one line. Loom sets the length and type of a request.",
            )
    return {name.lower(): value.strip() for name, value in headers.items()}


def transport_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the client raises for failures of the network."""
    import httpx2

    return (httpx2.RequestError, httpx2.StreamError)


class Endpoint(msgspec.Struct, frozen=True):
    """A URL to send to. `host` is its name in errors; `headers` contain the user and password from the base URL."""

    url: str
    host: str
    headers: dict[str, str]

    @property
    def is_local(self) -> bool:
        return is_local(self.url)


def endpoint(base_url: str, path: str) -> Endpoint:
    """Return the endpoint for a path after a base URL. `/v1` is not doubled, and a query (`?api-version=…`) stays at
    the end. Raise `ConfigError` if the base URL is not valid."""
    try:
        parts, more = urlsplit(base_url), urlsplit(path)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, more, host, port = urlsplit(""), urlsplit(path), None, None
    if parts.scheme not in ("http", "https") or not host or any(mark.isspace() for mark in base_url):
        raise ConfigError(
            "A provider's URL must begin with http:// or https:// and name a host.",
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
    """Return whether a URL is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def authorization(model: Model, key: str | None) -> dict[str, str]:
    """Return the header with the key. Raise `NotAuthorised` if the key is missing or cannot be valid."""
    service = ALIASES.get(model.provider, model.provider)  # the name that `loom keys set` lists
    if not key:
        variable = key_env(model.provider)
        if variable:
            raise NotAuthorised(
                f"No API key for {service}",
                provider=model.provider,
                model=model.name,
                hint=f"Set {variable}, or run: loom keys set {service}.",
            )
        return {}
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise NotAuthorised(
            f"The key for {model.provider} contains an invalid character (a space, a line break or an accent)",
            provider=model.provider,
            model=model.name,
            hint=f"Copy it again: loom keys set {service}.",
        )
    return {"authorization": f"Bearer {key}"} if model.auth == "bearer" else {model.auth: key}


def mask_sent_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a server's message with the secrets masked that the request contained."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MASKED_FROM:
            text = text.replace(secret, "****")
    return text
