"""The daemon as an ASGI application: `BodyDrain` → `Guard` → Socket.IO → the table of routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from loom.daemon.auth import Auth, open_auth
from loom.daemon.body_drain import BodyDrain
from loom.daemon.dispatch import AsgiEndpoint, endpoint
from loom.daemon.guard import Guard
from loom.daemon.problems import NoSuchRoute, UnreadableRequest, WrongMethod, error_response
from loom.daemon.routes import ROUTES
from loom.daemon.services import Daemon
from loom.daemon.sockets import socket_app
from loom.runtime import Runtime


class App:
    """The result of `create_app`: an ASGI application. `daemon` is for the program that runs it."""

    def __init__(self, daemon: Daemon, asgi: ASGIApp) -> None:
        self.daemon = daemon
        self._asgi = asgi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.daemon.start()  # a mounted application gets no lifespan event when the outer one starts
        try:
            await self._asgi(scope, receive, send)
        except asyncio.CancelledError:
            if not self.daemon.is_stopping:
                raise
            # At a shutdown, the server cancels requests that did not end in time; it would log a traceback for each.


def create_app(runtime: Runtime, *, auth: Auth | None = None) -> App:
    """Return the daemon as an ASGI application. Without `auth`, use the token file of the data folder and the
    configured password."""
    config = runtime.config
    auth = auth or open_auth(config.token_file(), password=config.secret("server", "password"))
    daemon = Daemon(runtime, auth)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await daemon.start()
        yield
        await daemon.close()

    inner = Starlette(routes=_routes(daemon), lifespan=lifespan, exception_handlers={HTTPException: _http_error})
    server = config.server
    guarded = Guard(
        socket_app(daemon, inner),
        hosts=server.allowed_hosts,
        origins=server.allowed_origins,
        proxies=server.trusted_proxies,
    )
    return App(daemon, BodyDrain(guarded))


def _routes(daemon: Daemon) -> list[StarletteRoute]:
    """Return one route per path, so that an error about the method can list all allowed methods. HEAD without a row of
    its own is handled as GET without a body."""
    places: dict[str, dict[str, AsgiEndpoint]] = {}
    for row in ROUTES:
        places.setdefault(row.path, {})[row.method] = endpoint(daemon, row)

    def by_method(methods: dict[str, AsgiEndpoint]) -> AsgiEndpoint:
        async def answer(request: Request) -> Response:
            return await (methods.get(request.method) or methods["GET"])(request)

        return answer

    return [StarletteRoute(path, by_method(methods), methods=list(methods)) for path, methods in places.items()]


async def _http_error(_: Request, error: Exception) -> Response:
    """Return the response to an error of the router itself, such as an unknown path."""
    status = error.status_code if isinstance(error, HTTPException) else 400
    match status:
        case 404:
            return error_response(NoSuchRoute("Page not found.", hint="See /docs."))
        case 405:
            answer = error_response(WrongMethod("Method not allowed.", hint="See /docs."))
            if isinstance(error, HTTPException) and error.headers:
                answer.headers.update(error.headers)
            return answer
        case _:
            return error_response(UnreadableRequest("Invalid request."))
