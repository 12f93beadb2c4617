"""The arguments of a server's tool. Models see one plain object, because a platform that refuses the schema of one
tool refuses every request. Arguments are checked by the server's schema, its alternatives included."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from loom.content.json_values import sanitize_json
from loom.errors import ToolError

MAX_NAME: Final = 64
MAX_SCHEMA_BYTES: Final = 64_000
ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_VALUES: Final = 5_000
_MAX_REFERENCES: Final = 16
_DROPPED: Final = ("$schema", "$id", "$defs", "definitions", "$ref", "$dynamicRef", "$dynamicAnchor", "$anchor")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas")
"""Below these keys, keys are names that the server chose, even if they look like keywords."""
_DATA: Final = ("default", "examples", "enum", "const")
"""Below these keys, nothing is a schema."""
_EITHER: Final = ("anyOf", "oneOf")
_NOT_AT_ROOT: Final = (
    *("allOf", *_EITHER, "not", "enum", "const", "if", "then", "else"),
    *("dependencies", "dependentRequired", "dependentSchemas", "propertyNames"),
)
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class InputSchema(msgspec.Struct, frozen=True, kw_only=True):
    told: dict[str, Any]
    """The schema for models."""
    schema: dict[str, Any]
    """The same with its alternatives, to check by."""

    def check_arguments(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments, with defaults of required ones. Raise `ToolError` if their names or types do not fit
        the schema; the server checks the rest."""
        found = dict(arguments)
        for key, facts in _properties(self.schema).items():  # required, and yet with a default: some servers mean it so
            if (
                key not in found
                and key in _required_names(self.schema)
                and isinstance(facts, dict)
                and "default" in facts
            ):
                found[key] = facts["default"]
        wrong = list(dict.fromkeys(_wrong(self.schema, found)))
        properties = _properties(self.told)
        if _is_closed(self.told):
            wrong += [f"{key} is not known" for key in found if key not in properties]
        if wrong:
            required = _required_names(self.told)
            expected = ", ".join(
                f"{key}{'' if key in required else '?'}: {' | '.join(_kinds(facts)) or 'value'}"
                for key, facts in properties.items()
            )
            raise ToolError(f"{tool} cannot take these arguments: {'; '.join(wrong[:10])}. Expected: ({expected})")
        return found


def form_of(schema: dict[str, Any]) -> InputSchema:
    """Convert a server's schema. Local references are inlined: some platforms do not resolve them. Recursive parts are
    cut off; a schema that is too large becomes a plain object. The server checks its input anyway."""
    plain = cast("dict[str, Any]", sanitize_json(schema))
    try:
        found = cast("dict[str, Any]", _inline(plain))
    except RecursionError:
        found = {}
    if len(msgspec.json.encode(found)) > MAX_SCHEMA_BYTES:
        found = {}
    return InputSchema(told={**_flat(found), "type": "object"}, schema=found)


