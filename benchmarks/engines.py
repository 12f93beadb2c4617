"""Measure the cost of a turn engine per step: one turn of many steps on a real PostgreSQL, with and without DBOS.

python -m benchmarks.engines [--steps 100]

Every step is an answer of a scripted model that calls one tool, which returns an image. The figures do not include
waiting for a model. Also printed: the size of the engine's record of the turn.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psycopg

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png
from loom.tools.base import tool

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import postgres_server

MODEL: Final = "anthropic/claude-opus-5"


@tool
async def snap(number: int) -> list[str | bytes]:
    """Return an image."""
    return [f"image {number}", sample_png(64, 48 + number % 50)]


async def measure(url: str, engine: str, steps: int) -> float:
    """Return the seconds of one turn of `steps` steps."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {"LOOM_HOME": folder, "LOOM_STORE__URL": url, "LOOM_TURN__ENGINE": engine}
        environ["LOOM_TURN__MAX_STEPS"] = str(steps + 1)
        calls = [[ToolCall(f"call-{at}", "snap", {"number": at})] for at in range(steps)]
        async with Runtime.open(
            load_config(cwd=Path(folder), environ=environ),
            providers={"anthropic": ScriptedProvider(["warm", *calls, "done"])},
            tools=[snap],
        ) as runtime:
            session = await runtime.session(model=MODEL)
            await session.send("warm up")
            began = time.monotonic()
            await session.send("look at everything")
            return time.monotonic() - began


def record_bytes(url: str) -> tuple[int, int]:
    """Return the bytes that DBOS stores for the longest turn, and the size of its largest value."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT sum(length(output) + length(function_name)), max(length(output)) FROM loom_dbos.operation_outputs"
            " GROUP BY workflow_uuid ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    with postgres_server() as server:
        for engine in ("builtin", "dbos", "builtin", "dbos"):
            url = server.empty_database()
            seconds = asyncio.run(measure(url, engine, steps))
            print(f"{engine}: {seconds / steps * 1000:.1f} ms per step of {steps}", end="")
            print(
                ", {:,} bytes recorded, at most {:,} per value".format(*record_bytes(url)) if engine == "dbos" else ""
            )


if __name__ == "__main__":
    main()
