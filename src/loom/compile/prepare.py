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

from loom.compile import cost, receipt
from loom.compile.age import advance_watermark, every_turn
from loom.compile.assemble import SEEN_AGAIN, assemble
from loom.compile.assemble_ids import declared_names, tool_name
from loom.compile.cost import Calibration
from loom.compile.forms import unchanged_messages
from loom.compile.layout import Layout
from loom.compile.measure import BLOCK_BYTES, RenderTarget, json_bytes
from loom.compile.overflow import overflow
from loom.compile.policy import Known, Need, Override, Placed, Policy, Request, Watermark, alt_key
from loom.compile.trim import RequestCost, budgets, newest_turn_start, trim
from loom.content.blocks import ImageBlock, ThinkingBlock, ToolCall
from loom.content.media import Media
from loom.content.recipes import Ocr
from loom.content.wire_forms import BodyForm
from loom.errors import ContentError
from loom.models import Model
from loom.prompt import Prompt, Receipt, ShownMessage, ToolSpec, Totals
from loom.sampling import Sampling, unsupported_options

_MIN_BUDGET_TOKENS: Final = 1_024
"""The least that may be asked for where thinking has a budget, and an answer must have more room than that."""

_MAX_TOLD: Final = 64
_READ_PICTURES: Final = 20
"""OCR of an image takes seconds: a text-only model gets the words of this many, the newest. The others keep their
labels, on this request and on all that follow it."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt, its receipt, the watermark to store, and the derived bytes that would make it exact."""

    prompt: Prompt
    receipt: Receipt
    watermark: Watermark
    needs: tuple[Need, ...]
    undescribed: tuple[Media, ...] = ()
    """Pictures that are shown as text and might be described, the newest first."""


def prepare(
    path: Sequence[Placed],
    model: Model,
    *,
    policy: Policy | None = None,
    request: Request | None = None,
    overrides: Mapping[str, Override] | None = None,
    alts: Mapping[str, str] | None = None,
    watermark: Watermark | None = None,
    calibration: Calibration | None = None,
    known: Known | None = None,
    quarantine: frozenset[str] = frozenset(),
) -> Prepared:
    if not path:
        raise ContentError("there is nothing to prepare: the path is empty")
    policy, request, known = policy or Policy(), request or Request(), known or Known()
    request = _with_tools(request, path, model)
    names = declared_names((tool.name for tool in request.tools), model)
    target = RenderTarget(
        model=model, policy=policy, known=known, request=request, quarantine=quarantine, alts=alts or {}, names=names
    )
    survey = Layout(path, target, overrides or {})
    scales = RequestCost(survey, _fixed_cost(request, survey), (calibration or Calibration()).ratio)
    allowed = budgets(model, policy)
    before = _drawn_here(watermark or Watermark(), survey, path)
    by_age = advance_watermark(survey, before, policy)
    mark = trim(scales, by_age, allowed)
    mark, messages, repairs = _assemble_within(survey, before, mark)
    as_came = unchanged_messages(survey, mark).keys()
    used = scales.cost_of(mark)
    sampling, unasked = _sampling(request.sampling, messages, model)
    unsent = unsupported_options(model, sampling)
    once = (*_option_notices(model, unsent), *receipt.lasting_notices(survey, mark))
    full = overflow(scales, by_age, mark, allowed)
    notices = (*repairs, *unasked, *once, *full, *receipt.tightness(survey, mark, used, allowed))
    notices += tuple(receipt.losses(survey, mark))
    return Prepared(
        prompt=Prompt(
            model=model,
            messages=tuple(messages),
            system=request.system,
            tools=tuple(_renamed(tool, names) for tool in request.tools),
            sampling=msgspec.structs.replace(sampling, tool_name=names.get(sampling.tool_name, sampling.tool_name)),
            tool_names={legal: name for name, legal in names.items() if legal != name},
            body=_own_body(request, model),
            stable_messages=_stable(messages),
        ),
        receipt=Receipt(
            model=model.reference,
            rows=receipt.rows(survey, mark, scales.ratio, as_came),
            totals=used,
            budgets=allowed,
            notices=notices,
            once=once,
            unsent_options=unsent,
            cached_rows=_cached_rows(survey, before, mark, path, _wishes(overrides, alts)),
        ),
        watermark=_remember_notices(
            _remember_request(mark, path, survey, messages, _wishes(overrides, alts)), before, once
        ),
        needs=_needs(survey, mark, by_age),
        undescribed=_find_undescribed(survey, mark) if known.describes else (),
    )


def _renamed(tool: ToolSpec, names: Mapping[str, str]) -> ToolSpec:
    legal = names[tool.name]
    return tool if legal == tool.name else msgspec.structs.replace(tool, name=legal)


