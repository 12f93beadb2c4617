"""Client: the sessions of a daemon, as if they were here.

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

from loom.client.link import PATIENCE_SECONDS, Link
from loom.client.session import RemoteSession, SessionLine
from loom.client.uploads import upload
from loom.config import Config
from loom.content.blocks import ContentBlock
from loom.content.inputs import Content
from loom.errors import LoomError
from loom.formats.facts import Limits

__all__ = ["Client", "RemoteSession", "SessionLine", "find"]

_FIND_SECONDS: Final = 2.0


class _Running(msgspec.Struct):
    pid: int
    url: str


class _Page(msgspec.Struct):
    sessions: tuple[SessionLine, ...]
    next: str | None


class _Version(msgspec.Struct):
    version: str
    api: int


class Client:
    """Use it as `async with Client(url, token) as client`, or close it."""

    def __init__(
        self, url: str, token: str, *, limits: Limits = Limits(), patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._link = Link(url, token, patience_seconds=patience_seconds)
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

    async def version(self) -> str:
        """Of the daemon; shows, too, that it answers and that the token is good."""
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
        """An earlier session by its id, or a new one. `tools` are those that what is said through this object may call;
        without them, all of the daemon's."""
        if session_id:
            answer = await self._link.ask("GET", f"/v1/sessions/{session_id}")
        else:
            wanted = {"title": title, "model": model, "system": system, "workspace": workspace}
            answer = await self._link.ask("POST", "/v1/sessions", json=wanted, repeats=False)
        found = msgspec.json.decode(answer, type=SessionLine)
        return RemoteSession(self._link, found.id, self._limits, tools=tools)

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        """Blocks to say later, in any session: their bytes are there."""
        return (await upload(self._link, content, self._limits)).blocks

    async def media(self, digest: str) -> bytes:
        """The bytes of a medium that the daemon holds."""
        return await self._link.ask("GET", f"/v1/media/{digest}")

    async def sessions(self, *, query: str = "", archived: bool = False, limit: int = 50) -> tuple[SessionLine, ...]:
        """Newest first."""
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
    """The daemon of this machine that keeps this configuration's sessions; None where none runs."""
    running = await asyncio.to_thread(_running, config)
    if running is None:
        return None
    found, token = running
    client = Client(found.url, token, limits=config.media_limits())
    probe = Client(found.url, token, patience_seconds=0.0)
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
    except (OSError, ValueError, msgspec.DecodeError):  # not there, or half written by somebody else
        return None
    return found, token
