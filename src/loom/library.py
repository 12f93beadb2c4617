"""Library: the protocol for everything except a single session. `LocalLibrary` (`runtime.library`) uses the stores of
this process, `RemoteLibrary` (`client`) a daemon."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from loom.content.blocks import ContentBlock
from loom.content.inputs import Content, Ingested
from loom.content.messages import Message
from loom.errors import NotFound

if TYPE_CHECKING:
    from loom.api_types import (
        AgentView,
        CommandView,
        ConfigView,
        DescriptionView,
        FolderList,
        FolderTrustView,
        MediaText,
        MediaView,
        MessagePlace,
        ModelList,
        SearchResult,
        SessionPage,
        SessionView,
        ShareView,
        ToolView,
        UsageReport,
    )
    from loom.message_types import ImportReport, ImportView, SessionApprovals
    from loom.session import MediaBytes, Session

LATEST: Final = "latest"
_SHORTEST_ID: Final = 6
_PAGE: Final = 100


class Library(Protocol):
    """All sessions, the media, and the models, tools, agents and commands that sessions can use."""

    # Sessions --------------------------------------------------------------------------------------------------------

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
        """Return sessions, newest first; with `query`, those with matching messages, best first. `before` is `next` of
        the previous page."""
        ...

    async def open(self, session_id: str, *, tools: Sequence[str] | None = None) -> Session:
        """Return a session by its full id; raise `NotFound` if there is none. `tools` limits the tools for messages
        sent through this object (None: all)."""
        ...

    async def find(self, text: str = LATEST, *, workspace: str = "") -> SessionView:
        """Return the session that `text` refers to: `latest` (of one `workspace`, if given; never one that an agent
        began), its number in the list, its id or the beginning or end of it (6 characters or more), or its title. Raise
        `NotFound` if there is none, or more than one."""
        ...

    async def find_message(self, node: str) -> MessagePlace:
        """Return the full id of a message and the newest session that contains it. `node` is its id, or the beginning
        of it (8 characters or more). Raise `NotFound` if there is none, or more than one."""
        ...

    async def create(
        self,
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        agent: str = "",
        tools: Sequence[str] | None = None,
    ) -> Session:
        """Create a session. Empty `model` means that of the `agent`, or the default model; empty `workspace` means the
        working directory; `agent` is the name of a configured agent."""
        ...

    async def import_messages(
        self, messages: Sequence[Message], *, title: str = "", model: str = "", system: str = "", workspace: str = ""
    ) -> ImportView:
        """Store a conversation of another program as a session. Its media must be in the store (`upload`). If a session
        has the same conversation at its head, return that one instead of a new one."""
        ...

    async def import_file(self, source: Path | bytes, name: str = "") -> ImportReport:
        """Store the conversations of a file as sessions, with their branches, media and times: Loom's own export (JSON
        or zip), exports of ChatGPT, claude.ai, Open WebUI and LibreChat, OpenAI JSONL, transcripts of agents. `name` is
        the name of `source` in error messages if it is bytes. Raise `LoomError` if nothing can be read."""
        ...

    async def delete(self, session_id: str) -> int:
        """Delete a session and the media that only it used; return the bytes that were freed, as far as known."""
        ...

    async def folders(self) -> FolderList:
        """Return the folders and tags of sessions, and how many sessions are in each."""
        ...

    async def share(self, session_id: str, *, days: float = 0) -> ShareView:
        """Create a link to read the conversation, in its current state, without signing in. `days` 0 means that it does
        not expire."""
        ...

    async def shares(self, session_id: str) -> tuple[ShareView, ...]:
        """Return the links of a session, newest first. Their URLs are no longer known."""
        ...

    async def unshare(self, session_id: str, share_id: str) -> None:
        """Delete a link; raise `NotFound` if there is none."""
        ...

    async def search(self, text: str, *, limit: int = 20) -> tuple[SearchResult, ...]:
        """Find words in messages, titles, documents and images, best first."""
        ...

    async def approvals(self) -> tuple[SessionApprovals, ...]:
        """Return the sessions with pending approvals, newest first."""
        ...

    # Media -----------------------------------------------------------------------------------------------------------

    async def ingest(self, *content: Content) -> Ingested:
        """Store content and return its blocks, with notices about changes to it."""
        ...

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        """Store content and return its blocks, which can be sent in any session. Paths are files of this machine."""
        ...

    async def add_media(self, data: bytes, name: str = "") -> MediaView:
        """Store one file and return its facts and its block."""
        ...

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        """Open a medium in one of the forms of `Session.open_media`; `sent:MODEL` is its form in a message of its
        own."""
        ...

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        """Return the text of a document or an image, of one page or of all (0)."""
        ...

    async def describe(self, digest: str, model: str = "") -> DescriptionView:
        """Let a model (empty: the configured describer) describe an image; the result is stored."""
        ...

    # What sessions can use -------------------------------------------------------------------------------------------

    async def models(self) -> ModelList:
        """Return the models that are configured, served on this machine, or available with a key; and the default."""
        ...

    async def tools(self) -> tuple[ToolView, ...]:
        """Return the tools that sessions may call."""
        ...

    async def agents(self, workspace: str = "") -> tuple[AgentView, ...]:
        """Return the configured agents, and those in files of the user and of a trusted workspace."""
        ...

    async def commands(self, workspace: str = "") -> tuple[CommandView, ...]:
        """Return the slash commands of the user, and of a workspace (empty: the working directory) if it is trusted."""
        ...

    async def folder_trust(self, workspace: str = "") -> FolderTrustView:
        """Return what a workspace (empty: the working directory) brings that instructs the model or configures Loom,
        and whether the user trusts it."""
        ...

    async def decide_trust(self, workspace: str, digest: str, *, is_trusted: bool) -> FolderTrustView:
        """Trust or refuse what a workspace brings, until it changes. `digest` is that of the files that the user has
        seen; raise `Conflict` if others are there now."""
        ...

    async def usage(self, days: int = 30, *, tools: bool = False) -> UsageReport:
        """Return the usage and cost of answers of the last `days` days, by day, model and session; with `tools`, also
        the use of tools."""
        ...

    async def limits(self) -> ConfigView:
        """Return limits for attachments, the default model and the workspace."""
        ...


class FindableSession(Protocol):
    """The fields by which a session is found."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def workspace(self) -> str: ...
    @property
    def parent_session(self) -> str: ...


