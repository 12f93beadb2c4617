"""RemoteBackend: the library of a daemon. Other clients of a session see the same, and turns go on without this one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from urllib.parse import quote

import msgspec

from loom.api_types import ModelList, SessionPage, SessionView, TreeView
from loom.client import Client, RemoteSession
from loom.client.connection import DaemonConnection
from loom.compile.policy import Override, override_key
from loom.config import Config
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.errors import LoomError, NotFound
from loom.events import ApprovalRequested, Event, decode_event
from loom.message_types import History, QueueView
from loom.models import Usage
from loom.prompt import Receipt, ReceiptRow
from loom.runtime.attachments import limit_pages
from loom.runtime.model_resolution import price, resolve_model
from loom.session import EventIterator, Queued
from loom.tui.backend import (
    AnswerChoice,
    ConversationFacts,
    IngestedInput,
    ListedModel,
    PathMessage,
    SessionEntry,
    TreeMessage,
)
from loom.tui.view_values import PAGE, entry_of, facts_of, listed_model, read_pages, tree_messages


class RemoteConversation:
    """A session of a daemon, which runs its turns."""

    def __init__(self, link: DaemonConnection, session: RemoteSession) -> None:
        self._link = link
        self._session = session
        self._seq: int | None = None
        """The number of the last event before the path was read."""
        self._partial: tuple[Event, ...] = ()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def id(self) -> str:
        return self._session.id

    async def info(self) -> ConversationFacts:
        return facts_of(msgspec.json.decode(await self._link.ask("GET", self._at()), type=SessionView))

    async def path(self, *, newest: int = 0) -> tuple[PathMessage, ...]:
        path, last_page = await read_pages(partial(self._page, limit=newest or PAGE), is_whole=not newest)
        if self._seq is None:
            self._seq = last_page.seq
            running = last_page.running
            self._partial = tuple(decode_event(bytes(it.data)) for it in running.partial) if running is not None else ()
        return path

    async def _page(self, before: str, *, limit: int) -> History:
        place: dict[str, str | int] = {"limit": limit, **({"before": before} if before else {})}
        return msgspec.json.decode(await self._link.ask("GET", self._at("/messages"), params=place), type=History)

    async def tree(self) -> tuple[TreeMessage, ...]:
        return tree_messages(msgspec.json.decode(await self._link.ask("GET", self._at("/tree")), type=TreeView))

    async def events(self) -> AsyncGenerator[Event]:
        """Begin with the answer that is under way, as far as it is known."""
        if self._seq is None:
            await self.path()
        for event in self._partial:
            yield event
        async with aclosing(self._session.events(self._seq or 0)) as events:
            async for _, event in events:
                yield event

    async def post(self, *content: Content, parent: str | None = None) -> Queued:
        return await self._session.post(*content, parent=parent)

    async def queue(self) -> tuple[Queued, ...]:
        found = msgspec.json.decode(await self._link.ask("GET", self._at("/queue")), type=QueueView)
        return tuple(
            Queued(id=it.message, key="", message=Message("user", it.blocks) if it.blocks else None)
            for it in found.queue
        )

    async def unqueue(self, queued: str) -> bool:
        try:
            await self._link.ask("DELETE", self._at(f"/queue/{quote(queued, safe='')}"), repeats=False)
        except NotFound:
            return False
        return True

    async def regenerate(self, node: str | None = None, *, model: str = "") -> None:
        self._run(self._session.regenerate(node, model=model))

    async def compact(self) -> None:
        await self._link.ask("POST", self._at("/compact"), json={})

    def _run(self, stream: EventIterator) -> None:
        """Keep a request going; its events arrive with all others."""

        async def drain() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(drain())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
        key = override_key((await self.path())[row.message].node, row.block, row.inner)
        await self._link.ask("PUT", self._at("/overrides"), json={key: rendition or "auto"})

    def _at(self, below: str = "") -> str:
        return f"/v1/sessions/{self.id}{below}"


class RemoteBackend:
    """`config` prices answers and limits attachments, as it would in this process."""

    def __init__(
        self, url: str, token: str, config: Config, *, workspace: str = "", tools: Sequence[str] | None = None
    ) -> None:
        self._link = DaemonConnection(url, token)
        self._client = Client(url, token, limits=config.media_limits())
        self._config = config
        self._workspace = workspace
        self._tools = tools

    @property
    def place(self) -> str:
        return self._client.url

    async def new(self, *, title: str = "", model: str = "") -> RemoteConversation:
        made = await self._client.session(title=title, model=model, workspace=self._workspace, tools=self._tools)
        return RemoteConversation(self._link, made)

    async def open(self, session_id: str) -> RemoteConversation:
        return RemoteConversation(self._link, await self._client.session(session_id, tools=self._tools))

    async def default_model(self) -> str:
        return (await self._models()).default

    async def sessions(self, query: str = "", *, limit: int = 100) -> tuple[SessionEntry, ...]:
        params: dict[str, str | int] = {"q": query, "limit": limit}
        found = msgspec.json.decode(await self._link.ask("GET", "/v1/sessions", params=params), type=SessionPage)
        return tuple(entry_of(view) for view in found.sessions)

    async def _models(self) -> ModelList:
        return msgspec.json.decode(await self._link.ask("GET", "/v1/models"), type=ModelList)

    async def models(self) -> tuple[ListedModel, ...]:
        return tuple(listed_model(view) for view in (await self._models()).models)

    async def ingest(self, *content: Content) -> IngestedInput:
        blocks, notices = limit_pages(await self._client.upload(*content), self._config.documents.pages_per_read)
        return IngestedInput(blocks=tuple(blocks), notices=tuple(notices))

    async def media(self, digest: str) -> bytes:
        return await (await self._client.open_media(digest)).read()

    def price(self, model: str, usage: Usage) -> float | None:
        """Of models that only the daemon knows, the price is not known here."""
        try:
            return price(resolve_model(model, self._config), usage)
        except LoomError:
            return None

    def warnings(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        await self._client.close()
        await self._link.close()
