"""Text, calls and thinking in the form that this model accepts."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from loom.compile.measure import (
    BLOCK_BYTES,
    BlockPosition,
    Measure,
    RenderTarget,
    as_text,
    elide_middle,
    is_cut,
    measure_shown,
    omit,
)
from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.json_values import arguments_problem
from loom.content.messages import text_of
from loom.prompt import Rendition

SHORT_CHARS: Final = 400
_CALL_BYTES: Final = 400
"""The bytes of a call, and of the frame of its result."""
_DENSE: Final = 4
"""If shortened arguments are still this many times longer than the cap, they are long lists rather than strings, and
none of them is sent."""


def text(block: TextBlock, rendition: Rendition, place: BlockPosition, target: RenderTarget, cap: int) -> Measure:
    if rendition == "text" and place == "result" and len(block.text) > SHORT_CHARS * 2:
        left = len(block.text) - SHORT_CHARS
        short = f"{block.text[:SHORT_CHARS]}\n[… {left} more characters of this result were left out]"
        return as_text(short, "budget", "shortened", target, cap)
    if is_cut(block.text, cap):
        return as_text(block.text, "budget", "cut in the middle", target, cap)
    if block.is_system and target.model.system_messages == "none":
        measure = measure_shown(TextBlock(block.text), block.text, target)
        return msgspec.structs.replace(measure, reason="capability", detail="a system message, as user text")
    if not block.citations and block.opaque is None:
        return measure_shown(block, block.text, target)
    if place != "assistant":
        return measure_shown(TextBlock(block.text), block.text, target)
    model = target.model
    citations = tuple(
        citation
        for citation in block.citations
        if model.capabilities.citations
        and citation.opaque
        and citation.opaque.provider == model.opaque_owner
        and _has_any(citation.opaque.data, ("type",))
    )
    own = _own_opaque(block.opaque, target)
    measure = measure_shown(TextBlock(block.text, citations, own), block.text, target)
    return _with_owed(measure, own, *(citation.opaque for citation in citations))


def thinking(block: ThinkingBlock, target: RenderTarget, cap: int) -> Measure:
    rule, opaque = target.model.thinking, block.opaque
    if rule.replay == "never":
        return omit("capability", "the platform accepts no earlier thinking")
    if opaque is None or not target.owns(opaque):
        made_by = f"made by {opaque.provider}/{opaque.model}" if opaque else "its model is not known"
        return omit("other-model", made_by)
    if not _has_any(opaque.data, rule.keys):
        return omit("repair", "the provider data that belongs to it is incomplete")
    if opaque.data.get("field") == "content":
        return omit("capability", "it was part of the text, where the server does not accept it")
    if is_cut(block.text, cap):
        return omit("budget", "too long for the window")
    weight = block.text or msgspec.json.encode(opaque.data).decode()
    return _with_owed(measure_shown(block, weight, target), opaque)


def _own_opaque(opaque: Opaque | None, target: RenderTarget) -> Opaque | None:
    return opaque if opaque is not None and target.owns(opaque) and _has_any(opaque.data, ()) else None


def _has_any(data: Any, keys: tuple[str, ...]) -> bool:
    if not isinstance(data, dict):
        return False
    held = cast("dict[str, Any]", data)
    return not keys or any(held.get(key) and isinstance(held[key], str | list) for key in keys)


def call(block: ToolCall, target: RenderTarget, cap: int) -> Measure:
    if not target.model.capabilities.tools:
        return as_text(text_of(block), "capability", "the model has no tools", target, cap)
    own = _own_opaque(block.opaque, target)
    written = msgspec.json.encode(block.arguments).decode()
    shown = ToolCall(block.id, block.name, block.arguments, None, own)
    if is_cut(written, cap):
        shown = msgspec.structs.replace(shown, arguments=_shorten_arguments(block.arguments, cap))
        written = msgspec.json.encode(shown.arguments).decode()
    measure = measure_shown(shown, f"{block.name[:64]}{written}", target)
    measure = _with_owed(msgspec.structs.replace(measure, wire_bytes=measure.wire_bytes + _CALL_BYTES), own)
    if block.raw_arguments is not None:
        problem = arguments_problem(block.raw_arguments, "its arguments")
        return msgspec.structs.replace(measure, reason="repair", detail=problem)
    if shown.arguments != block.arguments:
        return msgspec.structs.replace(measure, rendition="text", reason="budget", detail="its arguments were cut")
    return measure


def _shorten_arguments(arguments: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return the arguments with long strings truncated. The result is still an object, because every platform requires
    one."""
    short = cast("dict[str, Any]", _cut_strings(arguments, cap))
    size = len(msgspec.json.encode(short))
    return short if size <= cap * _DENSE else {"left_out": f"{size} characters of arguments"}


def _cut_strings(value: Any, cap: int) -> Any:
    match value:
        case str():
            return elide_middle(value, cap)
        case dict():
            return {key: _cut_strings(item, cap) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_cut_strings(item, cap) for item in cast("list[Any]", value)]
        case _:
            return value


def _with_owed(measure: Measure, *opaques: Opaque | None) -> Measure:
    """Add the bytes of opaque data that is sent back with the text: signatures and encrypted reasoning are long."""
    owed = sum(len(msgspec.json.encode(opaque.data)) + BLOCK_BYTES for opaque in opaques if opaque is not None)
    return msgspec.structs.replace(measure, wire_bytes=measure.wire_bytes + owed) if owed else measure
