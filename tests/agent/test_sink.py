"""The writer of a turn's events ends with the turn."""

from __future__ import annotations

import asyncio

import pytest

import loom
from loom.errors import LoomError, Refused
from loom.testing import ScriptedProvider, memory_runtime

MODEL = "anthropic/claude-opus-5"


@pytest.mark.parametrize("answer", ["A word.", Refused("It failed.")])
async def test_a_turn_that_is_over_leaves_no_task(monkeypatch: pytest.MonkeyPatch, answer: str | Refused):
    monkeypatch.setattr("loom.agent.sink._WRITES_PER_SECOND", 0.001)  # the writer waits for its next moment
    async with memory_runtime(providers={"anthropic": ScriptedProvider([answer])}) as runtime:
        session = await runtime.session(model=MODEL)
        before = asyncio.all_tasks()
        try:
            await session.send("Say a word.")
        except LoomError:
            assert isinstance(answer, Refused)
        assert {task.get_name() for task in asyncio.all_tasks() - before} == set()


def test_closing_the_library_ends_the_tasks_that_are_left():
    lm = loom.Loom(model=MODEL, provider=ScriptedProvider([]))

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(1e6))

    task = lm.run(start())
    lm.close()
    assert task.cancelled()
