"""Upkeep: when periodic work last started, so that one process does it for all."""

from __future__ import annotations

import time

from loom.store.database import Database, Transaction
from loom.store.forest import Clock
from loom.store.nodes import plain_text


class UpkeepTimes:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, name: str, *, every_seconds: float) -> bool:
        """Claim periodic work. Return False if a process started it within the last `every_seconds`."""
        now = self._clock()
        values = {"name": plain_text(name, "a name"), "now": now}

        def work(tx: Transaction) -> bool:
            rows = tx.execute("SELECT at FROM upkeep WHERE name = :name", {"name": name})
            if rows and now - every_seconds < float(rows[0][0]) <= now:
                return False
            tx.execute("DELETE FROM upkeep WHERE name = :name", {"name": name})
            tx.execute("INSERT INTO upkeep (name, at) VALUES (:name, :now)", values)
            return True

        return await self._database.write(work)
