"""Client: sessions of a daemon, with the interface of local ones.

client = await local_client(load_config())  # the daemon of this machine, where one runs
session = await client.session()
async for event in session.stream("what is wrong here?", Path("error.png")): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from loom.api_types import (
    AgentList,
    AgentView,
    CommandList,
    CommandView,
    ConfigView,
    DescriptionView,
    FolderList,
    FolderTrustView,
    MediaText,
    MediaView,
    MessagePlace,
    ModelList,
    RunningDaemon,
    SearchResult,
    SearchResults,
    SessionPage,
    SessionView,
    ShareList,
    ShareView,
    ToolList,
    ToolView,
    TrustDecisionBody,
    UsageReport,
    Version,
)
from loom.client.connection import PATIENCE_SECONDS, DaemonConnection
from loom.client.session import RemoteSession
from loom.client.uploads import upload, upload_attachment
from loom.config import Config
from loom.content.blocks import ContentBlock
from loom.content.inputs import Attachment, Content, Ingested
from loom.content.messages import Message
from loom.errors import LoomError
from loom.formats.facts import IntakeLimits
from loom.library import LATEST, all_sessions, find_session
from loom.message_types import (
    ApprovalOverview,
    ConversationMessage,
    ImportReport,
    ImportView,
    NewImport,
    SessionApprovals,
)
from loom.session import MediaBytes
from loom.struct_types import decode_json

__all__ = ["Client", "RemoteLibrary", "RemoteSession", "local_client"]

_FIND_SECONDS: Final = 10.0
"""How long a busy daemon may take to answer. A port where none listens refuses at once."""
T = TypeVar("T")


class RemoteLibrary:
    """The library of a daemon. Use `async with RemoteLibrary(url, token) as library`, or call `close`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        limits: IntakeLimits = IntakeLimits(),
        patience_seconds: float = PATIENCE_SECONDS,
        certificate: str = "",
    ) -> None:
        """Create a client. `certificate` is a file with the only TLS certificate to trust; empty: those that the system
        trusts."""
        self._link = DaemonConnection(url, token, patience_seconds=patience_seconds, certificate=certificate)
        self._limits = limits

    async def __aenter__(self) -> RemoteLibrary:
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
        return decode_json(await self._link.ask("GET", "/v1/version"), Version).version

    # Sessions --------------------------------------------------------------------------------------------------------

    async def session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        agent: str = "",
        tools: Sequence[str] | None = None,
    ) -> RemoteSession:
        """Open a session by its id, or create one. `tools` limits the tools for messages sent through this object; by
        default, all of the daemon's."""
        if session_id:
            return await self.open(session_id, tools=tools)
        return await self.create(title=title, model=model, system=system, workspace=workspace, agent=agent, tools=tools)

    async def open(self, session_id: str, *, tools: Sequence[str] | None = None) -> RemoteSession:
        found = await self._get(f"/v1/sessions/{quote(session_id, safe='')}", SessionView)
        return RemoteSession(self._link, found.id, self._limits, tools=tools)

    async def create(
        self,
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        agent: str = "",
        tools: Sequence[str] | None = None,
    ) -> RemoteSession:
        wanted = {"title": title, "model": model, "system": system, "workspace": workspace, "agent": agent}
        answer = await self._link.ask("POST", "/v1/sessions", json=wanted, repeats=False)
        found = decode_json(answer, SessionView)
        return RemoteSession(self._link, found.id, self._limits, tools=tools)

    async def sessions(
        self,
        *,
        query: str = "",
        archived: bool = False,
        folder: str | None = None,
        tag: str = "",
        pinned: bool | None = None,
        limit: int = 50,
        before: str = "",
    ) -> SessionPage:
        params: dict[str, str | int] = {"q": query, "archived": str(archived).lower(), "limit": limit, "before": before}
        if folder is not None:
            params["folder"] = folder
        if tag:
            params["tag"] = tag
        if pinned is not None:
            params["pinned"] = str(pinned).lower()
        return await self._get("/v1/sessions", SessionPage, params)

    async def find(self, text: str = LATEST, *, workspace: str = "") -> SessionView:
        return await find_session(all_sessions(self), text, workspace=workspace)

    async def find_message(self, node: str) -> MessagePlace:
        return await self._get(f"/v1/messages/{quote(node, safe='')}", MessagePlace)

    async def import_messages(
        self, messages: Sequence[Message], *, title: str = "", model: str = "", system: str = "", workspace: str = ""
    ) -> ImportView:
        said = tuple(ConversationMessage(role=message.role, blocks=message.blocks) for message in messages)
        body = NewImport(messages=said, title=title, model=model, system=system, workspace=workspace)
        return decode_json(await self._link.ask("POST", "/v1/import", json=body), ImportView)

    async def import_file(self, source: Path | bytes, name: str = "") -> ImportReport:
        data = await asyncio.to_thread(source.read_bytes) if isinstance(source, Path) else source
        name = name or (source.name if isinstance(source, Path) else "")
        kind = {"content-type": "application/octet-stream"}
        path = f"/v1/import/file?name={quote(name)}"
        return decode_json(await self._link.ask("POST", path, body=data, headers=kind), ImportReport)

    async def delete(self, session_id: str) -> int:
        await self._link.ask("DELETE", f"/v1/sessions/{quote(session_id, safe='')}")
        return 0

    async def folders(self) -> FolderList:
        return await self._get("/v1/folders", FolderList)

    async def share(self, session_id: str, *, days: float = 0) -> ShareView:
        path = f"/v1/sessions/{quote(session_id, safe='')}/shares"
        return decode_json(await self._link.ask("POST", path, json={"days": days}), ShareView)

    async def shares(self, session_id: str) -> tuple[ShareView, ...]:
        return (await self._get(f"/v1/sessions/{quote(session_id, safe='')}/shares", ShareList)).shares

    async def unshare(self, session_id: str, share_id: str) -> None:
        path = f"/v1/sessions/{quote(session_id, safe='')}/shares/{quote(share_id, safe='')}"
        await self._link.ask("DELETE", path)

    async def search(self, text: str, *, limit: int = 20) -> tuple[SearchResult, ...]:
        return (await self._get("/v1/search", SearchResults, {"q": text, "limit": limit})).results

    async def approvals(self) -> tuple[SessionApprovals, ...]:
        return (await self._get("/v1/approvals", ApprovalOverview)).sessions

    # Media -----------------------------------------------------------------------------------------------------------

    async def ingest(self, *content: Content) -> Ingested:
        return await upload(self._link, content, self._limits)

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        """Upload content and return blocks that can be sent in any session."""
        return (await self.ingest(*content)).blocks

    async def add_media(self, data: bytes, name: str = "") -> MediaView:
        return await upload_attachment(self._link, Attachment(source=data, name=name), self._limits)

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        kind, size, blocks = await self._link.open(f"/v1/media/{quote(digest)}", {"v": form})
        return MediaBytes(media_type=kind, size_bytes=size, blocks=blocks)

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        return await self._get(f"/v1/media/{quote(digest)}/text", MediaText, {"page": page})

    async def describe(self, digest: str, model: str = "") -> DescriptionView:
        answer = await self._link.ask("POST", f"/v1/media/{quote(digest)}/description", json={"model": model})
        return decode_json(answer, DescriptionView)

    # What sessions can use -------------------------------------------------------------------------------------------

    async def models(self) -> ModelList:
        return await self._get("/v1/models", ModelList)

    async def tools(self) -> tuple[ToolView, ...]:
        return (await self._get("/v1/tools", ToolList)).tools

    async def agents(self, workspace: str = "") -> tuple[AgentView, ...]:
        return (await self._get("/v1/agents", AgentList, {"workspace": workspace})).agents

    async def commands(self, workspace: str = "") -> tuple[CommandView, ...]:
        return (await self._get("/v1/commands", CommandList, {"workspace": workspace})).commands

    async def folder_trust(self, workspace: str = "") -> FolderTrustView:
        return await self._get("/v1/trust", FolderTrustView, {"workspace": workspace})

    async def decide_trust(self, workspace: str, digest: str, *, is_trusted: bool) -> FolderTrustView:
        body = TrustDecisionBody(workspace=workspace, digest=digest, trusted=is_trusted)
        return decode_json(await self._link.ask("PUT", "/v1/trust", json=body), FolderTrustView)

    async def usage(self, days: int = 30, *, tools: bool = False) -> UsageReport:
        return await self._get("/v1/usage", UsageReport, {"days": days, **({"tools": "true"} if tools else {})})

    async def limits(self) -> ConfigView:
        return await self._get("/v1/config", ConfigView)

    async def _get(self, path: str, kind: type[T], params: Mapping[str, str | int] | None = None) -> T:
        return decode_json(await self._link.ask("GET", path, params=params), kind)


Client = RemoteLibrary
"""The old name of `RemoteLibrary`."""


async def local_client(config: Config) -> RemoteLibrary | None:
    """Return a client of the local daemon for this configuration; None if none is running."""
    running = await asyncio.to_thread(_running, config)
    if running is None:
        return None
    found, token = running
    client = RemoteLibrary(found.url, token, limits=config.media_limits(), certificate=found.certificate)
    probe = RemoteLibrary(found.url, token, patience_seconds=0.0, certificate=found.certificate)
    try:
        async with asyncio.timeout(_FIND_SECONDS), probe:
            await probe.version()
    except (LoomError, TimeoutError):
        return None
    return client


def _running(config: Config) -> tuple[RunningDaemon, str] | None:
    try:
        found = decode_json(config.daemon_file().read_bytes(), RunningDaemon)
        token = config.token_file().read_text(encoding="ascii").strip()
    except (OSError, ValueError, msgspec.DecodeError):  # missing, or half written by another process
        return None
    return found, token
