"""The same Session over a daemon: what a caller of a local one sees, a caller of a remote one sees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from daemon.asking import api_of, new_session, settled
from daemon.running import TOKEN, Served, daemon, served, until, until_true
from loom.client import Client, local_client
from loom.config import load_config
from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock
from loom.content.inputs import document, image
from loom.errors import ContextOverflow, LoomError, NotFound, Overloaded, TooLarge, Unreachable
from loom.events import (
    Event,
    MessageQueued,
    MessageStored,
    TextDelta,
    ThinkingDelta,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    decode_event,
)
from loom.prompt import Receipt, ReceiptRow
from loom.session import Session
from loom.testing import sample_pdf, sample_png


def merged(events: list[Event]) -> list[object]:
    """With pieces of words joined, and without what differs from run to run."""
    found: list[object] = []
    for event in events:
        match event:
            case TextDelta() | ThinkingDelta():
                last = found[-1] if found else None
                if isinstance(last, TextDelta | ThinkingDelta) and last.index == event.index:
                    found[-1] = msgspec.structs.replace(last, text=last.text + event.text)
                else:
                    found.append(event)
            case MessageStored():
                found.append(event.message)
            case _:
                found.append(type(event))
    return found


def uncounted(receipt: Receipt) -> list[ReceiptRow]:
    """What a request carried. Tokens are estimates, and better ones after the answer than before."""
    return [msgspec.structs.replace(row, tokens=0) for row in receipt.rows]


async def test_a_remote_session_gives_the_events_of_a_local_one() -> None:
    async with served() as daemon, daemon.client() as client:
        remote: Session = await client.session()
        local: Session = await daemon.runtime.session(model="loom/spark")
        said = ("!slow 300tps\nwhat is this?", sample_png(64, 48))
        assert merged([event async for event in remote.stream(*said)]) == merged(
            [event async for event in local.stream(*said)]
        )
        there, here = await remote.send("!echo hello"), await local.send("!echo hello")
        assert (there.message, there.stop, there.usage) == (here.message, here.stop, here.usage)
        assert uncounted(there.receipt) == uncounted(here.receipt)
        assert await remote.path() == await local.path()
        (planned_there,), (planned_here,) = await remote.plan(), await local.plan()
        assert (planned_there.rows, planned_there.totals) == (planned_here.rows, planned_here.totals)


async def test_bytes_that_the_daemon_has_are_not_sent_again(tmp_path: Path) -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        picture = tmp_path / "shot.png"
        picture.write_bytes(sample_png(30, 20))
        paper = document(sample_pdf("one", "two", "three"), pages="2-3", name="paper.pdf")
        for _ in range(2):
            await session.send("!echo seen", picture, paper, image(picture, alt="a blue shot"))
        assert daemon.app.daemon.metrics.uploaded_bytes == len(picture.read_bytes()) + len(
            sample_pdf("one", "two", "three")
        )
        words, shot, pages, described = (await session.path())[-2].blocks
        assert isinstance(words, TextBlock)
        assert isinstance(shot, ImageBlock) and shot.media.name == "shot.png"
        assert isinstance(pages, DocumentBlock) and (pages.pages, pages.media.name) == ("2-3", "paper.pdf")
        assert isinstance(described, ImageBlock) and described.alt == "a blue shot"


async def test_errors_are_the_errors_of_a_local_session() -> None:
    async with served({"images.max_size_bytes": 100}) as daemon, daemon.client(patience_seconds=1) as client:
        with pytest.raises(Overloaded, match="no room"):
            await (await client.session()).send("!fail 529 no room")
        session = await client.session()
        with pytest.raises(ContextOverflow):
            await session.send("!fail 400 prompt is too long: 300000 tokens > 200000 maximum")
        with pytest.raises(TooLarge, match="over the limit"):
            await (await client.session()).send(sample_png(400, 400))
        with pytest.raises(NotFound):
            await client.session("01ARZ3NDEKTSV4RRFFQ69G5FAV")
        async with Client(daemon.url, "wrong") as stranger:
            with pytest.raises(LoomError, match="token") as refused:
                await stranger.version()
        assert refused.value.code == "auth.required"
        async with Client("http://127.0.0.1:9", TOKEN, patience_seconds=0.2) as nobody:
            with pytest.raises(Unreachable, match="does not respond"):
                await nobody.version()


async def test_what_others_say_in_the_session_is_not_mixed_in() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        first = asyncio.create_task(session.send("!slow 60tps\n!tokens 40"))
        await until(lambda: daemon.app.daemon.turns.active == 1)
        again = await client.session(session.id)
        second = asyncio.create_task(_listed(again.stream("!echo mine")))
        third = asyncio.create_task(_listed(again.stream("!echo also mine")))
        assert "sentence" in (await first).text
        for task, words in ((second, "mine"), (third, "also mine")):
            events = await task
            assert isinstance(events[0], MessageQueued)
            assert len([event for event in events if isinstance(event, TurnStarted)]) == 1
            assert "".join(event.text for event in events if isinstance(event, TextDelta)) == words
            assert isinstance(events[-1], TurnFinished)


async def _listed(events: AsyncGenerator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_leaving_a_stream_cancels_its_turn_and_leaves_unsaid_what_waits() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        async with aclosing(session.stream("!slow 20tps\n!tokens 500")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    waiting = asyncio.create_task(_listed(session.stream("never said")))
                    await queued(daemon, session.id)
                    waiting.cancel()
                    await asyncio.gather(waiting, return_exceptions=True)
                    break
        await until(lambda: not daemon.app.daemon.turns.active)
        path = await session.path()
        assert [message.role for message in path] == ["user", "assistant"]
        last = [event async for event in _until_end(session.events())]
        assert isinstance(last[-1], TurnFailed) and last[-1].code == "turn.cancelled"


async def test_paused_messages_are_kept_by_the_daemon_and_answered_in_order_when_resumed() -> None:
    async with served() as daemon, daemon.client() as client, daemon.client() as other:
        session = await client.session()
        elsewhere = await other.session(session.id)
        running = await session.post("!slow 20tps\n!tokens 500")
        posted = [await session.post(f"!echo {word}") for word in ("second", "third", "fourth")]
        await session.pause_queue()
        await session.cancel()
        await until(lambda: not daemon.app.daemon.turns.active)

        queue = await elsewhere.queue()
        assert [(one.id, one.is_paused) for one in queue] == [(one.id, True) for one in posted]
        assert (await elsewhere.info()).state == "idle"
        await elsewhere.remove_queued(posted[1].id)
        with pytest.raises(NotFound):
            await elsewhere.resume_queue(posted[1].id)
        with pytest.raises(NotFound):
            await elsewhere.pause_queue(running.id)
        assert "now" in (await elsewhere.send("!echo now")).text  # a new message does not wait for paused ones
        assert len(await session.queue()) == 2

        await elsewhere.resume_queue()

        async def is_answered() -> bool:
            return not await session.queue() and (await session.info()).state == "idle"

        await until_true(is_answered)
        said = [message.text for message in await session.path() if message.role == "user"]
        assert said[1:] == ["!echo now", "!echo second", "!echo fourth"]
        told = [(event.id, event.paused) for event in await _told(daemon, session.id, MessageQueued) if event.paused]
        assert told == [(one.id, True) for one in posted]


def test_stop_over_http_pauses_the_queue_in_one_request_and_a_killed_daemon_keeps_it(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as house:
        with api_of(house) as api:
            session = new_session(api)
            place = f"/v1/sessions/{session}"
            for text in ("!slow 20tps\n!tokens 500", "!echo second"):
                assert api.post(f"{place}/messages", json={"text": text}).status_code == 202
            assert api.post(f"{place}/cancel", json={"pause_queue": True}).status_code == 202
            settled(api, session)
        house.kill()
        house.start()
        with api_of(house) as api:
            (paused,) = api.get(f"{place}/queue").json()["queue"]
            assert (paused["text"], paused["paused"]) == ("!echo second", True)
            assert api.get(f"{place}/messages").json()["queue"] == [paused]
            assert api.patch(f"{place}/queue", json={"messages": []}).status_code in (400, 422)  # `paused` is missing
            api.patch(f"{place}/queue", json={"paused": False, "messages": [paused["message"]]}).raise_for_status()
            answer = settled(api, session)["messages"][-1]
            assert answer["blocks"][0]["text"].endswith("second")


async def test_whoever_leaves_with_the_last_event_cancels_nobody() -> None:
    async with served() as daemon, daemon.client() as client, daemon.client() as other:
        session = await client.session()
        async with aclosing(session.stream("!slow 60tps\n!tokens 20")) as events:
            async for event in events:
                if isinstance(event, TurnStarted):
                    await (await other.session(session.id)).post("!slow 60tps\n!tokens 20")
                if isinstance(event, TurnFinished):
                    break
        await until(lambda: not daemon.app.daemon.turns.active)
        assert [type(event) for event in await _told(daemon, session.id, TurnFinished | TurnFailed)] == [
            TurnFinished
        ] * 2


async def test_leaving_the_first_of_two_answers_cancels_it_and_asks_for_no_second() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        async with aclosing(session.stream("!slow 20tps\n!tokens 500", n=2)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await until(lambda: not daemon.app.daemon.turns.active)
        assert len(await _told(daemon, session.id, TurnStarted)) == 1
        assert [event.code for event in await _told(daemon, session.id, TurnFailed)] == ["turn.cancelled"]


async def test_leaving_before_the_turn_was_seen_cancels_it_and_no_other() -> None:
    points = random.Random(5)
    async with served() as daemon, daemon.client() as client, daemon.client() as other:
        for _ in range(8):
            session = await client.session()
            mine = asyncio.create_task(_listed(session.stream("!slow 20tps\n!tokens 500")))
            await until(lambda: daemon.app.daemon.turns.active == 1)
            theirs = await (await other.session(session.id)).post("and another thing")
            await asyncio.sleep(points.uniform(0, 0.05))
            mine.cancel()
            await asyncio.gather(mine, return_exceptions=True)
            async with aclosing(session.events()) as events:
                async for _, event in events:
                    if isinstance(event, TurnStarted) and event.message == theirs.id:
                        break
            begun = {event.turn: event.message for event in await _told(daemon, session.id, TurnStarted)}
            ended = [event.turn for event in await _told(daemon, session.id, TurnFailed)]
            assert ended == [turn for turn, message in begun.items() if message != theirs.id]
            await session.cancel()
            await until(lambda: not daemon.app.daemon.turns.active)


async def _told(daemon: Served, session_id: str, kind: Any) -> list[Any]:
    stored = await daemon.runtime.stores.events.after(session_id, 0, limit=100_000)
    return [event for found in stored if isinstance(event := decode_event(found.data), kind)]


async def queued(daemon: Served, session_id: str) -> None:
    async def is_queued() -> bool:
        return bool(await daemon.runtime.stores.queue.list(session_id))

    await until_true(is_queued)


async def _until_end(events: AsyncGenerator[tuple[int, Event]]) -> AsyncGenerator[Event]:
    async with aclosing(events):
        async for _, event in events:
            yield event
            if isinstance(event, TurnFinished | TurnFailed):
                return


class Proxy:
    """Passes bytes on until it cuts every connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        self.url = ""

    def cut(self) -> None:
        self.cuts += 1
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._open |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        sink.close()


