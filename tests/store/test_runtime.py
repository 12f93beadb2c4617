"""What the runtime keeps with a session, frees with it, and refuses before anything is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.errors import ConfigError, Unreachable
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.base import tool

MODEL = "anthropic/claude-opus-5"


@tool
def recite(word: str) -> str:
    """Say a word far too often."""
    return f"{word} " * 40_000


async def stored(runtime: Runtime) -> set[str]:
    return {found.digest async for found in runtime.stores.media.listing()}


async def test_a_long_output_goes_with_the_last_session_that_holds_it() -> None:
    calls = [ToolCall("1", "recite", {"word": "mine"}), ToolCall("2", "recite", {"word": "both"})]
    async with memory_runtime(
        {"approval": {"default": "allow"}},
        providers={"anthropic": ScriptedProvider([*calls, "done", calls[1], "done"])},
        tools=[recite, "look"],  # by which the rest is read
    ) as runtime:
        one, two = await runtime.session(model=MODEL), await runtime.session(model=MODEL)
        await one.send("go")
        before = await stored(runtime)
        await two.send("you, too")
        assert await stored(runtime) == before
        assert len(before) == 2
        assert await runtime.library.delete(one.id) > 0
        (left,) = await stored(runtime)
        assert (await runtime.stores.media.load(left)).startswith(b"both")
        await runtime.library.delete(two.id)
        assert await stored(runtime) == set()


async def test_the_instructions_that_sessions_share_stay_until_the_last_one_goes(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be kind.")
    async with memory_runtime(instructions=True) as runtime:
        one, two = [await runtime.session(workspace=str(tmp_path)) for _ in range(2)]
        assert len(await stored(runtime)) == 1
        await runtime.library.delete(one.id)
        assert len(await stored(runtime)) == 1
        await runtime.library.delete(two.id)
        assert await stored(runtime) == set()


async def test_a_session_with_a_model_that_does_not_exist_is_not_made() -> None:
    async with memory_runtime() as runtime:
        with pytest.raises(ConfigError, match="Model 'nope' not found"):
            await runtime.session(model="nope")
        assert await runtime.stores.sessions.list() == ()


async def test_a_store_that_cannot_be_opened_is_named_to_who_opens_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    config = load_config(cwd=tmp_path, environ={}, flags={"home": str(home)})
    with pytest.raises(Unreachable) as caught:
        async with Runtime.open(config):
            pass
    assert str(home / "loom.db") in caught.value.hint


def test_a_folder_whose_name_is_not_utf8_is_named_and_nothing_is_stored(tmp_path: Path) -> None:
    """In a process of its own: the folder is the working directory."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    environ = {**os.environ, "LOOM_HOME": str(tmp_path / "home"), "LOOM_OFFLINE": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name("loom"), "ask", "hi"], cwd=folder, env=environ, capture_output=True, check=False
    )
    words = " ".join(done.stderr.decode().split())
    assert done.returncode != 0
    assert f"The folder {tmp_path}/caf\\xe9 has a name that is not UTF-8" in words
    assert "Rename it" in words
