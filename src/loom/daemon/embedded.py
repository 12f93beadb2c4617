"""`loom.asgi(...)`: the daemon inside another application.

app.mount("/loom", loom.asgi(loom.Loom(store="postgresql://…", media="s3://bucket/prefix"), auth=my_auth))
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from loom.config import Config
from loom.daemon.app import create_app
from loom.daemon.auth import Auth
from loom.runtime import Runtime


class HasRuntime(Protocol):
    """An object with a runtime, such as `loom.Loom`; the daemon uses its configuration, tools, models and rules."""

    @property
    def runtime(self) -> Runtime: ...


class EmbeddedDaemon:
    """The daemon as an ASGI application that opens itself at the first request, in the loop that serves it: a mounted
    application gets no lifespan event when the outer one starts. Call `await close()` when the outer one ends, or pass
    lifespan events on to it."""

    def __init__(self, like: HasRuntime | Config | None, auth: Auth | None) -> None:
        self._like = like
        self._auth = auth
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await (await self._open_app())(scope, receive, send)

    async def close(self) -> None:
        """Stop the daemon. Running turns get a few seconds to end; accepted messages are stored in any case."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self._stack.aclose()

    async def _open_app(self) -> ASGIApp:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> ASGIApp:
        like = self._like
        opening = Runtime.open(like) if like is None or isinstance(like, Config) else like.runtime.open_again()
        runtime = await self._stack.enter_async_context(opening)
        app = create_app(runtime, auth=self._auth)
        self._stack.push_async_callback(app.daemon.close)
        await app.daemon.start()
        return app

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._open_app()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


def asgi(like: HasRuntime | Config | None = None, *, auth: Auth | None = None) -> EmbeddedDaemon:
    """Return the daemon as an ASGI application. It uses the settings, tools and models of a `Loom`, or a configuration;
    with neither, the user's own configuration."""
    return EmbeddedDaemon(like, auth)
