"""Guard: middleware in front of all routes, Socket.IO included. It accepts only requests with this daemon's host name
and from its own pages, and adds security headers to every response.

A page of another site can make a browser send requests to this machine, also by DNS rebinding. Such a request has the
wrong Host or a foreign Origin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loom.daemon.problems import Forbidden, error_response
from loom.daemon.rate_limits import Rate, RateBuckets
from loom.errors import ConfigError, LoomError

MESSAGES: Final = Rate(per_second=100, burst=1_000)
UPLOADS: Final = Rate(per_second=20, burst=200)
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_CLOSED: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_CORS_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_CORS_HEADERS: Final = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Loom"
_CORS_SHOWN: Final = "ETag, Location, Retry-After, Content-Range"
_MISDIRECTED: Final = 4003
"""The code that a refused WebSocket is closed with."""


class Guard:
    """ASGI middleware that checks Host and Origin."""

    def __init__(
        self, app: ASGIApp, *, hosts: Sequence[str] = (), origins: Sequence[str] = (), proxies: Sequence[str] = ()
    ) -> None:
        """`hosts`: host names besides the daemon's own address. `origins`: other origins that may call it. `proxies`:
        networks whose forwarding headers are trusted."""
        self._app = app
        self._proxies = tuple(_network(proxy) for proxy in proxies)
        self._hosts = frozenset(host.strip().lower() for host in hosts)
        self._origins = frozenset(origin.strip().lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope = self._behind_proxy(scope, headers)
        try:
            self._check_host(scope, headers)
            foreign = self._check_origin(headers)
        except LoomError as error:
            await _turn_away(error, scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        if foreign and scope["method"] == "OPTIONS":
            await _preflight(foreign, send)
            return
        await self._app(scope, receive, _with_security_headers(send, foreign))

    def _behind_proxy(self, scope: Scope, headers: Headers) -> Scope:
        """Return the scope with the client and the scheme that a trusted proxy reports. Of several hops, the last one
        that is not a trusted proxy counts: a client can forge those before it."""
        client: Any = scope.get("client")
        if not self._proxies or client is None or not self._is_proxy(client[0]):
            return scope
        hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
        strangers = [hop for hop in hops if not self._is_proxy(hop)]
        found = {"client": (strangers[-1][:100], 0)} if strangers else {}
        secure = (headers.getlist("x-forwarded-proto") or [""])[-1].rpartition(",")[2].strip().lower() == "https"
        scheme = ("wss" if scope["type"] == "websocket" else "https") if secure else scope["scheme"]
        return {**scope, **found, "scheme": scheme}

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._proxies)

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        written = headers.getlist("host")
        place = _place(f"//{written[0]}") if len(written) == 1 else None
        if place is None or not self._is_ours(place, scope):
            raise Forbidden(
                "Host name not allowed.",
                hint="Use its own address, or add the name to server.allowed_hosts.",
            )

    def _is_ours(self, place: tuple[str, int | None], scope: Scope) -> bool:
        host, port = place
        if host in self._hosts or (port is not None and f"{host}:{port}" in self._hosts):
            return True
        server: Any = scope.get("server")
        if not server:  # a Unix socket: its clients are on this machine
            return host in _LOOPBACK_NAMES
        address, own_port = str(server[0]).lower(), server[1]
        if own_port is not None and (port or _PORTS[scope["scheme"]]) != own_port:
            return False
        return host == address or (host in _LOOPBACK_NAMES and _is_loopback(address))

    def _check_origin(self, headers: Headers) -> str:
        """Return the origin of an allowed foreign page; empty for the daemon's own pages and for programs. Raise
        `Forbidden` for other origins."""
        written = headers.getlist("origin")
        if not written:
            return ""
        origin = written[0].lower()
        if len(written) == 1 and origin in self._origins:
            return written[0]
        parts = origin.partition("://")
        if len(written) == 1 and parts[0] in ("http", "https") and parts[2] == headers["host"].lower():
            return ""
        raise Forbidden(
            "Requests from pages of other origins are not allowed.",
            hint="If you trust the origin, add it to server.allowed_origins.",
        )


class RateLimits:
    """Rate limits per client."""

    def __init__(self) -> None:
        self._messages = RateBuckets(MESSAGES)
        self._uploads = RateBuckets(UPLOADS)

    def message(self, client: str) -> None:
        self._messages.spend(client, "Too many messages at once.")

    def upload(self, client: str) -> None:
        self._uploads.spend(client, "Too many uploads at once.")


def _place(url: str) -> tuple[str, int | None] | None:
    """Return the host and the port; None if the URL has other parts, or is malformed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.path or parts.query or parts.fragment or "@" in parts.netloc or "\\" in url:
        return None
    return host, port


def _network(written: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(written.strip(), strict=False)
    except ValueError:
        raise ConfigError(
            f"server.trusted_proxies: {written[:80]!r} is neither an address nor a network.",
            hint="Such as 127.0.0.1 or 10.0.0.0/8.",
        ) from None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _with_security_headers(send: Send, foreign: str) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Iterable[tuple[bytes, bytes]] = message.get("headers", ())
            given = {name.lower() for name, _ in headers}
            added = [header for header in (*_ALWAYS, _CLOSED) if header[0] not in given]
            if foreign:
                added += [
                    (b"access-control-allow-origin", foreign.encode()),
                    (b"access-control-expose-headers", _CORS_SHOWN.encode()),
                    (b"vary", b"Origin"),
                ]
                added = [(name, b"cross-origin" if name == b"cross-origin-resource-policy" else v) for name, v in added]
            message = {**message, "headers": [*headers, *added]}
        await send(message)

    return send_with_headers


async def _preflight(origin: str, send: Send) -> None:
    headers = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": _CORS_METHODS,
        "access-control-allow-headers": _CORS_HEADERS,
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": lines})
    await send({"type": "http.response.body", "body": b""})


async def _turn_away(error: LoomError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _MISDIRECTED, "reason": error.message})
        return
    await error_response(error)(scope, receive, _with_security_headers(send, ""))
