"""One answer of a turn: request it, check it, and store it with what it revealed about the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.agent import compact
from loom.agent.ingest import ingest
from loom.agent.learned_facts import learned_change, next_input, watermark_change
from loom.agent.output import parse_output, read_output, repair_text
from loom.agent.ports import Committed, Completion
from loom.agent.step import ModelAnswer, StepOutput, ask_model, words_of
from loom.agent.steps import StepValue
from loom.agent.work_history import WorkHistory
from loom.compile.policy import DetachedMessage
from loom.compile.request import RequestInput
from loom.content.blocks import ContentBlock, TextBlock, ToolCall
from loom.content.json_values import as_json
from loom.content.messages import Message, join_texts, user
from loom.errors import LoomError, OutputInvalid, Unavailable
from loom.events import Folded, MessageStored, NoticeRaised, StepFinished, TurnFinished
from loom.prompt import CONTINUE_ANSWER
from loom.session import NewNode, Reply, SessionChange

if TYPE_CHECKING:
    from loom.agent.turn import Turn

MAX_ATTEMPTS: Final = 3
"""The maximum number of requests for the same step, and of processes that may end during it, before the turn is
closed."""
CONTINUED: Final = "turn.continued"
"""The code of the notice that a turn continues after a restart or a broken connection."""


async def request_answer(turn: Turn, step: int) -> StepValue:
    """Request an answer until one is complete, and store it. The text of an interrupted answer is stored, and the model
    continues after it."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        answer = turn.answer = ModelAnswer(request=_continuing_request(turn))
        try:
            await ask_model(answer, step, turn.services, _output_of(turn))
        except LoomError:
            turn.answer = None
            await _learn(turn, answer)
            raise
        finally:  # a cancelled answer costs tokens, too
            if answer.result is not None:
                await turn.services.charge(turn.record.id, answer.request.model, answer.result.usage)
        if answer.is_complete:
            return await _store_answer(turn, step, answer)
        if not answer.may_continue or attempt == MAX_ATTEMPTS:
            raise answer.error or Unavailable(
                f"{turn.request.model.reference}: the answer ended before it was complete",
                hint="The partial answer is kept. Try again.",
            )
        await _store_cut_answer(turn, answer)
        await asyncio.sleep(min(0.1 * 4**attempt, 5.0))
    raise AssertionError("the last attempt returns or raises")


def _continuing_request(turn: Turn) -> RequestInput:
    """Return the next request. If the path ends with an interrupted answer, the request asks the model to continue
    it."""
    request = turn.request
    last = request.path[-1].message
    is_cut = last.role == "assistant" and any(isinstance(block, TextBlock) for block in last.blocks)
    if turn.checkpoint.is_paused and last.role == "assistant":
        return msgspec.structs.replace(request, ends_with_assistant=True)
    if turn.is_compacting or not is_cut:
        return request
    return msgspec.structs.replace(request, draft=(user(CONTINUE_ANSWER),), is_placeholder=True)


def _output_of(turn: Turn) -> StepOutput:
    async def keep_media(data: bytes) -> ContentBlock:
        return (await ingest(data, turn.services.media, limits=turn.services.limits)).blocks[0]

    async def announce(notices: Sequence[str]) -> None:
        """Show each notice once per turn, and only the first notice about content that the model cannot see."""
        unseen = f"{turn.request.model.reference} gets "
        for notice in notices:
            topic = unseen if notice.startswith(unseen) else notice
            if topic not in turn.announced:
                turn.announced.add(topic)
                await turn.sink.emit(NoticeRaised(text=notice, code="receipt"))

    return StepOutput(emit=turn.sink.emit, announce=announce, keep_media=keep_media)


async def _store_answer(turn: Turn, step: int, answer: ModelAnswer) -> StepValue:
    """Store a complete answer, what it revealed about the model, and, if it makes no calls, the end of the turn."""
    folded, prepared = answer.result, answer.prepared
    if folded is None or prepared is None:
        raise AssertionError("a complete answer has a fold and a prompt")
    turn.receipt = prepared.receipt
    usage = turn.checkpoint.usage + folded.usage
    turn.checkpoint = msgspec.structs.replace(turn.checkpoint, steps=step, deaths=0, usage=usage, seconds=turn.seconds)
    calls = folded.message.calls if folded.message is not None else ()
    repair, notices = await _check_output(turn, folded, calls)
    is_paused = folded.stop == "pause" and folded.message is not None and not calls
    goes_on = bool(calls) or is_paused or repair is not None
    turn.checkpoint = msgspec.structs.replace(turn.checkpoint, is_paused=is_paused)
    finished = StepFinished(step=step, usage=folded.usage, stop=folded.stop, seconds=answer.seconds)
    if turn.is_compacting:
        return await _store_summary(turn, answer, finished)
    request = next_input(answer)
    change = watermark_change(turn.snapshot, request)
    reference = request.model.reference
    turn.snapshot = msgspec.structs.replace(
        turn.snapshot, watermarks={**turn.snapshot.watermarks, reference: request.watermark}
    )
    new = [NewNode(message=folded.message, meta=answer.meta)] if folded.message is not None else []
    if repair is not None:
        new.append(NewNode(message=repair, source="system"))
    change = msgspec.structs.replace(change, nodes=tuple(new), lease="keep" if goes_on else turn.final_lease)
    is_blind = "is_blind" in answer.meta

    def complete(ids: tuple[str, ...]) -> Completion:
        stored = [MessageStored(node=node, message=it.message) for node, it in zip(ids, new, strict=True)]
        over = TurnFinished(turn=turn.id, node=ids[-1] if ids else turn.head, stop=folded.stop, usage=usage)
        settings: dict[str, Any] = {"running": as_json(turn.checkpoint) if goes_on else None}
        return Completion(events=[*stored, finished, *notices, *(() if goes_on else (over,))], settings=settings)

    def then(committed: Committed) -> None:
        placed = [DetachedMessage(node, it.message, is_blind) for node, it in zip(committed.nodes, new, strict=True)]
        turn.input = request.extend(placed)
        turn.answer = None
        if not goes_on:
            turn.state = "finished"

    await turn.sink.commit(change, complete, then)
    await _remember_refusals(turn, answer)
    if request.calibration != answer.request.calibration:
        await turn.services.keep_calibration(reference, request.calibration)
    return StepValue(node=turn.head, calls=len(calls), continues=goes_on, stop=folded.stop)


