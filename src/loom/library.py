"""Library: the protocol for everything beside a single session. `LocalLibrary` (`runtime.library`) uses the stores of
this process, `RemoteLibrary` (`client`) a daemon."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from loom.content.blocks import ContentBlock
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.errors import NotFound

if TYPE_CHECKING:
    from loom.api_types import (
        ConfigView,
        DescriptionView,
        MediaText,
        MediaView,
        ModelList,
        SearchResult,
        SessionPage,
        SessionView,
        ToolView,
    )
    from loom.message_types import ImportView, SessionApprovals
    from loom.session import MediaBytes, Session

LATEST: Final = "latest"
_SHORTEST_ID: Final = 6
_PAGE: Final = 100


class Library(Protocol):
    """All sessions, the media, and what sessions can use."""

    # Sessions --------------------------------------------------------------------------------------------------------

    async def sessions(
        self, *, query: str = "", archived: bool = False, limit: int = 50, before: str = ""
    ) -> SessionPage:
        """Return sessions, newest first; with `query`, those with matching messages, best first. `before` is `next` of
        the page before."""
        ...

    async def open(self, session_id: str, *, tools: Sequence[str] | None = None) -> Session:
        """Return a session by its full id; raise `NotFound`. `tools` limits what messages sent through this object may
        call (None: all)."""
        ...

    async def find(self, text: str) -> SessionView:
        """Return the session that `text` names: `latest`, its number in the list, its id or the beginning or end of it
        (6 characters or more), or its title. Raise `NotFound` if there is none, or more than one."""
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
        """Create a session. `model` empty means that of the `agent`, or the default model; `workspace` empty, the
        working directory; `agent` is the name of a configured agent."""
        ...

    async def import_messages(
        self, messages: Sequence[Message], *, title: str = "", model: str = "", system: str = "", workspace: str = ""
    ) -> ImportView:
        """Store a conversation of another program as a session. Its media are in the store (`upload`). A session that
        has the same conversation at its head is returned instead of a new one."""
        ...

    async def delete(self, session_id: str) -> int:
        """Delete a session and the media that only it used; return the bytes that were freed, as far as known."""
        ...

    async def search(self, text: str, *, limit: int = 20) -> tuple[SearchResult, ...]:
        """Find words in messages, titles, documents and images, best first."""
        ...

    async def approvals(self) -> tuple[SessionApprovals, ...]:
        """Return the sessions with pending approvals, newest first."""
        ...

    # Media -----------------------------------------------------------------------------------------------------------

    async def upload(self, *content: Content) -> tuple[ContentBlock, ...]:
        """Store content and return its blocks, which can be sent in any session. Paths are files of this machine."""
        ...

    async def add_media(self, data: bytes, name: str = "") -> MediaView:
        """Store one file and return its facts and its block."""
        ...

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        """Open a medium in one of the forms that `Session.open_media` names; `sent:MODEL` shows it alone."""
        ...

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        """Return the text of a document or an image, of one page or of all (0)."""
        ...

    async def describe(self, digest: str, model: str = "") -> DescriptionView:
        """Let a model (empty: the configured describer) describe an image in words; the result is stored."""
        ...

    # What sessions can use -------------------------------------------------------------------------------------------

    async def models(self) -> ModelList:
        """Return the models that are configured, served on this machine, or available with a key; and the default."""
        ...

    async def tools(self) -> tuple[ToolView, ...]:
        """Return the tools that sessions may call."""
        ...

    async def limits(self) -> ConfigView:
        """Return limits for attachments, the default model and the workspace."""
        ...


async def all_sessions(library: Library, *, archived: bool = False) -> AsyncGenerator[SessionView]:
    """Yield all sessions, newest first."""
    before: str | None = ""
    while before is not None:
        page = await library.sessions(archived=archived, limit=_PAGE, before=before)
        for found in page.sessions:
            yield found
        before = page.next


async def last_session(library: Library, *, workspace: str | Path = "") -> SessionView:
    """Return the newest session, of one workspace if given; raise `NotFound` if there is none."""
    async for found in all_sessions(library):
        if not workspace or found.workspace == str(workspace):
            return found
    where = "in this folder yet" if workspace else "yet"
    raise NotFound(f"No sessions {where}.", hint='Start one: loom "hello"')


async def find_session(library: Library, text: str) -> SessionView:
    """The rule of `Library.find`, for any library that can list its sessions."""
    if text == LATEST:
        return await last_session(library)
    matches: dict[str, SessionView] = {}
    number = 0
    upper = text.upper()
    async for session in all_sessions(library):
        number += 1
        if (text.isdigit() and len(text) < _SHORTEST_ID and int(text) == number) or session.id == upper:
            return session
        by_id = len(text) >= _SHORTEST_ID and (session.id.startswith(upper) or session.id.endswith(upper))
        if by_id or session.title == text:
            matches[session.id] = session
    return _only(text, matches)


def _only(text: str, matches: Mapping[str, SessionView]) -> SessionView:
    if len(matches) == 1:
        return next(iter(matches.values()))
    if matches:
        raise NotFound(
            f"{text!r} matches {len(matches)} sessions.", hint="Use a longer id prefix; list them with `loom sessions`."
        )
    raise NotFound(f"Session {text!r} not found.", hint="List them: `loom sessions`.")
