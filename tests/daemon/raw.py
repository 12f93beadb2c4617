"""Socket.IO spoken by hand, for clients that do what the official one never would."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import websockets
from websockets.asyncio.client import ClientConnection

from daemon.running import TOKEN, Served
from patience import PATIENCE_SECONDS


@asynccontextmanager
async def raw_socket(
    daemon: Served, *, expect: str = "40", receive_bytes: int = 0, max_queue: int = 16
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
        await made.send("40/events," + msgspec.json.encode({"token": TOKEN}).decode())
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
