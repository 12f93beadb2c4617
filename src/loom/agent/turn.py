"""One turn, from a user's message to the end of the model's answer, as a state machine with a checkpoint.

    starting → running ⇄ waiting → finished | failed | interrupted | lost

`waiting` means that an approval is pending. `interrupted` leaves a checkpoint from which another process continues.
`lost` means that another process has acquired the session. Every event of a turn goes through its sink, which stores it
before it is shown.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias, assert_never

import msgspec

from loom.agent.approvals import Approvals
from loom.agent.calls import CallServices, EarlierCalls, run_calls, unanswered_results
from loom.agent.checkpoint import TurnCheckpoint
from loom.agent.failures import finish_reason, lease_lost, limit_reached, turn_cancelled, turn_failed
from loom.agent.loop import run_steps
from loom.agent.plan_mode import PLAN_MODE, plan_tools
from loom.agent.ports import Command, Committed, Completion, SessionRecord
from loom.agent.repeats import mark_repeats
from loom.agent.services import Services, workspace_of
from loom.agent.sink import EventSink
from loom.agent.step import ModelAnswer, words_of
from loom.agent.steps import StepValue
from loom.agent.tracked_files import TrackedFiles
from loom.agent.turn_hooks import TurnHooks
from loom.compile.policy import DetachedMessage, Placed
from loom.compile.request import RequestInput, Snapshot
from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.json_values import as_json
from loom.content.messages import Message, tool, user
from loom.errors import LoomError, StoreError
from loom.events import (
    ApprovalAnswered,
    Event,
    MessageStored,
    NoticeRaised,
    TurnFailed,
)
from loom.prompt import Receipt
from loom.session import LeaseChange, NewNode, SessionChange
from loom.tools.base import Tool
from loom.tools.file_records import RecordsChanges
from loom.work_types import FileChange

TurnState: TypeAlias = Literal["starting", "running", "waiting", "finished", "failed", "interrupted", "lost"]


def attachment_notices(texts: Sequence[str]) -> list[NoticeRaised]:
    """Return the events for notices about the attachments of a message."""
    return [NoticeRaised(text=text, code="attachment") for text in texts]


class TurnLimitReached(Exception):
    """Raised if the turn may take no further step."""


class HandOver(Exception):
    """Raised at a step boundary when the process is stopping."""


class Turn:
    """One turn. `show` receives every event after it is stored; `files` are the session's tracked files; `caller` is
    the call of another session for which the turn runs; `begin` stores what the turn answers, or loads its checkpoint,
    and returns False if nothing is left to do. With `releases`, the lease is released at the end of the turn if no
    message is queued."""

    def __init__(
        self,
        services: Services,
        record: SessionRecord,
        begin: Callable[[Turn], Awaitable[bool]],
        *,
        show: Callable[[Event], None],
        files: TrackedFiles,
        caller: RecordsChanges | None = None,
        notices: Sequence[str] = (),
        releases: bool = False,
    ) -> None:
        self.services = services
        self.record = record
        self.files = files
        self.caller = caller
        self.unused_tools: frozenset[str] = frozenset()
        """Tools that are of no use in the workspace."""
        self.is_planning = False
        """Whether only tools that read are offered, until the user approves a plan."""
        self.hooks = TurnHooks(self._show_hook)
        self.notices = tuple(notices)
        self.observer = services.observers.observe_turn(record.id, agent=services.agent, secrets=services.secrets)
        self.sink = EventSink(record, show, services.batching, self.observer)
        self.approvals = Approvals(services.rule, self._store_approvals, approve=services.approve)
        self.checkpoint = TurnCheckpoint(turn=secrets.token_hex(16))
        self.snapshot = Snapshot()
        self.input: RequestInput | None = None
        self.earlier = EarlierCalls()
        """What another process already did for the calls at the end of the path."""
        self.has_started = False
        """Whether the checkpoint is on disk."""
        self.state: TurnState = "starting"
        self.task: asyncio.Task[None] | None = None
        self.receipt: Receipt | None = None
        self.stop_reason: Literal["", "cancel", "hand-over", "lost"] = ""
        self._begin = begin
        self.answer: ModelAnswer | None = None
        """The answer that is requested or arrives now."""
        self.done: dict[str, ToolResult] = {}
        """The results of the calls that run now."""
        self.running_calls: dict[str, str] = {}
        """The texts of the results of calls that have started, in case that they are cut off."""
        self.final_lease: LeaseChange = "release-if-idle" if releases else "keep"
        self.announced: set[str] = set()
        """The notices of receipts that the turn has shown."""
        self._cancelled: set[str] = set()
        """Ids of turns whose cancellation arrived before this turn started."""
        self._yields = False

    # Control ---------------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self._run())
        return self.task

    async def end(self) -> None:
        """Cancel the turn and wait until it is over. A turn that has already finished is only awaited."""
        await self._stop("cancel")

    async def _stop(self, reason: Literal["cancel", "hand-over"]) -> None:
        """Abort the turn and wait until it is over; raise an unexpected error (a bug)."""
        self._abort(reason)
        if self.task is None:
            return
        await asyncio.wait([self.task])
        if not self.task.cancelled() and (error := self.task.exception()) is not None:
            raise error

    def hand_over(self) -> None:
        """Stop at the next step boundary, for another process to continue."""
        self._yields = True

    async def interrupt(self) -> None:
        """Stop now, for another process to continue; the part of the answer that arrived is stored."""
        await self._stop("hand-over")

    def on_lease_lost(self) -> None:
        """Stop now and write nothing more: another process runs the session."""
        self._abort("lost")

    def on_command(self, command: Command) -> None:
        """Handle a command from another process."""
        match command.kind, command.data:
            case "cancel", {"turn": str() as turn} if turn != self.id:
                if self.state == "starting":  # this turn may be about to resume the one named
                    self._cancelled.add(turn)
            case "cancel", _ if self.task is not None:
                self._abort("cancel")
            case "answer", {"approval": str() as approval, "answer": "once" | "always" | "deny" as answer, **others}:
                words = (str(others.get(name, "")) for name in ("reason", "by"))
                self.approvals.answer_early(approval, answer, *words)
            case _:
                pass

    def _abort(self, reason: Literal["cancel", "hand-over", "lost"]) -> None:
        if self.is_over or self.stop_reason:
            return
        self.stop_reason = reason
        is_resuming = self.state == "starting" and self.has_started  # it reads the unfinished step of another process
        if self.task is not None and not (reason == "cancel" and is_resuming):
            self.task.cancel()

    def take_up(self, checkpoint: TurnCheckpoint) -> None:
        """Become the turn of `checkpoint`, which another process left unfinished. From now on a cancellation takes
        effect only after the unfinished step was read, so that nothing of it is lost."""
        self.checkpoint, self.has_started = checkpoint, True
        self.observer.set_parent(checkpoint.traceparent)
        self.observer.take_up(checkpoint.turn)
        if checkpoint.turn in self._cancelled:
            self.stop_reason = "cancel"

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "failed", "interrupted", "lost")

    # States ----------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Begin the turn, run its steps and hooks, and end it in the state that its outcome requires."""
        with self.observer:
            self.services.batching.running += 1
            try:
                if await self._begin(self):
                    self.state = "running"
                    if self.stop_reason == "cancel":
                        raise asyncio.CancelledError
                    await self._run_start_hooks()
                    await self._run_to_end()
                await self.sink.flush()
                await self.hooks.end(self.state)
            except HandOver:
                await self._hand_over(None)
            except LoomError as error:
                await self._fail(error)
                await self.hooks.end(self.state)
            except asyncio.CancelledError:
                await self._end_early()
                raise
            finally:
                self.services.batching.running -= 1
                await self.sink.close()

    async def _run_start_hooks(self) -> None:
        """Run the user's hooks once per turn, and store what they add for the model."""
        message = next((placed.message for placed in reversed(self.path) if placed.id == self.question), None)
        facts = {
            "session_id": self.record.id,
            "cwd": str(workspace_of(self.snapshot)),
            "turn_id": self.id,
            "prompt": "\n".join(it.text for it in message.blocks if isinstance(it, TextBlock)) if message else "",
        }
        tools = await self.services.hooks(workspace_of(self.snapshot))
        self.hooks = TurnHooks(self._show_hook, tools, facts, is_summary=self.is_compacting)
        if self.checkpoint.steps or self.open_calls or not (self.is_compacting or self.head == self.question):
            return
        if added := await self.hooks.start(self.record, self.snapshot.path):
            note = user(f"[The user's hook reports: {added}]")
            await self.commit(SessionChange(nodes=(NewNode(message=note, source="system"),)))

    async def _show_hook(self, text: str) -> None:
        """Show a notice of a hook. It is not stored once the turn is over, because another process may hold the
        lease."""
        notice = NoticeRaised(text=text, code="hook")
        if self.is_over:
            self.sink.show_unstored(notice)
        else:
            await self.sink.emit(notice)

    async def _run_to_end(self) -> None:
        """Run the steps. Close the turn if it reaches its limit of time, steps or cost; waiting for approvals is not
        counted."""
        limit = self.services.turn_limits.seconds
        deadline = self.approvals.deadline = asyncio.timeout(max(0.0, limit - self.checkpoint.seconds))
        try:
            async with deadline:
                await self.services.steps.run_turn(self.engine_key, partial(run_steps, self))
        except TimeoutError:
            if not deadline.expired():
                raise
            await self.close(limit_reached(self.id, f"{limit:g} seconds"))
        except TurnLimitReached as reached:
            await self.close(limit_reached(self.id, str(reached)))
        finally:
            self.approvals.deadline = None

    async def _end_early(self) -> None:
        """End a turn whose task was cancelled: by the user, by a process that stops, or because the lease was lost."""
        if self.is_over:  # cancelled during the last write
            return
        match self.stop_reason:
            case "lost":
                self.state = "lost"
                self.sink.show_unstored(turn_failed(self.id, lease_lost()))
            case "hand-over":
                partial = self.answer.result if self.answer is not None else None
                await self._hand_over(words_of(partial.message) if partial is not None else None)
            case "cancel" | "":
                await (self.close if self.has_started else self.emit_end)(turn_cancelled(self.id))
            case _:
                assert_never(self.stop_reason)

    async def _hand_over(self, words: Message | None) -> None:
        """Leave the turn to another process, and store `words`, the part of an answer that arrived."""
        if self.has_started:
            self.checkpoint = msgspec.structs.replace(self.checkpoint, is_handed_over=True)
            meta = {**(self.answer.meta if self.answer is not None else {}), "finish_reason": "interrupted"}
            nodes = () if words is None or self.is_compacting else (NewNode(message=words, meta=meta),)
            # A turn with a pending approval is continued only once it is answered.
            lease: LeaseChange = "keep" if self.checkpoint.approvals else "hand-over"
            await self.commit(SessionChange(nodes=nodes, lease=lease))
        self.state = "interrupted"

    async def _fail(self, error: LoomError) -> None:
        if self.has_started:
            try:
                await self.close(turn_failed(self.id, error))
                return
            except StoreError as unwritten:  # the log cannot be written: keep the checkpoint, and show the error
                error = unwritten
        await self.emit_end(turn_failed(self.id, error))

    async def emit_end(self, event: TurnFailed) -> None:
        """Emit the failure of a turn that is not stored, or whose failure cannot be stored."""
        self.state = "failed"
        try:
            await self.sink.emit_now(event)
        except StoreError:
            self.sink.show_unstored(event)

    async def close(self, end: TurnFailed, left: NewNode | None = None) -> None:
        """End the turn without an answer, and leave nothing open: store the part of the answer that arrived (`left`, if
        another process received it), answer its calls, deny its approvals."""
        answer = self.answer
        message = answer.result.message if answer is not None and answer.result is not None else None
        nodes = [left] if left is not None else []
        if answer is not None and message is not None and not self.is_compacting:
            ended = {} if answer.is_complete else {"finish_reason": finish_reason(end)}
            nodes.append(NewNode(message=message, meta={**answer.meta, **ended}))
        calls = nodes[-1].message.calls if nodes else self.open_calls
        if calls:
            results = unanswered_results(calls, self.done, self.checkpoint.changes, self.running_calls)
            nodes.append(NewNode(message=results))
        denied = [
            ApprovalAnswered(approval=approval, answer="deny", reason=end.text)
            for approval in self.checkpoint.approvals
        ]
        change = SessionChange(nodes=tuple(nodes), lease=self.final_lease)
        if not nodes and self.checkpoint.previous_head and self.head == self.question:
            change = msgspec.structs.replace(change, move_to=self.checkpoint.previous_head)
        self.answer = None
        await self.commit(change, before=denied, after=[end], is_last=True)
        await self.services.steps.end_turn(self.engine_key)

    # Operations that the loop calls ----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.checkpoint.turn

    @property
    def question(self) -> str:
        """The node that this turn answers."""
        return self.checkpoint.question

    @property
    def engine_key(self) -> str:
        """The id of this turn in the engine."""
        return f"{self.record.id}/{self.id}"

    @property
    def request(self) -> RequestInput:
        if self.input is None:
            raise AssertionError("the turn has not begun")
        return self.input

    @property
    def path(self) -> tuple[Placed, ...]:
        return self.input.path if self.input is not None else self.snapshot.path

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls at the end of the path that have no result yet."""
        return self.path[-1].message.calls if self.path else ()

    @property
    def head(self) -> str:
        return self.path[-1].id if self.path else self.snapshot.head

    @property
    def is_compacting(self) -> bool:
        return self.checkpoint.kind == "compact"

    async def check_limits(self) -> None:
        """Raise `TurnLimitReached` if the turn has reached a limit, `BudgetSpent` if the user's budget is used up,
        `HandOver` if the process is stopping."""
        if self._yields:
            raise HandOver
        limits = self.services.turn_limits
        if limits.usd is not None:
            spent = self.services.price(self.request.model, self.checkpoint.usage) or 0.0
            if spent > limits.usd:
                raise TurnLimitReached(f"${limits.usd:g}")
        if self.checkpoint.steps >= limits.steps:
            raise TurnLimitReached("1 step" if limits.steps == 1 else f"{limits.steps} steps")
        await self.services.check_user_budget(self.record.id)

    async def run_calls(self, calls: Sequence[ToolCall]) -> StepValue:
        """Run the calls of the last answer and store their results."""
        self.done = {}
        self.running_calls = {}
        services, capabilities = self._call_services(), self.request.model.capabilities
        outcome = await run_calls(
            calls, services, capabilities, self.earlier, done=self.done, running=self.running_calls
        )
        self.earlier = EarlierCalls()
        self.checkpoint = msgspec.structs.replace(self.checkpoint, changes={})
        repeatable = {name for name, found in services.tools.items() if found.repeatable}
        path = [placed.message for placed in self.request.path]
        results = mark_repeats(calls, outcome.results, path, repeatable)
        nodes = [NewNode(message=tool(*results), source="tool")]
        if outcome.injected:
            nodes.append(NewNode(message=Message("user", outcome.injected), source="tool"))
        await self.commit(SessionChange(nodes=tuple(nodes)))
        await self._take_steering()
        return StepValue(node=self.head)

    async def _take_steering(self) -> None:
        """Store steering messages after the results, so that the next step reads them."""
        for queued in await self.record.queue():
            if queued.is_paused:
                continue
            message = queued.message
            if message is None or not queued.options.steers or queued.options.parent:
                return
            notices = attachment_notices(queued.options.notices)

            def complete(
                nodes: tuple[str, ...], stored: Message = message, notices: Sequence[NoticeRaised] = notices
            ) -> Completion:
                return Completion(events=[MessageStored(node=nodes[-1], message=stored), *notices])

            def then(committed: Committed, stored: Message = message) -> None:
                if self.input is not None and not committed.is_gone:
                    self.input = self.input.extend([DetachedMessage(committed.nodes[-1], stored)])

            await self.sink.commit(SessionChange(queued=queued.id), complete, then)

    # Writes ----------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        change: SessionChange,
        *,
        before: Sequence[Event] = (),
        after: Sequence[Event] = (),
        is_last: bool = False,
    ) -> Committed:
        """Store new nodes, the checkpoint and events in one transaction. `is_last` means that the turn has failed; its
        checkpoint is removed."""

        def complete(nodes: tuple[str, ...]) -> Completion:
            stored = [
                MessageStored(node=node, message=new.message) for node, new in zip(nodes, change.nodes, strict=True)
            ]
            if nodes:
                self.files.mark_stored(nodes[0])
            running = None if is_last else as_json(self.checkpoint)
            settings = {"running": running, **self.files.settings()}
            return Completion(events=[*before, *stored, *after], settings=settings)

        def then(committed: Committed) -> None:
            placed = [
                DetachedMessage(node, new.message) for node, new in zip(committed.nodes, change.nodes, strict=True)
            ]
            if self.input is not None:
                self.input = self.input.extend(placed)
            if is_last:
                self.state = "failed"

        return await self.sink.commit(change, complete, then)

    @property
    def seconds(self) -> float:
        """How long the turn has run."""
        return max(0.0, self.services.turn_limits.seconds - self.approvals.left_seconds)

    async def _store_approvals(self, event: Event) -> None:
        """Store pending and "always" approvals with `event`, then show it. Any process can answer them after a
        restart."""
        self.state = "waiting" if self.approvals.open else "running"
        self.checkpoint = msgspec.structs.replace(
            self.checkpoint, approvals=dict(self.approvals.open), seconds=self.seconds
        )
        always = [list(pair) for pair in sorted(self.approvals.always)]
        settings = {"running": as_json(self.checkpoint), "always": always}
        await self.sink.commit(SessionChange(settings=settings), lambda _: Completion(events=[event]))

    async def _store_changes(self, call_id: str, changes: Sequence[FileChange]) -> None:
        """Store the changes of files that a call has made so far, for `undo` if the call does not end."""
        every = {**self.checkpoint.changes, call_id: tuple(changes)}
        self.checkpoint = msgspec.structs.replace(self.checkpoint, changes=every, seconds=self.seconds)
        await self.sink.commit(SessionChange(settings={"running": as_json(self.checkpoint)}))

    # Calls -----------------------------------------------------------------------------------------------------------

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools that the next step offers."""
        found = self.services.select_tools(self.checkpoint.tools, self.unused_tools)
        return plan_tools(found, self._leave_plan_mode) if self.is_planning else found

    async def _leave_plan_mode(self) -> None:
        """Leave plan mode after the user approved the plan: the next step offers all tools."""
        self.is_planning = False
        await self.sink.commit(SessionChange(settings={PLAN_MODE: None}))
        specs = tuple(it.spec for it in self.tools().values())
        self.input = msgspec.structs.replace(self.request, tools=specs)

    def _call_services(self) -> CallServices:
        workspace = workspace_of(self.snapshot)
        cap_bytes = self.services.tool_output_bytes

        async def on_finished(call: ToolCall, result: ToolResult) -> None:
            await self.files.note_call(workspace, call, result, cap_bytes)

        async def messages() -> tuple[Message, ...]:
            return tuple(placed.message for placed in self.request.path)

        return CallServices(
            tools=self.tools(),
            workspace=workspace,
            media=self.services.media,
            limits=self.services.limits,
            prerender=self.services.prerender(self.request.model),
            approvals=self.approvals,
            emit=self.sink.emit,
            emit_now=self.sink.emit_now,
            store_changes=self._store_changes,
            caller=self.caller,
            messages=messages,
            on_finished=on_finished,
            session_id=self.record.id,
            model=self.request.model.alias or self.request.model.reference,
            hooks=self.hooks.tools,
            background=self.services.background(self.record.id),
            records=self.files.records,
            text_cap_bytes=cap_bytes,
            secrets=self.services.secrets,
        )
