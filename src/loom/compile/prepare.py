"""prepare: from a path, a model and the user's settings, compute exactly what the model is shown, and a receipt.

age       reduce old media: the watermark rises where that pays
adapt     convert each block to a form that the model supports
trim      fit the budgets: the watermark rises where a budget requires it
assemble  put blocks into the places that the platform allows, with paired calls and valid ids
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
from loom.compile.property_names import legal_properties, rename_properties
from loom.compile.trim import RequestCost, budgets, newest_turn_start, trim
from loom.content.blocks import ImageBlock, ThinkingBlock, ToolCall
from loom.content.media import Media
from loom.content.recipes import Ocr
from loom.errors import ContentError
from loom.models import Model
from loom.prompt import Prompt, Receipt, ShownMessage, ToolSpec, Totals
from loom.sampling import Sampling, unsupported_options
from loom.struct_types import decode_json

_MIN_BUDGET_TOKENS: Final = 1_024
"""The minimum thinking budget of a platform; the answer must have more room than that."""

_MAX_TOLD: Final = 64
_OCR_IMAGES: Final = 20
"""OCR of an image takes seconds, so a text-only model gets the text of only this many images, the newest. The others
keep their labels, in this request and in later ones."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt, its receipt, the watermark to store, and the derived bytes that would make it exact."""

    prompt: Prompt
    receipt: Receipt
    watermark: Watermark
    needs: tuple[Need, ...]
    undescribed: tuple[Media, ...] = ()
    """Images that are shown as text and might be described, newest first."""


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
        raise ContentError("Nothing to prepare: the path is empty")
    policy, request, known = policy or Policy(), request or Request(), known or Known()
    request = _with_tools(request, path, model)
    names = declared_names((tool.name for tool in request.tools), model)
    properties = {tool.name: legal for tool in request.tools if (legal := legal_properties(tool.parameters, model))}
    target = RenderTarget(
        model=model,
        policy=policy,
        known=known,
        request=request,
        quarantine=quarantine,
        alts=alts or {},
        names=names,
        properties=properties,
    )
    layout = Layout(path, target, overrides or {})
    costs = RequestCost(layout, _fixed_cost(request, layout), (calibration or Calibration()).ratio)
    allowed = budgets(model, policy)
    before = _valid_watermark(watermark or Watermark(), layout, path)
    by_age = advance_watermark(layout, before, policy)
    mark = trim(costs, by_age, allowed)
    mark, messages, repairs = _assemble_within(layout, before, mark)
    as_came = unchanged_messages(layout, mark).keys()
    used = costs.cost_of(mark)
    sampling, unasked = _sampling(request.sampling, messages, model)
    unsent = unsupported_options(model, sampling)
    once = (*_option_notices(model, unsent), *receipt.lasting_notices(layout, mark))
    full = overflow(costs, by_age, mark, allowed)
    notices = (*repairs, *unasked, *once, *full, *receipt.tightness(layout, mark, used, allowed))
    notices += tuple(receipt.losses(layout, mark))
    body = request.body
    is_own_body = body is not None and (body.provider, body.wire) == (model.opaque_owner, model.wire)
    stored_overrides = {**(overrides or {}), **{alt_key(digest): words for digest, words in (alts or {}).items()}}
    told = dict.fromkeys((*before.told, *map(notice_hash, once)))
    return Prepared(
        prompt=Prompt(
            model=model,
            messages=tuple(messages),
            system=request.system,
            tools=tuple(_rename_tool(tool, target) for tool in request.tools),
            sampling=msgspec.structs.replace(sampling, tool_name=names.get(sampling.tool_name, sampling.tool_name)),
            tool_names={legal: name for name, legal in names.items() if legal != name},
            property_names={names[tool]: {legal: own for own, legal in of.items()} for tool, of in properties.items()},
            body=body if is_own_body else None,
            stable_messages=_count_sent(messages),
        ),
        receipt=Receipt(
            model=model.reference,
            rows=receipt.rows(layout, mark, costs.ratio, as_came),
            totals=used,
            budgets=allowed,
            notices=notices,
            once=once,
            unsent_options=unsent,
            cached_rows=_cached_rows(layout, before, mark, path, stored_overrides),
        ),
        watermark=msgspec.structs.replace(
            _remember_request(mark, path, layout, messages, stored_overrides), told=tuple(told)[-_MAX_TOLD:]
        ),
        needs=_list_needs(layout, mark, by_age),
        undescribed=_find_undescribed(layout, mark) if known.describes else (),
    )


