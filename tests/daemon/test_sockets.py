"""Events over Socket.IO, watched by the official client."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from daemon.raw import check_whole, join, raw_socket, read_on
from daemon.running import TOKEN, Served, javascript, served
from loom.daemon import sockets
from loom.daemon.session_list import TOLD_SECONDS
from loom.events import TurnFinished
from loom.formats import inspect
from loom.testing import sample_png
from patience import PATIENCE_SECONDS


async def printed(script: str, *arguments: str) -> Any:
    process = javascript(script, *arguments)
    out, err = await asyncio.to_thread(process.communicate, timeout=50)
    assert process.returncode == 0, err
    return msgspec.json.decode(out)


async def check_seen(daemon: Served, session: str, seen: list[dict[str, Any]]) -> None:
    stored = await daemon.runtime.stores.events.after(session, 0, limit=100_000)
    assert seen[-1]["seq"] == stored[-1].seq
    check_whole([(event.seq, event.type, event.data) for event in stored], seen)


@pytest.mark.parametrize("transport", ["websocket", "polling", "both"])
async def test_the_official_client_loses_its_connection_ten_times_and_has_every_event_once(transport: str) -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        watching = asyncio.create_task(printed("watch.cjs", daemon.url, TOKEN, session.id, transport, "10"))
        events = [event async for event in session.stream("!slow 100tps\n!tokens 200")]
        assert isinstance(events[-1], TurnFinished)
        found = await watching
        assert found["problems"] == []
        assert found["lost"] == 10
        await check_seen(daemon, session.id, found["seen"])


async def test_bad_joins_are_answered_with_what_is_wrong_and_nothing_breaks() -> None:
    async with served() as daemon:
        found = await printed("odd.cjs", daemon.url, TOKEN)
        *refused, left, bad_leave, listed = found["answers"]
        assert [answer["ok"] for answer in refused] == [False] * len(refused)
        assert {answer["error"]["code"] for answer in refused} == {"store.not_found", "request.invalid"}
        assert all(answer["error"]["message"] for answer in refused)
        assert (left["ok"], bad_leave["ok"], listed["ok"]) == (True, False, True)
        assert found["refusal"]["code"] == "auth.required"
        assert found["unknown"] == "refused"
        assert found["connected"]


async def test_pictures_arrive_as_references_with_a_preview_and_on_request_with_their_bytes() -> None:
    async with served({"approval.default": "allow"}, tools="all") as daemon, daemon.client() as client:
        (Path(daemon.runtime.config.home) / "shot.png").write_bytes(sample_png(48, 36))
        session = await client.session(workspace=daemon.runtime.config.home)
        said = "!image bars 3 5 8\n!tool read_file shot.png"
        assert isinstance([event async for event in session.stream(said)][-1], TurnFinished)
        envelopes = await printed("pictures.cjs", daemon.url, TOKEN, session.id)
        for inline in ("plain", "inline"):
            image, called = envelopes[inline]
            assert (image["type"], called["type"]) == ("image", "tool_call")
            assert called["data"]["name"] == "read_file"
            assert called["data"]["arguments"] == {"path": "shot.png"}
            assert called["data"]["is_error"] is False
            assert len(called["data"]["images"]) == 1
            for data in (image["data"], called["data"], called["data"]["images"][0]):
                assert data["image_id"].startswith("sha256:")
                assert data["url"] == f"/v1/media/{data['image_id']}"
                assert (data["mime"], bool(data["alt"])) == ("image/png", True)
                assert data["preview"].startswith("data:image/webp;base64,")
                assert len(data["preview"]) <= 1_500
                assert ("image_data" in data) == (inline == "inline")
        assert (called["data"]["width"], called["data"]["height"]) == (48, 36)
        data = base64.b64decode(envelopes["inline"][1]["data"]["image_data"])
        assert inspect(data).media.width == 48
        assert envelopes["inline"][1]["data"]["image_mime"] == "image/png"


async def test_the_list_of_sessions_is_told_as_it_changes() -> None:
    async with served() as daemon, daemon.client() as client:
        process = javascript("list.cjs", daemon.url, TOKEN)
        assert process.stdout
        assert await asyncio.to_thread(process.stdout.readline) == "joined\n"
        session = await client.session(title="first")
        await session.send("!slow 20tps\n!tokens 15")
        await session.rename("second")
        await asyncio.sleep(2 * TOLD_SECONDS)
        await session.delete()
        out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, err
        lines = [line for line in msgspec.json.decode(out) if line["session"] == session.id]
        assert {"queued", "running", "idle"} >= {line["state"] for line in lines} >= {"running", "idle"}
        assert [line["title"] for line in lines if line["title"]][-1] == "second"
        assert lines[-1]["deleted"]
        assert [line["rev"] for line in lines[:-1]] == sorted(line["rev"] for line in lines[:-1])


async def test_a_new_token_drops_every_socket_at_once() -> None:
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        async with raw_socket(daemon) as socket:
            await join(socket, session.id)
            assert daemon.app.daemon.feeds.watcher_count == 1
            await daemon.app.daemon.auth.rotate()
            with pytest.raises(ConnectionClosed):
                await read_on(socket)
        assert daemon.app.daemon.feeds.watcher_count == 0
        async with raw_socket(daemon, expect="44") as socket:
            pass


async def test_what_no_client_sends_ends_that_connection_and_no_other() -> None:
    odd: list[str | bytes] = [
        "42/events," + "[" * 10_000,
        "42/events,{}",
        "42/events,[]",
        "42/events,[7]",
        "42/events,not json",
        "4999999-/events,[]",
        '451-/events,["join",{"_placeholder":true,"num":0}]',
        "4",
        "49",
        "4" + "2" * 5_000,
        "x",
        "",
        b"\x04binary",
        "42/events," + '["join",{"session":"' + "x" * 20_000 + '"}]',
    ]
    async with served() as daemon, daemon.client() as client:
        session = await client.session()
        async with raw_socket(daemon) as other:
            await join(other, session.id)
            for message in odd:
                async with raw_socket(daemon) as socket:
                    await socket.send(message)
                    with pytest.raises(ConnectionClosed):
                        await read_on(socket)
            await session.send("!echo still here")
            while "still here" not in str(await asyncio.wait_for(other.recv(), PATIENCE_SECONDS)):
                pass


async def test_a_connection_that_never_says_who_it_is_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "UNAUTHENTICATED_SECONDS", 0.2)
    async with served() as daemon:
        address = f"{daemon.url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket"
        async with websockets.connect(address) as socket:
            with pytest.raises(ConnectionClosed):
                await read_on(socket)
