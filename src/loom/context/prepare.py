"""prepare: a path, a model and the user's wishes → exactly what the model is shown, and what was given up.

age      less for the old            the watermark rises where that pays
adapt    for the unable              each block becomes what this model takes
trim     to fit                      the watermark rises where a budget demands it
assemble                             places, pairs and ids as the platform wants them
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, ThinkingBlock, ToolCall
from loom.content.messages import text_of
from loom.context import cost
from loom.context.age import aged
from loom.context.assemble import assemble, tool_name
from loom.context.cost import Calibration
from loom.context.measure import Target, json_bytes
from loom.context.policy import Known, Need, Override, Placed, Policy, Request, Watermark
from loom.context.survey import Item, Survey
from loom.context.trim import Scales, budgets, fits, newest, trimmed
from loom.errors import ContentError
from loom.models import Model
from loom.prompt import Prompt, Receipt, ReceiptRow, Sampling, ShownMessage, ToolSpec, Totals

_MIN_BUDGET_TOKENS: Final = 1_024
"""The least that may be asked for where thinking has a budget, and an answer must have more room than that."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt, its receipt, the watermark to store, and the derived bytes that would make it exact."""

    prompt: Prompt
    receipt: Receipt
    watermark: Watermark
    needs: tuple[Need, ...]


def prepare(
    path: Sequence[Placed],
    model: Model,
    *,
    policy: Policy | None = None,
    request: Request | None = None,
    overrides: Mapping[str, Override] | None = None,
    watermark: Watermark | None = None,
    calibration: Calibration | None = None,
    known: Known | None = None,
    quarantine: frozenset[str] = frozenset(),
) -> Prepared:
    if not path:
        raise ContentError("there is nothing to prepare: the path is empty")
    policy, request, known = policy or Policy(), request or Request(), known or Known()
    request = _with_tools(request, path, model)
    target = Target(model=model, policy=policy, known=known, request=request, quarantine=quarantine)
    survey = Survey(path, target, overrides or {})
    scales = Scales(survey, _fixed(request, model), (calibration or Calibration()).ratio)
    allowed = budgets(model, policy)
    before = _within(watermark or Watermark(), survey)
    by_age = aged(survey, before, policy)
    mark = trimmed(scales, by_age, allowed)
    mark, messages, repairs = _assembled(survey, before, mark)
    used = scales.weigh(mark)
    sampling, unasked = _sampling(request.sampling, messages, model)
    notices = (*repairs, *unasked, *_tightness(survey, mark, used, allowed), *_losses(survey, mark))
    return Prepared(
        prompt=Prompt(
            model=model,
            messages=tuple(messages),
            system=request.system,
            tools=request.tools,
            sampling=sampling,
            stable_messages=_stable(messages),
        ),
        receipt=Receipt(
            model=model.reference,
            rows=tuple(_row(item, survey, mark, scales.ratio) for item in survey.items),
            totals=used,
            budgets=allowed,
            notices=notices,
        ),
        watermark=mark,
        needs=_needs(survey, mark, by_age),
    )


def _within(mark: Watermark, survey: Survey) -> Watermark:
    """A fork may be shorter than the path the watermark was stored for; what is newest is never dropped."""
    length = len(survey.messages)
    borders = {
        name: min(at, length)
        for name, at in msgspec.structs.asdict(mark).items()
        if name.endswith(("_before", "_from"))
    }
    borders["dropped_before"] = min(mark.dropped_before, newest(survey))
    return msgspec.structs.replace(mark, **borders)


def _with_tools(request: Request, path: Sequence[Placed], model: Model) -> Request:
    """None for a model without them. Where a platform reads calls only beside their tools, and there are none any more,
    the names stand alone and may not be called."""
    if not model.capabilities.tools:
        return msgspec.structs.replace(request, tools=())
    if request.tools or not model.calls_need_tools:
        return request
    names = dict.fromkeys(tool_name(call.name) for placed in path for call in placed.message.calls)
    if not names:
        return request
    schema = {"type": "object"}
    gone = tuple(ToolSpec(name=name, description="No longer available.", parameters=schema) for name in names)
    sampling = msgspec.structs.replace(request.sampling, tool_choice="none")
    return msgspec.structs.replace(request, tools=gone, sampling=sampling)


def _fixed(request: Request, model: Model) -> Totals:
    tools = "".join(msgspec.json.encode(tool).decode() for tool in request.tools)
    return Totals(
        tokens=cost.text_tokens(request.system, model.tokens) + cost.text_tokens(tools, model.tokens),
        wire_bytes=json_bytes(request.system) + len(tools.encode()) + 100 * len(request.tools),
    )


# Thinking that is bound to its prefix ------------------------------------------------------------------------------


def _assembled(survey: Survey, before: Watermark, mark: Watermark) -> tuple[Watermark, list[ShownMessage], list[str]]:
    """Where a platform binds thinking to what stood before it, thinking goes as soon as any of that has changed: a
    border moved, a picture was quarantined or is gone, the user hid one, the tools are others."""
    if mark != before:
        mark = msgspec.structs.replace(mark, thinking_from=len(survey.messages))
    survey.choose(mark)
    messages, repairs = assemble(survey, mark)
    if survey.target.model.thinking.replay != "bound":
        return mark, messages, repairs
    if mark == before and _print(survey, messages, before.sent_blocks)[1] != before.sent_hash and before.sent_hash:
        mark = msgspec.structs.replace(mark, thinking_from=len(survey.messages))
        survey.choose(mark)
        messages, repairs = assemble(survey, mark)
    blocks, fingerprint = _print(survey, messages, None)
    mark = msgspec.structs.replace(mark, sent_blocks=blocks, sent_hash=fingerprint)
    survey.choose(mark)
    return mark, messages, repairs


