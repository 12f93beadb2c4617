"""Requests that are answered before they are over: the answer arrives, and no connection goes on for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from daemon.running import TOKEN, Served, served
from loom.daemon import body_drain
from patience import PATIENCE_SECONDS

BLOCK = b"10000\r\n" + bytes(65_536) + b"\r\n"


@asynccontextmanager
async def line_to(daemon: Served) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    place = urlsplit(daemon.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield reader, writer
    finally:
        writer.close()


def head(daemon: Served, request: str, *lines: str) -> bytes:
    return "\r\n".join([f"{request} HTTP/1.1", f"Host: {urlsplit(daemon.url).netloc}", *lines, "", ""]).encode()


async def poured(writer: asyncio.StreamWriter) -> None:
    """On and on, until the other side ends it."""
    while True:
        writer.write(BLOCK)
        await writer.drain()


@pytest.mark.parametrize(
    ("request_line", "token", "status"),
    [("POST /v1/media", TOKEN, b" 413 "), ("POST /v1/media", "", b" 401 "), ("GET /v1/health", "", b" 200 ")],
)
async def test_a_body_without_end_is_answered_and_its_connection_closed(
    monkeypatch: pytest.MonkeyPatch, request_line: str, token: str, status: bytes
) -> None:
    monkeypatch.setattr(body_drain, "LINGER_SECONDS", 0.3)
    async with served({"server.max_upload_bytes": 1_000_000}) as daemon, line_to(daemon) as (reader, writer):
        writer.write(
            head(
                daemon,
                request_line,
                f"Authorization: Bearer {token}",
                "Content-Type: a/b",
                "Transfer-Encoding: chunked",
            )
        )
        pouring = asyncio.create_task(poured(writer))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert status in answer
        assert b"connection: close" in answer.lower()
        with pytest.raises(ConnectionError):
            await pouring


async def test_a_small_body_that_nobody_reads_leaves_the_connection_open() -> None:
    async with served() as daemon, daemon.client() as client, line_to(daemon) as (reader, writer):
        session = await client.session()
        request = head(
            daemon,
            f"POST /v1/sessions/{session.id}/cancel",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
            "Content-Length: 2",
        )
        for _ in range(2):
            writer.write(request + b"{}")
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 202 " in answer
            assert b"connection: close" not in answer.lower()
            assert await reader.readexactly(2) == b"{}"


async def test_who_waits_to_be_asked_for_the_body_is_refused_without_sending_it() -> None:
    async with served() as daemon, line_to(daemon) as (reader, writer):
        writer.write(head(daemon, "POST /v1/media", "Content-Length: 500000000", "Expect: 100-continue"))
        assert b" 401 " in await reader.readuntil(b"\r\n\r\n")
