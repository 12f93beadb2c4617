"""A proxy in front of a server of the tests: it passes everything on, hangs, or refuses connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias, TypeVar

ProxyState: TypeAlias = Literal["open", "hangs", "shut"]


class TcpProxy:
    """Use `proxy_to()`. One that hangs accepts connections and passes nothing on, in either direction; one that is
    shut ends all connections at once."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._behind = port
        self._state: ProxyState = "open"
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def turn(self, state: ProxyState) -> None:
        self._state = state
        if state == "open":
            self._is_open.set()
        else:
            self._is_open.clear()
        if state == "shut":
            for writer in list(self._writers):
                writer.close()

    def accept(self, client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(client, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._state == "shut":
                return
            await self._is_open.wait()
            with contextlib.suppress(OSError):
                server, upstream = await asyncio.open_connection("127.0.0.1", self._behind)
                self._writers.add(upstream)
                try:
                    down = asyncio.create_task(self._pass_on(server, writer))
                    await self._pass_on(client, upstream)
                    await asyncio.wait([down])
                finally:
                    self._writers.discard(upstream)
                    upstream.close()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._is_open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        self.turn("shut")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Proxy(Protocol):
    """Passes connections on to a real server. `port` is where it listens."""

    port: int

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...

    async def close(self) -> None: ...


ProxyT = TypeVar("ProxyT", bound=Proxy)


@contextlib.asynccontextmanager
async def listening(proxy: ProxyT) -> AsyncGenerator[ProxyT]:
    """Accept connections on a free port of this machine."""
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()


def proxy_to(port: int) -> contextlib.AbstractAsyncContextManager[TcpProxy]:
    return listening(TcpProxy(port))
