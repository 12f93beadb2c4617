"""Measure the cost of one short turn: modules and functions that it enters, hops per token, database jobs, commits,
CPU, and how often an image is decoded and hashed.

python -m benchmarks.turn [--turns 20]

`before` was measured with an older version of the runtime (on another machine: compare counts, not milliseconds).
Functions are counted once each in all threads with a profile hook, without those of worker processes. A hop is a
function that is called for every further token. CPU is that of a daemon on PostgreSQL, and of PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from daemon.running import daemon as daemon_process
from flow.turn_trace import Function, Recorder
from loom.config import load_config
from loom.daemon.app import create_app
from loom.daemon.auth import Auth
from loom.daemon.turns import Turns
from loom.events import DecoderEvent, Stopped, TextDelta
from loom.prompt import Prompt
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png
from postgres_server import PostgresServer, postgres_server

MODEL: Final = "anthropic/claude-opus-5"
PROFILED: Final = "--profiled"


class Row(msgspec.Struct, frozen=True):
    what: str
    before: str
    now: str


class WordProvider:
    """A provider that answers with `words` words."""

    def __init__(self) -> None:
        self.words = 3

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        for number in range(self.words):
            yield TextDelta(text=f"word{number} ")
        yield Stopped(reason="end")


@contextlib.asynccontextmanager
async def open_runtime(provider: ScriptedProvider | WordProvider, **settings: str) -> AsyncIterator[Runtime]:
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(cwd=Path(folder), environ={"LOOM_HOME": folder, **settings})
        async with Runtime.open(config, providers={"anthropic": provider}) as runtime:
            yield runtime


def command_crossings() -> tuple[int, int]:
    """Return how many modules and functions `loom "…" -a x.png` enters, in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "x.png"
        image.write_bytes(sample_png(64, 48))
        environ = {**os.environ, "LOOM_HOME": folder, "LOOM_MODEL": "loom/spark", "LOOM_OFFLINE": "1"}
        command = [sys.executable, "-m", "benchmarks.turn", PROFILED, "what is this?", "-a", str(image)]
        result = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    modules, functions = result.stderr.strip().splitlines()[-1].split()
    return int(modules), int(functions)


def run_profiled(arguments: list[str]) -> None:
    """Run the command, then print how many modules and functions it entered."""
    from loom.cli.main import main

    recorder = Recorder()
    with recorder.attached(), recorder.recording(), contextlib.suppress(SystemExit):
        main(arguments)
    print(f"\n{len(recorder.modules)} {len(recorder.functions)}", file=sys.stderr)


async def daemon_crossings() -> tuple[int, int]:
    """Return how many modules and functions a posted message enters in the daemon, with a subscriber."""
    recorder = Recorder()
    with recorder.attached():
        async with open_runtime(WordProvider()) as runtime:
            daemon = create_app(runtime, auth=Auth("a token")).daemon
            await daemon.start()
            session = await runtime.session(model=MODEL)
            await daemon.turns.post(session, "warm up")
            await _wait_until_idle(daemon.turns)
            with recorder.recording():
                async with daemon.feeds.watch(session.id):
                    await daemon.turns.post(await runtime.library.open(session.id), "hello")
                    await _wait_until_idle(daemon.turns)
            await daemon.stop()
    return len(recorder.modules), len(recorder.functions)


async def _wait_until_idle(turns: Turns) -> None:
    while turns.active:  # noqa: ASYNC110  another task changes it
        await asyncio.sleep(0.01)


async def token_hops() -> int:
    """Return how many functions between the model's events and a reader of the stream are called for every token."""
    counts: list[Recorder] = []
    provider = WordProvider()
    async with open_runtime(provider) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("warm up")
        for words in (100, 600):
            provider.words = words
            recorder = Recorder()
            with recorder.attached(), recorder.recording():
                async for _ in session.stream("hello"):
                    pass
            counts.append(recorder)
    few, many = counts
    return sum(
        many.calls[name] - few.calls.get(name, 0) >= 450 for name in many.calls if "WordProvider" not in name.name
    )