def _rename_tool(tool: ToolSpec, target: RenderTarget) -> ToolSpec:
    name, properties = target.names[tool.name], target.properties.get(tool.name)
    if name == tool.name and properties is None:
        return tool
    schema = tool.parameters if properties is None else rename_properties(tool.parameters, properties)
    return msgspec.structs.replace(tool, name=name, parameters=schema)


def _valid_watermark(mark: Watermark, layout: Layout, path: Sequence[Placed]) -> Watermark:
    """Return the watermark for this path. Borders are valid only on the path for which they were set. On another branch
    only the borders by age remain (the common part may be cached), and budgets are applied afresh."""
    length, policy = len(path), layout.target.policy
    if mark.sent_node and (mark.sent_messages > length or path[mark.sent_messages - 1].id != mark.sent_node):
        by_age = every_turn(layout, Watermark(), policy)
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
    borders["dropped_before"] = min(mark.dropped_before, newest_turn_start(layout))  # the newest turn is never dropped
    return msgspec.structs.replace(mark, **borders)


def _with_tools(request: Request, path: Sequence[Placed], model: Model) -> Request:
    """Remove the tools for a model that has no tool support. If a platform accepts calls only together with their
    tools, and the request has none any more, declare the tools of earlier calls without letting the model call them."""
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


def _fixed_cost(request: Request, layout: Layout) -> Totals:
    """Return the cost of the system prompt, the tools, and notes about images that are visible again."""
    rule = layout.target.model.tokens
    tools = "".join(msgspec.json.encode(tool).decode() for tool in request.tools)
    notes = SEEN_AGAIN * len(layout.blind)
    return Totals(
        tokens=sum(cost.text_tokens(text, rule) for text in (request.system, tools, notes)),
        wire_bytes=json_bytes(request.system)
        + len(tools.encode())
        + 100 * len(request.tools)
        + len(layout.blind) * (BLOCK_BYTES + len(SEEN_AGAIN)),
    )


# Thinking that is bound to its prefix ------------------------------------------------------------------------------


def _assemble_within(
    layout: Layout, before: Watermark, mark: Watermark
) -> tuple[Watermark, list[ShownMessage], list[str]]:
    """Assemble the messages. If the platform binds thinking to the messages before it, leave the thinking out as soon
    as any of them has changed: a border moved, an image was quarantined or is gone, the user hid one, or the tools
    changed."""
    if mark != before:
        mark = msgspec.structs.replace(mark, thinking_from=len(layout.messages))
    messages, repairs = assemble(layout, mark)
    bound = layout.target.model.thinking.replay == "bound" and before.sent_hash
    if bound and mark == before and _print(layout, messages, before.sent_blocks)[1] != before.sent_hash:
        mark = msgspec.structs.replace(mark, thinking_from=len(layout.messages))
        messages, repairs = assemble(layout, mark)
    return mark, messages, repairs


def _print(layout: Layout, messages: Sequence[ShownMessage], first: int | None) -> tuple[int, str]:
    """Return the number of blocks, and a hash of the first ones, the system prompt and the tools."""
    request = layout.target.request
    shown = [(message.role, block) for message in messages for block in message.blocks][:first]
    data = msgspec.msgpack.encode((request.system, request.tools, shown))
    return len(shown), hashlib.sha256(data).hexdigest()[:32]


# What the last request held ----------------------------------------------------------------------------------------


