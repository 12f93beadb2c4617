"""After an early response, drain the request body for a while, so that the client can read the response, then close the
connection. Without the limit, the server would read an endless body for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HERE_SECONDS: Final = 0.05
"""How long to wait for the rest of a small body before the response starts; if it arrives in time, the connection stays
open."""
LINGER_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 2.0
"""A client that sends nothing for this long has read the response, or never will."""
_CLOSE: Final = (b"connection", b"close")


class BodyDrain:
    """ASGI middleware that drains unread request bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else set[bytes]()
        if names.isdisjoint((b"content-length", b"transfer-encoding")):
            await self._app(scope, receive, send)
            return
        talk = _DrainedRequest(receive, send, waits=b"expect" in names)
        await self._app(scope, talk.receive, talk.send)


class _DrainedRequest:
    """One request with a body, and its response."""

    def __init__(self, receive: Receive, send: Send, *, waits: bool) -> None:
        """`waits`: the client sends its body only after `100 Continue`."""
        self._receive = receive
        self._send = send
        self._waits = waits
        self._is_whole = False
        self._is_closing = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self._is_whole:
            if not self._waits:
                await self._hear_out(HERE_SECONDS, HERE_SECONDS)
            if not self._is_whole:
                self._is_closing = True
                message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
        elif self._is_closing and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._hear_out(LINGER_SECONDS, SILENT_SECONDS)
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _hear_out(self, seconds: float, silent_seconds: float) -> None:
        """Read and discard the rest of the body, for at most `seconds`, or until nothing arrives for
        `silent_seconds`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        with suppress(TimeoutError):
            while not self._is_whole and loop.time() < until:
                async with asyncio.timeout(silent_seconds):
                    await self.receive()
