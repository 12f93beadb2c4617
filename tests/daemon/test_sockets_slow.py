"""F12: a client that stops reading, or whose events cannot be read, is dropped and can go on where it was; nobody else
notices, and nothing piles up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import httpx2
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from daemon.raw import join, raw_socket
from daemon.running import TOKEN, Served, served, until
from loom.daemon import sockets, sse
from loom.daemon.session_list import ListedSession
from loom.errors import Unreachable
from loom.events import NoticeRaised
from loom.wire.framing import SseParser
from patience import PATIENCE_SECONDS

MANY = 400
LONG = 50_000


async def long_session(daemon: Served) -> str:
    """Twenty megabytes of events: more than any buffer of the system takes."""
    session = await daemon.runtime.session()
    await more(daemon, session.id, MANY)
    return session.id


async def more(daemon: Served, session_id: str, count: int) -> None:
    for _ in range(count // 20):
        event = NoticeRaised(text="x" * LONG)
        seq = await daemon.runtime.stores.events.append(session_id, [event] * 20)
        daemon.runtime.stores.events.publish(session_id, seq, [event] * 20)


def numbers(frames: list[str]) -> list[int]:
    """Of the envelopes among these packets."""
    found: list[Any] = [msgspec.json.decode(frame.split(",", 1)[1]) for frame in frames if frame.startswith("42")]
    return [envelope["seq"] for name, envelope in found if name == "notice"]


async def test_a_client_that_stops_reading_is_dropped_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "SLOW_SECONDS", 0.5)
    async with served() as daemon:
        session_id = await long_session(daemon)
        feeds = daemon.app.daemon.feeds
        async with raw_socket(daemon, receive_bytes=4096, max_queue=1) as stuck, raw_socket(daemon) as other:
            await join(stuck, session_id)
            await until(lambda: not feeds.watcher_count)  # the slow one was given up
            assert waiting_packets(daemon) < 2 * sockets.QUEUED_PACKETS

            began = time.monotonic()
            await join(other, session_id, after=MANY - 20)
            await more(daemon, session_id, 20)
            seen = [str(await asyncio.wait_for(other.recv(), PATIENCE_SECONDS)) for _ in range(40)]
            assert numbers(seen) == list(range(MANY - 19, MANY + 21))
            assert time.monotonic() - began < PATIENCE_SECONDS

            frames: list[str] = []
            while not frames or not frames[-1].startswith("41/events"):
                frames.append(str(await asyncio.wait_for(stuck.recv(), PATIENCE_SECONDS)))
            before = numbers(frames)
            assert before == list(range(1, len(before) + 1))
            _, told = msgspec.json.decode(next(frame for frame in frames if '["error"' in frame).split(",", 1)[1])
            assert (told["code"], told["after"], told["session"]) == ("slow_client", before[-1], session_id)

        async with raw_socket(daemon) as again:
            await join(again, session_id, after=before[-1])
            rest = [str(await asyncio.wait_for(again.recv(), PATIENCE_SECONDS)) for _ in range(MANY + 20 - before[-1])]
            assert numbers(rest) == list(range(before[-1] + 1, MANY + 21))


def waiting_packets(daemon: Served) -> int:
    (stop,) = daemon.app.daemon.feeds.on_stop
    owner: Any = stop.__self__  # pyright: ignore[reportFunctionMemberAccess]  # a bound method
    return max([found.queue.qsize() for found in owner._server.eio.sockets.values()], default=0)


async def test_a_client_that_stops_polling_is_dropped_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "SLOW_SECONDS", 0.3)
    async with served() as daemon, httpx2.AsyncClient(base_url=daemon.url, timeout=10) as http:
        session_id = await long_session(daemon)
        place: dict[str, str] = {"EIO": "4", "transport": "polling"}
        opened = await http.get("/socket.io/", params=place)
        place["sid"] = msgspec.json.decode(opened.content[1:])["sid"]
        await http.post("/socket.io/", params=place, content=f'40/events,{{"token":"{TOKEN}"}}')
        assert (await http.get("/socket.io/", params=place)).text.startswith("40/events")
        asked = msgspec.json.encode(["join", {"session": session_id}]).decode()
        await http.post("/socket.io/", params=place, content=f"42/events,7{asked}")
        await until(lambda: daemon.app.daemon.feeds.watcher_count > 0)
        await until(lambda: not daemon.app.daemon.feeds.watcher_count)
        assert waiting_packets(daemon) <= sockets.QUEUED_PACKETS + 3
        frames = (await http.get("/socket.io/", params=place)).text.split("\x1e")
        got = numbers(frames)
        assert got == list(range(1, len(got) + 1))
        assert 0 < len(got) <= sockets.QUEUED_PACKETS
        _, told = msgspec.json.decode(frames[-2].split(",", 1)[1])
        assert (told["code"], told["after"]) == ("slow_client", got[-1])


async def test_a_reader_of_server_sent_events_that_stops_is_left_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "SLOW_SECONDS", 0.3)
    async with served() as daemon:
        session_id = await long_session(daemon)
        host, port = daemon.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
        request = f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nhost: {host}:{port}\r\n"
        writer.write(f"{request}authorization: Bearer {TOKEN}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await until(lambda: not daemon.app.daemon.feeds.watcher_count)
        body = await reader.read(-1)
        seen = [int(line[4:]) for line in body.split(b"\n") if line.startswith(b"id: ")]
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) < MANY
        writer.close()

        headers = {"authorization": f"Bearer {TOKEN}", "last-event-id": str(seen[-2])}
        async with httpx2.AsyncClient(base_url=daemon.url) as http:
            frames = SseParser()
            async with http.stream("GET", f"/v1/sessions/{session_id}/events", headers=headers) as response:
                rest: list[int] = []
                async for chunk in response.aiter_raw():
                    rest += [msgspec.json.decode(frame.data)["seq"] for frame in frames.feed(chunk)]
                    if rest and rest[-1] == MANY:
                        break
        assert rest == list(range(seen[-2] + 1, MANY + 1))


async def test_a_flood_of_requests_holds_up_only_who_sends_it() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        async with raw_socket(daemon, max_queue=10_000) as flooding, raw_socket(daemon) as other:
            await join(other, session.id)
            flood = asyncio.create_task(_flood(flooding, session.id))
            began = time.monotonic()
            assert (await session.send("!echo undisturbed")).text == "undisturbed"
            while "undisturbed" not in str(await asyncio.wait_for(other.recv(), PATIENCE_SECONDS)):
                pass
            assert time.monotonic() - began < PATIENCE_SECONDS
            await flood
            await until(lambda: daemon.app.daemon.feeds.watcher_count <= 3)


async def _flood(socket: Any, session_id: str) -> None:
    asked = msgspec.json.encode(["join", {"session": session_id, "after": 10**6}]).decode()
    for number in range(3_000):
        await socket.send(f"42/events,{number}{asked}")
        await socket.send('42/events,["no such event",{}]')


async def test_who_asks_on_and_on_and_reads_no_answer_is_disconnected() -> None:
    async with served() as daemon, httpx2.AsyncClient(base_url=daemon.url, timeout=10) as http:
        place: dict[str, str] = {"EIO": "4", "transport": "polling"}
        place["sid"] = msgspec.json.decode((await http.get("/socket.io/", params=place)).content[1:])["sid"]
        await http.post("/socket.io/", params=place, content=f'40/events,{{"token":"{TOKEN}"}}')
        for first in range(0, 1_200, 16):
            asked = [f'42/events,{number}["leave",{{}}]' for number in range(first, first + 16)]
            last = await http.post("/socket.io/", params=place, content="\x1e".join(asked))
            assert waiting_packets(daemon) <= sockets.UNREAD_PACKETS + 20
        assert last.status_code == 400


async def test_who_listens_to_the_list_and_stops_reading_is_dropped_and_others_hear_on() -> None:
    async with (
        served() as daemon,
        daemon.client() as client,
        raw_socket(daemon, receive_bytes=4096, max_queue=1) as stuck,
        raw_socket(daemon) as other,
    ):
        for socket in (stuck, other):
            await socket.send('42/events,7["join",{"sessions":true}]')
            assert str(await socket.recv()).startswith('43/events,7[{"ok":true')
        session = await client.session()
        owner: Any = daemon.app.daemon.feeds.on_stop[0].__self__  # pyright: ignore[reportFunctionMemberAccess]  # bound
        for _ in range(400):
            await owner._show(ListedSession(session.id, title="x" * LONG))
            while len(str(await asyncio.wait_for(other.recv(), PATIENCE_SECONDS))) < LONG:
                pass
            if owner.connection_count == 1:
                break
        assert owner.connection_count == 1
        await session.rename("at last")
        while "at last" not in str(await asyncio.wait_for(other.recv(), PATIENCE_SECONDS)):
            pass


@pytest.mark.parametrize("read", ["head", "after"])
async def test_a_client_whose_events_cannot_be_read_reconnects_and_misses_nothing(
    read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as daemon:
        session = await daemon.runtime.session()
        await more(daemon, session.id, 20)
        events = daemon.runtime.dispatch.events
        with monkeypatch.context() as away:

            async def unreachable(*_: object) -> None:
                raise Unreachable("The database cannot be reached.")

            away.setattr(events, read, unreachable)
            async with raw_socket(daemon) as cut_off:
                asked = msgspec.json.encode(["join", {"session": session.id, "after": 0}]).decode()
                await cut_off.send(f"42/events,{asked}")
                frames: list[str] = []
                with contextlib.suppress(ConnectionClosed):
                    while not frames or not frames[-1].startswith("41"):
                        frames.append(str(await asyncio.wait_for(cut_off.recv(), PATIENCE_SECONDS)))
                assert "2" not in frames and numbers(frames) == [], "dropped long before it is missed"
        async with raw_socket(daemon) as again:
            await join(again, session.id)
            seen = [str(await asyncio.wait_for(again.recv(), PATIENCE_SECONDS)) for _ in range(20)]
            assert numbers(seen) == list(range(1, 21))
