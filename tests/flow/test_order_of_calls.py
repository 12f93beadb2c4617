"""Any calls of one step leave the files that the same calls would leave one after another."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.base import Tool, tool

MODEL = "anthropic/claude-opus-5"


def tools_for(folder: Path) -> dict[str, Tool]:
    @tool
    def append(path: str, line: str) -> str:
        """Read a file, add a line, write it whole."""
        file = folder / path
        before = file.read_text() if file.exists() else ""
        file.write_text(f"{before}{line}\n")
        return f"{len(before.splitlines())} lines before"

    @tool
    async def copy(path: str, to: str) -> str:
        """Copy a file."""
        source = folder / path
        (folder / to).write_text(source.read_text() if source.exists() else "nothing")
        return "copied"

    @tool(reads_only=True)
    async def show(path: str) -> str:
        """Show a file."""
        file = folder / path
        return file.read_text() if file.exists() else "nothing"

    return {found.name: found for found in (append, copy, show)}


def calls_of(dice: random.Random) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for number in range(dice.randrange(2, 14)):
        path = f"{dice.choice('ab')}.txt"
        match dice.choice(("append", "append", "copy", "show")):
            case "append":
                calls.append(ToolCall(f"c{number}", "append", {"path": path, "line": f"line {number}"}))
            case "copy":
                calls.append(ToolCall(f"c{number}", "copy", {"path": path, "to": f"{dice.choice('abc')}.txt"}))
            case _:
                calls.append(ToolCall(f"c{number}", "show", {"path": path}))
    return calls


async def outcome(folder: Path, steps: list[list[ToolCall]]) -> tuple[dict[str, str], list[str]]:
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([*steps, "Done."])}, tools=tools_for(folder)
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("go")
        results = [text_of(result) for message in await session.path() for result in message.results]
    return contents(folder), results


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("seed", range(25))
async def test_calls_of_a_step_are_the_calls_one_after_another(tmp_path: Path, seed: int) -> None:
    calls = calls_of(random.Random(seed))
    for name in ("together", "apart"):
        (tmp_path / name).mkdir()
    together = await outcome(tmp_path / "together", [calls])
    apart = await outcome(tmp_path / "apart", [[call] for call in calls])
    assert together == apart
