"""LocalSession: the Session of this process. One turn at a time, whoever asks, in whatever process; what is said
meanwhile waits its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, Literal

import msgspec

from loom.agent.approvals import ApprovalGone
from loom.agent.custom import spelled_out
from loom.agent.failures import GO_ON, error_of
from loom.agent.ingest import ingest
from loom.agent.ports import Record
from loom.agent.runner import Runner
from loom.agent.starts import Start
from loom.agent.tracked_files import mentions
from loom.agent.world import TurnWorld
from loom.content.inputs import Content, flatten
from loom.content.messages import Message
from loom.context.policy import Override, Said
from loom.context.prepare import Prepared
from loom.errors import Conflict, ContentError, LoomError
from loom.events import (
    ApprovalRequested,
    Event,
    MessageQueued,
    MessageStored,
    NoticeRaised,
    TurnFailed,
    TurnFinished,
)
from loom.prompt import Receipt
from loom.session import Options, Queued, Reply

BEAT_SECONDS: Final = 1.0
_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 0.5


class Shared:
    """What all holders of one session in this process share."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.nudged = asyncio.Event()
        """Somebody has asked something of the turn that runs."""
        self.runner: Runner | None = None
        """Who runs it now."""


class World(TurnWorld, frozen=True, kw_only=True):
    """What a session is given by its runtime."""

    open: Callable[[str, Sequence[str] | None], Awaitable[LocalSession]]
    fork: Callable[[str, str | None], Awaitable[str]]
    shared: Callable[[str], Shared]


