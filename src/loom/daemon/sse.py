"""Events over plain HTTP: the envelopes of a session as server-sent events, from any position in its sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from loom.daemon.envelopes import EncodedEnvelope
from loom.daemon.feeds import Watch
from loom.daemon.problems import UnreadableRequest
from loom.errors import LoomError
from loom.runtime.plan_table import problem_text

if TYPE_CHECKING:
    from loom.daemon.services import Daemon

SLOW_SECONDS: Final = 25.0
"""A client that reads nothing for this long is disconnected; it can reconnect with the number of the last event that it
has. The daemon's own server disconnects it sooner (`connections.UNREAD_SECONDS`); this limit is for other servers that
the daemon is mounted in."""
KEEP_ALIVE_SECONDS: Final = 15.0
"""The interval of keep-alive comments, so that proxies and clients do not close the connection."""
_MAX_SEQ: Final = 2**53
_MAX_DIGITS: Final = len(str(_MAX_SEQ))
"""Python refuses to parse numbers of thousands of digits."""
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)


async def events(daemon: Daemon, request: Request) -> Response:
    """Return the stream of events after `after`, or after the `Last-Event-ID` of a client that reconnects; `after=now`
    means from now on."""
    stack = AsyncExitStack()
    watch = daemon.feeds.watch(request.path_params["session"], start_seq(request))
    return SseResponse(stack, await stack.enter_async_context(watch), daemon.feeds.turn)


def start_seq(request: Request) -> int | None:
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if text == "now":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS or int(text) > _MAX_SEQ:
        raise UnreadableRequest("`after` is the number of the last event that you saw, or `now`.")
    return int(text)


class SseResponse(Response):
    def __init__(self, stack: AsyncExitStack, watch: Watch, turn: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._stack = stack
        self._watch = watch
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            tasks = [asyncio.create_task(self._pump(send)), asyncio.create_task(_wait_for_disconnect(receive))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            if not tasks[0].cancelled() and (error := tasks[0].exception()) is not None:
                raise error

    async def _pump(self, send: Send) -> None:
        """Send events until the session or the daemon ends, or the client does not read."""
        try:
            await _say(send, b"retry: 1000\n\n")
            while page := await self._next(send):
                await self._turn()
                await _say(send, b"".join(_encode_event(envelope) for envelope in page))
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return
        except LoomError as error:
            event = {"type": "error", "data": msgspec.to_builtins(problem_text(error))}
            await _say(send, b"data: %s\n\n" % msgspec.json.encode(event))
            await send({"type": "http.response.body", "body": b""})

    async def _next(self, send: Send) -> list[EncodedEnvelope]:
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    return await self._watch.take()
            except TimeoutError:
                await _say(send, b": open\n\n")


def _encode_event(envelope: EncodedEnvelope) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (envelope.seq, envelope.type.encode(), envelope.json)


async def _say(send: Send, body: bytes) -> None:
    async with asyncio.timeout(SLOW_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