def _own_body(request: Request, model: Model) -> BodyForm | None:
    """The body as it came, where it came in this provider's own protocol."""
    body = request.body
    return body if body is not None and (body.provider, body.wire) == (model.opaque_owner, model.wire) else None


def _drawn_here(mark: Watermark, survey: Layout, path: Sequence[Placed]) -> Watermark:
    """Borders hold on the path on which they were drawn. On another branch only what age alone draws is left of them
    (what both have in common may be in a cache); budgets are found anew there."""
    length, policy = len(path), survey.target.policy
    if mark.sent_node and (mark.sent_messages > length or path[mark.sent_messages - 1].id != mark.sent_node):
        by_age = every_turn(survey, Watermark(), policy)
        return Watermark(
            low_before=min(mark.low_before, by_age.low_before),
            text_before=min(mark.text_before, by_age.text_before),
            thinking_from=length,
            told=mark.told,
        )
    borders = {
        name: min(at, length)
        for name, at in msgspec.structs.asdict(mark).items()
        if name.endswith(("_before", "_from"))
    }
    borders["dropped_before"] = min(mark.dropped_before, newest_turn_start(survey))  # what is newest is never dropped
    return msgspec.structs.replace(mark, **borders)


def _with_tools(request: Request, path: Sequence[Placed], model: Model) -> Request:
    """Return None for a model without them. Where a platform reads calls only beside their tools, and there are none
    any more, the names stand alone and may not be called."""
    if not model.capabilities.tools:
        return msgspec.structs.replace(request, tools=())
    if request.tools or not model.calls_need_tools:
        return request
    names = dict.fromkeys(tool_name(call.name, model) for placed in path for call in placed.message.calls)
    if not names:
        return request
    schema = {"type": "object"}
    gone = tuple(ToolSpec(name=name, description="No longer available.", parameters=schema) for name in names)
    sampling = msgspec.structs.replace(request.sampling, tool_choice="none")
    return msgspec.structs.replace(request, tools=gone, sampling=sampling)


def _fixed_cost(request: Request, survey: Layout) -> Totals:
    """Return the system prompt, the tools, and what may be said of pictures that are visible again."""
    rule = survey.target.model.tokens
    tools = "".join(msgspec.json.encode(tool).decode() for tool in request.tools)
    notes = SEEN_AGAIN * len(survey.blind)
    return Totals(
        tokens=sum(cost.text_tokens(text, rule) for text in (request.system, tools, notes)),
        wire_bytes=json_bytes(request.system)
        + len(tools.encode())
        + 100 * len(request.tools)
        + len(survey.blind) * (BLOCK_BYTES + len(SEEN_AGAIN)),
    )


# Thinking that is bound to its prefix ------------------------------------------------------------------------------


def _assemble_within(
    survey: Layout, before: Watermark, mark: Watermark
) -> tuple[Watermark, list[ShownMessage], list[str]]:
    """Where a platform binds thinking to what stood before it, thinking goes as soon as any of that has changed: a
    border moved, a picture was quarantined or is gone, the user hid one, the tools are others."""
    if mark != before:
        mark = msgspec.structs.replace(mark, thinking_from=len(survey.messages))
    messages, repairs = assemble(survey, mark)
    bound = survey.target.model.thinking.replay == "bound" and before.sent_hash
    if bound and mark == before and _print(survey, messages, before.sent_blocks)[1] != before.sent_hash:
        mark = msgspec.structs.replace(mark, thinking_from=len(survey.messages))
        messages, repairs = assemble(survey, mark)
    return mark, messages, repairs


def _print(survey: Layout, messages: Sequence[ShownMessage], first: int | None) -> tuple[int, str]:
    """Return how many blocks there are, and a hash of the first ones behind the system prompt and the tools."""
    request = survey.target.request
    shown = [(message.role, block) for message in messages for block in message.blocks][:first]
    data = msgspec.msgpack.encode((request.system, request.tools, shown))
    return len(shown), hashlib.sha256(data).hexdigest()[:32]


# What the last request held ----------------------------------------------------------------------------------------


def _wishes(overrides: Mapping[str, Override] | None, alts: Mapping[str, str] | None) -> dict[str, str]:
    return {**(overrides or {}), **{alt_key(digest): words for digest, words in (alts or {}).items()}}


def _remember_request(
    mark: Watermark, path: Sequence[Placed], survey: Layout, messages: Sequence[ShownMessage], wishes: dict[str, str]
) -> Watermark:
    """Return the watermark with a note of this request: the next one is compared with it."""
    bound = survey.target.model.thinking.replay == "bound"
    blocks, fingerprint = _print(survey, messages, None) if bound else (0, "")
    options = survey.target.request.sampling
    return msgspec.structs.replace(
        mark,
        sent_blocks=blocks,
        sent_hash=fingerprint,
        sent_messages=len(path),
        sent_path=_path_print(path, survey),
        sent_node=path[-1].id,
        sent_wishes=msgspec.json.encode(wishes, order="sorted").decode() if wishes else "",
        sent_options=msgspec.json.encode(options).decode() if options != Sampling() else "",
    )


