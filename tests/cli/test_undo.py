"""`loom undo` as a person uses it, after an agent changed files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.loom_command import Loom
from loom.agent.gate import Allow
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.runtime import Runtime
from loom.testing import ScriptedProvider


async def change_files(loom: Loom) -> None:
    config = load_config(cwd=loom.folder, environ={"LOOM_HOME": str(loom.home)})
    async with Runtime.open(
        config,
        providers={
            "anthropic": ScriptedProvider(
                [
                    ToolCall("c1", "read_file", {"path": "a.txt"}),
                    ToolCall("c2", "edit_file", {"path": "a.txt", "old": "one", "new": "1"}),
                    ToolCall("c3", "write_file", {"path": "b.txt", "content": "new\n"}),
                    "Done.",
                ]
            )
        },
        tools="all",
        approve=lambda _: Allow(),
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5", workspace=str(loom.folder))
        await session.send("go")


def test_undo_lists_the_steps_and_restores_the_files(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.folder / "a.txt").write_text("one\n")
    asyncio.run(change_files(loom))

    assert loom("undo", "--list").out == "   1  a.txt\n   2  b.txt\n"
    assert loom("undo").out == "b.txt was removed: it was new\n"
    assert loom("undo", "--list").out == "   1  a.txt\n   2  b.txt  (undone)\n"
    assert loom("undo", "1", "--json").rows[0]["steps"] == [1]
    assert (loom.folder / "a.txt").read_text() == "one\n"
    assert not (loom.folder / "b.txt").exists()
    assert "Nothing to undo" in loom("undo").err


def test_an_undo_that_leaves_the_files_alone_fails(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.folder / "a.txt").write_text("one\n")
    asyncio.run(change_files(loom))
    (loom.folder / "b.txt").write_text("mine\n")

    left = loom("undo")

    assert left.out == "b.txt was not changed: another program has changed or removed it since\n"
    assert left.code == 1
    assert (loom.folder / "b.txt").read_text() == "mine\n"
    assert loom("undo", "--list").out == "   1  a.txt\n   2  b.txt\n"
