"""SessionTurns: runs the turns of a session in this process. It decides which turn may run now; `Turn` does the rest.

One turn runs at a time, across all processes; messages that arrive meanwhile are queued.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Unpack

import msgspec

from loom.agent import compact
from loom.agent.checkpoint import (
    Compact,
    NewMessage,
    QueuedMessage,
    Regenerate,
    Resume,
    TurnCheckpoint,
    TurnRequest,
)
from loom.agent.custom_blocks import expand_custom_blocks
from loom.agent.event_stream import EventStream, ReplyStream
from loom.agent.file_commands import ExpandedMessage, FileCommandRunner
from loom.agent.file_undo import UNDONE, changed_steps, changes_of, steps_to_undo, undo_text, undone_steps
from loom.agent.ingest import Prerender, ingest
from loom.agent.output import read_output, require_valid_schema
from loom.agent.plan_mode import is_planning, plan_tools
from loom.agent.ports import Command, Completion, SessionRecord
from loom.agent.services import Services
from loom.agent.tracked_files import PUNCTUATION, TrackedFiles, mentions, split_pages
from loom.agent.turn import Turn, workspace_of
from loom.agent.turn_start import begin_turn, close_left_turn
from loom.agent.work_history import WorkHistory
from loom.compile.policy import Override, overrides_of
from loom.compile.request import NextRequest, SettleMode, Snapshot, may_compact, next_request, request_input
from loom.content.blocks import TextBlock
from loom.content.inputs import Attachment, Content, Ingested, flatten
from loom.content.json_values import as_json
from loom.content.messages import Message, join_texts, media_blocks, user
from loom.errors import ApprovalGone, Conflict, ContentError, LoomError, NotFound, ToolError
from loom.events import (
    ApprovalRequested,
    Event,
    MessageQueued,
    MessageStored,
    NoticeRaised,
    TurnFinished,
)
from loom.prompt import Receipt
from loom.sampling import Choices, Sampling, sampling_of
from loom.session import (
    AnswerKeywords,
    MessageKeywords,
    NewNode,
    Options,
    Queued,
    Reply,
    SessionChange,
    options_of,
    with_models,
)
from loom.tools.background import BackgroundProcess
from loom.tools.base import Tool
from loom.tools.undo import restore_files
from loom.work_types import ChangedStep, Todo, UndoReport

HEARTBEAT_SECONDS: Final = 1.0
_FIRST_WAIT_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 0.5
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
        self._files = TrackedFiles(services.media)
        self._work = WorkHistory(record)
        self._notices = list(notices)
        self._tools = None if tools is None else tuple(tools)
        self._tracked: list[str] = []
        self._traceparent = ""
        self._is_draining = False
        self._last: Turn | None = None
        self._early_commands: list[Command] = []
        """Commands that arrived before the turn that they name was resumed."""

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
            message, mentioned, notices = await self._ingest(content, options.model)
            request = NewMessage(
                message=message,
                model=options.model,
                parent=options.parent,
                mentioned=mentioned,
                tools=options.tools,
                sampling=options.sampling,
            )
            self._notices += notices
            show_left = show if shows_left_turn else _show_nothing
            await self._run_when_free(request, options.n, show, message, show_left)

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
        """Return the reply of the last turn. Raise `LoomError` if the model returned nothing."""
        turn = self._last
        if not answers or turn is None or turn.receipt is None:
            raise LoomError(f"The model returned an empty answer (stop: {finished.stop})", hint="Try again.")
        blocks = [block for answer in answers for block in answer.message.blocks]
        # An answer that was interrupted and continued is one message.
        message = answers[0].message if len(answers) == 1 else Message("assistant", tuple(join_texts(blocks)))
        with self._record.wait_for_store():
            parent = await self._record.parent(turn.question)
        return Reply(
            node=answers[-1].node,
            message=message,
            output=await read_output(message.text, turn.request.sampling.output_schema),
            usage=finished.usage,
            stop=finished.stop,
            receipt=turn.receipt,
            parent=parent,
        )

    async def _ingest(self, content: Sequence[Content], model: str) -> tuple[Message, tuple[str, ...], tuple[str, ...]]:
        """Return the message, the files that its text mentions, and notices about its attachments."""
        said = await self._expand(content)
        found = await self._store_content(said.content, model)
        tracked, self._tracked = self._tracked, []
        attached = [block.media.source for block in media_blocks(found.blocks)]
        named = [name for name in mentions(said.typed) if not _is_attached(name, attached)]
        return Message("user", found.blocks), (*tracked, *named), found.notices

    async def _store_content(self, content: Content, model: str) -> Ingested:
        services = self._services
        prerender: Prerender | None = None
        if any(isinstance(leaf, Path | bytes | Attachment) for leaf in flatten(content)):
            with suppress(LoomError):  # the turn reports problems with the model
                prerender = services.prerender(services.known_model(model or await self._record.model()))
        return await ingest(content, services.media, limits=services.limits, fetch=services.fetch, prerender=prerender)

    async def draft_of(self, content: Sequence[Content], model: str = "") -> tuple[Message, ...]:
        """Return the message for `content`, for a preview; return an empty tuple without content."""
        if not content:
            return ()
        said = await self._expand(content, is_preview=True)
        return (Message("user", (await self._store_content(said.content, model)).blocks),)

    async def _expand(self, content: Sequence[Content], *, is_preview: bool = False) -> ExpandedMessage:
        """Return the message with its slash command and its mentions expanded. A preview runs no shell commands."""
        said: list[Content] = list(flatten(expand_custom_blocks(list(content))))
        texts = [
            leaf.text if isinstance(leaf, TextBlock) else leaf for leaf in said if isinstance(leaf, str | TextBlock)
        ]
        if not any(text.startswith("/") or "@" in text for text in texts):
            return ExpandedMessage(said, "\n".join(texts))
        snapshot = await self._record.snapshot()
        runner = None
        if not is_preview and any(text.startswith("/") for text in texts):
            tools = await self._offered_tools(snapshot)
            runner = FileCommandRunner(self._services, self.id, snapshot.settings, workspace_of(snapshot), tools)
        return await self._services.expand(said, workspace_of(snapshot), runner)

    async def _offered_tools(self, snapshot: Snapshot, services: Services | None = None) -> Mapping[str, Tool]:
        unused = await asyncio.to_thread(self._services.unused_tools, workspace_of(snapshot))
        found = (services or self._services).select_tools(self._tools, unused)
        return plan_tools(found) if is_planning(snapshot.settings) else found

    # Queue -----------------------------------------------------------------------------------------------------------

    async def post(
        self, *content: Content, key: str = "", models: Sequence[str] = (), **how: Unpack[MessageKeywords]
    ) -> Queued:
        """Queue a message until `work`, here or in another process, runs it. It is on disk when this returns.

        A repeated `key` returns the message queued first (`is_new` is False), even after it was answered.
        """
        wanted = with_models(options_of(**how, tools=self._tools), models)
        await require_valid_schema(wanted.sampling.output_schema)
        message, mentioned, notices = await self._ingest(content, wanted.model)
        wanted = msgspec.structs.replace(wanted, mentioned=mentioned, traceparent=self._traceparent)
        return await self._enqueue(key, message, wanted, notices)

    def set_trace_parent(self, traceparent: str) -> None:
        """Set the span of the request that posts messages here, as its W3C header; their turns are below it."""
        self._traceparent = traceparent

    async def _enqueue(self, key: str, message: Message, options: Options, notices: tuple[str, ...]) -> Queued:
        def events(queued_id: str) -> list[Event]:
            announced = MessageQueued(message=message, id=queued_id, steers=options.steers)
            return [announced, *(NoticeRaised(text=notice, code="attachment") for notice in notices)]

        queued = await self._record.enqueue(key, message, options, events)
        return msgspec.structs.replace(queued, notices=notices)

    async def steer(self, *content: Content, key: str = "") -> Queued:
        """Send a message to the running turn: the model reads it at its next step. If no turn runs, or the turn takes
        no further step, it is answered like any queued message."""
        message, mentioned, notices = await self._ingest(content, "")
        options = Options(tools=self._tools, mentioned=mentioned, steers=True)
        return await self._enqueue(key, message, options, notices)

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
                    async with self._heartbeat():
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

    async def _run_when_free(
        self,
        request: TurnRequest,
        n: int,
        show: Show,
        message: Message | None = None,
        show_left: Show | None = None,
    ) -> None:
        """Run `n` turns that answer one question, once no other turn of the session runs; stop after one that fails.
        `show_left` receives the events of an unfinished turn that is continued first."""
        is_announced = self._lock.lock.locked()
        if is_announced and message is not None:
            show(MessageQueued(message=message))
        async with self._lock.lock:
            if not await self._record.acquire():
                if not is_announced and message is not None:
                    show(MessageQueued(message=message))
                await self._wait_for_lease()
            async with self._heartbeat():
                snapshot = await self._snapshot_for_turn()
                if not await self._continue_left_turn(snapshot, show_left or show, is_superseded=True):
                    return
                if checkpoint_of(snapshot).turn:
                    snapshot = await self._snapshot_for_turn()
                if isinstance(request, NewMessage) and not request.parent:
                    # The text of a summary is not part of the answer, and its end must not end the stream.
                    options = Options(model=request.model, sampling=request.sampling)
                    snapshot = await self._compact_if_due(
                        snapshot, request.message, options, partial(_show_notice, show)
                    )
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
        request = await self.next_request(options.model, draft=(message,), sampling=options.sampling)
        if not request.is_compacted_first:
            return snapshot
        show(NoticeRaised(text=COMPACTING, code="compacted"))
        await self._run_turn(partial(begin_turn, request=Compact(model=options.model), snapshot=snapshot), show)
        return await self._snapshot_for_turn()

    async def _run_turn(self, begin: Callable[[Turn], Awaitable[bool]], show: Show, *, releases: bool = False) -> Turn:
        """Run one turn to its end; cancel it if the caller is cancelled."""
        notices, self._notices = self._notices, []
        turn = Turn(
            self._services, self._record, begin, show=show, files=self._files, notices=notices, releases=releases
        )
        self._last = self._lock.turn = turn
        commands, self._early_commands = self._early_commands, []
        for command in commands:
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
        async with self._hold_lease():
            await self._close_turn_that_was_left()
            await self._record.commit(SessionChange(move_to=node), lambda _: Completion())

    async def todos(self) -> tuple[Todo, ...]:
        """Return the agent's current to-do list."""
        return (await self._work.read((await self._record.snapshot()).path)).todos or ()

    def background_processes(self) -> tuple[BackgroundProcess, ...]:
        """Return the background processes that this session started in this process of Loom."""
        return self._services.background(self.id).list_processes()

    async def stop_process(self, name: str) -> None:
        """Stop a background process; raise `NotFound`, with the known names, for an unknown one."""
        try:
            await self._services.background(self.id).get(name).stop()
        except ToolError as error:
            raise NotFound(error.message) from None

    async def changes(self) -> tuple[ChangedStep, ...]:
        """Return the steps of the current path, and of what its summary replaced, that changed files."""
        snapshot = await self._record.snapshot()
        return changed_steps(await self._work.read(snapshot.path), snapshot.settings.get(UNDONE, ()))

    async def undo(self, step: int | None = None) -> UndoReport:
        """Undo the file changes of the last step that has any, or of `step` and all later ones. The model is informed.

        A file that something else has changed since is left alone; the report names it, and its step stays open. Raise
        `Conflict` while a turn runs, `NotFound` if there is nothing to undo.
        """
        async with self._hold_lease():
            await self._close_turn_that_was_left()
            snapshot = await self._record.snapshot()
            undone: list[str] = list(snapshot.settings.get(UNDONE, ()))
            chosen = steps_to_undo(changed_steps(await self._work.read(snapshot.path), undone), step)
            files = await restore_files(workspace_of(snapshot), changes_of(chosen), self._services.media.load)
            report = UndoReport(
                steps=tuple(found.step for found in undone_steps(chosen, files.left)), files=files.sentences
            )
            if not files.is_changed:
                return report
            message = user(undo_text(files.sentences))
            undone += [found.node for found in chosen if found.step in report.steps]

            def complete(nodes: tuple[str, ...]) -> Completion:
                return Completion(events=[MessageStored(node=nodes[0], message=message)], settings={UNDONE: undone})

            await self._record.commit(SessionChange(nodes=(NewNode(message=message, source="system"),)), complete)
            return report

    def track(self, *paths: str) -> None:
        """Inform the agent of changes to these text files, from the next turn on. `@path` in a message does the
        same."""
        self._tracked += paths

    async def plan(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, Override] | None = None,
    ) -> tuple[Receipt, ...]:
        """Return the receipts of the next request, one for each of these models, with `content` as the next message.
        Nothing is sent."""
        requests = [await self.next_request(it, content=content, overrides=overrides) for it in models or ("",)]
        return tuple(request.receipt for request in requests)

    async def next_request(
        self,
        model: str = "",
        *,
        content: Sequence[Content] = (),
        draft: Sequence[Message] = (),
        overrides: Mapping[str, Override] | None = None,
        max_tokens: int | None = None,
        at: str = "",
        mode: SettleMode = "preview",
        sampling: Sampling | None = None,
        system: str | None = None,
        services: Services | None = None,
    ) -> NextRequest:
        """Compile the next request for a model (the session's, if empty); a preview sends nothing.

        `content` or the messages of a `draft` come next, with the options `sampling`; `at` is another node to continue
        from; `overrides`, `max_tokens` (of the whole request), the `system` prompt and `services` replace those of the
        session and the settings.
        """
        draft = (*draft, *await self.draft_of(content, model))
        await self._services.wait_tools()
        snapshot = await self._record.snapshot(at)
        if system is not None:
            snapshot = msgspec.structs.replace(snapshot, system=system)
        resolved = await self._services.resolve_model(model or snapshot.model)
        options = self._services.request_options(resolved, await self._offered_tools(snapshot, services))
        if max_tokens is not None:
            policy = msgspec.structs.replace(options.policy, max_tokens=max_tokens)
            options = msgspec.structs.replace(options, policy=policy)
        return await next_request(
            snapshot,
            resolved,
            options,
            self._services.settle,
            mode=mode,
            draft=draft,
            overrides=overrides,
            sampling=sampling,
            awaits_message=True,
        )

    async def summary_request(self, model: str = "", *, mode: SettleMode = "preview") -> NextRequest:
        """Compile the request that compaction would send, which has no tools. Raise `ContentError` if there is no
        message."""
        snapshot = await self._record.snapshot()
        compact.check(snapshot.path)
        resolved = await self._services.resolve_model(model or snapshot.model)
        options = self._services.request_options(resolved, {})
        found = compact.summary_request(request_input(snapshot, resolved, options))
        return NextRequest(input=found, prepared=await self._services.settle(found, mode))

    async def last_request(self, model: str = "", *, mode: SettleMode = "preview") -> NextRequest | None:
        """Compile the last request that was sent to a model again, from the same inputs. Return None if nothing was
        sent to the model yet, or if the messages are gone."""
        snapshot = await self._record.snapshot()
        resolved = await self._services.resolve_model(model or snapshot.model)
        mark = snapshot.watermarks.get(resolved.reference)
        if mark is None or not mark.sent_node:
            return None
        end = next((at for at, placed in enumerate(snapshot.path, 1) if placed.id == mark.sent_node), 0)
        try:
            path = snapshot.path[:end] if end else (await self._record.snapshot(mark.sent_node)).path
        except NotFound:
            return None
        overrides, alts = overrides_of(msgspec.json.decode(mark.sent_wishes or "{}", type=dict[str, str]))
        sent = msgspec.structs.replace(
            snapshot,
            path=path,
            overrides=overrides,
            alts=alts,
            settings={**snapshot.settings, "options": msgspec.json.decode(mark.sent_options or "{}")},
        )
        options = self._services.request_options(resolved, await self._offered_tools(snapshot))
        return await next_request(sent, resolved, options, self._services.settle, mode=mode)

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
        Raise `ApprovalGone` if it is no longer pending."""
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
        pending = checkpoint_of(snapshot).approvals
        calls = {call.id: call for call in snapshot.path[-1].message.calls} if snapshot.path else {}
        return tuple(
            ApprovalRequested(approval=name, call=calls[found.call], action=found.action, pattern=found.pattern)
            for name, found in pending.items()
            if found.call in calls
        )

    def resume(self) -> EventStream:
        """Continue a turn that another process left unfinished; pending approvals are requested again under the same
        id. Closing the stream early cancels the turn. Do nothing if there is no such turn; raise `Conflict` while one
        runs."""

        async def job(show: Show) -> None:
            if self._lock.lock.locked():
                raise _running_error()
            async with self._lock.lock:
                if not await self._record.acquire():
                    raise _running_error()
                async with self._heartbeat():
                    await self._continue_left_turn(await self._snapshot_for_turn(), show)

        return EventStream(job)

    async def close_cut_turn(self) -> None:
        """Close a turn that another process left unfinished, instead of continuing it. Raise `Conflict` while a turn
        runs."""
        async with self._hold_lease():
            await self._close_turn_that_was_left()

    async def _close_turn_that_was_left(self) -> None:
        checkpoint = await self._left_turn()
        if checkpoint.turn:
            await self._run_turn(partial(close_left_turn, checkpoint=checkpoint), _show_nothing)

    # The lease -------------------------------------------------------------------------------------------------------

    async def _wait_for_lease(self) -> None:
        seconds = _FIRST_WAIT_SECONDS
        while not await self._record.acquire():
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, _LONGEST_WAIT_SECONDS)

    @asynccontextmanager
    async def _hold_lease(self) -> AsyncGenerator[None]:
        """Hold the lease for a change while no turn runs; raise `Conflict` if one does."""
        if self._lock.lock.locked():
            raise _running_error()
        async with self._lock.lock:
            if not await self._record.acquire():
                raise _running_error()
            try:
                with self._record.wait_for_store():
                    yield
            finally:
                await self._record.release()

    @asynccontextmanager
    async def _heartbeat(self) -> AsyncGenerator[None]:
        """Renew the lease and receive commands while turns run; release the lease at the end."""
        self._lock.wake.set()
        beating = asyncio.create_task(self._beat())
        try:
            with self._record.wait_for_store():
                yield
        finally:
            beating.cancel()
            await asyncio.wait([beating])
            await self._record.release()
            if not beating.cancelled() and (error := beating.exception()) is not None:
                raise error

    async def _beat(self) -> None:
        """Renew the lease until it is lost, and pass commands on to the running turn."""
        loop = asyncio.get_running_loop()
        while True:
            # All sessions of this process renew at the same moments, so that one query serves them all.
            moment = (loop.time() // HEARTBEAT_SECONDS + 1) * HEARTBEAT_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout_at(moment):
                    await self._lock.wake.wait()
            self._lock.wake.clear()
            commands = await self._record.heartbeat()
            turn = self._lock.turn
            if commands is None:
                if turn is not None:
                    turn.on_lease_lost()
                return
            if turn is None:
                # The commands are no longer in the store, and the turn that they name may be about to be resumed.
                self._early_commands += commands
                continue
            for command in commands:
                turn.on_command(command)


def _show_nothing(_: Event) -> None:
    """Discard an event that is only stored, because it does not belong to the turn that the stream is for."""


def checkpoint_of(snapshot: Snapshot) -> TurnCheckpoint:
    return msgspec.convert(snapshot.settings.get("running", {}), TurnCheckpoint)


def _running_error() -> Conflict:
    return Conflict("a turn of this session is running", hint="Wait until it is over, or cancel it.")


def _is_attached(name: str, sources: Sequence[str]) -> bool:
    """Return whether a mention names a file that is attached to the message, or pages of it."""
    with suppress(ContentError):  # an invalid page range: the turn reports it
        name, _ = split_pages(name)
    ending = "/" + os.path.normpath(name.rstrip(PUNCTUATION))
    return any(source.endswith(ending) for source in sources)


def _show_notice(show: Show, event: Event) -> None:
    if isinstance(event, NoticeRaised):
        show(event)
