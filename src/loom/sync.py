"""The library without `await`: `loom.ask` and `loom.Loom`, which use a runtime in a thread of its own.

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
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from loom.agent.event_stream import ReplyStream
from loom.agent.gate import Approve, StringRule
from loom.async_loom import AsyncLoom
from loom.compile.ports import Provider
from loom.config import Config, load_config
from loom.config.schema import AgentEntry
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.errors import LoomError
from loom.events import ApprovalRequested, Event
from loom.runtime import Runtime, resolve_model
from loom.runtime.custom_provider import CustomProvider
from loom.runtime.model_resolution import BUILT_IN_MODEL
from loom.runtime.options import ProviderChoice, ToolChoice
from loom.runtime.plan import Plan, plan_request
from loom.runtime.session import LocalSession
from loom.sampling import Choices
from loom.session import AnswerKeywords, MessageKeywords, Reply
from loom.tools.base import Tool
from loom.tools.diff import unified_diff

T = TypeVar("T")


def ask(
    *content: Content,
    model: str | CustomProvider = "",
    n: int = 1,
    thinking: str = "",
    options: Choices = None,
    output: Any = None,
    system: str = "",
    tools: ToolChoice = (),
    approve: Approve | StringRule | None = None,
    providers: ProviderChoice | None = None,
    provider: Provider | None = None,
) -> Reply:
    """Ask one question and return the answer. Strings after the first that name existing files are attached."""
    with Loom(model=model, tools=tools, approve=approve, providers=providers, system=system, provider=provider) as loom:
        return loom.ask(*content, n=n, thinking=thinking, options=options, output=output)


def diff(one: Reply | Message | str, other: Reply | Message | str) -> str:
    """Return the difference between two answers as a unified diff; empty if they are equal."""
    before, after = (found if isinstance(found, str) else found.text for found in (one, other))
    return unified_diff(f"{before.rstrip()}\n", f"{after.rstrip()}\n", "answer").text


class Loom:
    """`AsyncLoom` for code without `await`, with the same keywords. Use it in a `with` block, or call `close`.

    `provider` is the old form of `providers`: it replaces the provider of the platform of the model in use.
    """

    def __init__(
        self,
        *,
        model: str | CustomProvider = "",
        tools: ToolChoice = (),
        approve: Approve | StringRule | None = None,
        providers: ProviderChoice | None = None,
        store: str = "",
        media: str = "",
        config: Config | None = None,
        system: str = "",
        agents: Mapping[str, AgentEntry | Mapping[str, Any]] | None = None,
        provider: Provider | None = None,
    ) -> None:
        if provider is not None:
            providers = {**(providers or {}), _platform(model, config): provider}
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run_loop, name="loom", daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self._closed = False
        self._stopping = threading.Lock()
        """Held to schedule work: an event loop that is stopping would not run it."""
        self._is_stopped = False
        try:
            opening = AsyncLoom(
                model=model,
                tools=tools,
                approve=approve,
                providers=providers,
                store=store,
                media=media,
                config=config,
                system=system,
                agents=agents,
            )
            self._async_loom = self.run(self._stack.enter_async_context(opening))
        except BaseException:
            self.close()
            raise

    @property
    def runtime(self) -> Runtime:
        return self._async_loom.runtime

    def session(
        self,
        title: str = "",
        *,
        session_id: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        agent: str = "",
        tools: Iterable[str | Tool | Callable[..., Any]] | None = None,
    ) -> SyncSession:
        """Create a session, or open an existing one by its id. `tools` are those that it may call; None means all that
        this object was given."""
        opening = self._async_loom.session(
            title,
            session_id=session_id,
            model=model,
            system=system,
            workspace=workspace,
            agent=agent,
            tools=tools,
        )
        return SyncSession(self, self.run(opening))

    def ask(
        self,
        *content: Content,
        model: str = "",
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
        output: Any = None,
        system: str = "",
        tools: Iterable[str | Tool | Callable[..., Any]] | None = None,
    ) -> Reply:
        """Ask one question in a session of its own. Strings after the first that name existing files are attached.
        `output` is the type of `reply.output`."""
        asking = self._async_loom.ask(
            *content,
            model=model,
            n=n,
            thinking=thinking,
            options=options,
            output=output,
            system=system,
            tools=tools,
        )
        return self.run(asking)

    def close(self) -> None:
        if self._closed or not self._thread.is_alive():  # in a fork, everything belongs to the parent
            return
        self._check_usable()
        self._closed = True
        try:
            self.run(self._stack.aclose())
        finally:
            with self._stopping:
                self._is_stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run_loop(self) -> None:
        """Run the event loop until it is stopped, then end the tasks and generators that are left and close it."""
        with self._runner:
            self._loop.run_forever()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the event loop and return its result. An interrupt here cancels it.

        Raise `LoomError` where nothing would run it: after `close`, in a fork, and in that thread itself.
        """
        try:
            self._check_usable()
            with self._stopping:
                if self._is_stopped:
                    raise _closed_error()
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except LoomError:
            coroutine.close()
            raise
        try:
            return future.result()
        except CancelledError:
            if self._is_stopped:
                raise _closed_error() from None
            raise
        except BaseException:
            future.cancel()
            raise

    def _check_usable(self) -> None:
        if self._thread is threading.current_thread():
            raise LoomError(
                "This Loom cannot wait for itself: an async function that it runs called it.",
                hint="Make the function a plain `def`, or use loom.AsyncLoom.",
            )
        if not self._thread.is_alive() and not self._is_stopped:
            raise LoomError("This Loom was opened before a fork.", hint="Open one in each process.")

    def iterate(self, events: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator in this thread; leaving the loop early closes the iterator."""
        try:
            while True:
                try:
                    yield self.run(_next(events))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(events, "aclose", None)
            if close is not None and self._thread.is_alive():  # at the end of the program, threads have ended already
                self.run(close())


class SyncStream:
    """The events of the turns that answer a message, the text of the answer (`text()`) and, at the end, the `reply`.

    Closing it early (`close`, `with`, or `break` in a `for` loop) cancels the turn.
    """

    def __init__(self, loom: Loom, events: ReplyStream) -> None:
        self._loom = loom
        self._events = events
        self._iterator = loom.iterate(events)

    def __iter__(self) -> Iterator[Event]:
        return self._iterator

    def __next__(self) -> Event:
        return next(self._iterator)

    def text(self) -> Iterator[str]:
        """Iterate over the text of the answer only; raise the error of a turn that failed."""
        return self._loom.iterate(self._events.text())

    @property
    def reply(self) -> Reply:
        """The reply, after reading the remaining events. Raises the error of a turn that failed."""
        return self._loom.run(self._events.finish())

    def close(self) -> None:
        self._loom.run(self._events.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncSession:
    """A session for code without `await`."""

    def __init__(self, loom: Loom, session: LocalSession) -> None:
        self._loom = loom
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def head(self) -> str:
        """The node that the session points at. Assign a node or a reply to move there."""
        return self._run(self._session.head())

    @head.setter
    def head(self, node: str | Reply) -> None:
        self._run(self._session.go(node if isinstance(node, str) else node.node))

    def at(self, node: str | Reply) -> SyncNode:
        """Return an object that sends messages below that node."""
        return SyncNode(self, node if isinstance(node, str) else node.node)

    def stream(self, *content: Content, **how: Unpack[MessageKeywords]) -> SyncStream:
        """Send a message and iterate over the events of its turn; `text()` yields its text, `reply` is the whole
        answer."""
        return SyncStream(self._loom, self._session.stream(*content, **how))

    def send(self, *content: Content, **how: Unpack[MessageKeywords]) -> Reply:
        return self._run(self._session.send(*content, **how))

    def regenerate(self, node: str | None = None, **how: Unpack[AnswerKeywords]) -> SyncStream:
        return SyncStream(self._loom, self._session.regenerate(node, **how))

    def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace earlier ones."""
        self._run(self._session.set_options(options, thinking=thinking))

    def again(self, node: str | None = None, **how: Unpack[AnswerKeywords]) -> SyncStream:
        """Call `regenerate`, under its old name."""
        warnings.warn("Session.again is deprecated: use Session.regenerate", DeprecationWarning, stacklevel=2)
        return self.regenerate(node, **how)

    def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals, including those of an unfinished turn whose process has ended."""
        return self._run(self._session.approvals())

    def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        self._run(self._session.answer(approval, answer, reason))

    def resume(self) -> Iterator[Event]:
        """Continue an unfinished turn that waits for approvals; answer each when it is requested again."""
        return self._loom.iterate(self._session.resume())

    def cancel(self) -> None:
        """End the running turn, in any process."""
        self._run(self._session.cancel())

    def compact(self, *, model: str = "") -> Iterator[Event]:
        """Let the model summarize the conversation and continue from the summary; the original conversation stays as a
        branch."""
        return self._loom.iterate(self._session.compact(model=model))

    def path(self) -> tuple[Message, ...]:
        return self._run(self._session.path())

    def use(self, model: str) -> None:
        self._run(self._session.use(model))

    def fork(self, node: str | None = None) -> SyncSession:
        return SyncSession(self._loom, self._run(self._session.fork(node)))

    def plan(self, models: Sequence[str] = (), *content: Content) -> Plan:
        """Compile the next request for these models, with `content` as the next message. Nothing is sent."""
        return self._run(plan_request(self._session, models, content))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loom.run(coroutine)


class SyncNode:
    """A node of a session, to send messages below it."""

    def __init__(self, session: SyncSession, node: str) -> None:
        self._session = session
        self.node = node

    def stream(self, *content: Content, **how: Unpack[AnswerKeywords]) -> SyncStream:
        return self._session.stream(*content, **how, parent=self.node)

    def send(self, *content: Content, **how: Unpack[AnswerKeywords]) -> Reply:
        return self._session.send(*content, **how, parent=self.node)


def _platform(model: str | CustomProvider, config: Config | None) -> str:
    """Return the platform of the model in use, which `provider` replaces."""
    if not isinstance(model, str):
        return model.name
    config = config or load_config()
    return resolve_model(model or config.model or BUILT_IN_MODEL, config).provider


def _closed_error() -> LoomError:
    return LoomError("This Loom is closed", hint="Open a new one.")


async def _next(events: AsyncIterator[T]) -> T:
    return await anext(events)
