"""LocalSession: the Session of this process. One turn at a time; what is said meanwhile waits its turn."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import msgspec

from loom.agent.approvals import Approvals, Rule
from loom.agent.ask import Answer, Desk
from loom.agent.calls import Workshop, interrupted
from loom.agent.ingest import Fetch, ingest
from loom.agent.loop import Turn, TurnLimits, ended, run, stored
from loom.agent.mend import Asking, Lessons
from loom.agent.outbox import Outbox
from loom.agent.ports import MediaShelf, Provider, Record, State
from loom.agent.renditions import Renditions
from loom.agent.tracked_files import Seen, TrackedFiles, mentions
from loom.content.blocks import ContentBlock, ToolCall, ToolResult
from loom.content.inputs import Content, flatten
from loom.content.messages import Message, user
from loom.context.cost import Calibration, calibrate
from loom.context.policy import Placed, Policy, Request, Said, Watermark
from loom.errors import ContentError, LoomError, StoreError
from loom.events import (
    ApprovalAnswered,
    Event,
    MessageQueued,
    MessageStored,
    NoticeRaised,
    TurnFailed,
    TurnFinished,
)
from loom.formats.facts import Limits
from loom.models import Model, Usage
from loom.prompt import Receipt
from loom.session import Reply
from loom.tools.base import Tool

GO_ON = "What was said is kept; say something to go on."


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is given by its runtime."""

    shelf: MediaShelf
    renditions: Renditions[Any]
    policy: Policy
    limits: Limits
    turn_limits: TurnLimits
    tool_output_bytes: int
    auto_context: tuple[str, ...]
    tools: Mapping[str, Tool]
    rule: Rule
    model: Callable[[str], Awaitable[Model]]
    """The model with everything that is known of it."""
    learn: Callable[[Model, str], Awaitable[None]]
    """A model turned out not to take a kind of media."""
    provider: Callable[[Model], Provider]
    price: Callable[[Model, Usage], float | None]
    fetch: Fetch
    open: Callable[[str], Awaitable[LocalSession]]
    fork: Callable[[str, str | None], Awaitable[str]]
    busy: Callable[[str], asyncio.Lock]
    """One lock for each session: no two turns of it run at once, whoever holds it open."""


