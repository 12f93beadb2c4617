"""A database that cannot be reached for a moment, before or after it has written: a turn goes on, and every word is in
the log once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.errors import Unreachable
from loom.events import DecoderEvent, Stopped, TextDelta, ToolStarted, TurnFinished, decode_event
from loom.prompt import Prompt, ShownResult
from loom.runtime import Runtime, record
from loom.testing import events_of
from loom.tools.base import tool

MODEL = "anthropic/claude-opus-5"
WORDS = ["again ", "and ", "again "] * 10


class Repeater:
    """Says the same words over and over, at a pace that makes several writes of them."""

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        if not any(isinstance(block, ShownResult) for block in prompt.messages[-1].blocks):
            for event in events_of([ToolCall("call-1", "leave", {})]):
                yield event
            return
        for word in WORDS:
            await asyncio.sleep(0.02)
            yield TextDelta(text=word)
        yield Stopped(reason="end")


def failing(write: Callable[..., Awaitable[Any]], chance: random.Random) -> Callable[..., Awaitable[Any]]:
    async def written(*given: Any, **named: Any) -> Any:
        fault = chance.random()
        if fault < 0.2:
            raise Unreachable("the database does not answer")
        result = await write(*given, **named)
        if fault < 0.4:
            raise Unreachable("the connection was lost")
        return result

    return written


@pytest.mark.parametrize("seed", range(4))
async def test_a_database_that_comes_and_goes_loses_and_doubles_no_word(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_RETRY_SECONDS", 0.01)
    ran: list[int] = []

    @tool
    async def leave() -> str:
        """Leave a mark that cannot be taken back."""
        ran.append(1)
        return "left"

    async with Runtime.open(
        load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}),
        providers={"anthropic": Repeater()},
        tools=[leave],
    ) as runtime:
        session = await runtime.session(model=MODEL)
        whole = runtime.stores.database.write
        seen = []
        async with session.stream("go on") as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    runtime.stores.database.write = failing(whole, random.Random(seed))
                seen.append(event)
        runtime.stores.database.write = whole
        stored = await runtime.stores.events.after(session.id, 0, limit=10_000)
        logged = [decode_event(event.data) for event in stored]
        answer = (await session.path())[-1].text
    assert isinstance(seen[-1], TurnFinished)
    assert ran == [1]
    assert answer == "".join(WORDS)
    for events in (seen, logged):
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == answer
    assert sum(isinstance(event, TurnFinished) for event in logged) == 1
