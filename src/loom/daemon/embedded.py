"""`loom.asgi(...)`: the daemon inside another application.

app.mount("/loom", loom.asgi(auth=my_auth))
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from starlette.types import ASGIApp, Receive, Scope, Send

from loom.config import Config
from loom.daemon.app import create_app
from loom.daemon.auth import Auth
from loom.runtime import Runtime


class EmbeddedDaemon:
    """Opened by the first request, in the loop that serves it: a mounted application is not told when the outer one
    starts. `await close()` where the outer one ends, or let it be told by a lifespan of its own."""

    def __init__(self, config: Config | None, auth: Auth | None) -> None:
        self._config = config
        self._auth = auth
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await (await self._opened())(scope, receive, send)

    async def close(self) -> None:
        """Turns that run are given a moment; what was said is kept in any case."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self._stack.aclose()

    async def _opened(self) -> ASGIApp:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> ASGIApp:
        app = create_app(await self._stack.enter_async_context(Runtime.open(self._config)), auth=self._auth)
        self._stack.push_async_callback(app.daemon.stop)
        await app.daemon.start()
        return app

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._opened()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


def asgi(config: Config | None = None, *, auth: Auth | None = None) -> EmbeddedDaemon:
    """Everything that the daemon serves, as an ASGI application. With no configuration given, the user's."""
    return EmbeddedDaemon(config, auth)
