"""Daemon: the services that all routes share."""

from __future__ import annotations

import asyncio
from typing import Final

from loom.daemon.access import SessionAccess
from loom.daemon.auth import Auth
from loom.daemon.background_tasks import start_task
from loom.daemon.bus import open_bus
from loom.daemon.feeds import Feeds
from loom.daemon.gateway.clients import GatewayClients
from loom.daemon.guard import RateLimits
from loom.daemon.metrics import Metrics
from loom.daemon.readiness import Readiness
from loom.daemon.request_bodies import MemoryBudget
from loom.daemon.sign_in import SignIn
from loom.daemon.turns import Turns
from loom.daemon.webhooks import Webhooks
from loom.runtime import Runtime

DRAIN_SECONDS: Final = 8.0
"""How long running turns may take to end. With the time that the server then waits for connections, a stop takes at
most ten seconds."""

STORE_SECONDS: Final = 5.0
"""How long answers that were cut off may take to be stored."""


class Daemon:
    def __init__(self, runtime: Runtime, auth: Auth) -> None:
        self.runtime = runtime
        self.library = runtime.library
        self.intake = runtime.library.intake
        self.auth = auth
        self.sign_in = SignIn(auth, runtime.accounts, runtime.logins)
        self.access = SessionAccess(runtime)
        self.bus = open_bus(runtime.config)
        self.turns = Turns(runtime, self.bus)
        self.feeds = Feeds(runtime, self.bus)
        self.webhooks = Webhooks(runtime)
        self.rates = RateLimits()
        self.metrics = Metrics()
        self.held = MemoryBudget()
        self.readiness = Readiness(runtime)
        self.gateway_clients = GatewayClients(runtime.config, runtime.conversations.records, runtime.user_costs)
        self.gateway_answers: set[asyncio.Task[None]] = set()
        """Answers that are requested, or stored after the request ended."""
        self.restart_settings: set[str] = set()
        """Settings whose change applies after a restart."""
        self.config_lock = asyncio.Lock()
        """Held from reading the configuration until its change is applied: a concurrent change must see it."""
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._background: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the services once; concurrent callers wait for it."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        if not self._starting.done():
            await asyncio.shield(self._starting)

    async def _start(self) -> None:
        await self.bus.start()
        await self.feeds.start()
        self.webhooks.start()
        await self.turns.start()
        self._background = [
            start_task(self.runtime.upkeep.run(), "upkeep"),
            start_task(self.runtime.models.load_prices(), "loading prices"),
        ]

    @property
    def is_ready(self) -> bool:
        return self._starting is not None and self._starting.done() and self._stopping is None

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    async def stop(self) -> None:
        """End the turns, then the connections of their watchers. A second call waits for the first."""
        if self._starting is not None:
            self._stopping = self._stopping or asyncio.create_task(self._stop())
            await asyncio.shield(self._stopping)

    async def close(self) -> None:
        """Stop, after the last connection has ended, and wait until gateway answers that this cut off are stored."""
        await self.stop()
        if self.gateway_answers:
            await asyncio.wait(self.gateway_answers, timeout=STORE_SECONDS)

    async def _stop(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.turns.stop(DRAIN_SECONDS)
        await self.webhooks.stop()
        await self.feeds.stop()
        await self.bus.stop()
