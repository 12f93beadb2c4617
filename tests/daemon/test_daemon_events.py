"""Envelopes: what a watcher is sent is what is stored, joined where it may be, and as the reference says."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from daemon.running import Served, served, serving, until
from loom.config import load_config
from loom.daemon.asyncapi import asyncapi_document
from loom.daemon.envelopes import Composer, EncodedEnvelope
from loom.daemon.feeds import Feeds
from loom.errors import NotFound
from loom.events import CallDelta, Event, TextDelta, ThinkingDelta, ToolStarted, TurnFinished, encode_event
from loom.runtime import Runtime
from loom.store.events import StoredEvent
from loom.testing import sample_png
from patience import PATIENCE_SECONDS


def stored(*events: Event) -> list[StoredEvent]:
    return [StoredEvent(at, event.type, encode_event(event)) for at, event in enumerate(events, 1)]


async def composed(daemon: Served, session_id: str, events: list[StoredEvent]) -> list[dict[str, Any]]:
    composer = Composer(daemon.runtime.dispatch, daemon.app.daemon.feeds.previews, session_id)
    return [msgspec.json.decode(envelope.json) for envelope in await composer.compose(events)]


async def seen(feeds: Feeds, session_id: str, after: int = 0) -> list[EncodedEnvelope]:
    """Up to the end of the turn."""
    found: list[EncodedEnvelope] = []
    async with asyncio.timeout(PATIENCE_SECONDS), feeds.watch(session_id, after) as watch:
        while not found or found[-1].type not in ("turn_finished", "turn_failed"):
            found += await watch.take()
    return found


async def test_pieces_of_one_block_are_joined_and_nothing_else_is() -> None:
    pieces = [
        TextDelta(text="a"),
        TextDelta(text="b"),
        TextDelta(text="c", index=1),
        ThinkingDelta(text="d", index=1),
        CallDelta(index=2, arguments='{"x"'),
        CallDelta(index=2, arguments=":1}"),
        CallDelta(index=3, arguments="{}"),
    ]
    async with served() as daemon:
        made = await composed(daemon, "01ARZ3NDEKTSV4RRFFQ69G5FAV", stored(*pieces))
    assert [(one["seq"], one["type"], one["data"].get("text", one["data"].get("arguments"))) for one in made] == [
        (2, "text", "ab"),
        (3, "text", "c"),
        (4, "thinking", "d"),
        (6, "call", '{"x":1}'),
        (7, "call", "{}"),
    ]


async def test_a_damaged_event_is_told_as_such_and_the_rest_is_read() -> None:
    events = stored(
        TextDelta(text="a"), TextDelta(text="b"), TextDelta(text="c"), TextDelta(text="d"), TextDelta(text="e")
    )
    events[1] = StoredEvent(2, "text", b'{"type":"text","te')
    events[2] = StoredEvent(3, "tool_finished", b"{}")
    events[3] = StoredEvent(4, "turn_finished", b"\xff")
    async with served() as daemon:
        made = await composed(daemon, "01ARZ3NDEKTSV4RRFFQ69G5FAV", events)
    assert [one["type"] for one in made] == ["text", "notice", "notice", "notice", "text"]
    assert made[1]["data"]["text"] == "Event 2 of this session is damaged."


async def test_a_call_names_its_arguments_also_where_its_beginning_was_not_read(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(sample_png(32, 24))
    async with served(tools="all") as daemon, daemon.client() as client:
        session = await client.session(workspace=str(tmp_path))
        await session.send("!tool read_file shot.png")
        events = await daemon.runtime.stores.events.after(session.id, 0)
        began = next(event.seq for event in events if event.type == ToolStarted.__struct_config__.tag)
        made = await composed(daemon, session.id, list(await daemon.runtime.stores.events.after(session.id, began)))
        (called,) = [one for one in made if one["type"] == "tool_call"]
        assert (called["data"]["name"], called["data"]["arguments"]) == ("read_file", {"path": "shot.png"})
        nodes = [one["data"] for one in made if one["type"] == "message_stored"]
        path = await daemon.runtime.stores.forest.path(nodes[-1]["node"])
        assert [one["parent"] for one in nodes] == [node.parent_id for node in path[-len(nodes) :]]


async def test_everything_that_is_sent_is_as_the_reference_says(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(sample_png(32, 24))
    reference = asyncapi_document("1")
    messages = reference["components"]["messages"]
    async with served(tools="all") as daemon, daemon.client() as client:
        session = await client.session(workspace=str(tmp_path))
        await session.send("!think 10ms\n!image bars 1 2\n!tool read_file shot.png")
        kinds: set[str] = set()
        for envelope in await seen(daemon.app.daemon.feeds, session.id):
            schema = {**messages[envelope.type]["payload"], "components": reference["components"]}
            jsonschema.validate(msgspec.json.decode(envelope.json), schema)
            kinds.add(envelope.type)
        assert kinds > {"tool_call", "image", "text", "thinking", "message_stored", "step_finished", "turn_finished"}
        answer = await client._link.ask("GET", "/asyncapi.json")
        assert msgspec.json.decode(answer)["components"]["messages"].keys() == messages.keys()


async def test_a_fast_model_is_told_thirty_times_a_second_at_most() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        began = time.monotonic()
        watching = asyncio.create_task(seen(daemon.app.daemon.feeds, session.id))
        await session.send("!slow 500tps\n!tokens 500")
        found = await watching
        texts = [envelope for envelope in found if envelope.type == "text"]
        assert len(texts) <= (time.monotonic() - began) * 30 + 2
        assert len(texts) > 3
        await until(lambda: not daemon.app.daemon.feeds.watcher_count)
        late = await seen(daemon.app.daemon.feeds, session.id)
        assert len(late) < len(found)
        assert late[-1].seq == found[-1].seq


async def test_watchers_from_any_place_see_the_same_and_no_more_is_kept_than_needed() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        feeds = daemon.app.daemon.feeds
        sending = asyncio.create_task(session.send("!slow 400tps\n!tokens 400"))
        early = [asyncio.create_task(seen(feeds, session.id)) for _ in range(5)]
        await sending
        last = await daemon.runtime.stores.events.head(session.id)
        late = [asyncio.create_task(seen(feeds, session.id, after)) for after in (0, 3, last // 2, last - 1)]
        for task in (*early, *late):
            found = await task
            assert found[-1].seq == last
            assert [one.first for one in found[1:]] == [one.seq + 1 for one in found[:-1]]
        await until(lambda: not feeds.watcher_count)


async def test_a_watch_ends_with_its_session() -> None:
    async with served() as daemon:
        session = await daemon.runtime.session()
        async with daemon.app.daemon.feeds.watch(session.id) as watch:
            waiting = asyncio.create_task(watch.take())
            await daemon.runtime.library.delete(session.id)
            await daemon.app.daemon.turns.announce_change(session.id, deleted=True)
            with pytest.raises(NotFound):
                await waiting
        with pytest.raises(NotFound):
            async with daemon.app.daemon.feeds.watch(session.id):
                pass


async def test_what_another_program_writes_to_the_same_file_is_seen(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"model": "loom/spark"})
    async with Runtime.open(config) as here, Runtime.open(config) as elsewhere, serving(here) as daemon:
        session = await elsewhere.session(model="loom/spark")
        watching = asyncio.create_task(seen(daemon.app.daemon.feeds, session.id))
        events = [event async for event in session.stream("!echo hello")]
        assert isinstance(events[-1], TurnFinished)
        assert (await watching)[-1].type == "turn_finished"
