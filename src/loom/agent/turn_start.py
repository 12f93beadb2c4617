"""The start of a turn: with a new message, a queued one, a question to answer again, a request for a summary, or the
checkpoint of a turn that another process left unfinished."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

import msgspec

from loom.agent import compact
from loom.agent.calls import INTERRUPTED, EarlierCalls, unanswered_results
from loom.agent.checkpoint import Compact, NewMessage, QueuedMessage, Regenerate, Resume, TurnCheckpoint, TurnRequest
from loom.agent.failures import finish_reason, turn_cancelled, turn_interrupted
from loom.agent.plan_mode import is_planning
from loom.agent.ports import Committed, Completion, OpenStep
from loom.agent.services import workspace_of
from loom.agent.step import words_of
from loom.agent.tracked_files import visible_messages
from loom.agent.turn import Turn, attachment_notices
from loom.agent.turn_answer import CONTINUED, MAX_ATTEMPTS
from loom.compile.policy import Watermark
from loom.compile.request import RequestInput, Snapshot, request_input
from loom.content.json_values import as_json
from loom.content.messages import Message, title_of, user
from loom.errors import LoomError, NotFound, StoreError
from loom.events import (
    ApprovalAnswered,
    Event,
    MessageStored,
    NoticeRaised,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    fold,
)
from loom.models import Model
from loom.session import NewNode, Options, Queued, SessionChange
from loom.tools.processes import kill_orphans


async def begin_turn(turn: Turn, request: TurnRequest, snapshot: Snapshot) -> bool:
    """Store what the turn answers and its checkpoint in one transaction. Return False if nothing is left to do.

    `snapshot` is the session as it was read when the lease was acquired, or after the turn before.
    """
    match request:
        case Resume():
            return await _resume(turn, request, snapshot)
        case NewMessage(message=message):
            options = Options(
                model=request.model,
                parent=request.parent,
                tools=request.tools,
                mentioned=request.mentioned,
                sampling=request.sampling,
            )
            change = SessionChange(nodes=(NewNode(message=message),))
            return await _start(turn, snapshot, change, message, options)
        case QueuedMessage(queued=queued):
            if queued.options.is_compact:
                turn.checkpoint = msgspec.structs.replace(turn.checkpoint, kind="compact")
            try:
                change = SessionChange(queued=queued.id)
                if queued.message is not None:
                    turn.notices += queued.options.notices
                return await _start(turn, snapshot, change, queued.message, _options_now(queued))
            except (LoomError, asyncio.CancelledError) as error:
                await _store_unanswered(turn, request, error)
                raise
        case Regenerate(node=node):
            options = Options(model=request.model, tools=request.tools, sampling=request.sampling)
            return await _start(turn, snapshot, SessionChange(move_to=node), None, options)
        case Compact(model=model):
            turn.checkpoint = msgspec.structs.replace(turn.checkpoint, kind="compact")
            return await _start(turn, snapshot, SessionChange(), None, Options(model=model, tools=()))
        case _:
            assert_never(request)


def _options_now(queued: Queued) -> Options:
    """Return the options of the next answer; if several models are to answer, with the model that is next."""
    options, left = queued.options, queued.answers_left
    if not 0 < left <= len(options.models):
        return options
    return msgspec.structs.replace(options, model=options.models[-left])


async def _start(
    turn: Turn, snapshot: Snapshot, change: SessionChange, message: Message | None, options: Options
) -> bool:
    await turn.services.check_budget(turn.record.id)
    parent = options.parent if message is not None else ""
    if parent:
        await turn.record.check_kept(parent)
    model = await turn.services.resolve_model(options.model or snapshot.model)
    await _load_state(turn, snapshot)
    news = await _read_news(turn, snapshot, model, options.mentioned) if message is not None else None
    is_compacting = turn.checkpoint.kind == "compact"
    if is_compacting:
        compact.check(snapshot.path)
    turn.checkpoint = msgspec.structs.replace(
        turn.checkpoint,
        model=options.model,
        tools=None if options.tools is None else list(options.tools),
        sampling=options.sampling,
        kind="compact" if is_compacting else "regenerate" if message is None else "answer",
        message=change.queued,
        traceparent=options.traceparent,
        previous_head="" if message is not None or is_compacting else snapshot.head,
    )
    turn.observer.set_parent(options.traceparent)
    base = await turn.record.snapshot(parent) if parent else snapshot
    # A fork may end with calls of a turn that runs elsewhere: report them as interrupted before the message.
    open_calls = base.path[-1].message.calls if message is not None and base.path else ()
    extra = [NewNode(message=unanswered_results(open_calls))] if open_calls else []
    if news is not None:
        extra.append(NewNode(message=news, source="system"))
    change = msgspec.structs.replace(
        change,
        move_to=change.move_to or parent,
        nodes=(*extra, *change.nodes),
        title=title_of(message) if message is not None and not snapshot.title else None,
        reads_back=True,
    )

    def complete(nodes: tuple[str, ...]) -> Completion:
        question = nodes[-1] if nodes else change.move_to
        turn.checkpoint = msgspec.structs.replace(turn.checkpoint, question=question)
        events: list[Event] = [*attachment_notices(turn.notices)]
        events += [MessageStored(node=node, message=new.message) for node, new in zip(nodes, extra, strict=False)]
        if message is not None:
            events.append(MessageStored(node=question, message=message))
        if nodes:
            turn.files.mark_stored(nodes[len(extra) - 1 if news is not None else -1])
        events.append(TurnStarted(turn=turn.id, model=model.reference, message=turn.checkpoint.message))
        settings = {"running": as_json(turn.checkpoint), **turn.files.settings()}
        return Completion(events=events, settings=settings)

    def then(_: Committed) -> None:
        turn.has_started = True
        turn.snapshot = Snapshot(head=turn.checkpoint.question)

    committed = await turn.sink.commit(change, complete, then)
    if committed.is_gone:
        turn.state = "finished"
        return False
    turn.snapshot = committed.snapshot or await turn.record.snapshot()
    turn.input = _first_input(turn, model)
    return True


def _first_input(turn: Turn, model: Model) -> RequestInput:
    options = turn.services.request_options(model, turn.tools())
    found = request_input(turn.snapshot, model, options, sampling=turn.checkpoint.sampling)
    return compact.summary_request(found) if turn.checkpoint.kind == "compact" else found


async def _load_state(turn: Turn, snapshot: Snapshot) -> None:
    """Load the state that earlier turns left: permanent approvals, and the files that the agent knows."""
    turn.approvals.always = {(tool, pattern) for tool, pattern in snapshot.settings.get("always", ())}
    turn.files.load(snapshot.settings)
    turn.is_planning = is_planning(snapshot.settings)
    turn.unused_tools = await asyncio.to_thread(turn.services.unused_tools, workspace_of(snapshot))


async def _read_news(turn: Turn, snapshot: Snapshot, model: Model, mentioned: Sequence[str]) -> Message | None:
    """Return a message about changes in tracked files since the agent last saw them. It comes before the user's
    message."""
    seen = visible_messages(snapshot.path, snapshot.watermarks.get(model.reference, Watermark()))
    globs = turn.services.auto_context
    news = await turn.files.read_news(workspace_of(snapshot), asked=mentioned, globs=globs, standing=seen)
    for notice in news.notices:
        await turn.sink.emit(NoticeRaised(text=notice, code="files"))
    return user(*news.texts) if news.texts else None


async def _store_unanswered(turn: Turn, request: QueuedMessage, error: BaseException) -> None:
    """Store a queued message whose turn cannot start, so that it does not stay queued forever. If the store cannot be
    written, or another process will run it, it stays queued."""
    is_store_away = isinstance(error, StoreError) and not isinstance(error, NotFound)
    if turn.has_started or is_store_away or turn.stop_reason in ("hand-over", "lost"):
        return
    message = request.queued.message
    parent = "" if message is None else request.queued.options.parent

    def complete(nodes: tuple[str, ...]) -> Completion:
        if message is None:
            return Completion()
        notices = attachment_notices(request.queued.options.notices)
        return Completion(events=[*notices, MessageStored(node=nodes[-1], message=message)])

    await turn.sink.commit(SessionChange(queued=request.queued.id, move_to=parent), complete)


# Resume --------------------------------------------------------------------------------------------------------------


async def _resume(turn: Turn, request: Resume, snapshot: Snapshot) -> bool:
    """Resume a turn that another process left unfinished: store the text that the user has seen, then continue."""
    checkpoint = request.checkpoint
    is_death = not checkpoint.is_handed_over and not checkpoint.approvals
    turn.take_up(msgspec.structs.replace(checkpoint, deaths=checkpoint.deaths + int(is_death), is_handed_over=False))
    turn.snapshot = snapshot
    await _load_state(turn, snapshot)
    if not checkpoint.question:
        question = await turn.record.question(None)
        turn.checkpoint = msgspec.structs.replace(turn.checkpoint, question=question)
    if await _is_answered(turn, snapshot):
        await _finish_stored_answer(turn, snapshot)
        return False
    await _end_commands(turn)
    step = await turn.record.open_step()
    waiting = checkpoint.waiting_calls(snapshot.path)
    for approval in checkpoint.approvals.keys() - waiting.values():
        await turn.sink.emit(ApprovalAnswered(approval=approval, answer="deny", reason="the call was cut off"))
    turn.approvals.taken_up = dict(waiting)
    turn.earlier = EarlierCalls(begun=_begun_calls(turn, step), results=step.results, changes=turn.checkpoint.changes)
    if turn.stop_reason == "cancel":
        await _close_open_step(turn, step, turn_cancelled(turn.id))
        return False
    if turn.checkpoint.deaths >= MAX_ATTEMPTS:
        why = f"its process ended {turn.checkpoint.deaths} times during the same step"
        await _close_open_step(turn, step, turn_interrupted(turn.id, why))
        return False
    model = await turn.services.resolve_model(checkpoint.model or snapshot.model)
    turn.input = _first_input(turn, model)
    if not (checkpoint.approvals and waiting):
        await _store_seen_words(turn, step)
    return True


async def _is_answered(turn: Turn, snapshot: Snapshot) -> bool:
    """Return whether the process ended after the last answer was stored."""
    last = snapshot.path[-1] if snapshot.path else None
    if last is None or last.id == turn.question or last.message.role != "assistant" or last.message.calls:
        return False
    return await turn.record.is_answer_complete(last.id)


async def _finish_stored_answer(turn: Turn, snapshot: Snapshot) -> None:
    over = TurnFinished(turn=turn.id, node=snapshot.path[-1].id, stop="end", usage=turn.checkpoint.usage)
    events = () if await turn.record.has_ended(turn.id) else (over,)
    await turn.sink.commit(SessionChange(settings={"running": None}), lambda _: Completion(events=events))
    await turn.services.steps.end_turn(turn.engine_key)
    turn.state = "finished"


async def _store_seen_words(turn: Turn, step: OpenStep) -> None:
    """Store the text that the last process had streamed; the model continues after it."""
    answer = _seen_answer(turn, step, "interrupted")
    repeated = 0 if turn.open_calls else step.requested_tokens
    total = turn.checkpoint.repeated_tokens + repeated
    turn.checkpoint = msgspec.structs.replace(turn.checkpoint, repeated_tokens=total)
    turn.services.counters.continued += 1
    turn.services.counters.repeated_tokens += repeated
    again = f" About {repeated:,} tokens are billed twice" if repeated else ""
    again += f", {total:,} in this turn." if total > repeated > 0 else "." if again else ""
    notice = NoticeRaised(text=f"Continued after a restart.{again}", code=CONTINUED)
    await turn.commit(SessionChange(nodes=() if answer is None else (answer,)), after=[notice])


async def close_left_turn(turn: Turn, checkpoint: TurnCheckpoint) -> bool:
    """Close a turn that another process left unfinished, instead of continuing it; the text that the user has seen is
    stored."""
    turn.take_up(checkpoint)
    turn.snapshot = await turn.record.snapshot()
    await _load_state(turn, turn.snapshot)
    if await turn.record.has_ended(checkpoint.turn):  # its process ended between the two writes
        await turn.sink.commit(SessionChange(settings={"running": None}))
        await turn.services.steps.end_turn(turn.engine_key)
        turn.state = "finished"
        return False
    await _end_commands(turn)
    await _close_open_step(turn, await turn.record.open_step(), turn_interrupted(turn.id))
    return False


async def _end_commands(turn: Turn) -> None:
    """End processes that the commands of a killed process left on this machine: the model reads that they were
    interrupted."""
    if turn.open_calls:
        await asyncio.to_thread(kill_orphans)


async def _close_open_step(turn: Turn, step: OpenStep, end: TurnFailed) -> None:
    """Close an unfinished turn: store the text that the user has seen, and the results of calls that ended."""
    turn.done = dict(step.results)
    turn.running_calls = dict.fromkeys(_begun_calls(turn, step), INTERRUPTED)
    await turn.close(end, _seen_answer(turn, step, finish_reason(end)))


def _begun_calls(turn: Turn, step: OpenStep) -> frozenset[str]:
    """Return the calls that may have started to run in the other process; a call with a pending approval did not."""
    begun = {call.id for call in turn.open_calls} if step.is_damaged else step.begun
    return frozenset(begun) - turn.checkpoint.waiting_calls(turn.snapshot.path).keys()


def _seen_answer(turn: Turn, step: OpenStep, reason: str) -> NewNode | None:
    """Return the text of the unfinished step as an answer of its model, or None if the answer is already stored (its
    calls are open)."""
    words = words_of(fold(step.answer).message)
    if words is None or turn.open_calls or turn.checkpoint.kind == "compact":
        return None
    provider, _, name = step.model.partition("/")
    return NewNode(message=words, meta={"provider": provider, "model": name, "finish_reason": reason})