def _remember_request(
    mark: Watermark,
    path: Sequence[Placed],
    layout: Layout,
    messages: Sequence[ShownMessage],
    stored_overrides: dict[str, str],
) -> Watermark:
    """Return the watermark with a record of this request, for comparison with the next one."""
    bound = layout.target.model.thinking.replay == "bound"
    blocks, fingerprint = _print(layout, messages, None) if bound else (0, "")
    options = layout.target.request.sampling
    return msgspec.structs.replace(
        mark,
        sent_blocks=blocks,
        sent_hash=fingerprint,
        sent_messages=len(path),
        sent_path=_path_print(path, layout),
        sent_node=path[-1].id,
        sent_wishes=msgspec.json.encode(stored_overrides, order="sorted").decode() if stored_overrides else "",
        sent_options=msgspec.json.encode(options).decode() if options != Sampling() else "",
        estimated_tokens=0,
        billed_tokens=0,
        cached_tokens=0,
        billed_at=0.0,
    )


def _cached_rows(
    layout: Layout, before: Watermark, mark: Watermark, path: Sequence[Placed], stored_overrides: dict[str, str]
) -> int:
    """Return how many leading rows the platform has probably cached: 0 if it has no cache, or if the last request to
    this model was for another path."""
    count = before.sent_messages
    if layout.target.model.cache.mode == "none" or not 0 < count <= len(path):
        return 0
    same = _path_print(path[:count], layout) == before.sent_path
    if not same:
        return 0
    held = decode_json(before.sent_wishes or "{}", dict[str, str])
    changed = {key for key, _ in held.items() ^ stored_overrides.items()}
    return receipt.cached_rows(layout, before, mark, path[:count], changed)


def _path_print(path: Sequence[Placed], layout: Layout) -> str:
    """Return a hash of the path, the system prompt and the tools. A node's id covers everything before it."""
    request = layout.target.request
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
    why = "the answer's token limit is too low" if cramped else "its last calls were made without it"
    return msgspec.structs.replace(sampling, thinking=""), [f"Thinking is off for {model.reference}: {why}."]


def _option_notices(model: Model, unsent: Sequence[str]) -> tuple[str, ...]:
    if not unsent:
        return ()
    return (f"{model.reference} does not support {', '.join(unsent)}: not sent.",)


def notice_hash(notice: str) -> str:
    """Return the hash by which a notice that is shown once is remembered."""
    return hashlib.sha256(notice.encode()).hexdigest()[:12]


def _lacks_thinking(messages: Sequence[ShownMessage], model: Model) -> bool:
    """Return whether the last calls lack the thinking with which a message of a thinking model must begin."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None or model.thinking.place != "first":
        return False
    called = any(isinstance(block, ToolCall) for block in last.blocks)
    return called and not isinstance(last.blocks[0], ThinkingBlock)


# What is still lacking ---------------------------------------------------------------------------------------------


def _list_needs(layout: Layout, mark: Watermark, by_age: Watermark) -> tuple[Need, ...]:
    """Return what the chosen renditions lack, and what they would lack without trimming: an upper bound may have
    exceeded a budget that the exact size fits."""
    measures = [*layout.render_costs(mark), *(layout.render_costs(by_age) if mark != by_age else ())]
    needs = dict.fromkeys(need for measure in measures for need in measure.needs)
    if not any(isinstance(need.recipe, Ocr) for need in needs):
        return tuple(needs)
    images = (item.block.media.digest for item in reversed(layout.items) if isinstance(item.block, ImageBlock))
    newest = frozenset(list(dict.fromkeys(images))[:_OCR_IMAGES])
    return tuple(need for need in needs if need.digest in newest or not isinstance(need.recipe, Ocr))


def _find_undescribed(layout: Layout, mark: Watermark) -> tuple[Media, ...]:
    known = layout.target.known
    found: dict[str, Media] = {}
    for item, measure in zip(reversed(layout.items), reversed(layout.render_costs(mark)), strict=True):
        block = item.block
        if not isinstance(block, ImageBlock) or block.alt or block.description or measure.rendition != "text":
            continue
        if block.media.digest in layout.target.alts:
            continue
        if block.media.digest not in known.missing and known.may_be_described(block.media.digest):
            found.setdefault(block.media.digest, block.media)
    return tuple(found.values())


def _count_sent(messages: Sequence[ShownMessage]) -> int:
    """Return how many messages the last request had: all before the newest assistant message."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            return at
    return 0
