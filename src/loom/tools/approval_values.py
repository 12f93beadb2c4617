"""Values that a user enters with an approval, as an MCP server requests them: the fields of a form, and the text that
answers it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from loom.content.json_values import get_list, get_object
from loom.errors import ToolError
from loom.struct_types import decode_json
from loom.tools.input_schema import parse_input_schema

_PAIR: Final = re.compile(r"\s*([^\s=:,;]+)\s*[=:]\s*(.*)", re.DOTALL)
_BETWEEN: Final = re.compile(r"[\n;]|,(?=\s*[^\s=:,;]+\s*[=:])")
_BOOLEANS: Final = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}


def value_fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of a form; a field without facts accepts any text."""
    return {name: get_object(facts) for name, facts in get_object(schema.get("properties")).items()}


def describe_field(name: str, schema: Mapping[str, Any]) -> str:
    """Return one line about a field of a form for the user who fills it in."""
    facts = value_fields(schema)[name]
    kind = " | ".join(_choices(facts)) or str(facts.get("format") or facts.get("type") or "text")
    default = f", default {facts['default']}" if "default" in facts else ""
    title = str(facts.get("description") or facts.get("title") or "")
    is_required = name in get_list(schema.get("required"))
    return f"{name}{'' if is_required else '?'}: {kind}{default}{f' · {title}' if title else ''}"


def describe_values(schema: Mapping[str, Any]) -> str:
    lines = [describe_field(name, schema) for name in value_fields(schema)]
    return "\n".join(["Values (write NAME=VALUE, or one JSON object):", *lines])


def read_values(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a user entered, converted to the types of the schema: a JSON object, NAME=VALUE separated
    by commas or lines, or the bare value of the only field. Raise ToolError if they are invalid."""
    fields = value_fields(schema)
    given = _split_values(text.strip(), list(fields))
    if unknown := [name for name in given if name not in fields]:
        raise ToolError(f"unknown: {', '.join(unknown)}; the values are: {', '.join(fields)}")
    found = {name: facts["default"] for name, facts in fields.items() if "default" in facts}
    found |= {name: _convert(value, fields[name].get("type")) for name, value in given.items()}
    for name, value in found.items():
        choices = _choices(fields[name])
        if choices and any(str(one) not in choices for one in get_list(value)):
            raise ToolError(f"{name} must be one of {', '.join(choices)}")
    return parse_input_schema(dict(schema)).check_arguments("the form", found)


def _choices(facts: Mapping[str, Any]) -> list[str]:
    """Return the values that a field allows; empty if it allows any."""
    inner = get_object(facts.get("items")) if facts.get("type") == "array" else facts
    options = [get_object(option) for option in get_list(inner.get("oneOf") or inner.get("anyOf"))]
    values = inner.get("enum") or [option["const"] for option in options if "const" in option]
    return [str(value) for value in get_list(values)]


def _split_values(text: str, names: Sequence[str]) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            return decode_json(text, dict[str, Any])
        except msgspec.DecodeError as error:
            raise ToolError(f"not a JSON object: {error}") from None
    parts = [part for part in _BETWEEN.split(text) if part.strip()]
    pairs = [_PAIR.fullmatch(part) for part in parts]
    if len(names) == 1 and text and not (len(parts) == 1 and pairs[0] and pairs[0][1] == names[0]):
        return {names[0]: text}
    if not all(pairs):
        raise ToolError("write NAME=VALUE for each value")
    return {pair[1]: pair[2].strip() for pair in pairs if pair is not None}


def _convert(value: Any, kind: Any) -> Any:
    """Return a value in the type of its field, if its text can be converted; the check of the form refuses the rest."""
    if not isinstance(value, str):
        return value
    try:
        match kind:
            case "boolean":
                return _BOOLEANS.get(value.lower(), value)
            case "integer":
                return int(value)
            case "number":
                return float(value)
            case "array":
                return [part.strip() for part in value.split(",") if part.strip()]
            case _:
                return value
    except ValueError:
        return value
