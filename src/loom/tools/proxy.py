"""The proxy of the browser: every connection of every page passes the egress gate.

A page loads images, scripts and frames, follows redirects and opens sockets by itself; checking the URL that a model
passed is not enough. The browser uses this proxy for everything, loopback included, so a page can reach only addresses
that were checked. Files of the workspace are served here too, under a host that does not exist.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from loom.errors import MediaError, Unreadable, Unsupported
from loom.tools.egress import Egress, destination_of

FILES_HOST: Final = "workspace.invalid"
ServeFile: TypeAlias = Callable[[str], tuple[bytes, str] | None]
"""The path of a URL → bytes and their type, or None if there is nothing to serve."""

_MAX_HEAD_BYTES: Final = 65_536
_MAX_TRAFFIC_BYTES: Final = 200_000_000
_HEAD_SECONDS: Final = 30.0
_BLOCK_BYTES: Final = 65_536
_NOT_FORWARDED: Final = ("proxy-", "connection:", "keep-alive:")


class ProxyRequest(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: tuple[str, ...]

    def header(self, name: str) -> str:
        found = (line.partition(":")[2].strip() for line in self.headers if line.lower().startswith(name + ":"))
        return next(found, "")


class GuardProxy:
    """`refused` are the hosts that pages were not allowed to contact, `unreachable` those that did not respond."""

    def __init__(self, egress: Egress, files: ServeFile | None) -> None:
        self._egress = egress
        self._files = files
        self._traffic_bytes = 0
        self.user = secrets.token_hex(8)
        self.password = secrets.token_hex(16)
        self.port = 0
        self.refused: set[str] = set()
        self.unreachable: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the browser. An error ends only this connection."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                request = _request(await reader.readuntil(b"\r\n\r\n"))
            await self._answer(request, reader, writer)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError, UnicodeError):
            pass  # the browser disconnected, or the data is not HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: ProxyRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        expected = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if not hmac.compare_digest(request.header("proxy-authorization").encode(), f"Basic {expected}".encode()):
            await _say(writer, 407, b"", "Proxy-Authenticate: Basic realm=loom")
            return
        try:
            if request.method == "CONNECT":
                host, _, port = request.target.rpartition(":")
                place = destination_of(f"https://{host}:{port}/")
            else:
                place = destination_of(request.target)
                if place.host == FILES_HOST and self._files is not None:
                    await self._serve_file(urlsplit(request.target).path, writer)
                    return
            if self._files is not None:
                raise Unsupported("a page from a file has no network access")
            upstream = await self._egress.connect(place.host, place.port)
        except Unreadable:  # allowed, but nothing responds there
            self.unreachable.add(_asked_host(request))
            await _say(writer, 502, b"Nothing answers at this address.")
            return
        except MediaError:
            self.refused.add(_asked_host(request))
            await _say(writer, 403, b"This address may not be asked.")
            return
        await self._forward(request, (reader, writer), upstream)

    async def _serve_file(self, path: str, writer: asyncio.StreamWriter) -> None:
        assert self._files is not None
        found = await asyncio.to_thread(self._files, unquote(path))
        if found is None:
            await _say(writer, 404, b"")
        else:
            await _say(writer, 200, found[0], f"Content-Type: {found[1]}", "X-Content-Type-Options: nosniff")

    async def _forward(
        self,
        request: ProxyRequest,
        browser: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        try:
            if request.method == "CONNECT":
                browser[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream[1].write(_origin_form(request))
            sending = asyncio.create_task(self._pump(browser[0], upstream[1]))
            try:
                await self._pump(upstream[0], browser[1])
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        finally:
            upstream[1].transport.abort()  # closing would wait for a server that does not read

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # either side may disconnect at any time
            while self._traffic_bytes < _MAX_TRAFFIC_BYTES and (chunk := await reader.read(_BLOCK_BYTES)):
                self._traffic_bytes += len(chunk)
                writer.write(chunk)
                await writer.drain()


@asynccontextmanager
async def guard_proxy(egress: Egress, files: ServeFile | None = None) -> AsyncGenerator[GuardProxy]:
    """Yield a running proxy. With `files`, only those are served and there is no network at all."""
    proxy = GuardProxy(egress, files)
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await proxy.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy is closed, which ends its connections
        finally:
            connections.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        await server.wait_closed()


def _request(head: bytes) -> ProxyRequest:
    first, *headers = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _version = first.split(" ")
    return ProxyRequest(method, target, tuple(headers))


def _origin_form(request: ProxyRequest) -> bytes:
    """Return the request in the form for the server itself; one request per connection, so that none reaches the wrong
    host."""
    parts = urlsplit(request.target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [line for line in request.headers if not line.lower().startswith(_NOT_FORWARDED)]
    return "\r\n".join([f"{request.method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")


def _asked_host(request: ProxyRequest) -> str:
    return request.target[:200] if request.method == "CONNECT" else _host(request.target)


def _host(target: str) -> str:
    try:
        return urlsplit(target).netloc[:200]
    except ValueError:
        return target[:200]


async def _say(writer: asyncio.StreamWriter, status: int, body: bytes, *headers: str) -> None:
    head = [f"HTTP/1.1 {status} Loom", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(head).encode("latin-1") + body)
    await writer.drain()
