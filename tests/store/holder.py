"""A process that runs turns of a session under leases that are too short, and says what it wrote.

    holder.py URL SESSION NAME

A turn is a few messages. The clocks run so that a lease is often over before its turn is: then the others take it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from loom.content.messages import user
from loom.errors import Conflict
from loom.store.database import open_database
from loom.store.leases import Leases
from loom.store.sessions import Sessions

TURNS = 15
MESSAGES = 4


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


async def main(url: str, session_id: str, name: str) -> None:
    chance = random.Random(name)
    database = await open_database(url)
    leases, sessions = Leases(database, is_gone=lambda _: False), Sessions(database)
    for turn in range(TURNS):
        while (lease := await leases.acquire(session_id, name, chance.choice((0.0, 60.0)))) is None:  # noqa: ASYNC110  other processes
            await asyncio.sleep(chance.random() / 100)
        try:
            for step in range(MESSAGES):
                text = f"{name}.{turn}.{step}"
                await sessions.append_to_head(session_id, [user(text)], fence=lease.fence)
                say(text)
                await asyncio.sleep(chance.random() / 200)
        except Conflict:
            say("lost")
        await leases.release(lease)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
