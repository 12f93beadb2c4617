"""PostgreSQL that is stopped, crashes or is cut off at any statement of a turn, for less than a lease: the turn goes
on, no call runs twice, and every word is in the log once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import media_of
from loom.errors import Unreachable
from loom.events import DecoderEvent, NoticeRaised, TextDelta, TurnFailed, TurnFinished, TurnStarted, decode_event
from loom.prompt import Prompt, ShownResult
from loom.runtime import Runtime
from loom.testing import events_of, sample_png
from loom.tools.base import tool
from postgres_server import PostgresServer, postgres_server
from unsteady_postgres import FAULTS, Fault, unsteady_postgres

MODEL = "anthropic/claude-opus-5"
WORDS: Final = "word after word"
AWAY_SECONDS: Final = 0.3
POINTS: Final = 16


class TwoSteps:
    """Makes a call, then says a few words."""

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        is_called = any(isinstance(block, ShownResult) for block in prompt.messages[-1].blocks)
        for event in events_of(WORDS if is_called else ToolCall("call-1", "leave", {})):
            yield event


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_database_that_fails_at_any_statement_of_a_turn_ends_none(
    tmp_path: Path, server: PostgresServer, fault: Fault
) -> None:
    ran: list[int] = []

    @tool
    async def leave() -> str:
        """Leave a mark that cannot be taken back."""
        ran.append(1)
        return "left"

    server.empty_database()
    async with unsteady_postgres(server.port) as door:
        config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path), "LOOM_STORE__URL": door.url})
        async with Runtime.open(config, providers={"anthropic": TwoSteps()}, tools=[leave]) as runtime:

            async def turn(after_messages: int) -> int:
                """Return how many messages a turn took; the server breaks after some of them."""
                ran.clear()
                session = await runtime.session(model=MODEL)
                before = door.messages
                if after_messages:
                    door.arm(fault, after_messages, AWAY_SECONDS)
                try:
                    reply = await session.send("go on", sample_png(30, after_messages + 10))
                except Unreachable:
                    assert await door.disarm()
                    logged = [decode_event(event.data) for event in await runtime.stores.events.after(session.id, 0)]
                    assert not any(isinstance(event, TurnStarted) for event in logged), (after_messages, logged)
                    reply = await session.send("go on", sample_png(30, after_messages + 10))
                messages = door.messages - before
                has_broken = bool(after_messages) and await door.disarm()
                logged = [decode_event(event.data) for event in await runtime.stores.events.after(session.id, 0)]
                assert reply.text == WORDS
                assert ran == [1]
                assert [message.role for message in await session.path()] == ["user", "assistant", "tool", "assistant"]
                assert len(media_of((await session.path())[0])) == 1
                assert "".join(event.text for event in logged if isinstance(event, TextDelta)) == WORDS
                assert sum(isinstance(event, TurnFinished) for event in logged) == 1
                assert not [event for event in logged if isinstance(event, TurnFailed | NoticeRaised)]
                return messages if has_broken or not after_messages else 0

            whole = max([await turn(0) for _ in range(2)])
            broken = [await turn(1 + whole * point // POINTS) for point in range(POINTS)]
    assert sum(map(bool, broken)) > POINTS // 2
