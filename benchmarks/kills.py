"""Kill, stop and starve daemons during turns, and check that nothing is lost or repeated.

python -m benchmarks.kills [--kills 1000] [--only NAME] [--seed 1]

    two      kill -9 of one of two daemons on PostgreSQL, `--kills` times
    one      kill -9 of a single daemon on SQLite, half as often
    skew     the same as `two`, a tenth as often, with the clock of one a minute ahead
    dbos     the same as `two`, a tenth as often, with `turn.engine = "dbos"`
    term     SIGTERM to one of two every few seconds, a tenth as often
    away     PostgreSQL is stopped for five seconds, a fiftieth as often
    around   an S3 bucket and Redis hang or are unreachable while daemons are killed, a twentieth as often
    paused   a daemon is paused until another has taken over its session, and must not write when it resumes, twice

A run that ends has passed: every turn ended by itself, no call that must not be repeated ran twice, no acknowledged
message and no text that a client received was lost, and a kill cost a turn at most one request.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from daemon.disturbance import (
    Disturb,
    killing,
    one_on_sqlite,
    pausing,
    run_disturbed,
    stopping,
    surroundings,
    two_on_postgres,
    unsettling,
)
from daemon.forked import nursery
from daemon.test_two_daemons import two_daemons, woken
from postgres_server import postgres_server

RUNS = ("two", "one", "skew", "dbos", "term", "away", "around", "paused")
SHARES = {"one": 2, "skew": 10, "dbos": 10, "term": 10, "away": 50, "around": 20}


async def run(name: str, kills: int, seed: int, folder: Path) -> None:
    times = max(1, kills // SHARES.get(name, 1))
    async with AsyncExitStack() as stack:
        nest, server = stack.enter_context(nursery()), stack.enter_context(postgres_server())
        around = await stack.enter_async_context(surroundings(folder)) if name == "around" else None
        if name == "one":
            found = stack.enter_context(one_on_sqlite(folder, nest))
        else:
            engine = "dbos" if name == "dbos" else "builtin"
            skew = 60.0 if name == "skew" else 0.0
            settings = around.settings if around is not None else {}
            daemons = two_on_postgres(folder, nest, server, skew_seconds=skew, engine=engine, settings=settings)
            found = stack.enter_context(daemons)
        disturb: Disturb
        if around is not None:
            disturb = unsettling(found, around, (0.1, 2.0))
        elif name == "term":
            disturb = stopping(found, (1.0, 4.0))
        elif name == "away":
            disturb = pausing(server.stop, server.start, (1.0, 10.0), 5.0)
        else:
            disturb = killing(found, (0.0, 0.5))
        report = partial(_report, name, times)
        outcome = await run_disturbed(found, folder, disturb, times=times, seed=seed, sessions=4, report=report)
    print(f"{name}: {outcome}", flush=True)


def _report(name: str, times: int, done: int) -> None:
    if done % 50 == 0:
        print(f"{name}: {done} of {times}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--only", choices=RUNS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for name in RUNS if given.only is None else (given.only,):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            if name == "paused":
                with two_daemons(Path(folder)) as house:
                    asyncio.run(woken(house, 2))
                print("paused: a daemon that resumed after the other had taken over wrote nothing more")
            else:
                asyncio.run(run(name, given.kills, given.seed, Path(folder)))


if __name__ == "__main__":
    main()