def _print(survey: Survey, messages: Sequence[ShownMessage], first: int | None) -> tuple[int, str]:
    """How many blocks there are, and a hash of the first ones behind the system prompt and the tools."""
    request = survey.target.request
    shown = [(message.role, block) for message in messages for block in message.blocks][:first]
    data = msgspec.msgpack.encode((request.system, request.tools, shown))
    return len(shown), hashlib.sha256(data).hexdigest()[:32]


# How to answer -----------------------------------------------------------------------------------------------------


def _sampling(sampling: Sampling, messages: Sequence[ShownMessage], model: Model) -> tuple[Sampling, list[str]]:
    most = model.limits.max_output_tokens
    if sampling.max_tokens is not None and sampling.max_tokens > most:
        sampling = msgspec.structs.replace(sampling, max_tokens=most)
    if sampling.thinking in ("", "off") or model.thinking.request != "budget":
        return sampling, []
    cramped = sampling.max_tokens is not None and sampling.max_tokens <= _MIN_BUDGET_TOKENS
    if not cramped and not _thoughtless(messages, model):
        return sampling, []
    why = "the answer may not be long enough" if cramped else "its last calls were made without it"
    return msgspec.structs.replace(sampling, thinking=""), [f"{model.reference} is not asked to think: {why}"]


def _thoughtless(messages: Sequence[ShownMessage], model: Model) -> bool:
    """Whether the last calls lack the thinking with which a message of a thinking model must begin."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None or model.thinking.place != "first":
        return False
    called = any(isinstance(block, ToolCall) for block in last.blocks)
    return called and not isinstance(last.blocks[0], ThinkingBlock)


# What was given up -------------------------------------------------------------------------------------------------


def _row(item: Item, survey: Survey, mark: Watermark, ratio: float) -> ReceiptRow:
    measure = survey.measured(item, mark)
    media = item.block.media if isinstance(item.block, ImageBlock | DocumentBlock | AudioBlock) else None
    reason = measure.reason or survey.wish(item, mark)[1]
    tag = item.block.__struct_config__.tag
    return ReceiptRow(
        message=item.message,
        block=item.position,
        inner=item.inner,
        kind=tag if isinstance(tag, str) else "",
        label=media.label if media else " ".join(text_of(item.block)[:400].split())[:80],
        rendition=measure.rendition,
        digest=media.digest if media else "",
        reason=reason,
        detail=measure.detail or _detail(item, survey, mark),
        tokens=round(measure.tokens * ratio),
        wire_bytes=measure.wire_bytes,
    )


def _detail(item: Item, survey: Survey, mark: Watermark) -> str:
    match survey.wish(item, mark)[1]:
        case "age":
            age = survey.age(item.message)
            return "1 turn old" if age == 1 else f"{age} turns old"
        case "limit":
            return f"over {survey.images_per_message} pictures in one message"
        case "override":
            return "chosen by the user"
        case "prefix":
            return "what it belongs to was rewritten"
        case "budget":
            return "an old turn, left out" if item.message < mark.dropped_before else "to fit"
        case _:
            return ""


def _needs(survey: Survey, mark: Watermark, by_age: Watermark) -> tuple[Need, ...]:
    """What the chosen renditions lack, and what they would be if nothing had been trimmed now: a bound may have been
    what broke a budget."""
    marks = (mark,) if mark == by_age else (mark, by_age)
    found = {need: None for item in survey.items for border in marks for need in survey.measured(item, border).needs}
    return tuple(found)


def _losses(survey: Survey, mark: Watermark) -> list[str]:
    """One sentence for what a person must know at once: the model cannot see or hear what is new in this turn."""
    unseen: list[str] = []
    for item in survey.items:
        if item.message < survey.turns[-1] or not isinstance(item.block, ImageBlock | DocumentBlock | AudioBlock):
            continue
        measure = survey.measured(item, mark)
        reason = measure.reason or survey.wish(item, mark)[1]
        if reason in ("capability", "missing", "quarantine", "limit", "budget"):
            unseen.append(f"{item.block.media.name or item.block.media.media_type} as {measure.rendition}")
    return [f"{survey.target.model.reference} gets {', '.join(unseen)}"] if unseen else []


def _tightness(survey: Survey, mark: Watermark, used: Totals, allowed: Totals) -> list[str]:
    notices: list[str] = []
    model = survey.target.model
    pins = [item for item in survey.items if item.override in ("full", "low")]
    if mark.text_cap:
        notices.append(
            f"texts of more than {mark.text_cap} characters were cut: the window of {model.reference} is full"
        )
    if any(survey.wish(item, mark)[1] != "override" for item in pins):
        notices.append(f"what was pinned is reduced as well: {model.reference} takes no more")
    if not fits(used, allowed):
        notices.append(f"this is more than {model.reference} takes, whatever is left out")
    return notices


def _stable(messages: Sequence[ShownMessage]) -> int:
    """How many messages the last request had: all before the assistant's newest one."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            return at
    return 0
