"""Socket.IO spoken by hand, for clients that do what the official one never would, and what a watcher must have
seen."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import websockets
from websockets.asyncio.client import ClientConnection

from daemon.running import TOKEN, Served
from patience import PATIENCE_SECONDS

WORDS = ("text", "thinking")


@asynccontextmanager
async def raw_socket(
    daemon: Served, *, token: str = TOKEN, expect: str = "40", receive_bytes: int = 0, max_queue: int = 16
) -> AsyncGenerator[ClientConnection]:
    """A connection to the namespace, let in unless something else is expected."""
    place = urlsplit(daemon.url)
    wire = socket.socket()
    if receive_bytes:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    wire.connect((place.hostname, place.port))
    wire.settimeout(0)
    address = f"ws://{place.netloc}/socket.io/?EIO=4&transport=websocket"
    async with websockets.connect(address, sock=wire, max_queue=max_queue, close_timeout=0.2, compression=None) as made:
        assert str(await made.recv()).startswith("0{")
        await made.send("40/events," + msgspec.json.encode({"token": token}).decode())
        assert str(await made.recv()).startswith(f"{expect}/events,")
        yield made


async def join(connection: ClientConnection, session_id: str, after: int = 0) -> None:
    asked = msgspec.json.encode(["join", {"session": session_id, "after": after}]).decode()
    await connection.send(f"42/events,7{asked}")
    assert str(await connection.recv()).startswith('43/events,7[{"ok":true')


async def read_on(connection: ClientConnection) -> None:
    """Until the connection is closed."""
    while True:
        await asyncio.wait_for(connection.recv(), PATIENCE_SECONDS)


def check_whole(stored: Sequence[tuple[int, str, str | bytes]], seen: Sequence[Mapping[str, Any]]) -> None:
    """Of what is stored (number, type, JSON), everything was seen once, in order, up to the last that was seen; pieces
    of words are joined."""
    numbers = [one["seq"] for one in seen]
    assert numbers == sorted(set(numbers))
    there = stored[: numbers[-1]]
    assert [seq for seq, _, _ in there] == list(range(1, numbers[-1] + 1))
    plain = [(seq, kind) for seq, kind, _ in there if kind not in WORDS]
    assert [(one["seq"], one["type"]) for one in seen if one["type"] not in WORDS] == plain
    for kind in WORDS:
        words = "".join(msgspec.json.decode(data)["text"] for _, found, data in there if found == kind)
        assert "".join(one["data"]["text"] for one in seen if one["type"] == kind) == words
