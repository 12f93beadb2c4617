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
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from loom.agent import compact
from loom.agent.approvals import Approvals
from loom.agent.calls import CallServices, EarlierCalls, run_calls, unanswered_results
from loom.agent.checkpoint import TurnCheckpoint
from loom.agent.claude_hooks import HookAnswer
from loom.agent.failures import finish_reason, lease_lost, limit_reached, turn_cancelled, turn_failed
from loom.agent.hooks import HookMoment, ToolHooks
from loom.agent.ingest import ingest
from loom.agent.learned_facts import learned_change, next_input, watermark_change
from loom.agent.loop import run_steps
from loom.agent.output import parse_output, repair_text
from loom.agent.plan_mode import PLAN_MODE, plan_tools
from loom.agent.ports import Command, Committed, Completion, SessionRecord
from loom.agent.repeats import mark_repeats
from loom.agent.services import Services, workspace_of
from loom.agent.sink import EventSink
from loom.agent.step import ModelAnswer, StepOutput, ask_model, pause_before_retry, words_of
from loom.agent.steps import StepValue
from loom.agent.tracked_files import TrackedFiles
from loom.agent.work_history import WorkHistory
from loom.compile.policy import DetachedMessage
from loom.compile.request import RequestInput, Snapshot
from loom.content.blocks import ContentBlock, TextBlock, ToolCall, ToolResult
from loom.content.json_values import as_json
from loom.content.messages import Message, tool, user
from loom.errors import LoomError, OutputInvalid, StoreError, ToolError, Unavailable
from loom.events import (
    ApprovalAnswered,
    Event,
    Folded,
    MessageStored,
    NoticeRaised,
    StepFinished,
    TurnFailed,
    TurnFinished,
)
from loom.prompt import CONTINUE_ANSWER, Receipt
from loom.session import LeaseChange, NewNode, SessionChange
from loom.tools.base import Tool

TurnState: TypeAlias = Literal["starting", "running", "waiting", "finished", "failed", "interrupted", "lost"]

MAX_ATTEMPTS: Final = 3
"""The maximum number of requests for the same step, and of processes that may end during it, before the turn is
closed."""
CONTINUED: Final = "turn.continued"
"""The code of the notice that a turn continues after a restart or a broken connection."""


class TurnLimitReached(Exception):
    """Raised if the turn may take no further step."""


class HandOver(Exception):
    """Raised at a step boundary when the process is stopping."""