def flatten_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is one plain object, as platforms require; unchanged if it already is."""
    if schema.get("type") == "object" and not schema.keys() & {*_NOT_AT_ROOT, "$ref"}:
        return schema
    return form_of(schema).told


# References ----------------------------------------------------------------------------------------------------------


def _inline(root: dict[str, Any]) -> Any:
    """Inline the targets of `#/$defs/…`. Other references are not resolved: nothing is fetched. Raise RecursionError if
    the schema becomes too large."""
    seen = itertools.count()

    def inline(value: Any, following: tuple[str, ...]) -> Any:
        if next(seen) > _MAX_VALUES:
            raise RecursionError
        if isinstance(value, list):
            return [inline(item, following) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, Any]", value)
        found = {key: inline_below(key, item, following) for key, item in table.items() if key not in _DROPPED}
        reference = table.get("$ref")
        if not isinstance(reference, str) or reference in following or len(following) > _MAX_REFERENCES:
            return found
        return _merge_schemas(found, inline(_target(root, reference), (*following, reference)))

    def inline_below(key: str, value: Any, following: tuple[str, ...]) -> Any:
        if key in _NAMED and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            return {name: inline(schema, following) for name, schema in named.items()}
        return value if key in _DATA else inline(value, following)

    return inline(root, ())


def _target(root: dict[str, Any], reference: str) -> dict[str, Any]:
    found: Any = root if reference.startswith("#/") else None
    for part in reference[2:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = dict(zip(map(str, itertools.count()), cast("list[Any]", found), strict=False))
        found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


# One object ----------------------------------------------------------------------------------------------------------


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """Return one object that accepts everything that the schema accepts: platforms accept no alternatives at the
    root."""
    found = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    found |= {"properties": _properties(schema)}
    if "required" in schema:
        found["required"] = _required_names(schema)
    for branch in _branches(schema, "allOf"):
        found = _merge_schemas(found, _flat(branch))
    for key in _EITHER:
        if options := [_flat(branch) for branch in _branches(schema, key)]:
            found = _merge_schemas(found, _either(options, found["properties"]))
    found["properties"] |= {name: {} for name in _required_names(found) if name not in found["properties"]}
    if not _required_names(found):
        found.pop("required", None)
    return found


def _either(options: list[dict[str, Any]], known: dict[str, Any]) -> dict[str, Any]:
    """Return the constraints that hold for every option. Constraints that only some options have for an argument do not
    apply to the others, so they are left out if the argument is in `known`."""
    said: dict[str, list[Any]] = {}
    for option in options:
        for name, facts in _properties(option).items():
            said.setdefault(name, []).append(facts)
    properties: dict[str, Any] = {}
    for name, facts in said.items():
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
    if mine and theirs:
        met = {name: _merge_schemas(facts, theirs.get(name, True)) for name, facts in mine.items()}
        found["properties"] = {**met, **{name: facts for name, facts in theirs.items() if name not in mine}}
    elif theirs:
        found["properties"] = theirs
    if required := [*_required_names(first), *_required_names(second)]:
        found["required"] = list(dict.fromkeys(required))
    if second.get("additionalProperties") is False:
        found["additionalProperties"] = False
    return found


def _branches(schema: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the branches that an object (arguments always are one) can match."""
    found: Any = schema.get(key)
    branches: list[dict[str, Any]] = []
    for branch in cast("list[Any]", found) if isinstance(found, list) else []:
        met: Any = {} if branch is True else branch
        if isinstance(met, dict) and "object" in (_kinds(met) or ["object"]):
            branches.append(cast("dict[str, Any]", met))
    return branches


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found: Any = schema.get("properties")
    named = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {name: facts if isinstance(facts, dict | bool) else {} for name, facts in named.items()}


def _required_names(schema: dict[str, Any]) -> list[str]:
    found: Any = schema.get("required")
    names = cast("list[Any]", found) if isinstance(found, list) else []
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _is_closed(schema: dict[str, Any]) -> bool:
    """Return whether the schema accepts only the arguments that it lists."""
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")


# Arguments -----------------------------------------------------------------------------------------------------------


def _wrong(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """Return the arguments that are missing or of a wrong type. At least one alternative must match; whether several do
    is not checked."""
    wrong = [f"{key} is missing" for key in _required_names(schema) if key not in arguments]
    for key, facts in _properties(schema).items():
        kinds = _kinds(facts)
        if key in arguments and kinds and not any(_is_kind(arguments[key], kind) for kind in kinds):
            wrong.append(f"{key} must be {' or '.join(kinds)}")
    for branch in _branches(schema, "allOf"):
        wrong += _wrong(branch, arguments)
    for either in _EITHER:
        options = [_wrong(branch, arguments) for branch in _branches(schema, either)]
        if options and all(options):
            wrong.append(", or ".join(dict.fromkeys(" and ".join(option) for option in options)))
    return wrong


def _kinds(facts: Any) -> list[str]:
    """Return the JSON types of a schema; empty if it has no simple type."""
    kind: Any = cast("dict[str, Any]", facts).get("type") if isinstance(facts, dict) else None
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    return kinds if all(isinstance(item, str) and item in _KINDS for item in kinds) else []


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and kind == "integer":
        return value.is_integer()
    return isinstance(value, _KINDS[kind])