@asynccontextmanager
async def proxied(daemon: Served) -> AsyncGenerator[Proxy]:
    proxy = Proxy(int(daemon.url.rpartition(":")[2]))
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy
        proxy.cut()


async def test_a_caller_does_not_notice_that_the_connection_was_lost() -> None:
    async with (
        served({"server.allowed_hosts": ["127.0.0.1"]}) as daemon,
        proxied(daemon) as proxy,
        Client(proxy.url, TOKEN) as client,
    ):
        session = await client.session()

        async def cutting() -> None:
            chance = random.Random(3)
            while True:
                await asyncio.sleep(chance.uniform(0.01, 0.12))
                proxy.cut()

        cutter = asyncio.create_task(cutting())
        for number in range(3):
            said = (f"!slow 120tps\n!tokens 80\n!echo {number}", sample_png(40, 40))
            events = await _listed(session.stream(*said))
            answer = next(event.message for event in reversed(events) if isinstance(event, MessageStored))
            pieces = [event.text for event in merged(events) if isinstance(event, TextDelta)]
            assert pieces == [block.text for block in answer.blocks if isinstance(block, TextBlock)]
            assert isinstance(events[-1], TurnFinished)
        cutter.cancel()
        assert proxy.cuts > 10
        assert [message.role for message in await session.path()] == ["user", "assistant"] * 3


async def test_the_daemon_of_this_machine_is_found_and_one_that_died_is_not(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    assert await local_client(config) is None
    with daemon(tmp_path / "home") as house:
        client = await local_client(config)
        assert client is not None
        async with client:
            assert client.url == house.url
            session = await client.session(title="found")
            assert [line.title for line in (await client.sessions()).sessions] == ["found"]
            fork = await session.fork()
            await session.use("spark")
            assert (await session.info()).model == "spark"
            assert fork.id != session.id
        house.kill()
        assert await local_client(config) is None