class Turn:
    """One turn. `show` receives every event after it is stored; `files` are the session's tracked files; `begin` stores
    what the turn answers, or loads its checkpoint, and returns False if nothing is left to do. With `releases`, the
    lease is released at the end of the turn if no message is queued."""

    def __init__(
        self,
        services: Services,
        record: SessionRecord,
        begin: Callable[[Turn], Awaitable[bool]],
        *,
        show: Callable[[Event], None],
        files: TrackedFiles,
        notices: Sequence[str] = (),
        releases: bool = False,
    ) -> None:
        self.services = services
        self.record = record
        self.files = files
        self.unused_tools: frozenset[str] = frozenset()
        """Tools that are of no use in the workspace."""
        self.is_planning = False
        """Whether only tools that read are offered, until the user approves a plan."""
        self.hooks = ToolHooks()
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
        self._answer: ModelAnswer | None = None
        self.done: dict[str, ToolResult] = {}
        """The results of the calls that run now."""
        self._final_lease: LeaseChange = "release-if-idle" if releases else "keep"
        self._announced: set[str] = set()
        self._cancelled: set[str] = set()
        """Ids of turns whose cancellation arrived before this turn started."""
        self._yields = False

    # Control ---------------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self._run())
        return self.task

    async def end(self) -> None:
        """Cancel the turn and wait until it is over. A turn that has already finished is only awaited."""
        self._abort("cancel")
        await self.wait()

    async def wait(self) -> None:
        """Wait until the turn is over; raise an unexpected error (a bug)."""
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
        self._abort("hand-over")
        await self.wait()

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
        if self.task is not None and not (reason == "cancel" and self.is_resuming):
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
    def is_resuming(self) -> bool:
        """Whether the turn is reading the unfinished step of another process."""
        return self.state == "starting" and self.has_started

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "failed", "interrupted", "lost")

    # States ----------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        with self.observer:
            await self._run_states()

    async def _run_states(self) -> None:
        """Begin the turn, run its steps and hooks, and end it in the state that its outcome requires."""
        self.services.batching.running += 1
        try:
            if await self._begin(self):
                self.state = "running"
                if self.stop_reason == "cancel":
                    raise asyncio.CancelledError
                self.hooks = await self.services.hooks(workspace_of(self.snapshot))
                await self._run_start_hooks()
                await self._run_to_end()
            await self.sink.flush()
            await self._run_end_hooks()
        except HandOver:
            await self._hand_over(None)
        except LoomError as error:
            await self._fail(error)
            await self._run_end_hooks()
        except asyncio.CancelledError:
            await self._end_early()
            raise
        finally:
            self.services.batching.running -= 1
            await self.sink.close()

    async def _run_start_hooks(self) -> None:
        """Run the user's hooks once per turn, and store what they add for the model. Raise `ToolError` if one of them
        refuses the turn."""
        if self.checkpoint.steps or self.open_calls or not (self._is_compacting or self._head == self.question):
            return
        for text in self.hooks.notices:
            await self._show_hook(text)
        found: list[HookAnswer] = []
        if not self._is_compacting and (source := await self._beginning()):
            facts = {**self._hook_facts(), "source": source}
            found.append(await self.hooks.run_moment("session_start", facts, self._show_hook))
        moment: HookMoment = "before_compact" if self._is_compacting else "turn_start"
        found.append(await self.hooks.run_moment(moment, self._hook_facts(), self._show_hook))
        for answer in found:
            if answer.refusal:
                raise ToolError(f"your hook refused it: {answer.refusal}")
        told = "\n".join(answer.context for answer in found if answer.context)
        if told and not self._is_compacting:
            note = user(f"[The user's hook reports: {told}]")
            await self.commit(SessionChange(nodes=(NewNode(message=note, source="system"),)))

    async def _beginning(self) -> Literal["", "startup", "compact"]:
        """Return how the session began if this is its first turn, or the first after a summary; else empty."""
        path = self.snapshot.path
        if not self.hooks.moments.get("session_start") or any(it.message.role == "assistant" for it in path):
            return ""
        return "compact" if await self.record.summarized_end(path[0].id) else "startup"

    async def _run_end_hooks(self) -> None:
        """Run the user's hooks for a turn that is over. Their output is not stored, because another process may hold
        the lease."""
        moment: HookMoment = "after_compact" if self._is_compacting else "turn_end"
        ends = ("finished",) if self._is_compacting else ("finished", "failed", "interrupted")
        if self.state not in ends:
            return
        found = await self.hooks.run_moment(moment, self._hook_facts(), self._show_hook)
        for text in (found.context, found.refusal):
            if text:
                await self._show_hook(text)

    def _hook_facts(self) -> dict[str, str]:
        path = self.input.path if self.input is not None else self.snapshot.path
        asked = next((placed.message for placed in reversed(path) if placed.id == self.question), None)
        return {
            "session_id": self.record.id,
            "cwd": str(workspace_of(self.snapshot)),
            "turn_id": self.id,
            "state": self.state,
            "prompt": "\n".join(it.text for it in asked.blocks if isinstance(it, TextBlock)) if asked else "",
        }

    async def _show_hook(self, text: str) -> None:
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
                partial = self._answer.result if self._answer is not None else None
                await self._hand_over(words_of(partial.message) if partial is not None else None)
            case "cancel" | "":
                await (self.close if self.has_started else self.emit_end)(turn_cancelled(self.id))
            case _:
                assert_never(self.stop_reason)

    async def _hand_over(self, words: Message | None) -> None:
        """Leave the turn to another process, and store `words`, the part of an answer that arrived."""
        if self.has_started:
            self.checkpoint = msgspec.structs.replace(self.checkpoint, is_handed_over=True)
            meta = {**(self._answer.meta if self._answer is not None else {}), "finish_reason": "interrupted"}
            nodes = () if words is None or self._is_compacting else (NewNode(message=words, meta=meta),)
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
        answer = self._answer
        message = answer.result.message if answer is not None and answer.result is not None else None
        nodes = [left] if left is not None else []
        if answer is not None and message is not None and not self._is_compacting:
            ended = {} if answer.is_complete else {"finish_reason": finish_reason(end)}
            nodes.append(NewNode(message=message, meta={**answer.meta, **ended}))
        calls = nodes[-1].message.calls if nodes else self.open_calls
        if calls:
            nodes.append(NewNode(message=unanswered_results(calls, self.done)))
        denied = [
            ApprovalAnswered(approval=approval, answer="deny", reason=end.text)
            for approval in self.checkpoint.approvals
        ]
        change = SessionChange(nodes=tuple(nodes), lease=self._final_lease)
        if not nodes and self.checkpoint.previous_head and self._head == self.question:
            change = msgspec.structs.replace(change, move_to=self.checkpoint.previous_head)
        self._answer = None
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
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls at the end of the path that have no result yet."""
        path = self.input.path if self.input is not None else self.snapshot.path
        return path[-1].message.calls if path else ()

    @property
    def _head(self) -> str:
        path = self.input.path if self.input is not None else self.snapshot.path
        return path[-1].id if path else self.snapshot.head

    @property
    def _is_compacting(self) -> bool:
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

    async def ask(self, step: int) -> StepValue:
        """Request an answer until one is complete, and store it. The text of an interrupted answer is stored, and the
        model continues after it."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            answer = self._answer = ModelAnswer(request=self._continuing_request())
            try:
                await ask_model(answer, step, self.services, self._step_output())
            except LoomError:
                self._answer = None
                await self._learn(answer)
                raise
            finally:  # a cancelled answer costs tokens, too
                if answer.result is not None:
                    await self.services.charge(self.record.id, answer.request.model, answer.result.usage)
            if answer.is_complete:
                return await self._store_answer(step, answer)
            if not answer.may_continue or attempt == MAX_ATTEMPTS:
                raise answer.error or Unavailable(
                    f"{self.request.model.reference}: the answer ended before it was complete",
                    hint="The partial answer is kept. Try again.",
                )
            await self._store_cut_answer(answer)
            await pause_before_retry(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def run_calls(self, calls: Sequence[ToolCall]) -> StepValue:
        """Run the calls of the last answer and store their results."""
        self.done = {}
        outcome = await run_calls(
            calls, self._call_services(), self.request.model.capabilities, self.earlier, self.done
        )
        self.earlier = EarlierCalls()
        results = mark_repeats(calls, outcome.results, [placed.message for placed in self.request.path])
        nodes = [NewNode(message=tool(*results), source="tool")]
        if outcome.injected:
            nodes.append(NewNode(message=Message("user", outcome.injected), source="tool"))
        await self.commit(SessionChange(nodes=tuple(nodes)))
        await self._take_steering()
        return StepValue(node=self._head)

    async def _take_steering(self) -> None:
        """Store steering messages after the results, so that the next step reads them."""
        for queued in await self.record.queue():
            if queued.is_paused:
                continue
            message = queued.message
            if message is None or not queued.options.steers or queued.options.parent:
                return
            stored = message

            def complete(nodes: tuple[str, ...], stored: Message = stored) -> Completion:
                return Completion(events=[MessageStored(node=nodes[-1], message=stored)])

            def then(committed: Committed, stored: Message = stored) -> None:
                if self.input is not None and not committed.is_gone:
                    self.input = self.input.extend([DetachedMessage(committed.nodes[-1], stored)])

            await self.sink.commit(SessionChange(queued=queued.id), complete, then)

    def _continuing_request(self) -> RequestInput:
        """Return the next request. If the path ends with an interrupted answer, the request asks the model to continue
        it."""
        request = self.request
        last = request.path[-1].message
        is_cut = last.role == "assistant" and any(isinstance(block, TextBlock) for block in last.blocks)
        if self.checkpoint.is_paused and last.role == "assistant":
            return msgspec.structs.replace(request, ends_with_assistant=True)
        if self._is_compacting or not is_cut:
            return request
        return msgspec.structs.replace(request, draft=(user(CONTINUE_ANSWER),), is_placeholder=True)

    def _step_output(self) -> StepOutput:
        async def keep_media(data: bytes) -> ContentBlock:
            return (await ingest(data, self.services.media, limits=self.services.limits)).blocks[0]

        return StepOutput(emit=self.sink.emit, announce=self._announce, keep_media=keep_media)

    async def _announce(self, notices: Sequence[str]) -> None:
        """Show each notice once per turn, and only the first notice about content that the model cannot see."""
        unseen = f"{self.request.model.reference} gets "
        for notice in notices:
            topic = unseen if notice.startswith(unseen) else notice
            if topic not in self._announced:
                self._announced.add(topic)
                await self.sink.emit(NoticeRaised(text=notice, code="receipt"))

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

    async def _store_answer(self, step: int, answer: ModelAnswer) -> StepValue:
        """Store a complete answer, what it revealed about the model, and, if it makes no calls, the end of the turn."""
        folded, prepared = answer.result, answer.prepared
        if folded is None or prepared is None:
            raise AssertionError("a complete answer has a fold and a prompt")
        self.receipt = prepared.receipt
        self.checkpoint = msgspec.structs.replace(
            self.checkpoint, steps=step, deaths=0, usage=self.checkpoint.usage + folded.usage, seconds=self._seconds()
        )
        calls = folded.message.calls if folded.message is not None else ()
        repair, notices = await self._check_output(folded, calls)
        is_paused = folded.stop == "pause" and folded.message is not None and not calls
        goes_on = bool(calls) or is_paused or repair is not None
        self.checkpoint = msgspec.structs.replace(self.checkpoint, is_paused=is_paused)
        finished = StepFinished(step=step, usage=folded.usage, stop=folded.stop, seconds=answer.seconds)
        if self._is_compacting:
            return await self._store_summary(answer, finished)
        request, learned = self._apply_learned_facts(answer)
        new = [NewNode(message=folded.message, meta=answer.meta)] if folded.message is not None else []
        if repair is not None:
            new.append(NewNode(message=repair, source="system"))
        change = msgspec.structs.replace(learned, nodes=tuple(new), lease="keep" if goes_on else self._final_lease)
        is_blind = "is_blind" in answer.meta

        def complete(ids: tuple[str, ...]) -> Completion:
            stored = [MessageStored(node=node, message=it.message) for node, it in zip(ids, new, strict=True)]
            over = TurnFinished(
                turn=self.id, node=ids[-1] if ids else self._head, stop=folded.stop, usage=self.checkpoint.usage
            )
            settings: dict[str, Any] = {"running": as_json(self.checkpoint) if goes_on else None}
            return Completion(events=[*stored, finished, *notices, *(() if goes_on else (over,))], settings=settings)

        def then(committed: Committed) -> None:
            placed = [
                DetachedMessage(node, it.message, is_blind) for node, it in zip(committed.nodes, new, strict=True)
            ]
            self.input = request.extend(placed)
            self._answer = None
            if not goes_on:
                self.state = "finished"

        await self.sink.commit(change, complete, then)
        await self._remember_refusals(answer)
        if request.calibration != answer.request.calibration:
            await self.services.keep_calibration(request.model.reference, request.calibration)
        return StepValue(node=self._head, calls=len(calls), continues=goes_on, stop=folded.stop)

    async def _check_output(
        self, folded: Folded, calls: Sequence[ToolCall]
    ) -> tuple[Message | None, list[NoticeRaised]]:
        """Return a message that asks the model to correct an answer that does not match its schema, and a notice. After
        one such attempt, return only the notice."""
        schema = self.request.sampling.output_schema
        if schema is None or calls or folded.message is None or folded.stop not in ("end", "stop_sequence", "other"):
            return None, []
        found = await parse_output(folded.message.text, schema)
        if not found.error:
            return None, []
        if self.checkpoint.repairs or found.fault:
            return None, [NoticeRaised(text=found.error, code=OutputInvalid.code)]
        self.checkpoint = msgspec.structs.replace(self.checkpoint, repairs=1)
        notice = NoticeRaised(
            text=f"The answer did not match its schema ({found.problem}); asking again.", code="output.repair"
        )
        return user(repair_text(found.problem)), [notice]

    async def _store_summary(self, answer: ModelAnswer, finished: StepFinished) -> StepValue:
        """Store the summary and move the head to it; the original path stays as a branch."""
        pinned = compact.pinned_blocks(self.request.path, self.request.overrides)
        work = await WorkHistory(self.record).read(self.request.path)
        change = await compact.summary_change(self.record, self.request.path, answer, pinned, work.todos or ())
        change = msgspec.structs.replace(change, lease=self._final_lease)
        (new,) = change.nodes
        receipt = NoticeRaised(
            text=compact.receipt_text(self.request.path, answer, new.message, pinned), code="compacted"
        )

        def complete(ids: tuple[str, ...]) -> Completion:
            (node,) = ids
            over = TurnFinished(turn=self.id, node=node, stop=finished.stop, usage=self.checkpoint.usage)
            return Completion(
                events=[MessageStored(node=node, message=new.message), finished, receipt, over],
                settings={"running": None},
                overrides=compact.media_overrides(node, new.message, pinned),
            )

        def then(_: Committed) -> None:
            self._answer = None
            self.state = "finished"

        committed = await self.sink.commit(change, complete, then)
        return StepValue(node=committed.nodes[-1], stop=finished.stop)

    async def _store_cut_answer(self, answer: ModelAnswer) -> None:
        """Store the text of an interrupted answer, so that nothing the user has seen disappears."""
        folded = answer.result
        words = words_of(folded.message) if folded is not None else None
        if folded is not None:
            self.checkpoint = msgspec.structs.replace(self.checkpoint, usage=self.checkpoint.usage + folded.usage)
        nodes = () if words is None or self._is_compacting else (NewNode(message=words, meta=answer.meta),)
        self._answer = None
        why = answer.error.message if answer.error is not None else "the connection ended"
        notice = NoticeRaised(text=f"The answer was cut off ({why}); continuing.", code=CONTINUED)
        await self.commit(SessionChange(nodes=nodes), after=[notice])

    def _apply_learned_facts(self, answer: ModelAnswer) -> tuple[RequestInput, SessionChange]:
        """Return the input for the next step, and the change that stores what this step revealed about the model."""
        request = next_input(answer)
        change = watermark_change(self.snapshot, request)
        self.snapshot = msgspec.structs.replace(
            self.snapshot, watermarks={**self.snapshot.watermarks, request.model.reference: request.watermark}
        )
        return request, change

    async def _learn(self, answer: ModelAnswer) -> None:
        """Store what refusals revealed about the model, even if there was no answer."""
        if answer.request != self.request:
            await self.sink.commit(learned_change(self.snapshot, answer.request))
            self.input = msgspec.structs.replace(
                answer.request, draft=(), is_placeholder=False, ends_with_assistant=False
            )
        await self._remember_refusals(answer)

    async def _remember_refusals(self, answer: ModelAnswer) -> None:
        for kind in answer.refused_kinds:
            await self.services.learn(answer.request.model, kind)

    def _seconds(self) -> float:
        return max(0.0, self.services.turn_limits.seconds - self.approvals.left_seconds)

    async def _store_approvals(self, event: Event) -> None:
        """Store pending and "always" approvals with `event`, then show it. Any process can answer them after a
        restart."""
        self.state = "waiting" if self.approvals.open else "running"
        self.checkpoint = msgspec.structs.replace(
            self.checkpoint, approvals=dict(self.approvals.open), seconds=self._seconds()
        )
        always = [list(pair) for pair in sorted(self.approvals.always)]
        settings = {"running": as_json(self.checkpoint), "always": always}
        await self.sink.commit(SessionChange(settings=settings), lambda _: Completion(events=[event]))

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
            messages=messages,
            on_finished=on_finished,
            session_id=self.record.id,
            model=self.request.model.alias or self.request.model.reference,
            hooks=self.hooks,
            background=self.services.background(self.record.id),
            records=self.files.records,
            text_cap_bytes=cap_bytes,
            secrets=self.services.secrets,
        )
