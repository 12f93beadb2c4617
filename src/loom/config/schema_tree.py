"""The schema as a tree: tables with known keys, tables with user-chosen names, lists of tables, values.

It also describes values in error messages and parses the text of environment variables.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, cast, get_args, get_origin

import msgspec
from msgspec import inspect

from loom.config.schema import Section, Settings
from loom.config.secret import REFERENCE, Secret, redact
from loom.struct_types import convert

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path of a value: names, and positions (from zero) in lists."""

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ANY_REFERENCE = re.compile(r"\{(\w+):[^{}]*\}")


class ValueShape(msgspec.Struct, frozen=True):
    """A value, which a higher layer replaces as a whole. `rows` describes the items of a list of tables."""

    type: Any
    info: inspect.Type
    schemes: tuple[str, ...] = ()
    rows: TableShape | None = None

    @property
    def is_secret(self) -> bool:
        return isinstance(self.info, inspect.CustomType) and self.info.cls is Secret


class TableShape(msgspec.Struct, frozen=True):
    """A table with known keys."""

    section: type[Section]
    keys: Mapping[str, Shape]
    required: tuple[str, ...] = ()


class NamedTables(msgspec.Struct, frozen=True):
    """A table with user-chosen names."""

    of: Shape


Shape: TypeAlias = ValueShape | TableShape | NamedTables


@functools.cache
def shape() -> TableShape:
    return _table(cast("inspect.StructType", inspect.type_info(Settings)))


def _table(info: inspect.StructType) -> TableShape:
    annotations = {field.name: field.type for field in msgspec.structs.fields(info.cls)}
    return TableShape(
        section=cast("type[Section]", info.cls),
        keys={field.name: _shape_of(field.type, annotations[field.name]) for field in info.fields},
        required=tuple(field.name for field in info.fields if field.required),
    )


def _shape_of(info: inspect.Type, annotation: Any) -> Shape:
    schemes: tuple[str, ...] = ()
    if isinstance(info, inspect.Metadata):
        extra = cast("dict[str, tuple[str, ...]] | None", info.extra)  # pyright: ignore[reportUnknownMemberType]  # untyped there
        schemes = (extra or {}).get("schemes", ())
        info = info.type
    match info:
        case inspect.StructType():
            return _table(info)
        case inspect.DictType(value_type=inspect.StructType() as entry):
            return NamedTables(_table(entry))
        case inspect.DictType(value_type=inspect.CustomType() as entry):
            return NamedTables(ValueShape(entry.cls, entry))
        case inspect.DictType(value_type=inspect.StrType() | inspect.VarTupleType() as entry):
            bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
            return NamedTables(ValueShape(get_args(bare)[1], entry))
        case inspect.VarTupleType(item_type=inspect.StructType() as row):
            return ValueShape(annotation, info, rows=_table(row))
        case _:
            return ValueShape(annotation, info, schemes)


