"""The far side: local servers over real sockets that answer by a script, well or badly, and remember what was asked.

    async with far_side(Reply(body=ANTHROPIC["text"])) as server:
        ...
        assert server.requests[0].json["model"] == "claude-opus-5"

Replies are given in order, the last one for ever. Everything that a network or a provider can do wrong is a field.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """A scripted response. `cut_after` ends the body after that many bytes, by `end`; `hang` sends nothing more until
    the client disconnects."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content_type: str = "text/event-stream"
    chunk: int = 0
    """Bytes per chunk of the body; 0 sends it as one."""
    pause: float = 0.0
    cut_after: int | None = None
    end: str = "close"
    """close: the last chunk and a clean end · truncate: the connection ends inside the body · reset: RST · hang ·
    endless: the body is repeated."""
    before: str = ""
    """Instead of an answer: reset · hang · close · unread: hang without reading it. early: the response comes first;
    then the body is read and discarded."""


Answer = Reply | Callable[[Request], "Reply | Awaitable[Reply]"]


class FarSide:
    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self._answers = answers
        self.requests: list[Request] = []
        self.connections = 0
        self.open_connections = 0
        self.left = asyncio.Event()
        """Set when a client has closed its connection."""
        self.asked = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.open_connections -= 1
            self.left.set()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection lives on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
        unread = isinstance(answer, Reply) and answer.before in ("early", "unread")
        body = b"" if unread else await _body(reader, headers)
        request = Request(method, target, headers, body)
        self.requests.append(request)
        self.asked.set()
        reply = answer if isinstance(answer, Reply) else answer(request)
        if not isinstance(reply, Reply):
            reply = await reply
        return await _play(reply, reader, writer)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        raise AssertionError("a request must have a content length")
    return await reader.readexactly(int(headers.get("content-length", "0")))


async def _play(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    match reply.before:
        case "reset":
            return _reset(writer)
        case "close":
            return False
        case "hang":
            return await _hang(reader)
        case "unread":
            await asyncio.sleep(3_600)
        case _:
            pass
    known = {"content-type": reply.content_type, "transfer-encoding": "chunked", **reply.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in known.items() if value)
    writer.write(f"HTTP/1.1 {reply.status} {'OK' if reply.status == 200 else 'No'}\r\n{lines}\r\n".encode())
    body = reply.body if reply.cut_after is None else reply.body[: reply.cut_after]
    size = reply.chunk or max(len(body), 1)
    while True:
        for start in range(0, len(body), size):
            piece = body[start : start + size]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            if reply.pause:
                await asyncio.sleep(reply.pause)
        if reply.end != "endless":
            break
    match reply.end:
        case "hang":
            return await _hang(reader)
        case "reset":
            return _reset(writer)
        case "truncate":
            writer.write(b"40\r\nhalf a chunk")
            await writer.drain()
            return False
        case _:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            while reply.before == "early" and await reader.read(1 << 20):
                pass
            return reply.before != "early"


async def _hang(reader: asyncio.StreamReader) -> bool:
    """Wait until the client disconnects."""
    await reader.read(1)
    return False


def _reset(writer: asyncio.StreamWriter) -> bool:
    """Close the connection with RST instead of FIN."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


@asynccontextmanager
async def far_side(*answers: Answer) -> AsyncGenerator[FarSide]:
    side = FarSide(answers or (Reply(),))
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await side.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over, and the stream protocol would log it
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    side.port = server.sockets[0].getsockname()[1]
    try:
        yield side
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def wait_for_disconnect(side: FarSide, *, seconds: float = 2.0) -> None:
    """Wait until no client is connected. Raises `TimeoutError` after `seconds`."""
    async with asyncio.timeout(seconds):
        while side.open_connections:
            side.left.clear()
            await side.left.wait()


def refusal(status: int, body: Any, **headers: str) -> Reply:
    """Return an error response with a JSON body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=json.dumps(body).encode(), content_type="application/json", headers=named)


ERRORS: dict[str, Callable[[int, str], Any]] = {
    "anthropic": lambda status, text: {
        "type": "error",
        "error": {
            "type": {
                400: "invalid_request_error",
                401: "authentication_error",
                404: "not_found_error",
                413: "request_too_large",
                429: "rate_limit_error",
                529: "overloaded_error",
            }.get(status, "api_error"),
            "message": text,
        },
        "request_id": "req_1",
    },
    "openai_chat": lambda status, text: {"error": {"message": text, "type": "some_error", "param": None, "code": None}},
    "openai_responses": lambda status, text: {
        "error": {"message": text, "type": "some_error", "param": None, "code": None}
    },
    "gemini": lambda status, text: {"error": {"code": status, "message": text, "status": "SOMETHING"}},
    "ollama": lambda status, text: {"error": text},
}
"""The body of an error response in each protocol."""
