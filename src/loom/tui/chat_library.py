"""ChatLibrary: the library that the terminal UI uses, in this process or on a daemon, and the settings of its new
sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from loom.content.inputs import Content, Ingested
from loom.errors import LoomError
from loom.tui.conversation import OpenConversation

if TYPE_CHECKING:  # not imported before the first paint
    from loom.api_types import AgentView, CommandView, FolderTrustView, ModelView, SessionView
    from loom.config import Config
    from loom.library import Library
    from loom.models import Usage
    from loom.session import Session


class ChatLibrary:
    """A library for the terminal UI. `place` is the daemon's URL; empty in process. `config` provides prices and the
    page limit of attachments; `close` is awaited at the end."""

    def __init__(
        self,
        library: Library,
        config: Config,
        *,
        place: str = "",
        system: str = "",
        agent: str = "",
        workspace: str = "",
        tools: Sequence[str] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.library = library
        self.config = config
        self.place = place
        self._system = system
        self.agent = agent
        self._workspace = workspace
        self._tools = tools
        self._close = close
        self._opened: list[OpenConversation] = []
        """Conversations whose turns may run in this process: they go on while another one is shown."""
        self.on_error: Callable[[LoomError], None] = _ignore

    async def create(self, *, title: str = "", model: str = "", system: str = "") -> OpenConversation:
        session = await self.library.create(
            title=title,
            model=model,
            system=system or self._system,
            agent=self.agent,
            workspace=self._workspace,
            tools=self._tools,
        )
        return self._remember(session)

    async def open(self, session_id: str) -> OpenConversation:
        return self._remember(await self.library.open(session_id, tools=self._tools))

    def _remember(self, session: Session) -> OpenConversation:
        opened = OpenConversation(session, self._report)
        self._opened = [*(it for it in self._opened if it.is_working), opened]
        return opened

    def _report(self, error: LoomError) -> None:
        self.on_error(error)

    async def default_model(self) -> str:
        return (await self.library.limits()).model

    async def sessions(self, query: str = "", *, limit: int = 100) -> tuple[SessionView, ...]:
        return (await self.library.sessions(query=query.strip(), limit=limit)).sessions

    async def models(self) -> tuple[ModelView, ...]:
        return (await self.library.models()).models

    async def agents(self) -> tuple[AgentView, ...]:
        return await self.library.agents(self._workspace)

    async def commands(self) -> tuple[CommandView, ...]:
        """Return the slash commands that the session expands in messages."""
        return await self.library.commands(self._workspace)

    async def folder_trust(self, workspace: str = "") -> FolderTrustView:
        """Return the instructions and settings in a workspace (empty: that of new sessions), and whether the user
        trusts it."""
        return await self.library.folder_trust(workspace or self._workspace)

    async def ingest(self, *content: Content) -> Ingested:
        """Store attachments; of a long document, only its first pages are sent."""
        from loom.runtime.attachments import limit_pages

        found = await self.library.ingest(*content)
        blocks, notices = limit_pages(found.blocks, self.config.documents.pages_per_read)
        return Ingested(tuple(blocks), (*found.notices, *notices))

    async def media(self, digest: str, form: str = "full") -> bytes:
        """Return the bytes of a medium in one of the forms of `Library.open_media`."""
        return await (await self.library.open_media(digest, form)).read()

    async def media_text(self, digest: str, page: int) -> str:
        return (await self.library.media_text(digest, page=page)).text

    def price(self, model: str, usage: Usage) -> float | None:
        """Return the price in US dollars; None if it is not known, such as that of a model that only the daemon has."""
        from loom.runtime.model_resolution import price, resolve_model

        try:
            return price(resolve_model(model, self.config), usage)
        except LoomError:
            return None

    async def close(self) -> None:
        async with AsyncExitStack() as stack:  # each ends, also if another one raises an error
            if self._close is not None:
                stack.push_async_callback(self._close)
            for opened in self._opened:
                stack.push_async_callback(opened.close)


def _ignore(_: LoomError) -> None:
    """Ignore errors before a screen shows the conversation."""
