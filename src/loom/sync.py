"""The same without `await`: `loom.ask` and `loom.Loom`, thin doors to a runtime that lives in a thread of its own.

print(loom.ask("what is wrong here?", "login.png"))

with loom.Loom(model="claude-sonnet-5-5") as lm:
    session = lm.session("triage")
    for event in session.stream("what is wrong?", loom.image("login.png")):
        if event.type == "text":
            print(event.text, end="")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec

from loom.compile.ports import Provider
from loom.config import Config, load_config
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.errors import ConfigError, LoomError
from loom.events import ApprovalRequested, Event
from loom.runtime import Runtime
from loom.runtime.custom_provider import Answering, CustomProvider
from loom.runtime.plan import Plan, plan_request
from loom.runtime.session import LocalSession
from loom.session import Reply
from loom.tools.base import Tool, tool
from loom.tools.diff import unified_diff

T = TypeVar("T")
_MAX_PATH_CHARS = 4_096


def ask(*content: Content, model: str | CustomProvider = "", provider: Provider | None = None) -> Reply:
    """One question, one answer. Strings after the first that name existing files are attached."""
    with Loom(model=model, provider=provider) as loom:
        return loom.ask(*content)


def diff(one: Reply | Message | str, other: Reply | Message | str) -> str:
    """What two answers say differently, as a unified diff; empty where they say the same."""
    before, after = (found if isinstance(found, str) else found.text for found in (one, other))
    return unified_diff(f"{before.rstrip()}\n", f"{after.rstrip()}\n", "answer").text


class Loom:
    """A runtime for code that does not await. Use it in a `with` block, or close it.

    `model` is a name or a provider of your own. `tools` are typed functions, or "all" for those that Loom comes with.
    `provider` answers instead of the one that the model would have (a scripted one, in tests). `approve` decides on
    calls instead of asking a person: it gets (tool, what it would do) and says "allow", "ask" or "deny". `store` and
    `media` say where sessions and bytes are kept ("postgresql://…", "s3://bucket/prefix"); without them, and for all
    the rest, the configuration does.
    """

    def __init__(
        self,
        *,
        model: str | CustomProvider = "",
        tools: Iterable[Tool | Callable[..., Any]] | Literal["all"] = (),
        approve: Callable[[str, str], Literal["allow", "ask", "deny"]] | None = None,
        provider: Provider | None = None,
        store: str = "",
        media: str = "",
        config: Config | None = None,
    ) -> None:
        config = _load_config(config, store, media)
        self._model = model if isinstance(model, str) else model.name
        if self._model:
            config = msgspec.structs.replace(config, model=self._model)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loom", daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self._closed = False
        try:
            self.runtime = self.run(self._stack.enter_async_context(Runtime.open(config)))
            for found in self.runtime.built_in_tools().values() if tools == "all" else tools:
                made = found if isinstance(found, Tool) else tool(found)
                self.runtime.tools[made.name] = made
            if not isinstance(model, str):
                self.runtime.own_models[model.name] = Answering(model)
            if provider is not None:
                self.runtime.providers[self.runtime.model(self._model).provider] = provider
            if approve is not None:
                self.runtime.rule = approve
        except BaseException:
            self.close()
            raise

    def session(
        self, title: str = "", *, session_id: str = "", model: str = "", system: str = "", agent: str = ""
    ) -> SyncSession:
        """Begin a session, or open an earlier one by its id. `agent` names an agent of the configuration."""
        model = model or ("" if agent else self._model)
        found = self.run(self.runtime.session(session_id, title=title, model=model, system=system, agent=agent))
        return SyncSession(self, found)

    def ask(self, *content: Content) -> Reply:
        """One question in a session of its own."""
        first, *rest = content
        return self.session().send(first, *(_as_content(item) for item in rest))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.run(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop's thread; an interrupt here cancels it there."""
        if self._closed and self._thread is not threading.current_thread() and not self._loop.is_running():
            coroutine.close()
            raise LoomError("this Loom is closed", hint="Open a new one.")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, events: AsyncIterator[Event]) -> Iterator[Event]:
        """An async iterator, pulled from this side; leaving the loop early ends it there too."""
        try:
            while True:
                try:
                    yield self.run(_next(events))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                self.run(close())


