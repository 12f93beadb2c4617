"""SessionTurns: runs the turns of a session in this process. It decides which turn may run now; `Turn` does the rest.

One turn runs at a time, across all processes; messages that arrive meanwhile are queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, Unpack

import msgspec

from loom.agent.approvals import check_verdict
from loom.agent.checkpoint import (
    Compact,
    NewMessage,
    QueuedMessage,
    Regenerate,
    Resume,
    TurnCheckpoint,
    TurnRequest,
    checkpoint_of,
)
from loom.agent.event_stream import EventStream, ReplyStream
from loom.agent.file_undo import UNDONE, changed_steps, undo_steps
from loom.agent.lease import SessionLease
from loom.agent.message_composer import ComposedMessage, MessageComposer
from loom.agent.output import require_valid_schema
from loom.agent.ports import Completion, SessionRecord
from loom.agent.services import Services
from loom.agent.tracked_files import TrackedFiles
from loom.agent.turn import Turn
from loom.agent.turn_answer import reply_of
from loom.agent.turn_start import begin_turn, close_left_turn
from loom.agent.work_history import WorkHistory
from loom.compile.request import Snapshot, may_compact, next_request
from loom.content.inputs import Content
from loom.content.json_values import as_json
from loom.content.messages import Message
from loom.errors import ApprovalGone, Conflict
from loom.events import (
    ApprovalRequested,
    Event,
    MessageQueued,
    MessageStored,
    NoticeRaised,
    TurnFinished,
)
from loom.sampling import Choices, sampling_of
from loom.session import (
    AnswerKeywords,
    MessageKeywords,
    Options,
    Queued,
    Reply,
    SessionChange,
    options_of,
    with_models,
)
from loom.tools.file_records import RecordsChanges
from loom.work_types import ChangedStep, Todo, UndoReport

COMPACTING: Final = "The context window is almost full: the conversation is summarized. The original stays as a branch."
_SUPERSEDED: Final = "A new message was sent, so the pending approval was denied."

Show = Callable[[Event], None]


class SessionTurns:
    """Runs the turns of one session. The first turn shows `notices`; messages sent here may call `tools` (None:
    all)."""

    def __init__(
        self,
        record: SessionRecord,
        services: Services,
        *,
        notices: Sequence[str] = (),
        tools: Sequence[str] | None = None,
    ) -> None:
        self._record = record
        self._services = services
        self._lock = services.lock(record.id)
        self._lease = SessionLease(record, self._lock)
        self._files = TrackedFiles(services.media)
        self._work = WorkHistory(record)
        self._notices = list(notices)
        self._tools = None if tools is None else tuple(tools)
        self._traceparent = ""
        self._is_draining = False
        self._last: Turn | None = None
        self.caller: RecordsChanges | None = None
        """The call of another session for which this one runs. It records the changes of files, too."""

    @property
    def id(self) -> str:
        return self._record.id

    # Send ------------------------------------------------------------------------------------------------------------

    def stream(self, *content: Content, **how: Unpack[MessageKeywords]) -> ReplyStream:
        """Send a message and iterate over the events of its turn (`text()`: its text; at the end, `reply`). Closing the
        stream early cancels the turn. While another turn runs, here or in another process, the message waits.

        A turn that another process left unfinished is continued first; if it has pending approvals, it is
        closed instead, and they are denied.
        """
        wanted = options_of(**how, tools=self._tools)
        return self._stream(content, wanted, how.get("output"), shows_left_turn=True)

    def _stream(
        self, content: Sequence[Content], options: Options, output: Any, *, shows_left_turn: bool
    ) -> ReplyStream:
        async def job(show: Show) -> None:
            await require_valid_schema(options.sampling.output_schema)
            composed = await self._compose(content, options.model)
            request = NewMessage(
                message=composed.message,
                model=options.model,
                parent=options.parent,
                mentioned=composed.mentioned,
                tools=options.tools,
                sampling=options.sampling,
            )
            self._notices += composed.notices
            await self._run_when_free(request, options.n, show, shows_left_turn=shows_left_turn)

        return ReplyStream(job, self._reply, output)

    def regenerate(self, node: str | None = None, **how: Unpack[AnswerKeywords]) -> ReplyStream:
        """Answer the question above `node` (None: the last question) again; earlier answers stay as alternatives."""
        wanted = options_of(**how, parent=node, tools=self._tools)

        async def job(show: Show) -> None:
            await require_valid_schema(wanted.sampling.output_schema)
            question = await self._record.question(node)
            request = Regenerate(node=question, model=wanted.model, tools=wanted.tools, sampling=wanted.sampling)
            await self._run_when_free(request, wanted.n, show)

        return ReplyStream(job, self._reply, how.get("output"))

    again = regenerate
    """The old name of `regenerate`."""

    def compact(self, *, model: str = "") -> EventStream:
        """Let the model summarize the conversation and continue from the summary. The original conversation stays as a
        branch; its media can still be shown again."""
        return EventStream(lambda show: self._run_when_free(Compact(model=model), 1, show))

    async def send(self, *content: Content, **how: Unpack[MessageKeywords]) -> Reply:
        """Send a message and return the reply; raise the error of a turn that fails. Of `n` answers return the last,
        with the others as its `siblings`."""
        wanted = options_of(**how, tools=self._tools)
        return await self._stream(content, wanted, how.get("output"), shows_left_turn=False).finish()

    async def _reply(self, finished: TurnFinished, answers: Sequence[MessageStored]) -> Reply:
        return await reply_of(self._last, finished, answers)

    async def _compose(self, content: Sequence[Content], model: str) -> ComposedMessage:
        return await MessageComposer(self._record, self._services, self._tools).compose(content, model)

    # Queue -----------------------------------------------------------------------------------------------------------

    async def post(
        self, *content: Content, key: str = "", models: Sequence[str] = (), **how: Unpack[MessageKeywords]
    ) -> Queued:
        """Queue a message until `work`, here or in another process, runs it. It is on disk when this returns.

        A repeated `key` returns the message queued first (`is_new` is False), even after it was answered.
        """
        wanted = with_models(options_of(**how, tools=self._tools), models)
        await require_valid_schema(wanted.sampling.output_schema)
        return await self._enqueue(key, content, msgspec.structs.replace(wanted, traceparent=self._traceparent))

    def set_trace_parent(self, traceparent: str) -> None:
        """Set the span of the request that posts messages here, as its W3C header; their turns are below it."""
        self._traceparent = traceparent

    async def _enqueue(self, key: str, content: Sequence[Content], options: Options) -> Queued:
        composed = await self._compose(content, options.model)

        def events(queued_id: str) -> list[Event]:
            return [MessageQueued(message=composed.message, id=queued_id, steers=options.steers)]

        options = msgspec.structs.replace(options, mentioned=composed.mentioned, notices=composed.notices)
        queued = await self._record.enqueue(key, composed.message, options, events)
        return msgspec.structs.replace(queued, notices=composed.notices)

    async def steer(self, *content: Content, key: str = "") -> Queued:
        """Send a message to the running turn: the model reads it at its next step. If no turn runs, or the turn takes
        no further step, it is answered like any queued message."""
        return await self._enqueue(key, content, Options(tools=self._tools, steers=True))

    async def post_again(self, node: str | None = None, *, key: str = "", **how: Unpack[AnswerKeywords]) -> Queued:
        """Queue another answer to the question above `node`."""
        # Report invalid options before anything is read.
        await require_valid_schema(options_of(**how).sampling.output_schema)
        question = await self._record.question(node)
        options = options_of(**how, parent=question, tools=self._tools)
        return await self._record.enqueue(key, None, options, lambda _: ())

    async def post_compact(self, *, key: str = "", model: str = "") -> Queued:
        """Queue a summary of the conversation."""
        head = (await self._record.snapshot()).head
        options = Options(model=model, parent=head, tools=(), is_compact=True)
        return await self._record.enqueue(key, None, options, lambda _: ())

    async def queue(self) -> tuple[Queued, ...]:
        return tuple(await self._record.queue())

    async def _runnable(self) -> list[Queued]:
        """Return the queued messages that are not paused, in order."""
        return [queued for queued in await self._record.queue() if not queued.is_paused]

    def work(self) -> EventStream:
        """Do the work that no other process does: continue an unfinished turn, then answer queued messages in order.
        The stream ends at once if another process runs the session."""

        async def job(show: Show) -> None:
            while not self._lock.lock.locked() and not self._is_draining:
                async with self._lock.lock:
                    if not await self._record.acquire():
                        return
                    async with self._lease.renew():
                        may_be_queued = await self._run_backlog(show)
                # Another process may have queued a message just before the lease was released, expecting us to run it.
                if not may_be_queued or not await self._runnable():
                    return

        return EventStream(job)

    async def _run_backlog(self, show: Show) -> bool:
        """Continue an unfinished turn and answer queued messages. Return False if nothing is left to do here: the lease
        was lost, the store cannot be written, or the transaction that released the lease saw an empty queue."""
        snapshot = await self._snapshot_for_turn()
        if not await self._continue_left_turn(snapshot, show):
            return False
        if checkpoint_of(snapshot).turn:
            snapshot = None  # the turn that was left has changed the session
        last: Queued | None = None
        while not self._is_draining and (waiting := await self._runnable()):
            first = waiting[0]
            is_same = last is not None and (last.id, last.answers_left) == (first.id, first.answers_left)
            if is_same and not (self._last is not None and self._last.stop_reason == "cancel"):
                return False
            last = first
            snapshot = snapshot or await self._snapshot_for_turn()
            if first.message is not None and not first.options.parent:
                snapshot = await self._compact_if_due(snapshot, first.message, first.options, show)
            begin = partial(begin_turn, request=QueuedMessage(queued=first), snapshot=snapshot)
            turn = await self._run_turn(begin, show, releases=True)
            if turn.state in ("lost", "interrupted") or not self._record.has_lease:
                return False
            snapshot = None
        return True

    # Run -------------------------------------------------------------------------------------------------------------

    async def _run_when_free(self, request: TurnRequest, n: int, show: Show, *, shows_left_turn: bool = True) -> None:
        """Run `n` turns that answer one question, once no other turn of the session runs; stop after one that fails. An
        unfinished turn is continued first."""
        waiting = [MessageQueued(message=request.message)] if isinstance(request, NewMessage) else []
        if self._lock.lock.locked():
            while waiting:
                show(waiting.pop())
        async with self._lock.lock:
            if not await self._record.acquire():
                while waiting:
                    show(waiting.pop())
                await self._lease.wait()
            async with self._lease.renew():
                snapshot = await self._snapshot_for_turn()
                show_left = show if shows_left_turn else _show_nothing
                if not await self._continue_left_turn(snapshot, show_left, is_superseded=True):
                    return
                if checkpoint_of(snapshot).turn:
                    snapshot = await self._snapshot_for_turn()
                if isinstance(request, NewMessage) and not request.parent:

                    def show_notice(event: Event) -> None:
                        # The text of a summary is not part of the answer, and its end must not end the stream.
                        if isinstance(event, NoticeRaised):
                            show(event)

                    options = Options(model=request.model, sampling=request.sampling)
                    snapshot = await self._compact_if_due(snapshot, request.message, options, show_notice)
                for answer in range(n):
                    begin = partial(begin_turn, request=request, snapshot=snapshot)
                    turn = await self._run_turn(begin, show, releases=answer == n - 1)
                    if turn.state != "finished":
                        return
                    ran = turn.checkpoint
                    tools = None if ran.tools is None else tuple(ran.tools)
                    request = Regenerate(node=turn.question, model=ran.model, tools=tools, sampling=ran.sampling)
                    if answer < n - 1:
                        snapshot = await self._snapshot_for_turn()

    async def _snapshot_for_turn(self) -> Snapshot:
        """Read the session for a turn that begins now, once its tools are ready: waiting for them may take seconds. The
        turn shows why tools are missing, unless the turn before it did."""
        problems = await self._services.wait_tools()
        shown = self._services.shown_problems.pop(self.id, ())
        self._notices += [problem for problem in problems if problem not in shown]
        if problems:
            self._services.shown_problems[self.id] = problems
        return await self._record.snapshot()

    async def _compact_if_due(self, snapshot: Snapshot, message: Message, options: Options, show: Show) -> Snapshot:
        """Summarize the conversation before `message` if its request would fill too much of the window; return the
        session as it is then. If the model writes no summary, the message is answered anyway: trimming keeps the
        request within the limits."""
        if not may_compact(snapshot.path, self._services.compact_at) or self._is_draining:
            return snapshot
        services = self._services
        model = await services.resolve_model(options.model or snapshot.model)
        settings = services.request_options(model, await services.offered_tools(snapshot, self._tools))
        request = await next_request(
            snapshot, model, settings, services.settle, draft=(message,), sampling=options.sampling
        )
        if not request.is_compacted_first:
            return snapshot
        show(NoticeRaised(text=COMPACTING, code="compacted"))
        await self._run_turn(partial(begin_turn, request=Compact(model=options.model), snapshot=snapshot), show)
        return await self._snapshot_for_turn()

    async def _run_turn(self, begin: Callable[[Turn], Awaitable[bool]], show: Show, *, releases: bool = False) -> Turn:
        """Run one turn to its end; cancel it if the caller is cancelled."""
        notices, self._notices = self._notices, []
        turn = Turn(
            self._services,
            self._record,
            begin,
            show=show,
            files=self._files,
            caller=self.caller,
            notices=notices,
            releases=releases,
        )
        self._last = self._lock.turn = turn
        for command in self._lease.take_early_commands():
            turn.on_command(command)
        task = turn.start()
        try:
            await asyncio.wait([task])
        finally:
            await turn.end()
            self._lock.turn = None
        return turn

    async def _continue_left_turn(self, snapshot: Snapshot, show: Show, *, is_superseded: bool = False) -> bool:
        """Continue the turn that another process left unfinished, if `snapshot` contains one. With `is_superseded`, a
        turn with pending approvals is closed instead, and the next turn shows a notice. Return False if the session was
        lost meanwhile."""
        checkpoint = checkpoint_of(snapshot)
        if not checkpoint.turn:
            return True
        if self._services.after_crash == "stop" and not checkpoint.approvals:
            await self._run_turn(partial(close_left_turn, checkpoint=checkpoint), show)
            return True
        if checkpoint.approvals and is_superseded:
            await self._run_turn(partial(close_left_turn, checkpoint=checkpoint), _show_nothing)
            self._notices.append(_SUPERSEDED)
            return True
        begin = partial(begin_turn, request=Resume(checkpoint=checkpoint), snapshot=snapshot)
        turn = await self._run_turn(begin, show)
        return turn.state not in ("lost", "interrupted")

    async def _left_turn(self) -> TurnCheckpoint:
        """Return the checkpoint of a running or unfinished turn."""
        return checkpoint_of(await self._record.snapshot())

    # Look and change -------------------------------------------------------------------------------------------------

    async def snapshot(self, at: str = "") -> Snapshot:
        """Read the session and the path to its head, or to the node `at`."""
        return await self._record.snapshot(at)

    async def path(self) -> tuple[Message, ...]:
        return tuple(placed.message for placed in (await self._record.snapshot()).path)

    async def head(self) -> str:
        return (await self._record.snapshot()).head

    async def use(self, model: str) -> None:
        await self._services.resolve_model(model)
        await self._record.use_model(model)

    async def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace earlier ones."""
        await self._record.set_options(as_json(sampling_of(options, thinking=thinking)))

    async def go(self, node: str) -> None:
        """Move the head to any node of the session. An unfinished turn is closed first."""
        await self._record.check_kept(node)
        async with self._hold_idle():
            await self._record.commit(SessionChange(move_to=node), lambda _: Completion())

    async def todos(self) -> tuple[Todo, ...]:
        """Return the agent's current to-do list."""
        return (await self._work.read((await self._record.snapshot()).path)).todos or ()

    async def changes(self) -> tuple[ChangedStep, ...]:
        """Return the steps of the current path, and of what its summary replaced, that changed files."""
        snapshot = await self._record.snapshot()
        return changed_steps(await self._work.read(snapshot.path), snapshot.settings.get(UNDONE, ()))

    async def undo(self, step: int | None = None) -> UndoReport:
        """Undo the file changes of the last step that has any, or of `step` and all later ones. The model is informed.

        A file that something else has changed since is left alone; the report names it, and its step stays open. Raise
        `Conflict` while a turn runs or an approval is pending, `NotFound` if there is nothing to undo.
        """
        if (await self._left_turn()).approvals:
            raise Conflict("An approval is pending in this session", hint="Answer it first: `loom approvals` lists it.")
        async with self._hold_idle():
            return await undo_steps(self._record, self._work, self._services.media, step)

    # While a turn runs -----------------------------------------------------------------------------------------------

    async def cancel(self) -> None:
        """End the running turn, in any process; what is stored stays, and the session can continue."""
        if self._lock.turn is not None:
            await self._lock.turn.end()
        elif turn := (await self._left_turn()).turn:
            try:
                await self.close_cut_turn()
            except Conflict:
                await self._record.send_command("cancel", {"turn": turn})

    def rest(self) -> None:
        """Start nothing more; the running turn stops after its current step, for another process to continue."""
        self._is_draining = True
        if self._lock.turn is not None:
            self._lock.turn.hand_over()

    async def leave(self) -> None:
        """Stop the running turn now, for another process to continue."""
        self._is_draining = True
        if self._lock.turn is not None:
            await self._lock.turn.interrupt()

    async def answer(
        self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "", *, by: str = ""
    ) -> None:
        """Answer a pending approval of a turn that runs here or in another process, or that `resume` will continue.
        Raise `ApprovalGone` if it is no longer pending, `ContentError` for another answer."""
        check_verdict(answer)
        turn = self._lock.turn
        if turn is not None and turn.approvals.answer(approval, answer, reason, by):
            return
        is_kept = approval in (await self._left_turn()).approvals
        if is_kept and turn is None:
            data = {"approval": approval, "answer": answer, "reason": reason, "by": by}
            await self._record.send_command("answer", data)
        elif not is_kept or turn is None or not turn.approvals.answer_early(approval, answer, reason, by):
            raise ApprovalGone("This approval is no longer pending")

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals, including those of an unfinished turn."""
        snapshot = await self._record.snapshot()
        return checkpoint_of(snapshot).approval_requests(snapshot.path)

    def resume(self) -> EventStream:
        """Continue a turn that another process left unfinished; pending approvals are requested again under the same
        id. Closing the stream early cancels the turn. Do nothing if there is no such turn; raise `Conflict` while one
        runs."""

        async def job(show: Show) -> None:
            async with self._lease.hold():
                await self._continue_left_turn(await self._snapshot_for_turn(), show)

        return EventStream(job)

    async def close_cut_turn(self) -> None:
        """Close a turn that another process left unfinished, instead of continuing it. Raise `Conflict` while a turn
        runs."""
        async with self._hold_idle():
            pass

    @asynccontextmanager
    async def _hold_idle(self) -> AsyncGenerator[None]:
        """Hold the lease for a change while no turn runs; an unfinished turn is closed first."""
        async with self._lease.hold():
            checkpoint = await self._left_turn()
            if checkpoint.turn:
                await self._run_turn(partial(close_left_turn, checkpoint=checkpoint), _show_nothing)
            yield


def _show_nothing(_: Event) -> None:
    """Discard an event that is only stored, because it does not belong to the turn that the stream is for."""
