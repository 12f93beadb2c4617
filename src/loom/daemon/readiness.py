"""Readiness: whether the daemon's database and media store can be written."""

from __future__ import annotations

import asyncio
from typing import Final

from loom.errors import LoomError
from loom.runtime import Runtime

_FRESH_SECONDS: Final = 2.0
"""How long a result is cached: probes write, and need no authentication."""
_PROBE_SECONDS: Final = 5.0


class Readiness:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = asyncio.Lock()
        self._checked = float("-inf")
        self._problem = ""

    async def problem(self) -> str:
        """Return the problem in one sentence; empty if everything can be written."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._checked >= _FRESH_SECONDS:
                self._problem = await self._probe()
                self._checked = asyncio.get_running_loop().time()
            return self._problem

    async def _probe(self) -> str:
        parts = {
            "The database": self._runtime.stores.database.check_writable,
            "The media store": self._runtime.stores.media.check,
        }
        for part, check in parts.items():
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    await check()
            except TimeoutError:
                return f"{part} did not respond within {_PROBE_SECONDS:g} seconds."
            except LoomError as error:
                return f"{part} cannot be used: {error.message}"
        return ""
