"""LocalBackend: the library in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from loom.compile.policy import Override, override_key
from loom.config import Config
from loom.content.inputs import Content
from loom.errors import LoomError, NotFound
from loom.events import ApprovalRequested, Event, NoticeRaised
from loom.message_types import History
from loom.models import Usage
from loom.prompt import Receipt, ReceiptRow
from loom.runtime import Runtime
from loom.runtime.attachments import limit_pages
from loom.runtime.options import ProviderChoice
from loom.runtime.session import LocalSession
from loom.session import EventIterator, Queued
from loom.tui.backend import (
    AnswerChoice,
    ConversationFacts,
    IngestedInput,
    ListedModel,
    OpenConversation,
    PathMessage,
    SessionEntry,
    TreeMessage,
)
from loom.tui.remote_backend import RemoteBackend
from loom.tui.view_values import PAGE, entry_of, facts_of, listed_model, read_pages, tree_messages


class LocalConversation:
    """A session of this process. What is posted is run here, one turn after another."""

    def __init__(self, session: LocalSession) -> None:
        self._session = session
        self._events: asyncio.Queue[Event | LoomError] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self._session.id

    async def info(self) -> ConversationFacts:
        return facts_of(await self._session.info())

    async def path(self, *, newest: int = 0) -> tuple[PathMessage, ...]:
        async def read(before: str) -> History:
            return await self._session.history(before=before, limit=newest or PAGE)

        path, _ = await read_pages(read, is_whole=not newest)
        return path

    async def tree(self) -> tuple[TreeMessage, ...]:
        return tree_messages(await self._session.tree())

    async def events(self) -> AsyncGenerator[Event]:
        self._work()
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, LoomError):
                    raise event
                yield event
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Stop what runs here; the turn stays open for the next process to continue."""
        await self._session.leave()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _work(self) -> None:
        if self._working is None or self._working.done():
            self._working = self._start(self._session.work())

    def _start(self, stream: EventIterator) -> asyncio.Task[None]:
        task = asyncio.create_task(self._pump(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pump(self, stream: EventIterator) -> None:
        try:
            async for event in stream:
                self._events.put_nowait(event)
        except LoomError as error:
            self._events.put_nowait(error)
        finally:
            await stream.aclose()

    async def post(self, *content: Content, parent: str | None = None) -> Queued:
        queued = await self._session.post(*content, parent=parent)
        for notice in queued.notices:
            self._events.put_nowait(NoticeRaised(text=notice, code="door"))
        self._work()
        return queued

    async def queue(self) -> tuple[Queued, ...]:
        return await self._session.queue()

    async def unqueue(self, queued: str) -> bool:
        try:
            await self._session.remove_queued(queued)
        except NotFound:
            return False
        return True

    async def regenerate(self, node: str | None = None, *, model: str = "") -> None:
        await self._session.post_again(node, model=model)
        self._work()

    async def compact(self) -> None:
        await self._start(self._session.compact())

    async def cancel(self) -> None:
        await self._session.cancel()

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        return await self._session.approvals()

    async def answer(self, approval: str, answer: AnswerChoice, reason: str = "") -> None:
        await self._session.answer(approval, answer, reason)

    async def use(self, model: str) -> None:
        await self._session.use(model)

    async def rename(self, title: str) -> None:
        await self._session.rename(title)

    async def go(self, node: str) -> None:
        await self._session.go(node)

    async def fork(self, node: str | None = None) -> str:
        return (await self._session.fork(node)).id

    async def undo(self, step: int | None = None) -> tuple[str, ...]:
        return (await self._session.undo(step)).files

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        return await self._session.plan(models)

    async def override(self, row: ReceiptRow, rendition: Override | None) -> None:
        snapshot = await self._session.snapshot()
        key = override_key(snapshot.path[row.message].id, row.block, row.inner)
        await self._session.set_overrides({key: rendition or "auto"})


class LocalBackend:
    """`system` and `agent` are those of new sessions."""

    def __init__(self, runtime: Runtime, stack: AsyncExitStack, *, system: str = "", agent: str = "") -> None:
        self._runtime = runtime
        self._stack = stack
        self._system = system
        self._agent = agent
        self.daemon: RemoteBackend | None = None
        """A daemon on the same store that runs the turns, so that its other clients see them."""
        self.tools: Sequence[str] | None = None
        """Those that messages may call; None means all."""

    @classmethod
    async def start(
        cls,
        config: Config,
        *,
        system: str = "",
        agent: str = "",
        providers: ProviderChoice | None = None,
        instructions: bool = True,
    ) -> LocalBackend:
        """Open the store of `config` with every built-in tool; `providers` and `instructions` are `Runtime.open`'s."""
        stack = AsyncExitStack()
        opening = Runtime.open(config, tools="all", providers=providers, instructions=instructions)
        runtime = await stack.enter_async_context(opening)
        return cls(runtime, stack, system=system, agent=agent)

    @property
    def place(self) -> str:
        return "" if self.daemon is None else self.daemon.place

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    async def new(self, *, title: str = "", model: str = "") -> OpenConversation:
        session = await self._runtime.session(
            title=title, model=model, system=self._system, tools=self.tools, agent=self._agent
        )
        if self.daemon is not None:
            return await self.daemon.open(session.id)
        return LocalConversation(session)

    async def open(self, session_id: str) -> OpenConversation:
        if self.daemon is not None:
            return await self.daemon.open(session_id)
        return LocalConversation(await self._runtime.session(session_id, tools=self.tools, agent=self._agent))

    async def default_model(self) -> str:
        return self._runtime.model(await self._runtime.default_model()).reference

    async def sessions(self, query: str = "", *, limit: int = 100) -> tuple[SessionEntry, ...]:
        page = await self._runtime.library.sessions(query=query.strip(), limit=limit)
        return tuple(entry_of(view) for view in page.sessions)

    async def models(self) -> tuple[ListedModel, ...]:
        return tuple(listed_model(view) for view in (await self._runtime.library.models()).models)

    async def ingest(self, *content: Content) -> IngestedInput:
        found = await self._runtime.ingest(*content)
        blocks, notices = limit_pages(found.blocks, self._runtime.config.documents.pages_per_read)
        return IngestedInput(blocks=tuple(blocks), notices=(*found.notices, *notices))

    async def media(self, digest: str) -> bytes:
        return await (await self._runtime.library.open_media(digest)).read()

    def price(self, model: str, usage: Usage) -> float | None:
        return self._runtime.library.usd(model, usage)

    def warnings(self) -> tuple[str, ...]:
        found = (*self._runtime.config.warnings, *self._runtime.notices)
        self._runtime.notices.clear()
        return found

    async def close(self) -> None:
        if self.daemon is not None:
            await self.daemon.close()
        await self._stack.aclose()