class LocalSession:
    def __init__(
        self, record: Record, world: World, *, notices: Sequence[str] = (), tools: Sequence[str] | None = None
    ) -> None:
        """`notices` are told with the first turn; `tools` are those that what is said here may call (None: all)."""
        self._record = record
        self._world = world
        self._shared = world.shared(record.id)
        self._runner = Runner(record, world)
        self._runner.notices += notices
        self._tools = None if tools is None else tuple(tools)
        self._tracked: list[str] = []
        self._is_resting = False
        self._is_stuck = False
        """Whether what waits first could not be said, because the store cannot be written."""

    @property
    def id(self) -> str:
        return self._record.id

    # Say something ---------------------------------------------------------------------------------------------------

    def _options(self, model: str, parent: str | None, n: int) -> Options:
        if n < 1:
            raise ContentError(f"a message gets one answer or more, not {n}")
        return Options(model=model, parent=parent or "", n=n, tools=self._tools)

    async def stream(
        self, *content: Content, model: str = "", parent: str | None = None, n: int = 1
    ) -> AsyncGenerator[Event]:
        """Say something and watch the turn; leaving it early cancels it. While another turn runs, here or in another
        process, the message waits with its media until that is over.

        `model` answers this once; `parent` is the node to say it below; of `n` answers each is a turn of its own.
        What an earlier turn still waits for (`approvals`) is then not done: answer it first, with `resume`.
        """
        options = self._options(model, parent, n)
        message, words, notices = await self._ingested(content)

        async def begin() -> Start:
            self._runner.notices += notices
            mentioned = self._mentioned(words)
            return Start(message=message, model=model, parent=options.parent, mentioned=mentioned, tools=options.tools)

        async with aclosing(self._in_turn(begin, n, message)) as events:
            async for event in events:
                yield event

    async def again(self, node: str | None = None, *, model: str = "", n: int = 1) -> AsyncGenerator[Event]:
        """Another answer to the question above `node` (without one: to the last question): the head goes back to that
        question, and the answers are siblings."""
        options = self._options(model, node, n)

        async def begin() -> Start:
            return Start(node=await self._record.question(node), model=model, tools=options.tools)

        async with aclosing(self._in_turn(begin, n)) as events:
            async for event in events:
                yield event

    async def compact(self, *, model: str = "") -> AsyncGenerator[Event]:
        """Let the model summarise what was said, and go on from there. The whole conversation stays as a branch; media
        are kept, and can be looked at again."""

        async def begin() -> Start:
            return Start(compacts=True, model=model, tools=())

        async with aclosing(self._in_turn(begin, 1)) as events:
            async for event in events:
                yield event

    async def _in_turn(
        self, begin: Callable[[], Awaitable[Start]], n: int, message: Message | None = None
    ) -> AsyncGenerator[Event]:
        """So many answers to one question, when nobody else runs the session any more; where one fails, no more are
        asked for."""
        is_told = self._shared.lock.locked()
        if is_told and message is not None:
            yield MessageQueued(message=message)
        async with self._shared.lock:
            if not await self._record.take():
                if not is_told and message is not None:
                    yield MessageQueued(message=message)
                await self._wait()
            async with self._held():
                start = await begin()
                for _ in range(n):
                    is_failed = True
                    async with aclosing(self._runner.watch(start)) as events:
                        async for event in events:
                            is_failed = not isinstance(event, TurnFinished)
                            yield event
                    if is_failed:
                        return
                    start = Start(node=self._runner.question, model=start.model, tools=start.tools)

    async def send(self, *content: Content, model: str = "", parent: str | None = None, n: int = 1) -> Reply:
        """The same as `stream`, folded; a turn that fails raises the error that its event tells of. Of `n` answers the
        last is given, with the others as its `siblings`."""
        replies: list[Reply] = []
        answers: list[MessageStored] = []
        async with aclosing(self.stream(*content, model=model, parent=parent, n=n)) as events:
            async for event in events:
                match event:
                    case MessageStored() if event.message.role == "assistant":
                        answers.append(event)
                    case TurnFailed():
                        raise error_of(event.code, event.text, event.hint)
                    case TurnFinished():
                        replies.append(await self._reply(event, answers))
                        answers.clear()
                    case _:
                        pass
        if not replies:
            raise LoomError("the turn was cancelled", hint=GO_ON)
        *others, last = replies
        return msgspec.structs.replace(last, siblings=tuple(others))

    async def _reply(self, finished: TurnFinished, answers: Sequence[MessageStored]) -> Reply:
        receipt = self._runner.receipt
        if not answers or receipt is None:
            raise LoomError(f"the model gave an empty answer (stop: {finished.stop})", hint="Ask again.")
        return Reply(
            node=answers[-1].node,
            message=answers[-1].message,
            usage=finished.usage,
            stop=finished.stop,
            receipt=receipt,
            parent=await self._record.parent(self._runner.question),
        )

    async def _ingested(self, content: Sequence[Content]) -> tuple[Message, str, tuple[str, ...]]:
        """The message, the words that the user typed, and what there is to say of the rest."""
        said = spelled_out(list(content))
        found = await ingest(said, self._world.shelf, limits=self._world.limits, fetch=self._world.fetch)
        words = [leaf for leaf in flatten(said) if isinstance(leaf, str)]
        return Message("user", found.blocks), "\n".join(words), found.notices

    def _mentioned(self, words: str) -> tuple[str, ...]:
        tracked, self._tracked = self._tracked, []
        return (*tracked, *mentions(words))

    # Say it later ----------------------------------------------------------------------------------------------------

    async def post(
        self, *content: Content, key: str = "", model: str = "", parent: str | None = None, n: int = 1
    ) -> Queued:
        """Keep a message until `work`, here or in another process, takes it up. It is on disk when this returns.

        The same `key` again gives the first one back (`is_new` False), also after it was said.
        """
        message, words, notices = await self._ingested(content)
        options = msgspec.structs.replace(self._options(model, parent, n), mentioned=self._mentioned(words))
        queued = await self._record.enqueue(key, message, options)
        if queued.is_new:
            told = [NoticeRaised(text=notice, code="door") for notice in notices]
            await self._record.emit([MessageQueued(message=message, id=queued.id), *told])
        return msgspec.structs.replace(queued, notices=notices)

    async def post_again(self, node: str | None = None, *, key: str = "", model: str = "", n: int = 1) -> Queued:
        """The same for another answer to the question above `node`."""
        question = await self._record.question(node)
        return await self._record.enqueue(key, None, self._options(model, question, n))

    async def queue(self) -> tuple[Queued, ...]:
        """What waits to be said, in order."""
        return tuple(await self._record.waiting())

    async def work(self) -> AsyncGenerator[Event]:
        """Do what is to be done and nobody else is doing: a turn that was cut off is closed, or resumed where it waited
        for approvals; what is queued is said, one by one. Ends at once where somebody else runs the session."""
        while not self._shared.lock.locked() and not self._is_resting:
            async with self._shared.lock:
                if not await self._record.take():
                    return
                async with self._held(), aclosing(self._backlog()) as events:
                    async for event in events:
                        yield event
            # Whoever posted while we were finishing has seen us at work and left it to us.
            if self._runner.is_lost or self._is_stuck or not await self._record.waiting():
                return

    async def resume(self) -> AsyncGenerator[Event]:
        """Go on with a turn whose process went away while it waited for approvals: each is asked again, under the same
        name, what is allowed runs, and the turn goes on to its end. Leaving it early cancels it.

        A turn that cannot go on is closed; where none was left, nothing happens. `Conflict` where somebody runs it.
        """
        if self._shared.lock.locked():
            raise _is_running()
        async with self._shared.lock:
            if not await self._record.take():
                raise _is_running()
            async with self._held(), aclosing(self._left_turn()) as events:
                async for event in events:
                    yield event

    async def _left_turn(self) -> AsyncGenerator[Event]:
        """A turn that somebody left without an end."""
        cut = await self._runner.cut_turn()
        if await self._runner.can_resume(cut):
            async with aclosing(self._runner.watch(Start())) as events:
                async for event in events:
                    yield event
        else:
            for event in await self._runner.close_cut_turn(cut):
                yield event

    async def _backlog(self) -> AsyncGenerator[Event]:
        self._is_stuck = False
        async with aclosing(self._left_turn()) as events:
            async for event in events:
                yield event
        last: Queued | None = None
        while not self._runner.is_lost and not self._is_resting and (waiting := await self._record.waiting()):
            first = waiting[0]
            is_same = last is not None and (last.id, last.answers_left) == (first.id, first.answers_left)
            if is_same and not self._runner.is_cancelled:
                self._is_stuck = True
                return
            last = first
            options = first.options
            start = Start(
                queued=first,
                model=options.model,
                parent=options.parent if first.message is not None else "",
                mentioned=options.mentioned,
                tools=options.tools,
            )
            async with aclosing(self._runner.watch(start)) as events:
                async for event in events:
                    yield event

    # Look and change -------------------------------------------------------------------------------------------------

    async def path(self) -> tuple[Message, ...]:
        _, path = await self._record.path()
        return tuple(placed.message for placed in path)

    async def head(self) -> str:
        return (await self._record.state()).head

    async def use(self, model: str) -> None:
        await self._world.model(model)
        await self._record.save(model=model)

    async def go(self, node: str) -> None:
        """Move the head to any node that the session keeps. A turn that was cut off is closed first."""
        async with self._alone():
            await self._runner.close_cut_turn()
            await self._record.move(node)

    async def fork(self, node: str | None = None) -> LocalSession:
        return await self._world.open(await self._world.fork(self.id, node), self._tools)

    def track(self, *paths: str) -> None:
        """Text files that the agent is told of with the next turn, and of their changes from then on. `@path` in what
        the user says does the same."""
        self._tracked += paths

    async def plan(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, Override] | None = None,
    ) -> tuple[Receipt, ...]:
        """What the next request would carry, with `content` said. Nothing is sent by looking."""
        prepared = [await self.prepared(model, content=content, overrides=overrides) for model in models or ("",)]
        return tuple(found.receipt for found in prepared)

    async def prepared(
        self, model: str = "", *, content: Sequence[Content] = (), overrides: Mapping[str, Override] | None = None
    ) -> Prepared:
        """The next request for a model (without one: the session's), and its receipt."""
        state = await self._record.state()
        system, path = await self._record.path()
        if content:
            message, _, _ = await self._ingested(content)
            path = (*path, Said("", message))
        if not path:
            raise ContentError("the session holds no message yet: there is nothing to plan")
        found = await self._world.model(model or state.model)
        tools = self._runner.tools(self._tools)
        asking = self._runner.asking(state, found, system, path, tools=tools, overrides=overrides)
        return await self._world.look(asking.prepared)

    # While a turn runs -----------------------------------------------------------------------------------------------

    async def cancel(self) -> None:
        """End the running turn, wherever it runs; what is stored stays, and the session can go on."""
        if self._shared.runner is not None:
            await self._shared.runner.end()
        elif (await self._runner.cut_turn()).turn:
            try:
                await self.close_cut_turn()
            except Conflict:
                await self._record.ask("cancel", {})

    def rest(self) -> None:
        """`work` of this object takes up nothing more: it ends with the turn that runs."""
        self._is_resting = True

    async def leave(self) -> None:
        """End the turn that runs here as interrupted; where it waits for approvals it stays open, for `work` to resume,
        here or elsewhere."""
        self._is_resting = True
        if self._shared.runner is not None:
            await self._shared.runner.leave()

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        """Answer an approval of a turn that runs here or in another process, or that `resume` will take up."""
        runner = self._shared.runner
        if runner is not None and runner.approvals.answer(approval, answer, reason):
            return
        is_kept = approval in (await self._runner.cut_turn()).approvals
        if is_kept and runner is None:
            await self._record.ask("answer", {"approval": approval, "answer": answer, "reason": reason})
        elif not is_kept or runner is None or not runner.approvals.answer_early(approval, answer, reason):
            raise ApprovalGone("nobody waits for this approval any more")

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """What waits for an answer, also of a turn that was cut off."""
        waiting = (await self._runner.cut_turn()).approvals
        _, path = await self._record.path() if waiting else ("", ())
        calls = {call.id: call for call in path[-1].message.calls} if path else {}
        return tuple(
            ApprovalRequested(approval=name, call=calls[found.call], action=found.action, pattern=found.pattern)
            for name, found in waiting.items()
            if found.call in calls
        )

    async def close_cut_turn(self) -> None:
        """A turn whose process died is closed: its open approvals, its unanswered calls, itself. Every turn begins with
        this; `Conflict` where a turn runs."""
        async with self._alone():
            await self._runner.close_cut_turn()

    # Who runs it -----------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Until the process that runs the session has ended its turn, or is gone."""
        seconds = _FIRST_WAIT_SECONDS
        while not await self._record.take():
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, _LONGEST_WAIT_SECONDS)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """A moment in which no turn runs anywhere."""
        if self._shared.lock.locked():
            raise _is_running()
        async with self._shared.lock:
            if not await self._record.take():
                raise _is_running()
            try:
                yield
            finally:
                await self._record.release()

    @asynccontextmanager
    async def _held(self) -> AsyncGenerator[None]:
        """The session is ours: say so every now and then, and listen."""
        self._shared.runner = self._runner
        self._shared.nudged.set()
        beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait([beating])
            self._shared.runner = None
            await self._record.release()
            if not beating.cancelled() and (error := beating.exception()) is not None:
                raise error

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # All sessions that run here beat in the same moments, so that one reading serves them all.
            moment = (loop.time() // BEAT_SECONDS + 1) * BEAT_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout_at(moment):
                    await self._shared.nudged.wait()
            self._shared.nudged.clear()
            asked = await self._record.beat()
            if asked is None:
                self._runner.lose()
                return
            for request in asked:
                self._runner.hear(request)


def _is_running() -> Conflict:
    return Conflict("a turn of this session is running", hint="Wait until it is over, or cancel it.")
