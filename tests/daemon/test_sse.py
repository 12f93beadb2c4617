"""Events over plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest

from daemon.running import TOKEN, Served, served, until
from loom.daemon import sse
from loom.wire.framing import SseParser
from patience import PATIENCE_SECONDS


@asynccontextmanager
async def reading(daemon: Served, session_id: str, **headers: str) -> AsyncGenerator[AsyncGenerator[dict[str, Any]]]:
    path = f"/v1/sessions/{session_id}/events"
    after = headers.pop("after", "")
    shown = {"authorization": f"Bearer {TOKEN}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    params = {"after": after} if after else {}
    async with (
        httpx2.AsyncClient(base_url=daemon.url, timeout=10) as http,
        http.stream("GET", path, params=params, headers=shown) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        frames = SseParser()

        async def envelopes() -> AsyncGenerator[dict[str, Any]]:
            async for chunk in response.aiter_raw():
                for frame in frames.feed(chunk):
                    yield msgspec.json.decode(frame.data)

        yield envelopes()


async def to_the_end(events: AsyncGenerator[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for envelope in events:
        found.append(envelope)
        if envelope["type"] == "turn_finished":
            break
    return found


async def test_a_reader_begins_where_it_says() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        await session.send("!echo hello")
        async with reading(daemon, session.id) as events:
            everything = await to_the_end(events)
        assert everything[0]["seq"] == 1
        async with reading(daemon, session.id, after="3") as events:
            assert await to_the_end(events) == everything[3:]
        async with reading(daemon, session.id, last_event_id="5", after="0") as events:
            assert await to_the_end(events) == everything[5:]
        async with reading(daemon, session.id, after="now") as events:
            await session.send("!echo again")
            later = await to_the_end(events)
        assert later[0]["seq"] == everything[-1]["seq"] + 1


async def test_a_reader_that_asks_for_nonsense_is_told_so() -> None:
    async with served() as daemon, daemon.client() as client, httpx2.AsyncClient(base_url=daemon.url) as http:
        session = await client.session()
        shown = {"authorization": f"Bearer {TOKEN}"}
        place = f"/v1/sessions/{session.id}/events"
        for after in ("-1", "x", "1.5", "99999999999999999999999", "٣", "1 2", "0" * 20 + "1" * 5_000):
            answer = await http.get(place, params={"after": after}, headers=shown)
            assert answer.status_code in (400, 422), after
            assert answer.json()["error"]["message"]
        for seen in ("99999999999999999", "1" * 5_000, "0" * 20 + "1" * 5_000):
            answer = await http.get(place, headers={**shown, "last-event-id": seen})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "request.unreadable")
        gone = await http.get("/v1/sessions/01ARZ3NDEKTSV4RRFFQ69G5FAV/events", headers=shown)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "store.not_found")
        assert (await http.get(place)).status_code == 401


async def test_a_line_that_is_open_breathes_and_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.05)
    async with served() as daemon, daemon.client() as client, httpx2.AsyncClient(base_url=daemon.url) as http:
        session = await client.session()
        shown = {"authorization": f"Bearer {TOKEN}"}
        async with http.stream("GET", f"/v1/sessions/{session.id}/events", headers=shown) as response:
            chunks = response.aiter_raw()
            heard = b""
            while heard.count(b": open\n\n") < 3:
                heard += await asyncio.wait_for(anext(chunks), PATIENCE_SECONDS)
            assert heard.startswith(b"retry: 1000\n\n")
            await session.delete()
            rest = b"".join([chunk async for chunk in chunks])
        told = msgspec.json.decode(rest.split(b"data: ")[1])
        assert (told["type"], told["data"]["code"]) == ("error", "store.not_found")
        await until(lambda: not daemon.app.daemon.feeds.watcher_count)


async def test_a_reader_that_goes_away_is_forgotten_and_a_new_token_ends_all_lines() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        async with reading(daemon, session.id):
            assert daemon.app.daemon.feeds.watcher_count == 1
        await until(lambda: not daemon.app.daemon.feeds.watcher_count)
        async with reading(daemon, session.id) as events:
            await daemon.app.daemon.auth.rotate()
            assert [envelope async for envelope in events] == []
