"""What one short turn costs: modules and functions that it crosses, database jobs, commits, CPU.

python -m benchmarks.turn

A three-word answer of a scripted model in a session on SQLite. Functions of the event loop's thread are counted, once
each, with a profile hook.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from loom.config import load_config
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png

MODEL = "anthropic/claude-opus-5"
SOURCE = str(Path(__file__).resolve().parents[1] / "src" / "loom")


class Calls:
    """Every function of Loom that is entered."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            self.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    @property
    def modules(self) -> int:
        return len({file for file, _, _ in self.functions})


async def measure(*, picture: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(cwd=Path(folder), environ={"LOOM_HOME": folder})
        async with Runtime.open(
            config, providers={"anthropic": ScriptedProvider(["three short words"] * 12)}
        ) as runtime:
            session = await runtime.session(model=MODEL)
            await session.send("warm up")
            jobs = {"write": 0, "read": 0, "select": 0}
            for name in jobs:
                original = getattr(runtime.database, name)

                async def counted(*given: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
                    jobs[_name] += 1
                    return await _original(*given, **named)

                setattr(runtime.database, name, counted)
            content = ["hello", sample_png(64, 48)] if picture else ["hello"]
            calls = Calls()
            sys.setprofile(calls)
            async for _ in session.stream(*content):
                pass
            sys.setprofile(None)
            once = dict(jobs)
            began = time.process_time()
            for _ in range(10):
                await session.send("hello")
            cpu = (time.process_time() - began) / 10
            what = "a short turn with a picture" if picture else "a short turn"
            print(
                f"{what}: {calls.modules} modules, {len(calls.functions)} functions,"
                f" {sum(once.values())} database jobs, {once['write']} commits, {cpu * 1000:.1f} ms of CPU"
            )


if __name__ == "__main__":
    asyncio.run(measure(picture=False))
    asyncio.run(measure(picture=True))
