"""JSON Schemas that others wrote for the arguments of a tool: MCP servers and clients of the gateway. Models see one
plain object, because a platform that refuses the schema of one tool refuses every request. Arguments are checked by the
original schema, its alternatives included.

Only names and types of arguments are checked. A complete validator would refuse what servers accept, and would run
their regular expressions on the event loop.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from loom.content.json_values import get_list, get_object, parse_json, sanitize_json
from loom.errors import ToolError

MAX_SCHEMA_BYTES: Final = 64_000
_MAX_VALUES: Final = 5_000
_MAX_REFERENCES: Final = 16
_DROPPED: Final = ("$schema", "$id", "$defs", "definitions", "$ref", "$dynamicRef", "$dynamicAnchor", "$anchor")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas")
"""Below these keys, keys are names that the server chose, even if they look like keywords."""
_DATA: Final = ("default", "examples", "enum", "const")
"""Below these keys, nothing is a schema."""
_OPTIONS: Final = ("anyOf", "oneOf")
_NOT_AT_ROOT: Final = (
    *("allOf", *_OPTIONS, "not", "enum", "const", "if", "then", "else"),
    *("dependencies", "dependentRequired", "dependentSchemas", "propertyNames"),
)
_MAX_CHOICES: Final = 20
_MAX_DESCRIBED_DEPTH: Final = 3
_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")


class InputSchema(msgspec.Struct, frozen=True, kw_only=True):
    parameters: dict[str, Any]
    """The schema for models."""
    schema: dict[str, Any]
    """The same with its alternatives, to check by."""

    def check_arguments(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments, with defaults of required ones. Raise `ToolError` if their names or types do not fit
        the schema; the server checks the rest."""
        found = dict(arguments)
        properties = _properties(self.schema)
        for name in _required_names(self.schema):  # required, and yet with a default: some servers mean it so
            facts = get_object(properties.get(name))
            if name not in found and "default" in facts:
                found[name] = facts["default"]
        problems = list(dict.fromkeys(_problems(self.schema, found)))
        properties = _properties(self.parameters)
        if _is_closed(self.parameters):
            problems += [f"{name} is not known" for name in found if name not in properties]
        if problems:
            expected = describe_arguments(self.parameters)
            raise ToolError(
                f"{tool} does not accept these arguments: {'; '.join(problems[:10])}. Expected: ({expected})"
            )
        return found


def parse_input_schema(schema: dict[str, Any]) -> InputSchema:
    """Convert a server's schema. Local references are inlined: some platforms do not resolve them. Recursive parts are
    cut off; a schema that is too large becomes a plain object. The server checks its input anyway."""
    try:
        found = get_object(_inline(get_object(sanitize_json(schema))))
    except RecursionError:
        found = {}
    if len(msgspec.json.encode(found)) > MAX_SCHEMA_BYTES:
        found = {}
    return InputSchema(parameters={**_flatten(found), "type": "object"}, schema=found)