def _remember_notices(mark: Watermark, before: Watermark, once: Sequence[str]) -> Watermark:
    told = dict.fromkeys((*before.told, *map(notice_hash, once)))
    return msgspec.structs.replace(mark, told=tuple(told)[-_MAX_TOLD:])


def _cached_rows(
    survey: Layout, before: Watermark, mark: Watermark, path: Sequence[Placed], wishes: dict[str, str]
) -> int:
    """Return None where the platform has no cache, this model was not asked before, or it was asked
    about another path."""
    count = before.sent_messages
    if survey.target.model.cache.mode == "none" or not 0 < count <= len(path):
        return 0
    same = _path_print(path[:count], survey) == before.sent_path
    if not same:
        return 0
    held = msgspec.json.decode(before.sent_wishes or "{}", type=dict[str, str])
    changed = {key for key, _ in held.items() ^ wishes.items()}
    return receipt.cached_rows(survey, before, mark, path[:count], changed)


def _path_print(path: Sequence[Placed], survey: Layout) -> str:
    """A node's id covers everything before it."""
    request = survey.target.request
    return hashlib.sha256(msgspec.msgpack.encode((path[-1].id, request.system, request.tools))).hexdigest()[:16]


# How to answer -----------------------------------------------------------------------------------------------------


def _sampling(sampling: Sampling, messages: Sequence[ShownMessage], model: Model) -> tuple[Sampling, list[str]]:
    most = model.limits.max_output_tokens
    if sampling.max_tokens is not None and sampling.max_tokens > most:
        sampling = msgspec.structs.replace(sampling, max_tokens=most)
    if sampling.thinking in ("", "off") or model.thinking.request != "budget":
        return sampling, []
    cramped = sampling.max_tokens is not None and sampling.max_tokens <= _MIN_BUDGET_TOKENS
    if not cramped and not _lacks_thinking(messages, model):
        return sampling, []
    why = "the answer may not be long enough" if cramped else "its last calls were made without it"
    return msgspec.structs.replace(sampling, thinking=""), [f"{model.reference} is not asked to think: {why}"]


def _option_notices(model: Model, unsent: Sequence[str]) -> tuple[str, ...]:
    if not unsent:
        return ()
    return (f"{model.reference} does not support {', '.join(unsent)}: not sent",)


def notice_hash(notice: str) -> str:
    """Return what is kept of a notice that is shown once."""
    return hashlib.sha256(notice.encode()).hexdigest()[:12]


def _lacks_thinking(messages: Sequence[ShownMessage], model: Model) -> bool:
    """Return whether the last calls lack the thinking with which a message of a thinking model must begin."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None or model.thinking.place != "first":
        return False
    called = any(isinstance(block, ToolCall) for block in last.blocks)
    return called and not isinstance(last.blocks[0], ThinkingBlock)


# What is still lacking ---------------------------------------------------------------------------------------------


def _needs(survey: Layout, mark: Watermark, by_age: Watermark) -> tuple[Need, ...]:
    """Return what the chosen renditions lack, and what they would be if nothing had been trimmed now: a bound may have
    been what broke a budget."""
    measures = [*survey.render_costs(mark), *(survey.render_costs(by_age) if mark != by_age else ())]
    needs = dict.fromkeys(need for measure in measures for need in measure.needs)
    read = _newest_pictures(survey) if any(isinstance(need.recipe, Ocr) for need in needs) else frozenset[str]()
    return tuple(need for need in needs if need.digest in read or not isinstance(need.recipe, Ocr))


def _newest_pictures(survey: Layout) -> frozenset[str]:
    pictures = (item.block.media.digest for item in reversed(survey.items) if isinstance(item.block, ImageBlock))
    return frozenset(list(dict.fromkeys(pictures))[:_READ_PICTURES])


def _find_undescribed(survey: Layout, mark: Watermark) -> tuple[Media, ...]:
    known = survey.target.known
    found: dict[str, Media] = {}
    for item, measure in zip(reversed(survey.items), reversed(survey.render_costs(mark)), strict=True):
        block = item.block
        if not isinstance(block, ImageBlock) or block.alt or block.description or measure.rendition != "text":
            continue
        if block.media.digest in survey.target.alts:
            continue
        if block.media.digest not in known.missing and known.may_be_described(block.media.digest):
            found.setdefault(block.media.digest, block.media)
    return tuple(found.values())


def _stable(messages: Sequence[ShownMessage]) -> int:
    """Return how many messages the last request had: all before the assistant's newest one."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            return at
    return 0
