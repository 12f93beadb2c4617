"""Measure the cost of the sandbox: `run_command` with `true`, compared with a bare shell and with no sandbox.

python -m benchmarks.sandbox
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from loom.tools.commands import command_tool
from loom.tools.sandbox import Sandbox, SandboxSettings, SandboxState, sandbox_state

ROUNDS = 40


class Context:
    """The part of a tool's context that `run_command` uses."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    async def emit(self, text: str, *, fraction: float | None = None) -> None: ...


async def measure(workspace: Path) -> dict[str, float]:
    """Return the medians of interleaved rounds, in milliseconds."""
    context = Context(workspace)
    tools = {
        "run_command, no sandbox": command_tool(Sandbox(SandboxSettings(mode="off"))),
        "run_command, bubblewrap": command_tool(Sandbox(state=SandboxState("bubblewrap", ""))),
        "run_command, Landlock": command_tool(Sandbox(state=SandboxState("landlock", ""))),
    }
    if sandbox_state().kind != "bubblewrap":
        del tools["run_command, bubblewrap"]
    times: dict[str, list[float]] = {name: [] for name in ("sh -c true", *tools)}
    for _ in range(ROUNDS):
        began = time.perf_counter()
        plain = await asyncio.create_subprocess_exec("/bin/sh", "-c", "true", cwd=workspace)
        await plain.wait()
        times["sh -c true"].append((time.perf_counter() - began) * 1000)
        for name, tool in tools.items():
            began = time.perf_counter()
            await tool.run(context, {"command": "true"})  # type: ignore[arg-type]
            times[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder)))
    unsandboxed = found["run_command, no sandbox"]
    print(f"{'':26}{'median ms':>10}{'above no sandbox':>18}")
    for name, median in found.items():
        print(f"{name:26}{median:>10.1f}{median - unsandboxed:>18.1f}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
