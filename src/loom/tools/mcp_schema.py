"""A server's tools as models are told of them: legal names, schemas without references, and a fingerprint that changes
with anything that a user or a model was told."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from loom.content.blocks import clean_text
from loom.content.legacy.values import safe
from loom.errors import ToolError
from loom.prompt import ToolSpec

if TYPE_CHECKING:
    from mcp_types import Tool

MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 4_000
MAX_SCHEMA_BYTES: Final = 64_000
_MAX_VALUES: Final = 5_000
_MAX_REFERENCES: Final = 16
_DROPPED: Final = ("$schema", "$id", "$defs", "definitions")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def tool_name(server: str, tool: str, taken: Container[str]) -> str:
    """`server__tool` in the characters that every platform takes; a hash keeps long and colliding ones apart."""
    plain = f"{_ILLEGAL.sub('_', server)}__{_ILLEGAL.sub('_', tool)}"
    plain = plain if plain[0].isalpha() else f"m{plain}"
    if len(plain) <= MAX_NAME and plain not in taken:
        return plain
    mark = hashlib.sha256(f"{server}\0{tool}".encode(errors="replace")).hexdigest()[:8]
    return f"{plain[: MAX_NAME - 9]}_{mark}"


def tool_spec(name: str, tool: Tool) -> ToolSpec:
    description = clean_text(tool.description or tool.title or "")
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"
    return ToolSpec(name=name, description=description, parameters=parameters(tool.input_schema))


def parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as given, with local references put in place: some platforms follow none. What refers to itself is
    cut where it repeats; one that is too large says only that it takes an object. The server checks its input anyway.
    """
    plain = cast("dict[str, Any]", safe(schema))
    try:
        found = cast("dict[str, Any]", _Inlining(plain).inlined(plain))
    except _TooLarge:
        found = {}
    if len(msgspec.json.encode(found)) > MAX_SCHEMA_BYTES:
        found = {}
    properties: Any = found.get("properties")
    return {**found, "type": "object", "properties": properties if isinstance(properties, dict) else {}}


class _TooLarge(Exception):
    """A schema that grows beyond use when its references are followed."""


class _Inlining:
    """Puts what `#/$defs/…` names in its place. Other references are not followed: nothing is fetched."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._values = 0

    def inlined(self, value: Any, following: tuple[str, ...] = ()) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise _TooLarge
        match value:
            case {"$ref": str() as reference, **beside}:
                if reference in following or len(following) > _MAX_REFERENCES:
                    return beside
                target = self._target(reference)
                return {**self.inlined(target, (*following, reference)), **beside}
            case dict():
                table = cast("dict[str, Any]", value)
                return {key: self._below(key, item, following) for key, item in table.items() if key not in _DROPPED}
            case list():
                return [self.inlined(item, following) for item in cast("list[Any]", value)]
            case _:
                return value

    def _below(self, key: str, value: Any, following: tuple[str, ...]) -> Any:
        if key != "properties" or not isinstance(value, dict):
            return self.inlined(value, following)
        named = cast("dict[str, Any]", value)  # here the keys are names that the server chose, whatever they look like
        return {name: self.inlined(schema, following) for name, schema in named.items()}

    def _target(self, reference: str) -> dict[str, Any]:
        if not reference.startswith("#/"):
            return {}
        found: Any = self._root
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def checked(name: str, parameters: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, if their names and kinds are what the schema says; the rest is the server's to judge."""
    properties = cast("dict[str, Any]", parameters.get("properties", {}))
    required = cast("list[Any]", found) if isinstance(found := parameters.get("required"), list) else []
    wrong = [f"{key} is missing" for key in required if key not in arguments]
    if parameters.get("additionalProperties") is False:
        wrong += [f"{key} is not known" for key in arguments if key not in properties]
    for key, value in arguments.items():
        kinds = _kinds(properties.get(key))
        if kinds and not any(_is_kind(value, kind) for kind in kinds):
            wrong.append(f"{key} must be {' or '.join(kinds)}")
    if wrong:
        expected = ", ".join(
            f"{key}{'' if key in required else '?'}: {' | '.join(_kinds(facts)) or 'value'}"
            for key, facts in properties.items()
        )
        raise ToolError(f"{name} cannot take these arguments: {'; '.join(wrong[:10])}. Expected: ({expected})")
    return arguments


def _kinds(facts: Any) -> list[str]:
    """The JSON types that a property names; empty where it says nothing simple."""
    kind: Any = cast("dict[str, Any]", facts).get("type") if isinstance(facts, dict) else None
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    return kinds if all(isinstance(item, str) and item in _KINDS for item in kinds) else []


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and kind == "integer":
        return value.is_integer()
    return isinstance(value, _KINDS[kind])


def fingerprint(tool: Tool) -> str:
    """Of all that a user approves: the name, the words, the parameters, the promises."""
    told = tool.model_dump(mode="json", include={"name", "title", "description", "input_schema", "annotations"})
    return hashlib.sha256(msgspec.json.encode(safe(told), order="sorted")).hexdigest()
