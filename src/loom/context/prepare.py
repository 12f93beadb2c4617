"""prepare: a path, a model and the user's wishes → exactly what the model is shown, and what was given up.

age      less for the old            the watermark rises where that pays
adapt    for the unable              each block becomes what this model takes
trim     to fit                      the watermark rises where a budget demands it
assemble                             places, pairs and ids as the platform wants them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.messages import text_of
from loom.context import cost
from loom.context.adapt import Target, json_bytes
from loom.context.age import aged
from loom.context.assemble import assemble
from loom.context.cost import Calibration
from loom.context.policy import Known, Need, Override, Placed, Policy, Request, Watermark
from loom.context.survey import Item, Survey
from loom.context.trim import budgets, fits, totals, trimmed
from loom.errors import ContentError
from loom.models import Model
from loom.prompt import Prompt, Receipt, ReceiptRow, ShownBlock, ShownMessage, ShownResult, Totals

_TEXT_CAPS: Final = (200_000, 100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000, 400)


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
    if not model.capabilities.tools:
        request = msgspec.structs.replace(request, tools=())
    target = Target(model=model, policy=policy, known=known, request=request, quarantine=quarantine)
    survey = Survey(path, target, overrides or {})
    ratio = (calibration or Calibration()).ratio
    before = _within(watermark or Watermark(), len(path))
    fixed = _fixed(survey, request)
    allowed = budgets(model, policy)
    mark = aged(survey, before, policy)
    mark = trimmed(survey, mark, allowed, fixed, ratio)
    if mark != before:
        mark = msgspec.structs.replace(mark, thinking_from=len(path))
    messages, repairs = assemble(survey, mark)
    messages, cut = _capped(messages, totals(survey, mark, fixed, ratio), allowed, model)
    rows = tuple(_row(item, survey, mark, ratio) for item in survey.items)
    used = totals(survey, mark, fixed, ratio)
    prompt = Prompt(
        model=model,
        messages=tuple(messages),
        system=request.system,
        tools=request.tools,
        sampling=request.sampling,
        stable_messages=_stable(messages),
    )
    receipt = Receipt(
        model=model.reference, rows=rows, totals=used, budgets=allowed, notices=(*repairs, *cut, *_losses(survey, mark))
    )
    return Prepared(prompt=prompt, receipt=receipt, watermark=mark, needs=_needs(survey, mark))


def _within(mark: Watermark, length: int) -> Watermark:
    """A fork may be shorter than the path the watermark was stored for."""
    return Watermark(**{field: min(at, length) for field, at in msgspec.structs.asdict(mark).items()})


def _fixed(survey: Survey, request: Request) -> Totals:
    rule = survey.target.model.tokens
    tools = "".join(msgspec.json.encode(tool).decode() for tool in request.tools)
    return Totals(
        tokens=cost.text_tokens(request.system, rule)
        + cost.text_tokens(tools, rule)
        + len(survey.messages) * cost.message_tokens(),
        wire_bytes=json_bytes(request.system) + len(tools.encode()),
    )


def _row(item: Item, survey: Survey, mark: Watermark, ratio: float) -> ReceiptRow:
    _, reason, detail = survey.wish(item, mark)
    measure = survey.measured(item, mark)
    media = item.block.media if isinstance(item.block, ImageBlock | DocumentBlock | AudioBlock) else None
    return ReceiptRow(
        message=item.message,
        block=item.position,
        inner=item.inner,
        kind=item.block.__struct_config__.tag if isinstance(item.block.__struct_config__.tag, str) else "",
        label=media.label if media else " ".join(text_of(item.block).split())[:80],
        rendition=measure.rendition,
        digest=media.digest if media else "",
        reason=measure.reason or reason,
        detail=measure.detail or detail,
        tokens=round(measure.tokens * ratio),
        wire_bytes=measure.wire_bytes,
    )


def _needs(survey: Survey, mark: Watermark) -> tuple[Need, ...]:
    """What the chosen renditions lack, and what they would be if nothing had been trimmed: a bound may have been what
    broke a budget."""
    ages = msgspec.structs.replace(mark, result_media_before=0, tool_text_before=0, dropped_before=0)
    found: dict[Need, None] = {}
    for item in survey.items:
        for measure in (survey.measured(item, mark), survey.measured(item, ages)):
            found |= dict.fromkeys(measure.needs)
    return tuple(found)


def _losses(survey: Survey, mark: Watermark) -> list[str]:
    """One sentence for what a person must know at once: the model cannot see or hear what is new in this turn."""
    unseen: list[str] = []
    for item in survey.items:
        measure = survey.measured(item, mark)
        new = item.message >= survey.turns[-1]
        lost = measure.reason in ("capability", "missing", "quarantine", "limit")
        if new and lost and isinstance(item.block, ImageBlock | DocumentBlock | AudioBlock):
            unseen.append(f"{item.block.media.name or item.block.media.media_type} as {measure.rendition}")
    if not unseen:
        return []
    return [f"{survey.target.model.reference} gets {', '.join(unseen)}"]


def _capped(
    messages: list[ShownMessage], used: Totals, allowed: Totals, model: Model
) -> tuple[list[ShownMessage], list[str]]:
    """The last resort: texts too long for the window are cut in the middle, the longest first, until they fit."""
    if fits(used, allowed):
        return messages, []
    over = max(used.tokens - allowed.tokens, (used.wire_bytes - allowed.wire_bytes) // 4)
    lengths = [len(text) for message in messages for text in _texts(message)]
    cap = _TEXT_CAPS[-1]
    for candidate in _TEXT_CAPS:
        saved = sum(max(length - candidate, 0) for length in lengths) / model.tokens.chars_per_token
        if saved * 0.9 >= over:
            cap = candidate
            break
    cut = [ShownMessage(message.role, tuple(_cut(block, cap) for block in message.blocks)) for message in messages]
    return cut, [f"texts of more than {cap} characters were cut: the window of {model.reference} is full"]


def _texts(message: ShownMessage) -> list[str]:
    found: list[str] = []
    for block in message.blocks:
        match block:
            case TextBlock():
                found.append(block.text)
            case ShownResult():
                found += [inner.text for inner in block.blocks if isinstance(inner, TextBlock)]
            case _:
                pass
    return found


def _cut(block: ShownBlock, cap: int) -> ShownBlock:
    match block:
        case TextBlock():
            return TextBlock(_middle_cut(block.text, cap)) if len(block.text) > cap else block
        case ShownResult():
            inner = tuple(
                TextBlock(_middle_cut(part.text, cap)) if isinstance(part, TextBlock) and len(part.text) > cap else part
                for part in block.blocks
            )
            return msgspec.structs.replace(block, blocks=inner)
        case _:
            return block


def _middle_cut(text: str, cap: int) -> str:
    head, tail = text[: cap * 2 // 3], text[-(cap // 3) :]
    return f"{head}\n[… {len(text) - cap} characters are left out here …]\n{tail}"


def _stable(messages: Sequence[ShownMessage]) -> int:
    """How many messages the last request had: all before the assistant's newest one."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            return at
    return 0
