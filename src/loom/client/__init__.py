"""Client: sessions of a daemon, with the interface of local ones.

client = await find(load_config())          # the daemon of this machine, where one runs
session = await client.session()
async for event in session.stream("what is wrong here?", Path("error.png")): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final

import msgspec

from loom.client.connection import PATIENCE_SECONDS, DaemonConnection
from loom.client.session import RemoteSession, SessionLine
from loom.client.uploads import upload
from loom.config import Config
from loom.content.blocks import ContentBlock
from loom.content.inputs import Content
from loom.errors import LoomError
from loom.formats.facts import IntakeLimits

__all__ = ["Client", "RemoteSession", "SessionLine", "find"]

_FIND_SECONDS: Final = 2.0


class _Running(msgspec.Struct):
    pid: int
    url: str
    certificate: str = ""


class _Page(msgspec.Struct):
    sessions: tuple[SessionLine, ...]
    next: str | None


class _Version(msgspec.Struct):
    version: str
    api: int


class Client:
    """A client of one daemon. Use `async with Client(url, token) as client`, or call `close`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        limits: IntakeLimits = IntakeLimits(),
        patience_seconds: float = PATIENCE_SECONDS,
        certificate: str = "",
    ) -> None:
        """`certificate` is a file with the one TLS certificate to trust; empty: those that the system trusts."""
        self._link = DaemonConnection(url, token, patience_seconds=patience_seconds, certificate=certificate)
        self._limits = limits

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._link.close()

    @property
    def url(self) -> str:
        return self._link.url

    @property
    def connection(self) -> DaemonConnection:
        """The connection for requests that no method here sends."""
        return self._link

    async def version(self) -> str:
        """Return the daemon's version; this also checks the connection and the token."""
        return msgspec.json.decode(await self._link.ask("GET", "/v1/version"), type=_Version).version

    async def session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        tools: Sequence[str] | None = None,
    ) -> RemoteSession:
        """Open a session by its id, or create one. `tools` limits the tools for messages sent through this object; by
        default, all of the daemon's."""
        if session_id:
            answer = await self._link.ask("GET", f"/v1/sessions/{session_id}")
        else:
            wanted = {"title": title, "model": model, "system": system, "workspace": workspace}
            answer = await self._link.ask("POST", "/v1/sessions", json=wanted, repeats=False)
        found = msgspec.json.decode(answer, type=SessionLine)
        return RemoteSession(self._link, found.id, self._limits, tools=tools)

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        """Upload content and return blocks that can be sent in any session."""
        return (await upload(self._link, content, self._limits)).blocks

    async def media(self, digest: str) -> bytes:
        """Return the bytes of a medium."""
        return await self._link.ask("GET", f"/v1/media/{digest}")

    async def sessions(self, *, query: str = "", archived: bool = False, limit: int = 50) -> tuple[SessionLine, ...]:
        """Return the sessions, newest first."""
        found: list[SessionLine] = []
        place: dict[str, str | int] = {"q": query, "archived": str(archived).lower()}
        while len(found) < limit:
            params = {**place, "limit": min(limit - len(found), 200)}
            page = msgspec.json.decode(await self._link.ask("GET", "/v1/sessions", params=params), type=_Page)
            found += page.sessions
            if page.next is None:
                break
            place["before"] = page.next
        return tuple(found)


async def find(config: Config) -> Client | None:
    """Return a client of the local daemon for this configuration; None if none is running."""
    running = await asyncio.to_thread(_running, config)
    if running is None:
        return None
    found, token = running
    client = Client(found.url, token, limits=config.media_limits(), certificate=found.certificate)
    probe = Client(found.url, token, patience_seconds=0.0, certificate=found.certificate)
    try:
        async with asyncio.timeout(_FIND_SECONDS), probe:
            await probe.version()
    except (LoomError, TimeoutError):
        return None
    return client


def _running(config: Config) -> tuple[_Running, str] | None:
    try:
        found = msgspec.json.decode(config.daemon_file().read_bytes(), type=_Running)
        token = config.token_file().read_text(encoding="ascii").strip()
    except (OSError, ValueError, msgspec.DecodeError):  # missing, or half written by another process
        return None
    return found, token
