"""The lease of a session in this process: acquire it, renew it with heartbeats, and receive the commands of other
processes with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from loom.agent.ports import Command, SessionRecord
from loom.agent.services import SessionLock
from loom.errors import Conflict

HEARTBEAT_SECONDS: Final = 1.0
_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 0.5


class SessionLease:
    """The lease of `record`. Commands go to the running turn, which is in `shared`."""

    def __init__(self, record: SessionRecord, shared: SessionLock) -> None:
        self._record = record
        self._shared = shared
        self._early_commands: list[Command] = []
        """Commands that arrived before the turn that they name was resumed."""

    async def wait(self) -> None:
        """Acquire the lease as soon as no other process holds it."""
        seconds = _FIRST_WAIT_SECONDS
        while not await self._record.acquire():
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, _LONGEST_WAIT_SECONDS)

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Acquire the lease, hold it, and release it at the end. Raise `Conflict` while a turn runs, in any process."""
        running = Conflict("A turn of this session is running", hint="Wait until it is over, or cancel it.")
        if self._shared.lock.locked():
            raise running
        async with self._shared.lock:
            if not await self._record.acquire():
                raise running
            async with self.renew():
                yield

    @asynccontextmanager
    async def renew(self) -> AsyncGenerator[None]:
        """Renew the acquired lease and receive commands meanwhile; release the lease at the end."""
        self._shared.wake.set()
        heartbeats = asyncio.create_task(self._send_heartbeats())
        try:
            with self._record.wait_for_store():
                yield
        finally:
            heartbeats.cancel()
            await asyncio.wait([heartbeats])
            await self._record.release()
            if not heartbeats.cancelled() and (error := heartbeats.exception()) is not None:
                raise error

    def take_early_commands(self) -> Sequence[Command]:
        commands, self._early_commands = self._early_commands, []
        return commands

    async def _send_heartbeats(self) -> None:
        """Renew the lease until it is lost, and pass commands on to the running turn."""
        loop = asyncio.get_running_loop()
        while True:
            # All sessions of this process renew at the same moments, so that one query serves them all.
            moment = (loop.time() // HEARTBEAT_SECONDS + 1) * HEARTBEAT_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout_at(moment):
                    await self._shared.wake.wait()
            self._shared.wake.clear()
            commands = await self._record.heartbeat()
            turn = self._shared.turn
            if commands is None:
                if turn is not None:
                    turn.on_lease_lost()
                return
            if turn is None:
                # The commands are no longer in the store, and the turn that they name may be about to be resumed.
                self._early_commands += commands
                continue
            for command in commands:
                turn.on_command(command)
