"""A bucket that hangs, trickles or is away: every operation ends, with an error of its own, and it is logged."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from loom.config import load_config
from loom.content.media import digest_of
from loom.errors import BlobsUnavailable, Corrupt, NotFound, StoreError, Unreachable
from loom.runtime import Runtime
from loom.store import s3_blobs
from loom.store.media import MediaStore, open_media
from s3_server import address, odd_server

DATA = b"picture" * 100
DIGEST = digest_of(DATA)
GUARD_SECONDS = 120
"""Only so that a failing test ends; nothing is measured."""

OPERATIONS: dict[str, Callable[[MediaStore], Awaitable[object]]] = {
    "put": lambda media: media.put(DATA),
    "load": lambda media: media.load(DIGEST),
    "size": lambda media: media.size(DIGEST),
    "exists": lambda media: media.exists(DIGEST),
    "refresh": lambda media: media.refresh(DIGEST),
    "delete": lambda media: media.delete(DIGEST),
    "read_blocks": lambda media: _all(media.read_blocks(DIGEST)),
    "listing": lambda media: _all(media.listing()),
}


async def _all(items: AsyncIterator[object]) -> list[object]:
    return [item async for item in items]


@contextmanager
def _silent_server() -> Iterator[str]:
    """It accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield address(f"http://127.0.0.1:{server.getsockname()[1]}", "silent")


@asynccontextmanager
async def _trickling_server(stop: threading.Event) -> AsyncIterator[str]:
    """It answers every request with the right headers at once, and with a byte of the body now and then."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            modified = format_datetime(datetime.now(UTC), usegmt=True)
            head = f'HTTP/1.1 200 OK\r\ncontent-length: {len(DATA)}\r\nlast-modified: {modified}\r\netag: "0"\r\n\r\n'
            writer.write(head.encode())
            while not stop.is_set():
                writer.write(b"p")
                await writer.drain()
                await asyncio.sleep(0.05)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield address(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "slow")
    finally:
        stop.set()
        server.close()


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_bucket_that_never_answers_is_unavailable_for_every_operation(operation: str) -> None:
    with _silent_server() as url:
        media = open_media(url, timeout_seconds=0.3)
        async with asyncio.timeout(GUARD_SECONDS):
            with pytest.raises(BlobsUnavailable, match="does not respond"):
                await OPERATIONS[operation](media)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_bucket_behind_a_closed_port_is_unavailable_for_every_operation(operation: str) -> None:
    media = open_media(address(f"http://127.0.0.1:{_closed_port()}", "gone"), timeout_seconds=2)
    async with asyncio.timeout(GUARD_SECONDS):
        with pytest.raises(BlobsUnavailable, match="does not respond"):
            await OPERATIONS[operation](media)


@pytest.mark.parametrize("operation", ["load", "read_blocks"])
async def test_a_bucket_that_trickles_is_not_waited_for_without_end(operation: str) -> None:
    """Every read brings a byte, so that only the deadline of the whole operation helps."""
    async with _trickling_server(threading.Event()) as url:
        media = open_media(url, timeout_seconds=0.5)
        async with asyncio.timeout(GUARD_SECONDS):
            with pytest.raises(BlobsUnavailable, match="does not respond"):
                await OPERATIONS[operation](media)


async def test_an_unavailable_medium_is_neither_missing_nor_damaged() -> None:
    assert issubclass(BlobsUnavailable, Unreachable)
    assert not issubclass(BlobsUnavailable, NotFound | Corrupt)
    with odd_server() as (_, url), pytest.raises(NotFound):
        await open_media(url).load(DIGEST)
    with _silent_server() as url, pytest.raises(BlobsUnavailable):
        await open_media(url, timeout_seconds=0.3).load(DIGEST)


async def test_many_media_wait_once_for_a_bucket_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(s3_blobs, "RETRY_AFTER_SECONDS", 3600.0)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        url = address(f"http://127.0.0.1:{server.getsockname()[1]}", "silent")
        media = open_media(url, timeout_seconds=0.3)
        for number in range(20):
            with pytest.raises(BlobsUnavailable):
                await media.load(digest_of(str(number).encode()))
        server.settimeout(0)
        connections = 0
        try:
            while True:
                server.accept()[0].close()
                connections += 1
        except BlockingIOError:
            pass
    assert connections <= 4, "each of them connected again"
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "loom.store.s3_blobs")
    assert "does not respond" in record.getMessage()


async def test_a_bucket_that_comes_back_is_used_again_and_that_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(s3_blobs, "RETRY_AFTER_SECONDS", 0.0)
    port = _closed_port()
    media = open_media(address(f"http://127.0.0.1:{port}", "odd"), timeout_seconds=5)
    for _ in range(2):
        with pytest.raises(BlobsUnavailable):
            await media.put(DATA)
    with odd_server(port):
        await media.put(DATA)
        assert await media.load(DIGEST) == DATA
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "does not respond" in messages[0]
    assert "responds again" in messages[1]


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def test_a_server_that_answers_with_an_error_is_not_left_alone_for_a_while() -> None:
    with odd_server() as (world, url):
        media = open_media(url, timeout_seconds=20)
        await media.put(DATA)
        world.refuse = {"GET": (500, "InternalError")}
        with pytest.raises(StoreError, match="InternalError"):
            await media.load(DIGEST)
        world.refuse = {}
        assert await media.load(DIGEST) == DATA


async def test_the_configured_timeout_is_the_one_that_counts(tmp_path: object) -> None:
    with _silent_server() as url:
        flags = {"media.url": url, "media.timeout_seconds": 0.2}
        config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags=flags)  # type: ignore[arg-type]
        async with Runtime.open(config) as runtime, asyncio.timeout(GUARD_SECONDS):
            with pytest.raises(BlobsUnavailable, match=r"within 0\.2 s"):
                await runtime.stores.media.size(DIGEST)