def key_text(path: KeyPath) -> str:
    """Return a path as in TOML, with positions counted from one: `models."gpt-5.5".model`, `rules[2].tool`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False))
    return text


def as_table(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def decode_custom_type(kind: type, value: object) -> object:
    """Decode `Secret` and `Url` for msgspec. Raise `TypeError`, which msgspec turns into its validation error."""
    if not isinstance(value, str):
        raise TypeError("not text")
    return kind(value)


def fault(value: object, at: ValueShape) -> str:
    """Return what is wrong with `value`, as "expected …, got …"; empty if it is valid."""
    try:
        made = convert(value, at.type, dec_hook=decode_custom_type)
    except msgspec.ValidationError:
        got = _got_in_list(value, at.info) or actual_text(value, secret=at.is_secret)
        return f"expected {expected_text(at)}, got {got}"
    if isinstance(made, float) and not math.isfinite(made):
        return f"expected {expected_text(at)}, got {value}"
    if isinstance(made, Secret):
        return _secret_fault(made, at)
    return ""


def _secret_fault(value: Secret, at: ValueShape) -> str:
    for found in _ANY_REFERENCE.finditer(value.written):
        if not REFERENCE.fullmatch(found[0]):
            return f"expected text, {{env:NAME}} or {{file:PATH}}, got a reference that begins with {{{found[1]}:"
    if at.schemes and value and not REFERENCE.match(value.written):
        starts = tuple(f"{scheme}://" for scheme in at.schemes)
        if not value.written.lower().startswith(starts):
            return f"expected {expected_text(at)}, got {actual_text(value.written)}"
    return ""


def expected_text(at: ValueShape) -> str:
    """Describe the values that are accepted."""
    if at.schemes:
        return "a URL that begins with " + " or ".join(f"{scheme}://" for scheme in at.schemes)
    return _describe_type(at.info)


def _describe_type(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            return _describe_type(info.type)
        case inspect.UnionType():
            choices = [_describe_type(item) for item in info.types if not isinstance(item, inspect.NoneType)]
            return choices[0] if len(choices) == 1 else f"{choices[0].replace(' or ', ', ')} or {choices[1]}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number from {info.ge} to {info.le}"
        case inspect.FloatType():
            return f"a number from {info.ge:g} to {info.le:g}"
        case inspect.LiteralType(values=values):
            quoted = [json.dumps(value) for value in values]
            return quoted[0] if len(quoted) == 1 else f"one of {', '.join(quoted)}"
        case inspect.VarTupleType(item_type=inspect.StructType()):
            return "a list of tables"
        case inspect.VarTupleType(item_type=inspect.LiteralType() as choice):
            return f"a list, each {_describe_type(choice)}"
        case inspect.VarTupleType():
            return "a list of texts"
        case inspect.DictType():
            return "a table"
        case inspect.StrType(min_length=int()):
            return "text that is not empty"
        case _:
            return "text"


def actual_text(value: object, *, secret: bool = False) -> str:
    """Describe a value, briefly and without secrets."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "text" if secret else json.dumps(_truncate(redact(value)), ensure_ascii=False)
        case int() | float():
            return "a number" if secret else _truncate(str(value))
        case Mapping():
            return "a table"
        case list() | tuple():
            return "a list"
        case None:
            return "null"
        case datetime.date() | datetime.time():
            return "a date or time"
        case _:
            return f"a value of type {type(value).__name__}"


def _got_in_list(value: object, info: inspect.Type) -> str:
    """Describe the first invalid item if `value` is a list; empty if there is none. Items must be texts, or texts of a
    given choice."""
    choice = info.item_type if isinstance(info, inspect.VarTupleType) else None
    allowed = choice.values if isinstance(choice, inspect.LiteralType) else None
    items = as_list(value) or []
    wrong = next(
        (
            position
            for position, item in enumerate(items)
            if not isinstance(item, str) or (allowed is not None and item not in allowed)
        ),
        None,
    )
    return "" if wrong is None else f"{actual_text(items[wrong])} as item {wrong + 1}"


def _truncate(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


def read_text(text: str, at: ValueShape) -> object:
    """Parse the text of a variable or flag; return text that cannot be parsed unchanged, for `fault` to report."""
    return _read_text(text, at.info)


def _read_text(text: str, info: inspect.Type) -> object:
    match info:
        case inspect.Metadata():
            return _read_text(text, info.type)
        case inspect.UnionType():
            readings = (_read_text(text, item) for item in info.types if not isinstance(item, inspect.NoneType))
            return next((reading for reading in readings if not isinstance(reading, str)), text)
        case inspect.BoolType():
            word = text.strip().lower()
            return True if word in _TRUE else False if word in _FALSE else text
        case inspect.IntType():
            return _number(text, int)
        case inspect.FloatType():
            return _number(text, float)
        case inspect.DictType():
            return read_json(text)
        case inspect.VarTupleType():
            if text.lstrip().startswith("["):
                return read_json(text)
            if isinstance(info.item_type, inspect.StructType):
                return text
            return [item.strip() for item in text.split(",") if item.strip()]
        case _:
            return text


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    try:
        return kind(text)
    except ValueError:
        return text


def read_json(text: str) -> object:
    """Return `text` decoded as JSON; return text that is not JSON unchanged, for `fault` to report."""
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
