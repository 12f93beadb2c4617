"""A process whose clock is wrong, and that uses leases.

    skewed_process.py URL SESSION SKEW_SECONDS ACTION

`probe` prints what it sees of a lease that another process holds; `hold SECONDS` acquires one, prints `held`, waits
for a line on standard input, and prints whether it could still renew and write.
"""

from __future__ import annotations

import asyncio
import sys
import time

_real_time = time.time
SKEW_SECONDS = float(sys.argv[3])
time.time = lambda: _real_time() + SKEW_SECONDS  # before anything of the store is imported

from loom.content.messages import user  # noqa: E402 - the clock must be wrong first
from loom.errors import Conflict  # noqa: E402
from loom.store.database import Database, open_database  # noqa: E402
from loom.store.leases import Leases  # noqa: E402
from loom.store.sessions import Sessions  # noqa: E402


async def _probe(database: Database, session_id: str) -> None:
    leases, sessions = Leases(database), Sessions(database)
    print("holder", await leases.holder(session_id))
    print("abandoned", len(await leases.list_abandoned()))
    try:
        await sessions.append_to_head(session_id, [user("in between")])
    except Conflict:
        print("append refused")
    print("take", await leases.acquire(session_id, "thief", 30) is not None)


async def _hold(database: Database, session_id: str, seconds: float) -> None:
    leases, sessions = Leases(database), Sessions(database)
    lease = await leases.acquire(session_id, "skewed", seconds)
    assert lease is not None
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("renewed", await leases.renew(lease))
    await sessions.append_to_head(session_id, [user("mine")], fence=lease.fence)
    print("appended")


async def main() -> None:
    url, session_id, _, action, *rest = sys.argv[1:]
    database = await open_database(url)
    if action == "probe":
        await _probe(database, session_id)
    else:
        await _hold(database, session_id, float(rest[0]))
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