class SyncSession:
    """A Session without `await`."""

    def __init__(self, loom: Loom, session: LocalSession) -> None:
        self._loom = loom
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def head(self) -> str:
        """The node that the session points at. Set it to a node, or to a reply, to go there."""
        return self._run(self._session.head())

    @head.setter
    def head(self, node: str | Reply) -> None:
        self._run(self._session.go(node if isinstance(node, str) else node.node))

    def at(self, node: str | Reply) -> SyncNode:
        """A place to say something from: below that node."""
        return SyncNode(self, node if isinstance(node, str) else node.node)

    def stream(self, *content: Content, model: str = "", parent: str | None = None, n: int = 1) -> Iterator[Event]:
        return self._loom.iterate(self._session.stream(*content, model=model, parent=parent, n=n))

    def send(self, *content: Content, model: str = "", parent: str | None = None, n: int = 1) -> Reply:
        return self._run(self._session.send(*content, model=model, parent=parent, n=n))

    def regenerate(self, node: str | None = None, *, model: str = "", n: int = 1) -> Iterator[Event]:
        return self._loom.iterate(self._session.regenerate(node, model=model, n=n))

    again = regenerate
    """The old name of `regenerate`."""

    def approvals(self) -> tuple[ApprovalRequested, ...]:
        """What waits for an answer, also of a turn whose process is gone."""
        return self._run(self._session.approvals())

    def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        self._run(self._session.answer(approval, answer, reason))

    def resume(self) -> Iterator[Event]:
        """Go on with a turn that was left while it waited for approvals; answer each as it is asked for again."""
        return self._loom.iterate(self._session.resume())

    def cancel(self) -> None:
        """End the running turn, wherever it runs."""
        self._run(self._session.cancel())

    def compact(self, *, model: str = "") -> Iterator[Event]:
        """Let the model summarise what was said, and go on from there; the whole conversation stays as a branch."""
        return self._loom.iterate(self._session.compact(model=model))

    def path(self) -> tuple[Message, ...]:
        return self._run(self._session.path())

    def use(self, model: str) -> None:
        self._run(self._session.use(model))

    def fork(self, node: str | None = None) -> SyncSession:
        return SyncSession(self._loom, self._run(self._session.fork(node)))

    def plan(self, models: Sequence[str] = (), *content: Content) -> Plan:
        """What the next request would carry for these models, with `content` said. Nothing is sent by looking."""
        return self._run(plan_request(self._session, models, content))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loom.run(coroutine)


class SyncNode:
    """A node of a session, to say something below it."""

    def __init__(self, session: SyncSession, node: str) -> None:
        self._session = session
        self.node = node

    def stream(self, *content: Content, model: str = "", n: int = 1) -> Iterator[Event]:
        return self._session.stream(*content, model=model, parent=self.node, n=n)

    def send(self, *content: Content, model: str = "", n: int = 1) -> Reply:
        return self._session.send(*content, model=model, parent=self.node, n=n)


def _load_config(config: Config | None, store: str, media: str) -> Config:
    if config is None:
        return load_config(flags={"store.url": store or None, "media.url": media or None})
    if store or media:
        raise ConfigError("a configuration says where things are kept.", hint="Give it store.url and media.url.")
    return config


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


def _as_content(item: Content) -> Content:
    """A string that names a file is that file; every other string is text."""
    if not isinstance(item, str) or "\n" in item or not 0 < len(item) < _MAX_PATH_CHARS:
        return item
    path = Path(item).expanduser()
    try:
        return path if path.is_file() else item
    except OSError:
        return item
