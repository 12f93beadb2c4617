"""Turns in a daemon: accepted on disk, one after the other, ended cleanly however they end."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from daemon.running import TOKEN, Served, served, serving, until, until_true
from loom.agent.gate import Allow
from loom.client import RemoteSession
from loom.config import load_config
from loom.content.messages import assistant, broken_pairs, user
from loom.daemon.problems import Draining
from loom.daemon.turns import BEGINNING, Turns
from loom.errors import LoomError, NotFound
from loom.events import (
    ApprovalRequested,
    Event,
    TextDelta,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    decode_event,
)
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.store.database import Database
from loom.testing import ScriptedProvider, sample_png
from loom.tools.base import ToolContext, tool


@tool(danger="ask")
async def mark(context: ToolContext, word: str) -> str:
    """Write a word into a file, once for each call."""
    with (context.workspace / "marks").open("a") as file:
        file.write(f"{word}\n")
    return "marked"


async def all_events(daemon: Served, session_id: str) -> list[Event]:
    stored = await daemon.runtime.stores.events.after(session_id, 0, limit=100_000)
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    return [decode_event(event.data) for event in stored]


async def idle(daemon: Served, session_id: str) -> None:
    async def is_idle() -> bool:
        state = (await daemon.runtime.library.info(session_id)).state
        return state == "idle" and not daemon.app.daemon.turns.active

    await until_true(is_idle)


async def check_ended(daemon: Served, session_id: str) -> None:
    """Every turn that began has ended, once; every call is answered."""
    events = await all_events(daemon, session_id)
    begun = [event.turn for event in events if isinstance(event, TurnStarted)]
    ended = [event.turn for event in events if isinstance(event, TurnFinished | TurnFailed)]
    assert len(begun) == len(set(begun))
    assert set(begun) <= set(ended)
    assert len(ended) == len(set(ended))
    assert broken_pairs(await (await daemon.runtime.session(session_id)).path()) == ()


async def test_messages_that_come_at_once_are_all_kept_and_answered_one_after_the_other() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        posted = await asyncio.gather(
            *(session.post(f"!echo {number}", sample_png(20, number + 5)) for number in range(12))
        )
        assert len({queued.id for queued in posted}) == 12
        await idle(daemon, session.id)
        path = await session.path()
        assert [message.role for message in path] == ["user", "assistant"] * 12
        said = [message.text.removeprefix("!echo ") for message in path[::2]]
        assert sorted(said, key=int) == [str(number) for number in range(12)]
        assert [message.text.split()[0] for message in path[1::2]] == said
        await check_ended(daemon, session.id)


async def test_the_same_message_sent_again_is_one_message() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        first = await asyncio.gather(*(session.post("!echo once", key="k") for _ in range(8)))
        await idle(daemon, session.id)
        late = await session.post("!echo once", key="k")
        assert {queued.id for queued in first} == {late.id}
        assert late.node
        other = await session.post("!echo once", key="another")
        assert other.id != late.id
        await idle(daemon, session.id)
        assert [message.text for message in await session.path()] == ["!echo once", "once"] * 2


async def test_a_turn_is_cancelled_at_any_point_and_the_session_goes_on() -> None:
    async with served(tools=[mark], approve=lambda _: Allow()) as daemon, daemon.client() as client:
        session = await client.session(workspace=daemon.runtime.config.home)
        points = random.Random(7)
        for number in range(25):
            said = f"!slow 400tps\n!think 20ms\n!tool mark {number}\n!tokens 40"
            await session.post(said, sample_png(30, 30))
            await asyncio.sleep(points.uniform(0, 0.3))
            await session.cancel()
        await idle(daemon, session.id)
        # A last message that was cancelled before its first word is answered together with this one.
        assert "and on" in (await session.send("!echo and on")).text
        await check_ended(daemon, session.id)
        path = await session.path()
        assert len([message for message in path if message.role == "user"]) == 26
        marks = (Path(daemon.runtime.config.home) / "marks").read_text().split()
        assert len(marks) == len(set(marks))
        codes = {event.code for event in await all_events(daemon, session.id) if isinstance(event, TurnFailed)}
        assert codes == {"turn.cancelled"}


async def test_a_turn_that_is_named_is_cancelled_and_no_other() -> None:
    async with served() as daemon, daemon.client() as client, httpx2.AsyncClient(base_url=daemon.url) as http:
        http.headers["authorization"] = f"Bearer {TOKEN}"
        session = await client.session()

        async def said() -> str:
            """The name of a turn that runs for a while."""
            body = {"message": "!slow 20tps\n!tokens 500"}
            turn: str = (await http.post(f"/v1/sessions/{session.id}/messages", json=body)).json()["turn"]
            return turn

        async def cancel(**body: str) -> None:
            answer = await http.post(f"/v1/sessions/{session.id}/cancel", json=body or None)
            assert answer.status_code == 202

        first = await said()
        await cancel(turn=first)
        await idle(daemon, session.id)
        second = await said()
        for other in (first, "no turn"):
            await cancel(turn=other)
            assert (await daemon.runtime.library.info(session.id)).state == "running"
        await cancel()
        await idle(daemon, session.id)
        ended = [event for event in await all_events(daemon, session.id) if isinstance(event, TurnFailed)]
        assert [(event.turn, event.code) for event in ended] == [(first, "turn.cancelled"), (second, "turn.cancelled")]


async def test_turns_that_cannot_begin_hold_up_neither_the_messages_nor_the_turns_of_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        entry = {"provider": "compatible", "model": "m", "base_url": address}
        async with served({"models": {"silent": entry}}) as daemon, daemon.client() as client:
            stuck = [await client.session(model="silent") for _ in range(BEGINNING + 2)]
            posted = await asyncio.gather(*(session.post("anybody?") for session in stuck))
            assert all(queued.answers_left and not queued.node for queued in posted)
            assert (await (await client.session()).send("!echo here")).text == "here"
            assert daemon.app.daemon.turns.active == len(stuck)
            for session in stuck:
                await session.cancel()
            await until(lambda: not daemon.app.daemon.turns.active)


async def test_an_answer_that_is_stored_and_not_yet_told_is_not_shown_twice() -> None:
    async with served() as daemon, daemon.client() as client:
        runtime, session = daemon.runtime, await client.session()
        await runtime.stores.sessions.append_to_head(session.id, [user("what?")])
        told: list[Event] = [TurnStarted(turn="t", model="loom/spark"), TextDelta(index=0, text="this")]
        await runtime.stores.events.append(session.id, told)
        await runtime.stores.sessions.update(session.id, settings={"running": {"turn": "t"}})
        before = await (await daemon.runtime.library.open(session.id)).history()
        assert before.running is not None and len(before.running.partial) == 2
        await runtime.stores.sessions.append_to_head(session.id, [assistant("this")])
        after = await (await daemon.runtime.library.open(session.id)).history()
        assert after.running is not None and after.running.partial == ()
        assert len(after.messages) == 2


async def asked(session: RemoteSession) -> ApprovalRequested:
    async for _, event in session.events():
        if isinstance(event, ApprovalRequested):
            return event
    raise AssertionError


async def test_an_approval_is_answered_once_and_only_while_somebody_waits() -> None:
    async with served(tools=[mark]) as daemon, daemon.client() as client:
        session = await client.session(workspace=daemon.runtime.config.home)
        await session.post("!tool mark yes")
        request = await asked(session)
        assert (await daemon.runtime.library.info(session.id)).state == "waiting"
        assert await session.approvals() == (request,)
        with pytest.raises(LoomError, match="no longer pending") as refused:
            await session.answer("no such approval", "once")
        assert refused.value.code == "approval.gone"
        await session.answer(request.approval, "once")
        await idle(daemon, session.id)
        assert (Path(daemon.runtime.config.home) / "marks").read_text() == "yes\n"
        with pytest.raises(LoomError, match="no longer pending"):
            await session.answer(request.approval, "once")


async def test_more_answers_are_siblings_and_regenerating_survives_in_the_queue() -> None:
    async with (
        served(providers={"anthropic": ScriptedProvider(["one", "two", "three", "four", "five"])}) as daemon,
        daemon.client() as client,
    ):
        session = await client.session(model="anthropic/claude-opus-5")
        reply = await session.send("count", n=3)
        assert [answer.text for answer in (*reply.siblings, reply)] == ["one", "two", "three"]
        events = [event async for event in session.regenerate(n=2)]
        assert len([event for event in events if isinstance(event, TurnFinished)]) == 2
        path = await daemon.runtime.stores.forest.path(await session.head())
        assert len(await daemon.runtime.stores.forest.children(path[-2].id)) == 5
        assert len(path) == 3


async def test_a_session_that_is_deleted_in_mid_turn_takes_nobody_down() -> None:
    async with served() as daemon, daemon.client() as client:
        doomed, other = await client.session(), await client.session()
        await doomed.post("!slow 20tps\n!tokens 400")
        await until(lambda: daemon.app.daemon.turns.active == 1)
        await doomed.delete()
        assert (await other.send("!echo here")).text == "here"
        await until(lambda: not daemon.app.daemon.turns.active)
        with pytest.raises(NotFound):
            await doomed.post("anybody?")


async def test_a_daemon_that_stops_leaves_approvals_open_and_hands_other_turns_over(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"model": "loom/spark"})
    async with (
        Runtime.open(config, tools=[mark]) as runtime,
        serving(runtime) as daemon,
        daemon.client(patience_seconds=0) as client,
    ):
        waiting = await client.session(workspace=str(tmp_path))
        talking = await client.session()
        await waiting.post("!tool mark late")
        request = await asked(waiting)
        await talking.post("!slow 20tps\n!tokens 80")
        await talking.post("!echo after all")
        await until(lambda: daemon.app.daemon.turns.active == 2)
        await asyncio.sleep(0.3)
        await daemon.app.daemon.turns.stop(0.1)
        with pytest.raises(Draining):
            await daemon.app.daemon.turns.post(await runtime.library.open(talking.id), "too late")
        assert not daemon.app.daemon.turns.active
        assert not await runtime.stores.leases.holder(waiting.id)
        assert (await daemon.runtime.library.info(waiting.id)).state == "waiting"
    async with Runtime.open(config, tools=[mark]) as runtime, serving(runtime) as daemon, daemon.client() as client:
        waiting = await client.session(waiting.id)
        assert [open_.approval for open_ in await waiting.approvals()] == [request.approval]
        await waiting.answer(request.approval, "once")
        await idle(daemon, waiting.id)
        await idle(daemon, talking.id)
        assert (tmp_path / "marks").read_text() == "late\n"
        path = await (await client.session(talking.id)).path()
        assert [message.role for message in path] == ["user", "assistant", "assistant", "user", "assistant"]
        assert path[-1].text == "after all"
        assert f"{path[1].text}{path[2].text}".startswith("This is sentence 1 of a long answer"), "nothing is lost"
        for session_id in (waiting.id, talking.id):
            await check_ended(daemon, session_id)


async def test_a_short_turn_takes_few_database_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is posted, answered and watched: 14 jobs and 5 commits at most. On a busy machine events are
    written in more batches, so the best of a few turns counts."""
    monkeypatch.setattr("loom.agent.lease.HEARTBEAT_SECONDS", 3600.0)  # how many beats a turn has depends on load
    async with served() as daemon:
        session = await daemon.runtime.session()
        turns, database = daemon.app.daemon.turns, daemon.runtime.stores.database
        await turns.post(session, "warm up")
        await idle(daemon, session.id)
        jobs: list[str] = []
        for name in ("write", "read", "select"):
            _count(monkeypatch, database, name, jobs)
        counts: list[tuple[int, int]] = []
        for _ in range(5):
            jobs.clear()
            async with daemon.app.daemon.feeds.watch(session.id):
                await turns.post(await daemon.runtime.library.open(session.id), "!echo three short words")
                await until_true(lambda: _is_idle(turns))
            counts.append((len(jobs), jobs.count("write")))
        fewest, commits = min(counts)
        assert fewest <= 14 and commits <= 5, counts


async def _is_idle(turns: Turns) -> bool:
    return not turns.active


def _count(monkeypatch: pytest.MonkeyPatch, database: Database, name: str, jobs: list[str]) -> None:
    original = getattr(database, name)

    async def counted(*given: Any, **named: Any) -> Any:
        jobs.append(name)
        return await original(*given, **named)

    monkeypatch.setattr(database, name, counted)


async def test_a_bug_in_one_session_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as daemon:
        broken, sound = [await daemon.runtime.session() for _ in range(2)]
        opened = daemon.runtime.library.open

        async def open_with_a_bug(session_id: str, **options: Any) -> LocalSession:
            if session_id == broken.id:
                raise ZeroDivisionError
            return await opened(session_id, **options)

        monkeypatch.setattr(daemon.runtime.library, "open", open_with_a_bug)
        await broken.post("!echo never")
        await until(lambda: "could not be resumed" in caplog.text)
        await sound.post("!echo found")  # only polling finds it
        async with daemon.client() as client:

            async def is_answered() -> bool:
                return "found" in (await sound.path())[-1].text if await sound.path() else False

            await until_true(is_answered)
            assert (await (await client.session()).send("!echo hello")).text == "hello"
        assert "ZeroDivisionError" in caplog.text