def flatten_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is one plain object, as platforms require; unchanged if it already is."""
    if schema.get("type") == "object" and not schema.keys() & {*_NOT_AT_ROOT, "$ref"}:
        return schema
    return parse_input_schema(schema).parameters


def describe_arguments(parameters: dict[str, Any], *, depth: int = 0) -> str:
    """Return the arguments and the values that they take, for a model that made a wrong call: `name: string, count?:
    integer | null`."""
    required = _required_names(parameters)
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_describe_value(facts, depth)}"
        for name, facts in _properties(parameters).items()
    )


def _describe_value(schema: Any, depth: int) -> str:
    facts = get_object(schema)
    choices = _list_at(facts, "enum")
    if 0 < len(choices) <= _MAX_CHOICES:
        return " | ".join(msgspec.json.encode(choice).decode() for choice in choices)
    types = _types(facts)
    if depth < _MAX_DESCRIBED_DEPTH:
        if options := [branch for key in _OPTIONS for branch in _list_at(facts, key)]:
            return " | ".join(dict.fromkeys(_describe_value(option, depth + 1) for option in options))
        if types == ["array"] and "items" in facts:
            return f"[{_describe_value(facts['items'], depth + 1)}]"
        if types == ["object"] and _properties(facts):
            return f"{{{describe_arguments(facts, depth=depth + 1)}}}"
    return " | ".join(types) or "value"


# References ----------------------------------------------------------------------------------------------------------


def _inline(root: dict[str, Any]) -> Any:
    """Inline the targets of `#/$defs/…`. Other references are not resolved: nothing is fetched. Raise RecursionError if
    the schema becomes too large."""
    seen = itertools.count()

    def inline(value: Any, following: tuple[str, ...], *, has_names: bool = False) -> Any:
        if next(seen) > _MAX_VALUES:
            raise RecursionError
        if isinstance(value, list):
            return [inline(item, following) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, Any]", value)
        if has_names:
            return {name: inline(schema, following) for name, schema in table.items()}
        found = {
            key: item if key in _DATA else inline(item, following, has_names=key in _NAMED)
            for key, item in table.items()
            if key not in _DROPPED
        }
        reference = table.get("$ref")
        if not isinstance(reference, str) or reference in following or len(following) > _MAX_REFERENCES:
            return found
        return _merge_schemas(found, inline(_target(root, reference), (*following, reference)))

    return inline(root, ())


def _target(root: dict[str, Any], reference: str) -> dict[str, Any]:
    found: Any = root if reference.startswith("#/") else None
    for part in reference[2:].split("/"):
        if isinstance(found, list):
            found = {str(at): item for at, item in enumerate(cast("list[Any]", found))}
        found = get_object(found).get(unquote(part).replace("~1", "/").replace("~0", "~"))
    return get_object(found)


# One object ----------------------------------------------------------------------------------------------------------


def _flatten(schema: dict[str, Any]) -> dict[str, Any]:
    """Return one object that accepts everything that the schema accepts: platforms accept no alternatives at the
    root."""
    found = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    found |= {"properties": _properties(schema)}
    if "required" in schema:
        found["required"] = _required_names(schema)
    for branch in _branches(schema, "allOf"):
        found = _merge_schemas(found, _flatten(branch))
    for key in _OPTIONS:
        if options := [_flatten(branch) for branch in _branches(schema, key)]:
            found = _merge_schemas(found, _merge_options(options, found["properties"]))
    found["properties"] |= {name: {} for name in _required_names(found) if name not in found["properties"]}
    if not _required_names(found):
        found.pop("required", None)
    return found


def _merge_options(options: list[dict[str, Any]], known: dict[str, Any]) -> dict[str, Any]:
    """Return the constraints that hold for every option. Constraints that only some options have for an argument do not
    apply to the others, so they are left out if the argument is in `known`."""
    stated: dict[str, list[Any]] = {}
    for option in options:
        for name, facts in _properties(option).items():
            stated.setdefault(name, []).append(facts)
    properties: dict[str, Any] = {}
    for name, facts in stated.items():
        if name not in known or len(facts) == len(options):
            distinct = [fact for at, fact in enumerate(facts) if fact not in facts[:at]]
            properties[name] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    first, *others = (_required_names(option) for option in options)
    found = {"properties": properties, "required": [name for name in first if all(name in other for other in others)]}
    return found | {"additionalProperties": False} if all(map(_is_closed, options)) else found


def _merge_schemas(one: Any, other: Any) -> Any:
    """Return a schema with the constraints of both; `one` wins where they differ. No name is lost."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return cast("Any", other if one is True else one)
    first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
    found = {**second, **first}
    mine, theirs = _properties(first), _properties(second)
    if names := {**mine, **theirs}:
        found["properties"] = {name: _merge_schemas(mine.get(name, True), theirs.get(name, True)) for name in names}
    if required := [*_required_names(first), *_required_names(second)]:
        found["required"] = list(dict.fromkeys(required))
    if second.get("additionalProperties") is False:
        found["additionalProperties"] = False
    return found


def _branches(schema: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the branches that an object (arguments always are one) can match."""
    branches: list[Any] = [{} if branch is True else branch for branch in _list_at(schema, key)]
    return [branch for branch in branches if isinstance(branch, dict) and "object" in (_types(branch) or ["object"])]


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    named = get_object(schema.get("properties"))
    return {name: facts if isinstance(facts, dict | bool) else {} for name, facts in named.items()}


def _required_names(schema: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for name in _list_at(schema, "required") if isinstance(name, str)))


def _list_at(schema: dict[str, Any], key: str) -> list[Any]:
    found: Any = schema.get(key)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _is_closed(schema: dict[str, Any]) -> bool:
    """Return whether the schema accepts only the arguments that it lists."""
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")


# Arguments -----------------------------------------------------------------------------------------------------------


def repair_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without two common mistakes of models: null for an optional argument that does not accept
    it, and text instead of another JSON value."""
    properties, required = _properties(schema), _required_names(schema)
    return {
        name: _repair_value(properties.get(name), value)
        for name, value in arguments.items()
        if value is not None or name in required or "null" in (_types(properties.get(name)) or ["null"])
    }


def _repair_value(schema: Any, value: Any) -> Any:
    if not (facts := get_object(schema)):
        return value
    types = _types(facts)
    if isinstance(value, str) and types and "string" not in types:
        found: Any = parse_json(value)
        value = found if found is not None and _has_type(found, types) else value
    if isinstance(value, list):
        return [_repair_value(facts.get("items"), item) for item in cast("list[Any]", value)]
    return repair_arguments(facts, cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def _problems(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """Return the arguments that are missing or of a wrong type. At least one alternative must match; whether several do
    is not checked."""
    problems = [f"{name} is missing" for name in _required_names(schema) if name not in arguments]
    for name, facts in _properties(schema).items():
        types = _types(facts)
        if name in arguments and types and not _has_type(arguments[name], types):
            problems.append(f"{name} must be {' or '.join(types)}")
    for branch in _branches(schema, "allOf"):
        problems += _problems(branch, arguments)
    for key in _OPTIONS:
        options = [_problems(branch, arguments) for branch in _branches(schema, key)]
        if options and all(options):
            problems.append(", or ".join(dict.fromkeys(" and ".join(option) for option in options)))
    return problems


def _has_type(value: Any, types: list[str]) -> bool:
    from jsonschema import Draft202012Validator

    return any(Draft202012Validator.TYPE_CHECKER.is_type(value, kind) for kind in types)


def _types(facts: Any) -> list[str]:
    """Return the JSON types of a schema; empty if it has no simple type."""
    types = get_list(get_object(facts).get("type"))
    return types if all(item in _TYPES for item in types) else []