async def database_jobs() -> tuple[int, int]:
    """Return the database jobs and commits of a short turn."""
    jobs = {"write": 0, "read": 0, "select": 0}
    async with open_runtime(WordProvider()) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("warm up")
        for name in jobs:
            original = getattr(runtime.stores.database, name)

            async def count_and_call(*given: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
                jobs[_name] += 1
                return await _original(*given, **named)

            setattr(runtime.stores.database, name, count_and_call)
        await session.send("hello")
    return sum(jobs.values()), jobs["write"]


async def image_work() -> tuple[int, float]:
    """Return how often a JPEG of 3.6 MB is decoded and hashed until its turn has ended."""
    file = io.BytesIO()
    Image.frombytes("RGB", (1700, 1100), os.urandom(1700 * 1100 * 3)).save(file, "JPEG", quality=93)
    data = file.getvalue()
    hashed = 0
    original = hashlib.sha256

    def count_hash(given: Any = b"", **named: Any) -> Any:
        nonlocal hashed
        hashed += len(given)
        return original(given, **named)

    recorder = Recorder()
    with recorder.attached():
        async with open_runtime(ScriptedProvider(["warm", "an image"])) as runtime:
            session = await runtime.session(model=MODEL)
            await session.send("warm up")
            hashlib.sha256 = count_hash  # type: ignore[assignment]
            try:
                with recorder.recording():
                    await session.send("look", data)
            finally:
                hashlib.sha256 = original
    decoders = ("check_and_render", "render_image")  # each is one job of a worker process
    decodes = sum(recorder.calls.get(Function("formats/image/__init__.py", name), 0) for name in decoders)
    return decodes, hashed / len(data)


def cpu_seconds(*pids: int) -> float:
    ticks = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # of the process, and of its children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in process_tree(int(child)))]


async def turn_cpu(server: PostgresServer, folder: Path, turns: int) -> tuple[float, float]:
    """Return the CPU milliseconds of a short turn in the daemon and in PostgreSQL."""
    with daemon_process(folder / "home", {"LOOM_STORE__URL": server.empty_database()}) as house:
        async with house.client() as client:
            session = await client.session()
            for _ in range(3):
                await session.send("!echo three short words")
            postgres = server.pid
            before = cpu_seconds(house.pid), cpu_seconds(*process_tree(postgres))
            for _ in range(turns):
                await session.send("!echo three short words")
            after = cpu_seconds(house.pid), cpu_seconds(*process_tree(postgres))
    first, second = ((late - early) / turns * 1000 for early, late in zip(before, after, strict=True))
    return first, second


def main() -> None:
    if sys.argv[1:2] == [PROFILED]:
        run_profiled(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help="for the figures of CPU")
    turns = parser.parse_args().turns
    rows = [
        Row('`loom "…" -a x.png`: modules / functions', "128 / 892", "{} / {}".format(*command_crossings())),
        Row("in the daemon: modules / functions", "67 / 407", "{} / {}".format(*asyncio.run(daemon_crossings()))),
        Row("hops per token", "16", str(asyncio.run(token_hops()))),
        Row("database jobs / commits of a short turn", "29 / 16", "{} / {}".format(*asyncio.run(database_jobs()))),
        Row("decodes / hashes of an image", "2 / 4", "{} / {:.1f}".format(*asyncio.run(image_work()))),
    ]
    with postgres_server() as server, tempfile.TemporaryDirectory() as folder:
        daemon_ms, postgres_ms = asyncio.run(turn_cpu(server, Path(folder), turns))
    rows.append(
        Row("CPU of a short turn: daemon / PostgreSQL", "70 / 30 ms", f"{daemon_ms:.0f} / {postgres_ms:.0f} ms")
    )
    print("| | before | now |\n|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.before} | {row.now} |")


if __name__ == "__main__":
    main()
