"""Runner: runs the turns of a session, one after the other, and keeps what they say. Who may run them, and when, is the
session's business."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from loom.agent.approvals import Approvals
from loom.agent.ask import Answer, Desk
from loom.agent.calls import Workshop, interrupted_results
from loom.agent.compact import compacting
from loom.agent.failures import cancelled, failed, interrupted, taken_over
from loom.agent.ingest import ingest
from loom.agent.loop import Turn, ended, finished, run, stored
from loom.agent.mend import Asking, Lessons
from loom.agent.outbox import Outbox
from loom.agent.ports import Asked, Record, State
from loom.agent.starts import CutTurn, Start
from loom.agent.tracked_files import Seen, TrackedFiles, standing
from loom.agent.world import TurnWorld
from loom.content.blocks import ContentBlock, ToolCall, ToolResult
from loom.content.messages import Message, title_of, user
from loom.context.cost import Calibration, calibrate
from loom.context.policy import Override, Placed, Request, Said, Watermark
from loom.errors import LoomError, NotFound, StoreError
from loom.events import ApprovalAnswered, Event, MessageStored, NoticeRaised, TurnFailed, TurnFinished
from loom.models import Model
from loom.prompt import Receipt
from loom.tools.base import Tool


class Runner:
    def __init__(self, record: Record, world: TurnWorld) -> None:
        self._record = record
        self._world = world
        self._watching: asyncio.Queue[Event | None] = asyncio.Queue()
        self._outbox = Outbox(record.emit, self._show, world.pace)
        self._files = TrackedFiles(world.shelf)
        self._running = CutTurn()
        self._is_over = True
        self._is_left = False
        self._is_resumable = False
        self.approvals = Approvals(world.rule, self._outbox.put, self._keep_approvals)
        self._current: Turn | None = None
        self.turn: asyncio.Task[None] | None = None
        self.notices: list[str] = []
        """Told with the next turn."""
        self.is_lost = False
        """Whether another process has taken the session over."""
        self.question = ""
        """The node that the last turn answers."""
        self.receipt: Receipt | None = None

    async def watch(self, start: Start) -> AsyncGenerator[Event]:
        """Run one turn and give its events; leaving it early cancels it."""
        events = self._watching = asyncio.Queue()
        self._is_over = self._is_left = self._is_resumable = self.is_lost = False
        turn = self.turn = asyncio.create_task(self._run(start))
        turn.add_done_callback(lambda _: events.put_nowait(None))
        self._world.pace.running += 1
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._world.pace.running -= 1
            await self.end()

    def _show(self, event: Event) -> None:
        self._watching.put_nowait(event)

    async def end(self) -> None:
        """Wait until the turn is over, and let no bug of ours go unseen. A turn that has said its last word is not
        cancelled, only waited for."""
        turn = self.turn
        if turn is None:
            return
        if not self._is_over:
            turn.cancel()
        await asyncio.wait([turn])
        if not turn.cancelled() and (error := turn.exception()) is not None:
            raise error

    @property
    def is_cancelled(self) -> bool:
        return self.turn is not None and self.turn.done() and self.turn.cancelled()

    async def leave(self) -> None:
        """End the turn as interrupted; where calls of it wait for approvals, it stays open and can be resumed, here or
        elsewhere."""
        self._is_left = True
        self._is_resumable = any(found.is_gate for found in self.approvals.open.values())
        await self.end()

    def lose(self) -> None:
        """Another process runs the session now: whatever goes on here ends at once and writes nothing more."""
        self.is_lost = True
        if self.turn is not None and not self._is_over:
            self.turn.cancel()

    def hear(self, asked: Asked) -> None:
        """What another process wants of this turn."""
        match asked.kind, asked.data:
            case "cancel", _ if self.turn is not None and not self._is_over:
                self.turn.cancel()
            case "answer", {"approval": str() as approval, "answer": "once" | "always" | "deny" as answer, **others}:
                self.approvals.answer_early(approval, answer, str(others.get("reason", "")))
            case _:
                pass

    # A turn that was cut off -----------------------------------------------------------------------------------------

    async def cut_turn(self) -> CutTurn:
        """What is kept of the turn that runs, or that somebody left without an end."""
        return msgspec.convert((await self._record.state()).settings.get("running", {}), CutTurn)

    async def can_resume(self, cut: CutTurn) -> bool:
        """Whether all that a cut turn lacks is an answer to an approval."""
        return bool(cut.approvals) and bool(cut.waiting_calls((await self._record.path())[1]))

    async def close_cut_turn(self, cut: CutTurn | None = None) -> list[Event]:
        """End a turn whose process died: its open approvals, its unanswered calls, itself."""
        told: list[Event] = []
        cut = cut or await self.cut_turn()

        async def tell(event: Event) -> None:
            await self._record.emit([event])
            told.append(event)

        await self._close(cut, interrupted(cut.turn), tell, await self._record.finished_calls() if cut.turn else {})
        return told

    async def _close(
        self,
        running: CutTurn,
        end: TurnFailed,
        tell: Callable[[Event], Awaitable[object]],
        done: Mapping[str, ToolResult],
    ) -> None:
        """Nothing is left open: neither approvals, nor calls, nor the turn itself. What calls had given is kept."""
        for approval in running.approvals:
            await tell(ApprovalAnswered(approval=approval, answer="deny", reason=end.text))
        _, path = await self._record.path()
        if path and path[-1].message.calls:
            message = interrupted_results(path[-1].message.calls, done)
            (node,) = await self._record.append([message])
            await tell(MessageStored(node=node, message=message))
        if running.turn:
            if not await self._record.has_ended(running.turn):  # its process may have died between the two writes
                await tell(end)
            await self._save(running=None)

    # One turn --------------------------------------------------------------------------------------------------------

    async def _run(self, start: Start) -> None:
        tools = None if start.tools is None else list(start.tools)
        self._running = CutTurn(turn=secrets.token_hex(16), model=start.model, tools=tools)
        try:
            begin = self._resume() if start.is_resumed else self._compact(start) if start.compacts else self._say(start)
            await begin
            await self._outbox.flush()
        except LoomError as error:
            await self._failed(failed(self._running.turn, error))
        except asyncio.CancelledError:
            if not (self._is_over or self._is_left or self.is_lost):  # before its first step
                await self._failed(cancelled(self._running.turn))
                await self._save(running=None)
            raise

    async def _failed(self, event: TurnFailed) -> None:
        """Whoever watches is told, also where it is the record that cannot be written."""
        try:
            await self._outbox.put(event)
        except StoreError:
            self._outbox.drop()
            self._watching.put_nowait(event)

    async def _say(self, start: Start) -> None:
        try:
            before, state, model = await self._ready(start)
        except (LoomError, asyncio.CancelledError) as error:
            is_broken = isinstance(error, StoreError) and not isinstance(error, NotFound)
            if start.queued is not None and not (is_broken or self._is_left or self.is_lost):
                await self._place(start)  # it was said, whatever comes of it: it must not wait for ever
            raise
        if not await finished(self._place(start)):
            await self._save(running=None)
            return
        try:
            turn = await self._new_turn(state, model)
            turn.message = "" if start.queued is None else start.queued.id
            await self._through(turn)
        finally:
            if start.is_another_answer and not self.is_lost:
                await self._back(before)

    async def _ready(self, start: Start) -> tuple[str, State, Model]:
        """The head is where the message goes, and the agent knows what has changed since it last looked. Gives where
        the head was before.

        The turn is kept before its message is: whoever finds a message that nobody answers finds the turn, too.
        """
        cut = await self.cut_turn()
        if cut.approvals:
            self.notices.append("something else was said, so what waited for your word was not done")
        await self.close_cut_turn(cut)
        while self.notices:
            await self._outbox.put(NoticeRaised(text=self.notices.pop(0), code="door"))
        state = await self._record.state()
        model = await self._world.model(start.model or state.model)
        self._recall(state)
        if start.parent:
            await self._record.move(start.parent)
        if not start.is_another_answer:
            await self._catch_up(state, model, start.mentioned)
        said = start.queued.message if start.queued is not None else start.message
        await self._save(
            title=title_of(said) if said is not None and not state.title else None,
            running=msgspec.to_builtins(self._running),
            tracked=msgspec.to_builtins(self._files.view),
        )
        return state.head, state, model

    def _recall(self, state: State) -> None:
        """What earlier turns have left: what was allowed for ever, and which files the agent knows."""
        self.approvals.always = {(tool, pattern) for tool, pattern in state.settings.get("always", ())}
        self._files.view = msgspec.convert(state.settings.get("tracked", {}), dict[str, Seen])

    async def _place(self, start: Start) -> bool:
        """The message is on disk, or the head is where it is; False where it was taken back before that."""
        message = start.message
        if start.queued is not None:
            message = start.queued.message
            node = await self._record.dequeue(start.queued)
            if node is None:
                return False
        elif message is not None:
            (node,) = await self._record.append([message])
        else:
            node = start.node
            await self._record.move(node)
        self.question = node
        if message is not None:
            await self._outbox.put(MessageStored(node=node, message=message))
            self._files.placed(node)
        return True

    async def _back(self, before: str) -> None:
        """An answer that did not come leaves the head where an earlier one stands."""
        if (await self._record.state()).head == self.question != before:
            await self._record.move(before)

    async def _resume(self) -> None:
        """Take up a turn at its calls: those that wait for an approval ask again, under the same name; of those that
        had begun nobody knows the end."""
        self._running = await self.cut_turn()
        state = await self._record.state()
        model = await self._world.model(self._running.model or state.model)
        self._recall(state)
        _, path = await self._record.path()
        waiting = self._running.waiting_calls(path)
        for approval in self._running.approvals.keys() - waiting.values():
            await self._outbox.put(ApprovalAnswered(approval=approval, answer="deny", reason="the call was cut off"))
        self.approvals.taken_up = dict(waiting)
        self.question = await self._record.question(None)
        turn = await self._new_turn(state, model)
        turn.waiting, turn.done = frozenset(waiting), await self._record.finished_calls()
        await self._through(turn)

    async def _compact(self, start: Start) -> None:
        """The path is summarised, and the head goes to the summary."""
        _, state, model = await self._ready(start)
        await self._through(compacting(await self._new_turn(state, model), self._record))

    async def _through(self, turn: Turn) -> None:
        """The turn itself, from its first step, or from calls that waited, to its end."""
        self._current = turn
        try:
            await self._watched(turn)
        except asyncio.CancelledError:
            if self.is_lost:
                self._outbox.drop()
                self._watching.put_nowait(failed(turn.id, taken_over()))
            elif not self._is_resumable:
                await self._cut(turn, interrupted(turn.id) if self._is_left else cancelled(turn.id))
            raise
        await self._save(running=None, tracked=msgspec.to_builtins(self._files.view))

    async def _watched(self, turn: Turn) -> None:
        deadline = self.approvals.deadline = asyncio.timeout(turn.limits.seconds - self._running.seconds)
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
            self.approvals.deadline = None

    async def _cut(self, turn: Turn, end: TurnFailed) -> None:
        """The turn ends in the middle: what has arrived of the answer is kept and marked, its calls are answered."""
        self._is_over = True
        answer = turn.answer
        if not answer.is_stored and answer.folded is not None and answer.folded.message is not None:
            for said in await stored(turn, [answer.folded.message], answer):
                await self._outbox.put(said)
        await self._close(await self.cut_turn(), end, self._outbox.put, turn.workshop.done)

    async def _catch_up(self, state: State, model: Model, mentioned: Sequence[str]) -> None:
        """What has changed in tracked files since the agent last saw them is said before the user's words."""
        _, path = await self._record.path()
        seen = standing(path, state.watermarks.get(model.reference, Watermark()))
        news = await self._files.news(_workspace(state), asked=mentioned, globs=self._world.auto_context, standing=seen)
        for notice in news.notices:
            await self._outbox.put(NoticeRaised(text=notice, code="files"))
        if news.texts:
            told = user(*news.texts)
            (node,) = await self._record.append([told], source="system")
            self._files.placed(node)
            await self._outbox.put(MessageStored(node=node, message=told))

    def tools(self, names: Collection[str] | None) -> Mapping[str, Tool]:
        """Those that may be called; None means all that there are."""
        found = self._world.tools
        return found if names is None else {name: tool for name, tool in found.items() if name in names}

    async def _new_turn(self, state: State, model: Model) -> Turn:
        system, path = await self._record.path()
        tools = self.tools(self._running.tools)
        asking = self.asking(state, model, system, path, tools=tools)
        return Turn(
            id=self._running.turn,
            asking=asking,
            desk=Desk(
                provider=self._world.provider(asking.model),
                settle=self._world.settle,
                recheck=self._world.renditions.recheck,
                keep=self._keep,
            ),
            workshop=self._workshop(_workspace(state), tools),
            limits=self._world.turn_limits,
            store=self._store,
            remember=self._remember,
            price=lambda usage: self._world.price(asking.model, usage),
            usage=self._running.usage,
            steps=self._running.steps,
        )

    def asking(
        self,
        state: State,
        model: Model,
        system: str,
        path: tuple[Placed, ...],
        *,
        tools: Mapping[str, Tool],
        overrides: Mapping[str, Override] | None = None,
    ) -> Asking:
        calibrations, lessons = state.settings.get("calibration", {}), state.settings.get("lessons", {})
        return Asking(
            path=path,
            model=model,
            policy=self._world.policy,
            request=Request(
                system=system,
                tools=tuple(found.spec for found in tools.values()),
                sampling=self._world.sampling(model),
            ),
            overrides=dict(state.overrides if overrides is None else overrides),
            alts=dict(state.alts),
            watermark=state.watermarks.get(model.reference, Watermark()),
            calibration=msgspec.convert(calibrations.get(model.reference, {}), Calibration),
            quarantine=frozenset(state.quarantine.get(model.provider, ())),
            lessons=msgspec.convert(lessons.get(model.reference, {}), Lessons),
        )

    def _workshop(self, workspace: Path, tools: Mapping[str, Tool]) -> Workshop:
        cap_bytes = self._world.tool_output_bytes

        async def finished(call: ToolCall, result: ToolResult) -> None:
            await self._files.finished(workspace, call, result, cap_bytes)

        async def messages() -> tuple[Message, ...]:
            _, path = await self._record.path()
            return tuple(placed.message for placed in path)

        return Workshop(
            tools=tools,
            workspace=workspace,
            shelf=self._world.shelf,
            limits=self._world.limits,
            approvals=self.approvals,
            emit=self._outbox.put,
            messages=messages,
            finished=finished,
            text_cap_bytes=cap_bytes,
        )

    # What is kept ----------------------------------------------------------------------------------------------------

    async def _store(self, messages: Sequence[Message], answer: Answer | None) -> Sequence[Placed]:
        meta = {} if answer is None else answer.meta
        is_tools = messages[0].role == "tool"
        nodes = await self._record.append(messages, meta=meta, source="tool" if is_tools else None)
        if is_tools:
            self._files.placed(nodes[0])
        blind = "is_blind" in meta
        return [Said(node, message, blind) for node, message in zip(nodes, messages, strict=True)]

    async def _remember(self, asking: Asking, answer: Answer) -> None:
        """What the step taught is kept by model: the next request, also after a restart, begins from there."""
        prepared, folded = answer.prepared, answer.folded
        if prepared is None or folded is None:
            return
        self.receipt = prepared.receipt
        reference, provider = asking.model.reference, asking.model.provider
        for kind in asking.refused_kinds:
            await self._world.learn(asking.model, kind)
        asking.refused_kinds = ()
        if folded.complete or folded.message is not None:  # a request that was only refused draws no borders
            asking.watermark = prepared.watermark
        rows, counted = prepared.receipt.rows, prepared.receipt.totals.tokens
        media = sum(row.tokens for row in rows if row.digest and row.rendition != "text")
        asking.calibration = calibrate(asking.calibration, counted, folded.usage.input_tokens, media=media)
        state = await self._record.state()
        await self._record.save(
            watermark={**_plain(state.watermarks), reference: msgspec.to_builtins(asking.watermark)},
            quarantine={**state.quarantine, provider: sorted(asking.quarantine)},
            settings=asking.learned(state.settings),
        )

    async def _keep_approvals(self) -> None:
        running = msgspec.structs.replace(self._running, approvals=self.approvals.open)
        if (turn := self._current) is not None:
            seconds = turn.limits.seconds - self.approvals.left_seconds
            running = msgspec.structs.replace(running, usage=turn.usage, steps=turn.steps, seconds=seconds)
        await self._save(
            running=msgspec.to_builtins(running), always=[list(pair) for pair in sorted(self.approvals.always)]
        )

    async def _save(self, *, title: str | None = None, **changes: Any) -> None:
        """Change these settings and leave the others; None takes one away."""
        await self._record.save(title=title, settings=changes)

    async def _keep(self, data: bytes) -> ContentBlock:
        return (await ingest(data, self._world.shelf, limits=self._world.limits)).blocks[0]


def _workspace(state: State) -> Path:
    return Path(state.workspace) if state.workspace else Path.cwd()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: msgspec.to_builtins(value) for key, value in values.items()}