class LocalSession:
    def __init__(self, record: Record, world: World, *, notices: Sequence[str] = ()) -> None:
        """`notices` are told with the first turn."""
        self._record = record
        self._world = world
        self._notices = list(notices)
        self._busy = world.busy(record.id)
        self._saving = asyncio.Lock()
        self._turn: asyncio.Task[None] | None = None
        self._watching: asyncio.Queue[Event | None] = asyncio.Queue()
        self._outbox = Outbox(record.emit, self._show)
        self._approvals = Approvals(world.rule, self._outbox.put, self._keep_approvals)
        self._files = TrackedFiles(world.shelf)
        self._tracked: list[str] = []
        self._running = ""
        self._is_over = True
        self._receipt: Receipt | None = None

    @property
    def id(self) -> str:
        return self._record.id

    async def stream(self, *content: Content) -> AsyncGenerator[Event]:
        """Say something and watch the turn; leaving it early cancels it. While another turn runs, the message waits
        with its media until it is over."""
        found = await ingest(list(content), self._world.shelf, limits=self._world.limits, fetch=self._world.fetch)
        message = Message("user", found.blocks)
        words = [leaf for leaf in flatten(list(content)) if isinstance(leaf, str)]
        if self._busy.locked():
            yield MessageQueued(message=message)
        async with self._busy:
            events = self._watching = asyncio.Queue()
            self._notices += found.notices
            self._is_over = False
            mentioned = [*self._tracked, *mentions("\n".join(words))]
            self._tracked.clear()
            turn = self._turn = asyncio.create_task(self._run(message, mentioned))
            turn.add_done_callback(lambda _: events.put_nowait(None))
            try:
                while (event := await events.get()) is not None:
                    yield event
            finally:
                await self._end(turn)

    async def send(self, *content: Content) -> Reply:
        """The same, folded; a turn that fails raises what a face would have been told."""
        answers: list[MessageStored] = []
        async with aclosing(self.stream(*content)) as events:
            async for event in events:
                match event:
                    case MessageStored() if event.message.role == "assistant":
                        answers.append(event)
                    case TurnFailed():
                        raise LoomError(event.text, hint=event.hint)
                    case TurnFinished():
                        return self._reply(event, answers)
                    case _:
                        pass
        raise LoomError("the turn was cancelled", hint=GO_ON)

    def _reply(self, finished: TurnFinished, answers: Sequence[MessageStored]) -> Reply:
        if not answers or self._receipt is None:
            raise LoomError(f"the model gave an empty answer (stop: {finished.stop})", hint="Ask again.")
        last = answers[-1]
        return Reply(
            node=last.node, message=last.message, usage=finished.usage, stop=finished.stop, receipt=self._receipt
        )

    async def path(self) -> tuple[Message, ...]:
        _, path = await self._record.path()
        return tuple(placed.message for placed in path)

    async def use(self, model: str) -> None:
        await self._world.model(model)
        await self._record.save(model=model)

    async def fork(self, node: str | None = None) -> LocalSession:
        return await self._world.open(await self._world.fork(self.id, node))

    def track(self, *paths: str) -> None:
        """Text files that the agent is told of with the next turn, and of their changes from then on. `@path` in what
        the user says does the same."""
        self._tracked += paths

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        """What the next request would carry. Nothing is sent by looking."""
        state = await self._record.state()
        system, path = await self._record.path()
        if not path:
            raise ContentError("the session holds no message yet: there is nothing to plan")
        receipts: list[Receipt] = []
        for reference in models or (state.model,):
            asking = self._asking(state, await self._world.model(reference), system, path)
            receipts.append((await self._world.renditions.settle(asking.prepared)).receipt)
        return tuple(receipts)

    async def cancel(self) -> None:
        """End the running turn; what is stored stays, and the session can go on."""
        if self._turn is not None:
            await self._end(self._turn)

    async def _end(self, turn: asyncio.Task[None]) -> None:
        """Wait until it is over, and let no bug of ours go unseen. A turn that has said its last word is not cancelled,
        only waited for."""
        if not self._is_over:
            turn.cancel()
        await asyncio.wait([turn])
        if not turn.cancelled() and (error := turn.exception()) is not None:
            raise error

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        if not self._approvals.answer(approval, answer, reason):
            raise ContentError("nobody waits for this approval any more")

    async def close_cut_turn(self) -> None:
        """A turn whose process died is closed: its open approvals, its unanswered calls, itself. Every turn begins with
        this; whoever knows that no turn of this session runs anywhere may do it before."""
        running = (await self._record.state()).settings.get("running", {})
        code, text = "turn.interrupted", "the turn was interrupted"
        failed = TurnFailed(turn=running.get("turn", ""), code=code, text=text, hint=GO_ON)
        await self._close(failed, lambda event: self._record.emit([event]))

    # One turn --------------------------------------------------------------------------------------------------------

    async def _run(self, message: Message, mentioned: Sequence[str]) -> None:
        self._running = secrets.token_hex(16)
        try:
            await self._say(message, mentioned)
            await self._outbox.flush()
        except LoomError as error:
            await self._failed(TurnFailed(turn=self._running, code=error.code, text=error.message, hint=error.hint))

    async def _failed(self, event: TurnFailed) -> None:
        """Whoever watches is told, also where it is the record that cannot be written."""
        try:
            await self._outbox.put(event)
        except StoreError:
            self._outbox.drop()
            self._watching.put_nowait(event)

    async def _say(self, message: Message, mentioned: Sequence[str]) -> None:
        await self.close_cut_turn()
        while self._notices:
            await self._outbox.put(NoticeRaised(text=self._notices.pop(0), code="door"))
        state = await self._record.state()
        model = await self._world.model(state.model)
        self._approvals.always = {(tool, pattern) for tool, pattern in state.settings.get("always", ())}
        await self._catch_up(state, model, mentioned)
        (node,) = await self._record.append([message])
        await self._outbox.put(MessageStored(node=node, message=message))
        self._files.placed(node)
        await self._save(running={"turn": self._running}, tracked=msgspec.to_builtins(self._files.view))
        system, path = await self._record.path()
        turn = self._new_turn(state, self._asking(state, model, system, path))
        try:
            await self._watched(turn)
        except asyncio.CancelledError:
            cancelled = TurnFailed(turn=turn.id, code="turn.cancelled", text="the turn was cancelled", hint=GO_ON)
            await self._cut(turn, cancelled)
            raise
        await self._save(running=None, tracked=msgspec.to_builtins(self._files.view))

    async def _watched(self, turn: Turn) -> None:
        deadline = self._approvals.deadline = asyncio.timeout(turn.limits.seconds)
        try:
            async with deadline, aclosing(run(turn)) as events:
                async for event in events:
                    self._is_over = isinstance(event, TurnFinished | TurnFailed)
                    await self._outbox.put(event)
        except TimeoutError:
            if not deadline.expired():
                raise
            await self._cut(turn, ended(turn, f"{turn.limits.seconds:g} seconds"))
        finally:
            self._approvals.deadline = None

    async def _close(self, failed: TurnFailed, tell: Callable[[Event], Awaitable[object]]) -> None:
        """Nothing is left open: neither approvals, nor calls, nor the turn itself."""
        running = (await self._record.state()).settings.get("running", {})
        for approval in running.get("approvals", ()):
            await tell(ApprovalAnswered(approval=approval, answer="deny", reason=failed.text))
        _, path = await self._record.path()
        if path and path[-1].message.calls:
            message = interrupted(path[-1].message.calls)
            (node,) = await self._record.append([message])
            await tell(MessageStored(node=node, message=message))
        if running:
            await tell(failed)
            await self._save(running=None)

    async def _cut(self, turn: Turn, failed: TurnFailed) -> None:
        """The turn ends in the middle: what has arrived of the answer is kept and marked, its calls are answered."""
        self._is_over = True
        answer = turn.answer
        if not answer.is_stored and answer.folded is not None and answer.folded.message is not None:
            for said in await stored(turn, [answer.folded.message], answer):
                await self._outbox.put(said)
        await self._close(failed, self._outbox.put)

    async def _catch_up(self, state: State, model: Model, mentioned: Sequence[str]) -> None:
        """What has changed in tracked files since the agent last saw them is said before the user's words."""
        _, path = await self._record.path()
        mark = state.watermarks.get(model.reference, Watermark())
        standing = {
            placed.id
            for at, placed in enumerate(path)
            if at >= mark.dropped_before and (placed.message.role != "tool" or at >= mark.tool_text_before)
        }
        self._files.view = msgspec.convert(state.settings.get("tracked", {}), dict[str, Seen])
        news = await self._files.news(
            _workspace(state), asked=mentioned, globs=self._world.auto_context, standing=standing
        )
        for notice in news.notices:
            await self._outbox.put(NoticeRaised(text=notice, code="files"))
        if news.texts:
            told = user(*news.texts)
            (node,) = await self._record.append([told], source="system")
            self._files.placed(node)
            await self._outbox.put(MessageStored(node=node, message=told))

    def _new_turn(self, state: State, asking: Asking) -> Turn:
        renditions = self._world.renditions
        return Turn(
            id=self._running,
            asking=asking,
            desk=Desk(
                provider=self._world.provider(asking.model),
                settle=renditions.settle,
                recheck=renditions.recheck,
                keep=self._keep,
            ),
            workshop=self._workshop(_workspace(state)),
            limits=self._world.turn_limits,
            store=self._store,
            remember=self._remember,
            price=lambda usage: self._world.price(asking.model, usage),
        )

    def _asking(self, state: State, model: Model, system: str, path: tuple[Placed, ...]) -> Asking:
        calibrations, lessons = state.settings.get("calibration", {}), state.settings.get("lessons", {})
        return Asking(
            path=path,
            model=model,
            policy=self._world.policy,
            request=Request(system=system, tools=tuple(found.spec for found in self._world.tools.values())),
            overrides=dict(state.overrides),
            watermark=state.watermarks.get(model.reference, Watermark()),
            calibration=msgspec.convert(calibrations.get(model.reference, {}), Calibration),
            quarantine=frozenset(state.quarantine.get(model.provider, ())),
            lessons=msgspec.convert(lessons.get(model.reference, {}), Lessons),
        )

    def _workshop(self, workspace: Path) -> Workshop:
        cap_bytes = self._world.tool_output_bytes

        async def finished(call: ToolCall, result: ToolResult) -> None:
            await self._files.finished(workspace, call, result, cap_bytes)

        return Workshop(
            tools=self._world.tools,
            workspace=workspace,
            shelf=self._world.shelf,
            limits=self._world.limits,
            approvals=self._approvals,
            emit=self._outbox.put,
            messages=self.path,
            finished=finished,
            text_cap_bytes=cap_bytes,
        )

    # What is kept ----------------------------------------------------------------------------------------------------

    async def _store(self, messages: Sequence[Message], answer: Answer | None) -> Sequence[Placed]:
        meta: dict[str, Any] = {}
        if answer is not None and answer.prepared is not None and answer.folded is not None:
            model = answer.prepared.prompt.model
            meta = {
                "provider": model.provider,
                "model": model.name,
                "usage": msgspec.to_builtins(answer.folded.usage),
                "finish_reason": answer.folded.stop or "incomplete",
            }
        nodes = await self._record.append(messages, meta=meta)
        if messages[0].role == "tool":
            self._files.placed(nodes[0])
        return [Said(node, message) for node, message in zip(nodes, messages, strict=True)]

    async def _remember(self, asking: Asking, answer: Answer) -> None:
        """What the step taught is kept by model: the next request, also after a restart, begins from there."""
        prepared, folded = answer.prepared, answer.folded
        if prepared is None or folded is None:
            return
        self._receipt = prepared.receipt
        reference, provider = asking.model.reference, asking.model.provider
        for kind in asking.refused_kinds:
            await self._world.learn(asking.model, kind)
        asking.refused_kinds = ()
        asking.watermark = prepared.watermark
        asking.calibration = calibrate(asking.calibration, prepared.receipt.totals.tokens, folded.usage.input_tokens)
        async with self._saving:
            state = await self._record.state()
            learned = {
                "calibration": {reference: msgspec.to_builtins(asking.calibration)},
                "lessons": {reference: msgspec.to_builtins(asking.lessons)},
            }
            await self._record.save(
                watermark={**_plain(state.watermarks), reference: msgspec.to_builtins(asking.watermark)},
                quarantine={**state.quarantine, provider: sorted(asking.quarantine)},
                settings={
                    **state.settings,
                    **{key: {**state.settings.get(key, {}), **value} for key, value in learned.items()},
                },
            )

    def _show(self, event: Event) -> None:
        self._watching.put_nowait(event)

    async def _keep_approvals(self) -> None:
        running = {"turn": self._running, "approvals": list(self._approvals.open)}
        await self._save(running=running, always=[list(pair) for pair in sorted(self._approvals.always)])

    async def _save(self, **changes: Any) -> None:
        """Change these settings and leave the others; None takes one away."""
        async with self._saving:
            settings = {**(await self._record.state()).settings, **changes}
            await self._record.save(settings={key: value for key, value in settings.items() if value is not None})

    async def _keep(self, data: bytes) -> ContentBlock:
        return (await ingest(data, self._world.shelf, limits=self._world.limits)).blocks[0]


def _workspace(state: State) -> Path:
    return Path(state.workspace) if state.workspace else Path.cwd()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: msgspec.to_builtins(value) for key, value in values.items()}
