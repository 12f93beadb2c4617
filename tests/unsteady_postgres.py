"""A door in front of PostgreSQL that breaks at a chosen message: the server is stopped, crashes or is cut off."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Literal, TypeAlias

import msgspec

from tcp_proxy import listening

Fault: TypeAlias = Literal["shut down", "crashed", "cut off", "cut off after it was done"]
FAULTS: Final[tuple[Fault, ...]] = ("shut down", "crashed", "cut off", "cut off after it was done")

_LAST_WORDS: Final[dict[Fault, bytes]] = {
    "shut down": b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0",
    "crashed": b"SWARNING\0VWARNING\0C57P02\0Mterminating connection because of crash of another server process\0\0",
}
_REFUSALS: Final[dict[Fault, tuple[bytes, ...]]] = {
    "shut down": (
        b"SFATAL\0VFATAL\0C57P03\0Mthe database system is shutting down\0\0",
        b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0",
    ),
    "crashed": (b"SFATAL\0VFATAL\0C57P03\0Mthe database system is in recovery mode\0\0",),
}
_ERROR: Final = b"E"
_READY: Final = b"Z"


class _Armed(msgspec.Struct):
    fault: Fault
    messages_left: int
    away_seconds: float


class UnsteadyPostgres:
    """Use `unsteady_postgres()`. `messages` counts what clients have said to the server."""

    def __init__(self, port: int) -> None:
        self.messages = 0
        self.port = 0
        self._server_port = port
        self._armed: _Armed | None = None
        self._away: Fault | None = None
        self._is_back = asyncio.Event()
        self._refused = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/test?sslmode=disable&gssencmode=disable"

    def arm(self, fault: Fault, after_messages: int, away_seconds: float) -> None:
        """Break once, when so many more messages have come, and stay away for a while."""
        self._armed = _Armed(fault, after_messages, away_seconds)

    async def disarm(self) -> bool:
        """Return whether it has broken since it was armed; where it has, wait until it is back."""
        if self._armed is not None:
            self._armed = None
            return False
        await self._is_back.wait()
        return True

    def accept(self, client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(client, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._converse(client, writer)
        self._connections.discard(writer)
        writer.close()

    async def _converse(self, client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = await client.readexactly(4)
        startup = length + await client.readexactly(int.from_bytes(length) - 4)
        if self._away is not None:
            words = _REFUSALS.get(self._away, ())
            if words:
                writer.write(_message(_ERROR, words[min(self._refused, len(words) - 1)]))
                self._refused += 1
            await writer.drain()
            return
        server, upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            upstream.write(startup)
            down = asyncio.create_task(_relay(server, writer))
            await self._forward(client, writer, server, upstream, down)
        finally:
            upstream.close()

    async def _forward(
        self,
        client: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
        down: asyncio.Task[None],
    ) -> None:
        while True:
            head = await client.readexactly(5)
            body = await client.readexactly(int.from_bytes(head[1:]) - 4)
            self.messages += 1
            armed = self._armed
            if armed is not None:
                armed.messages_left -= 1
            if armed is None or armed.messages_left > 0 or head[:1] not in b"QS":
                upstream.write(head + body)
                continue
            self._armed = None
            self._break(armed)
            down.cancel()
            await asyncio.wait([down])
            if armed.fault == "cut off after it was done":
                upstream.write(head + body)
                await _until_ready(server)
            for each in self._connections - {writer}:
                _say_and_close(each, armed.fault)
            _say_and_close(writer, armed.fault)
            return

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _break(self, armed: _Armed) -> None:
        self._away = armed.fault
        self._refused = 0
        self._is_back.clear()

        def come_back() -> None:
            self._away = None
            self._is_back.set()

        asyncio.get_running_loop().call_later(armed.away_seconds, come_back)


async def _relay(server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await server.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _until_ready(server: asyncio.StreamReader) -> None:
    while True:
        head = await server.readexactly(5)
        await server.readexactly(int.from_bytes(head[1:]) - 4)
        if head[:1] == _READY:
            return


def _say_and_close(writer: asyncio.StreamWriter, fault: Fault) -> None:
    if words := _LAST_WORDS.get(fault):
        writer.write(_message(_ERROR, words))
    writer.close()


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


def unsteady_postgres(port: int) -> contextlib.AbstractAsyncContextManager[UnsteadyPostgres]:
    return listening(UnsteadyPostgres(port))
