"""Download a URL: through the egress gate, within limits of size, time and expansion."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from loom.content.media import size_label
from loom.errors import TooLarge, Unreadable, Unsupported
from loom.tools.egress import CONNECT_SECONDS, Destination, Egress, destination_of

if TYPE_CHECKING:
    import httpcore2

MAX_BYTES: Final = 67_108_864
DEADLINE_SECONDS: Final = 30.0
MAX_REDIRECTS: Final = 5
_CHECK: Final = "Check the address."
_GZIP_MAGIC: Final = b"\x1f\x8b"
_EITHER_HEADER: Final = zlib.MAX_WBITS | 32
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = (
    ("User-Agent", "Loom/0.1"),
    ("Accept", "*/*"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "close"),
)


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """`url` is the final URL after redirects; `declared` is the type that the server declares."""

    url: str
    data: bytes
    declared: str
    name: str


async def download(
    url: str,
    egress: Egress,
    *,
    max_bytes: int = MAX_BYTES,
    seconds: float = DEADLINE_SECONDS,
    moved: Callable[[Destination], Awaitable[None]] | None = None,
) -> Download:
    """Return the content of a URL. Raise Unsupported, Unreadable or TooLarge if it cannot or must not be downloaded.
    `moved` may refuse the host of a redirect before anything is sent to it; its time does not count."""
    import httpcore2

    place = destination_of(url)
    clock = asyncio.get_running_loop().time
    left = seconds
    async with httpcore2.AsyncConnectionPool(network_backend=egress_backend(egress)) as pool:
        for _ in range(MAX_REDIRECTS + 1):
            began = clock()
            try:
                async with asyncio.timeout(left):
                    found = await _request(pool, place, max_bytes)
            except TimeoutError:
                raise TooLarge(f"{place.origin} took longer than {seconds:g} s to answer", name=place.url) from None
            except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
                hint = "Check the address, or try again later."
                raise Unreadable(f"{place.origin} {_describe_fault(error)}", hint=hint) from error
            if isinstance(found, Download):
                return found
            left -= clock() - began
            if moved is not None and found.origin != place.origin:
                await moved(found)
            place = found
    raise Unreadable(f"{place.origin} redirects more than {MAX_REDIRECTS} times", hint=_CHECK)


def _describe_fault(error: httpcore2.NetworkError | httpcore2.ProtocolError | httpcore2.TimeoutException) -> str:
    import httpcore2

    match error:
        case httpcore2.ConnectError():  # its text has the reason, such as that of a refused certificate
            return f"cannot be reached ({error})"
        case httpcore2.TimeoutException():
            return "did not respond in time"
        case httpcore2.NetworkError():
            return "closed the connection"
        case _:
            return "did not respond with HTTP"


async def _request(pool: httpcore2.AsyncConnectionPool, place: Destination, max_bytes: int) -> Download | Destination:
    """Return the content, or the target of a redirect."""
    async with pool.stream("GET", place.url, headers=[("Host", place.origin), *_HEADERS]) as response:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        if response.status in _REDIRECTS and "location" in headers:
            return place.redirect_to(headers["location"])
        if not 200 <= response.status < 300:
            raise Unreadable(f"{place.origin} answers with HTTP {response.status} for {place.url[:200]}", hint=_CHECK)
        data = await _body(response.aiter_stream(), headers, place, max_bytes)
    declared = headers.get("content-type", "").partition(";")[0].strip().lower()
    return Download(url=place.url, data=data, declared=declared, name=_name(place))


async def _body(stream: AsyncIterator[bytes], headers: dict[str, str], place: Destination, max_bytes: int) -> bytes:
    """Return the body. It is counted while it arrives and while it expands; if its announced size is too large, it is
    not read."""
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(place, max_bytes, int(announced))
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise Unsupported(f"{place.origin} sends its data as {encoding[:40]!r}, which Loom did not request")
    inflation = Inflation() if encoding not in ("", "identity") else None
    data = bytearray()
    received = 0
    async for chunk in stream:
        received += len(chunk)
        if received > max_bytes:
            raise _too_large(place, max_bytes)
        try:
            # off the event loop: a few bytes can expand to the limit
            data += chunk if inflation is None else await asyncio.to_thread(inflation.add, chunk, max_bytes - len(data))
        except zlib.error:
            raise Unreadable(f"{place.origin} sends damaged data", hint="Try again later.") from None
        if len(data) > max_bytes:
            raise _too_large(place, max_bytes)
        if inflation is not None and inflation.is_over:
            break  # bytes after the end of the data are ignored
    return bytes(data)


class Inflation:
    """Decompresses a gzip or deflate body while it arrives: several gzip members in a row are one body, as in other
    programs."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_EITHER_HEADER)
        self._kept = b""
        self.is_over = False
        """Whether bytes followed the end that are not another member."""

    def add(self, chunk: bytes, most: int) -> bytes:
        """Return the decompressed `chunk`, at most one byte more than `most`. Raise zlib.error if it is damaged."""
        made: list[bytes] = []
        size = 0
        chunk = self._kept + chunk
        self._kept = b""
        while chunk and size <= most and not self.is_over:
            if self._inflate.eof:
                if chunk[:2] == _GZIP_MAGIC:
                    self._inflate = zlib.decompressobj(_EITHER_HEADER)
                elif len(chunk) < 2 and chunk == _GZIP_MAGIC[:1]:
                    self._kept = chunk  # perhaps the first half of a header
                    break
                else:
                    self.is_over = True
                    break
            part = self._inflate.decompress(chunk, most + 1 - size)
            size += len(part)
            made.append(part)
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return b"".join(made)


def _too_large(place: Destination, max_bytes: int, announced: int = 0) -> TooLarge:
    size = size_label(announced) if announced else f"more than {size_label(max_bytes)}"
    return TooLarge(f"{place.url[:200]} has {size}; at most {size_label(max_bytes)} are fetched", name=_name(place))


def _name(place: Destination) -> str:
    """Return the last part of the path, or the host if the path is empty."""
    return PurePosixPath(unquote(urlsplit(place.url).path)).name or place.host


def egress_backend(egress: Egress) -> httpcore2.AsyncNetworkBackend:
    """Return a network backend that connects only through `egress`."""
    import httpcore2
    from httpcore2 import AnyIOBackend

    class Gate(httpcore2.AsyncNetworkBackend):
        """Connects only to addresses that the gate has checked. TLS still checks the name."""

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109  the signature of the interface
            local_address: str | None = None,
            socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
        ) -> httpcore2.AsyncNetworkStream:
            addresses = await egress.addresses(host.strip("[]"), port)
            for address in addresses[:4]:
                try:
                    return await AnyIOBackend().connect_tcp(str(address), port, timeout=CONNECT_SECONDS)
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                    continue
            raise httpcore2.ConnectError("no address answers")

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    return Gate()
