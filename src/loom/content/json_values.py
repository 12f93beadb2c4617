"""JSON of unknown origin made safe to read: clean strings, finite numbers, bounded depth. The result is always a
copy."""

from __future__ import annotations

import base64
import math
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import check_json, clean_text
from loom.errors import ContentError

MAX_DATA_DEPTH: Final = 200
"""The maximum depth of the data inside a block (`check_json` refuses more)."""
MAX_INPUT_DEPTH: Final = MAX_DATA_DEPTH + 30
"""The maximum depth of a whole input: block data within messages within an envelope."""

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def as_json(value: msgspec.Struct) -> Any:
    """Return a struct as decoded JSON (lists instead of tuples), so that it can be stored."""
    return msgspec.json.decode(msgspec.json.encode(value))


def sanitize_json(value: Any, max_depth: int = MAX_DATA_DEPTH) -> Any:
    """Return a copy that JSON can represent. Values deeper than `max_depth` become their own JSON text, so that nothing
    is lost.

    It uses its own stack, because ten thousand nested lists must not exhaust the interpreter's.
    """
    holder: list[Any] = [None]
    todo: list[tuple[Any, Any, Any, int]] = [(value, holder, 0, 0)]
    while todo:
        item, target, key, depth = todo.pop()
        if not isinstance(item, dict | list | tuple):
            target[key] = _scalar(item)
        elif item and depth >= max_depth:
            target[key] = _write_json(cast("Any", item))
        elif isinstance(item, dict):
            copy = _keys(cast("dict[Any, Any]", item))
            target[key] = copy
            values = cast("dict[Any, Any]", item).values()
            todo.extend((inner, copy, name, depth + 1) for name, inner in zip(list(copy), values, strict=True))
        else:
            row = cast("list[Any] | tuple[Any, ...]", item)
            fresh: list[Any] = [None] * len(row)
            target[key] = fresh
            todo.extend((inner, fresh, at, depth + 1) for at, inner in enumerate(row))
    return holder[0]


def _keys(item: dict[Any, Any]) -> dict[str, Any]:
    """Return the keys as clean strings, in order; none is lost if two become equal."""
    copy: dict[str, Any] = {}
    for key in item:
        name = clean_text(key) if isinstance(key, str) else str(_scalar(key))
        while name in copy:
            name += "_"
        copy[name] = None
    return copy


def _scalar(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return clean_text(value)
        case int():
            if _MIN_INT <= value <= _MAX_INT:
                return value
            # hexadecimal, because Python refuses to print thousands of decimal digits
            return str(value) if value.bit_length() <= 10_000 else hex(value)
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case _:
            return f"({type(value).__name__})"


class _JsonToken(msgspec.Struct, frozen=True):
    text: str


def _write_json(value: Any) -> str:
    """Return the JSON text of a value of any depth."""
    out: list[str] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, _JsonToken):
            out.append(item.text)
        elif isinstance(item, dict):
            named = cast("dict[Any, Any]", item)
            keys = [json_text(key) + ":" for key in _keys(named)]
            _push(todo, "{", [(_JsonToken(key), inner) for key, inner in zip(keys, named.values(), strict=True)], "}")
        elif isinstance(item, list | tuple):
            _push(todo, "[", [(inner,) for inner in cast("list[Any]", item)], "]")
        else:
            out.append(json_text(_scalar(item)))
    return "".join(out)


def _push(todo: list[Any], start: str, members: list[tuple[Any, ...]], end: str) -> None:
    """Push the parts that are still to be written, last first."""
    todo.append(_JsonToken(end))
    for at in range(len(members) - 1, -1, -1):
        todo.extend(reversed(members[at]))
        if at:
            todo.append(_JsonToken(","))
    todo.append(_JsonToken(start))


def json_text(value: Any) -> str:
    """Return the compact JSON of a value that is already safe."""
    return msgspec.json.encode(value).decode()


def parse_json(text: str) -> Any:
    """Return the value of JSON text, or None if it is not JSON (or is null)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def arguments_problem(raw: str, what: str = "the arguments") -> str:
    """Return why the arguments of a call could not be read: they are no JSON object, or one that Loom cannot hold."""
    found = parse_json(raw)
    if isinstance(found, dict):
        try:
            check_json(found, what)
        except ContentError as error:
            return error.message
    return f"{what} were not a JSON object"


def get_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def get_list(value: Any) -> list[Any]:
    """Return a list unchanged, None as an empty list, anything else as its only item."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if value is None else [value]


def get_text(value: Any) -> str:
    """Return a string that is not blank, otherwise an empty one."""
    return value if isinstance(value, str) and value.strip() else ""


def first_text(holder: dict[str, Any], *keys: str) -> str:
    return next((text for key in keys if (text := get_text(holder.get(key)))), "")


def ident(value: Any) -> str:
    """Return an id as a string, also if it was written as a number; empty if there is none."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def first_ident(holder: dict[str, Any], *keys: str) -> str:
    return next((found for key in keys if (found := ident(holder.get(key)))), "")


def get_int(value: Any) -> int | None:
    """Return an integer; None for anything else, including booleans."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