async def _check_output(
    turn: Turn, folded: Folded, calls: Sequence[ToolCall]
) -> tuple[Message | None, list[NoticeRaised]]:
    """Return a message that asks the model to correct an answer that does not match its schema, and a notice. After one
    such attempt, return only the notice."""
    schema = turn.request.sampling.output_schema
    if schema is None or calls or folded.message is None or folded.stop not in ("end", "stop_sequence", "other"):
        return None, []
    found = await parse_output(folded.message.text, schema)
    if not found.error:
        return None, []
    if turn.checkpoint.repairs or found.fault:
        return None, [NoticeRaised(text=found.error, code=OutputInvalid.code)]
    turn.checkpoint = msgspec.structs.replace(turn.checkpoint, repairs=1)
    text = f"The answer did not match its schema ({found.problem}); asking again."
    return user(repair_text(found.problem)), [NoticeRaised(text=text, code="output.repair")]


async def _store_summary(turn: Turn, answer: ModelAnswer, finished: StepFinished) -> StepValue:
    """Store the summary and move the head to it; the original path stays as a branch."""
    path = turn.request.path
    pinned = compact.pinned_blocks(path, turn.request.overrides)
    work = await WorkHistory(turn.record).read(path)
    change = await compact.summary_change(turn.record, path, answer, pinned, work.todos or ())
    change = msgspec.structs.replace(change, lease=turn.final_lease)
    (new,) = change.nodes
    receipt = NoticeRaised(text=compact.receipt_text(path, answer, new.message, pinned), code="compacted")

    def complete(ids: tuple[str, ...]) -> Completion:
        (node,) = ids
        over = TurnFinished(turn=turn.id, node=node, stop=finished.stop, usage=turn.checkpoint.usage)
        return Completion(
            events=[MessageStored(node=node, message=new.message), finished, receipt, over],
            settings={"running": None},
            overrides=compact.media_overrides(node, new.message, pinned),
        )

    def then(_: Committed) -> None:
        turn.answer = None
        turn.state = "finished"

    committed = await turn.sink.commit(change, complete, then)
    return StepValue(node=committed.nodes[-1], stop=finished.stop)


async def _store_cut_answer(turn: Turn, answer: ModelAnswer) -> None:
    """Store the text of an interrupted answer, so that nothing the user has seen disappears."""
    folded = answer.result
    words = words_of(folded.message) if folded is not None else None
    if folded is not None:
        turn.checkpoint = msgspec.structs.replace(turn.checkpoint, usage=turn.checkpoint.usage + folded.usage)
    nodes = () if words is None or turn.is_compacting else (NewNode(message=words, meta=answer.meta),)
    turn.answer = None
    why = answer.error.message if answer.error is not None else "the connection ended"
    notice = NoticeRaised(text=f"The answer was cut off ({why}); continuing.", code=CONTINUED)
    await turn.commit(SessionChange(nodes=nodes), after=[notice])


async def _learn(turn: Turn, answer: ModelAnswer) -> None:
    """Store what refusals revealed about the model, even if there was no answer."""
    if answer.request != turn.request:
        await turn.sink.commit(learned_change(turn.snapshot, answer.request))
        turn.input = msgspec.structs.replace(answer.request, draft=(), is_placeholder=False, ends_with_assistant=False)
    await _remember_refusals(turn, answer)


async def _remember_refusals(turn: Turn, answer: ModelAnswer) -> None:
    for kind in answer.refused_kinds:
        await turn.services.learn(answer.request.model, kind)


async def reply_of(turn: Turn | None, finished: TurnFinished, answers: Sequence[MessageStored]) -> Reply:
    """Return the reply of a turn that has finished. Raise `LoomError` if the model returned nothing."""
    if not answers or turn is None or turn.receipt is None:
        raise LoomError(f"The model returned an empty answer (stop: {finished.stop})", hint="Try again.")
    blocks = [block for answer in answers for block in answer.message.blocks]
    # An answer that was interrupted and continued is one message.
    message = answers[0].message if len(answers) == 1 else Message("assistant", tuple(join_texts(blocks)))
    with turn.record.wait_for_store():
        parent = await turn.record.parent(turn.question)
    return Reply(
        node=answers[-1].node,
        message=message,
        output=await read_output(message.text, turn.request.sampling.output_schema),
        usage=finished.usage,
        stop=finished.stop,
        receipt=turn.receipt,
        parent=parent,
    )