S = TypeVar("S", bound=FindableSession)


async def all_sessions(
    library: Library,
    *,
    archived: bool = False,
    folder: str | None = None,
    tag: str = "",
    pinned: bool | None = None,
    page: int = _PAGE,
) -> AsyncGenerator[SessionView]:
    """Yield all sessions, newest first, read in pages of this size."""
    before: str | None = ""
    while before is not None:
        found = await library.sessions(
            archived=archived, folder=folder, tag=tag, pinned=pinned, limit=page, before=before
        )
        for session in found.sessions:
            yield session
        before = found.next


async def find_session(sessions: AsyncIterable[S], text: str = LATEST, *, workspace: str = "") -> S:
    """Find a session like `Library.find`, in any list of sessions, newest first."""
    if text == LATEST:
        async for found in sessions:
            if not found.parent_session and (not workspace or found.workspace == workspace):
                return found
        where = "in this folder yet" if workspace else "yet"
        raise NotFound(f"No sessions {where}.", hint='Start one: `loom "hello"`.')
    matches: list[S] = []
    number = 0
    upper = text.upper()
    async for session in sessions:
        number += 1
        if (text.isdigit() and len(text) < _SHORTEST_ID and int(text) == number) or session.id == upper:
            return session
        by_id = len(text) >= _SHORTEST_ID and (session.id.startswith(upper) or session.id.endswith(upper))
        if by_id or session.title == text:
            matches.append(session)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise NotFound(
            f"{text!r} matches {len(matches)} sessions.", hint="Use a longer id prefix; list them with `loom sessions`."
        )
    raise NotFound(f"Session {text!r} not found.", hint="List them: `loom sessions`.")


async def read_media(library: Library, digest: str) -> bytes:
    """Return the bytes of a medium in a form that can be shown."""
    return await (await library.open_media(digest)).read()
