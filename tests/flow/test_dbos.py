"""Turns on DBOS: steps are recorded once and are small; another process continues; kills lose and repeat nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from flow.test_killed_turns import check_kills, config_of
from loom.content.blocks import ToolCall
from loom.errors import ConfigError, ExtraMissing
from loom.events import DecoderEvent, TextDelta, ToolStarted, TurnFailed, TurnFinished, TurnStarted
from loom.prompt import Prompt
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png
from loom.tools.base import Tool, tool
from postgres_server import PostgresServer, postgres_server

MODEL = "anthropic/claude-opus-5"
KILLS = 10


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def server(postgres: PostgresServer) -> str:
    return postgres.empty_database()


@pytest.fixture
def settings(server: str) -> dict[str, str]:
    return {"LOOM_STORE__URL": server, "LOOM_TURN__ENGINE": "dbos"}


def rows(url: str, statement: LiteralString, *given: str) -> Sequence[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement, given).fetchall()


def workflow_state(url: str, turn: str) -> str:
    ((state,),) = rows(url, "SELECT status FROM loom_dbos.workflow_status WHERE workflow_uuid LIKE %s", f"%/{turn}")
    return str(state)


def recorded(url: str, turn: str) -> list[tuple[str, str]]:
    found = rows(
        url,
        "SELECT function_name, output FROM loom_dbos.operation_outputs"
        " WHERE workflow_uuid LIKE %s ORDER BY function_id",
        f"%/{turn}",
    )
    return [(str(name), str(output)) for name, output in found]


class SlowProvider(ScriptedProvider):
    """Takes a moment between two words."""

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        async for event in super().stream(prompt):
            yield event
            await asyncio.sleep(0.2)


def picture_tool() -> Tool:
    @tool
    async def look_around() -> list[str | bytes]:
        """Return a picture and many words."""
        return ["words " * 5_000, sample_png(400, 300)]

    return look_around


async def test_a_turn_is_a_workflow_whose_steps_stay_small_whatever_was_seen(
    tmp_path: Path, server: str, settings: dict[str, str]
) -> None:
    script = [[ToolCall(f"call-{at}", "look_around", {})] for at in range(5)]
    async with Runtime.open(
        config_of(tmp_path, settings),
        providers={"anthropic": ScriptedProvider([*script, "I have seen it. " * 1_000])},
        tools={"look_around": picture_tool()},
    ) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("look", sample_png(300, 200))]
    (turn,) = [event.turn for event in events if isinstance(event, TurnStarted)]
    assert workflow_state(server, turn) == "SUCCESS"
    steps = recorded(server, turn)
    assert [name for name, _ in steps] == [
        *(name for at in range(1, 6) for name in (f"answer-{at}", f"calls-{at}")),
        "answer-6",
    ]
    assert max(len(output) for _, output in steps) < 2_000


async def test_a_turn_that_a_stopped_process_left_goes_on_in_its_workflow(
    tmp_path: Path, server: str, settings: dict[str, str]
) -> None:
    call = [ToolCall("call-1", "look_around", {})]
    async with Runtime.open(
        config_of(tmp_path, settings),
        providers={"anthropic": SlowProvider([call, ["one ", "two ", "three "]])},
        tools={"look_around": picture_tool()},
    ) as runtime:
        session = await runtime.session(model=MODEL)
        turn = ""
        async with session.stream("look") as events:
            async for event in events:
                if isinstance(event, TurnStarted):
                    turn = event.turn
                if isinstance(event, TextDelta):
                    await session.leave()
        assert workflow_state(server, turn) == "PENDING"
        assert [name for name, _ in recorded(server, turn)] == ["answer-1", "calls-1"]
    async with Runtime.open(
        config_of(tmp_path, settings),
        providers={"anthropic": ScriptedProvider(["and four"])},
        tools={"look_around": picture_tool()},
    ) as runtime:
        again = [event async for event in (await runtime.session(session.id)).resume()]
    assert not [event for event in again if isinstance(event, ToolStarted)]
    assert isinstance(again[-1], TurnFinished)
    assert workflow_state(server, turn) == "SUCCESS"
    assert [name for name, _ in recorded(server, turn)] == ["answer-1", "calls-1", "answer-2"]


async def test_a_cancelled_turn_is_not_continued(tmp_path: Path, server: str, settings: dict[str, str]) -> None:
    async with Runtime.open(
        config_of(tmp_path, settings), providers={"anthropic": SlowProvider([["one ", "two ", "three "], "back"])}
    ) as runtime:
        session = await runtime.session(model=MODEL)
        seen = []
        async with session.stream("say something") as events:
            async for event in events:
                seen.append(event)
                if isinstance(event, TextDelta):
                    await session.cancel()
        (turn,) = [event.turn for event in seen if isinstance(event, TurnStarted)]
        assert isinstance(seen[-1], TurnFailed)
        assert workflow_state(server, turn) == "CANCELLED"
        assert (await session.send("are you there?")).text == "back"


async def test_kills_on_dbos_lose_nothing_that_was_told_and_run_nothing_twice(
    tmp_path: Path, server: str, settings: dict[str, str]
) -> None:
    await check_kills(tmp_path, KILLS, 20261117, settings)
    async with Runtime.open(config_of(tmp_path, settings)):
        pass
    states = {str(state) for (state,) in rows(server, "SELECT DISTINCT status FROM loom_dbos.workflow_status")}
    assert states <= {"SUCCESS", "CANCELLED"}, "every workflow has ended"


async def test_what_is_missing_is_said_with_what_to_do(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="needs a PostgreSQL store") as no_server:
        async with Runtime.open(config_of(tmp_path, {"LOOM_TURN__ENGINE": "dbos"})):
            pass
    assert "store.url" in no_server.value.hint
    async with Runtime.open(config_of(tmp_path, settings)):
        with pytest.raises(ConfigError, match="Another runtime of this process"):
            async with Runtime.open(config_of(tmp_path, settings)):
                pass
    monkeypatch.setitem(sys.modules, "dbos", None)
    with pytest.raises(ExtraMissing) as no_package:
        async with Runtime.open(config_of(tmp_path, settings)):
            pass
    assert "loom-runtime[dbos]" in no_package.value.hint
