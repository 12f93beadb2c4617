"""LocalBackend: the library in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from loom.compile.policy import Override, override_key
from loom.config import Config
from loom.content.inputs import Content
from loom.errors import LoomError
from loom.events import ApprovalRequested, Event, NoticeRaised
from loom.models import Model, Usage
from loom.prompt import Receipt, ReceiptRow
from loom.runtime import FIRST_CHOICES, Runtime, key_for
from loom.runtime.attachments import limit_pages
from loom.runtime.model_resolution import key_names, price
from loom.runtime.session import LocalSession
from loom.session import EventIterator, Queued
from loom.store.search import MessageSearch
from loom.tui.backend import (
    AnswerChoice,
    ConversationFacts,
    IngestedInput,
    ListedModel,
    PathMessage,
    SessionEntry,
    TreeMessage,
)

_FLAGS = {"vision": "vision", "pdf": "native_pdf", "thinking": "thinking", "tools": "tools"}


class LocalConversation:
    """A session of this process. What is posted is run here, one turn after another."""

    def __init__(self, runtime: Runtime, session: LocalSession) -> None:
        self._runtime = runtime
        self._session = session
        self._events: asyncio.Queue[Event | LoomError] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self._session.id

    async def info(self) -> ConversationFacts:
        stored = await self._runtime.sessions.get(self.id)
        return ConversationFacts(
            id=stored.id, title=stored.title, model=stored.model, workspace=stored.workspace, head=stored.head_id
        )

    async def path(self) -> tuple[PathMessage, ...]:
        head = await self._session.head()
        nodes = await self._runtime.forest.path(head) if head else ()
        return tuple(
            PathMessage(node=node.id, message=node.message, speaker=str(node.meta.get("model") or ""))
            for node in nodes
            if node.message is not None
        )

    async def tree(self) -> tuple[TreeMessage, ...]:
        found = await self._runtime.forest.read_tree(self.id)
        return tuple(
            TreeMessage(
                node=node.id, parent=node.parent_id, message=node.message, speaker=str(node.meta.get("model") or "")
            )
            for node in found.nodes
            if node.message is not None
        )

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
        return await self._runtime.queue.remove(self.id, queued)

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
        await self._runtime.sessions.update(self.id, title=title)

    async def go(self, node: str) -> None:
        await self._session.go(node)

    async def fork(self, node: str | None = None) -> str:
        return (await self._session.fork(node)).id

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        return await self._session.plan(models)

    async def override(self, row: ReceiptRow, rendition: Override | None) -> None:
        snapshot = await self._session.snapshot()
        key = override_key(snapshot.path[row.message].id, row.block, row.inner)
        stored = await self._runtime.sessions.get(self.id)
        kept = {name: wish for name, wish in stored.overrides.items() if name != key}
        if rendition is not None:
            kept[key] = rendition
        await self._runtime.sessions.update(self.id, rev=stored.rev, overrides=kept)


class LocalBackend:
    """`system` and `agent` are those of new sessions."""

    def __init__(self, runtime: Runtime, stack: AsyncExitStack, *, system: str = "", agent: str = "") -> None:
        self._runtime = runtime
        self._stack = stack
        self._system = system
        self._agent = agent
        self.tools: Sequence[str] | None = None
        """Those that messages may call; None means all."""

    @classmethod
    async def start(cls, config: Config, *, system: str = "", agent: str = "") -> LocalBackend:
        """Open the store of `config` with every built-in tool."""
        stack = AsyncExitStack()
        runtime = await stack.enter_async_context(Runtime.open(config))
        runtime.tools = runtime.built_in_tools()
        return cls(runtime, stack, system=system, agent=agent)

    @property
    def place(self) -> str:
        return ""

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    async def new(self, *, title: str = "", model: str = "") -> LocalConversation:
        session = await self._runtime.session(
            title=title, model=model, system=self._system, tools=self.tools, agent=self._agent
        )
        return LocalConversation(self._runtime, session)

    async def open(self, session_id: str) -> LocalConversation:
        return LocalConversation(
            self._runtime, await self._runtime.session(session_id, tools=self.tools, agent=self._agent)
        )

    async def default_model(self) -> str:
        return self._runtime.model(await self._runtime.default_model()).reference

    async def sessions(self, query: str = "", *, limit: int = 100) -> tuple[SessionEntry, ...]:
        if query.strip():
            return await self._search(query, limit)
        stored = await self._runtime.sessions.list(limit=limit)
        return tuple(
            SessionEntry(
                id=it.id,
                title=it.title,
                model=it.model,
                workspace=it.workspace,
                updated_at=it.updated_at,
                state="running" if "running" in it.settings else "idle",
            )
            for it in stored
        )

    async def _search(self, query: str, limit: int) -> tuple[SessionEntry, ...]:
        hits = await MessageSearch(self._runtime.database).find(query, limit=limit, per_session=1)
        found: list[SessionEntry] = []
        for hit in hits:
            stored = await self._runtime.sessions.get(hit.session)
            found.append(
                SessionEntry(
                    id=stored.id,
                    title=stored.title,
                    model=stored.model,
                    workspace=stored.workspace,
                    updated_at=stored.updated_at,
                    snippet=hit.snippet,
                )
            )
        return tuple(found)

    async def models(self) -> tuple[ListedModel, ...]:
        runtime = self._runtime
        local = [name for server in await runtime.local_servers() for name in server.models]
        chosen = [f"{platform}/{name}" for platform, name in FIRST_CHOICES.items()]
        names = dict.fromkeys(
            [await runtime.default_model(), *runtime.config.models, *local, *chosen, runtime.BUILT_IN]
        )
        found: dict[str, ListedModel] = {}
        for name in names:
            entry = _model_entry(runtime, name)
            found.setdefault(entry.reference, entry)
        return tuple(found.values())

    async def ingest(self, *content: Content) -> IngestedInput:
        found = await self._runtime.ingest(*content)
        blocks, notices = limit_pages(found.blocks, self._runtime.config.documents.pages_per_read)
        return IngestedInput(blocks=tuple(blocks), notices=(*found.notices, *notices))

    async def media(self, digest: str) -> bytes:
        return await self._runtime.media.load(digest)

    def price(self, model: str, usage: Usage) -> float | None:
        return self._runtime.cost(self._runtime.model(model), usage)

    def warnings(self) -> tuple[str, ...]:
        found = (*self._runtime.config.warnings, *self._runtime.notices)
        self._runtime.notices.clear()
        return found

    async def close(self) -> None:
        await self._stack.aclose()


def _model_entry(runtime: Runtime, name: str) -> ListedModel:
    model = runtime.model(name)
    usd = price(model, Usage(input_tokens=1_000))
    return ListedModel(
        name=name,
        reference=model.reference,
        context_tokens=model.limits.context_tokens,
        usd_per_million=None if usd is None else usd * 1_000,
        note="" if _has_key(runtime, model) else f"no key: loom keys set {key_names(model.provider)[0]}",
        **{column: _flag(model, flag) for column, flag in _FLAGS.items()},
    )


def _flag(model: Model, flag: str) -> str:
    if model.capabilities.origins.get(flag, "declared") == "guessed":
        return "?"
    return "yes" if getattr(model.capabilities, flag) else "no"


def _has_key(runtime: Runtime, model: Model) -> bool:
    has_own = bool(model.alias) and bool(runtime.config.models[model.alias].api_key)
    return has_own or not key_names(model.provider) or bool(key_for(model.provider, runtime.config))
