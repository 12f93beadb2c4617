"""Names of a tool's arguments in the form that platforms accept. A model is shown legal names, and its calls come back
with the tool's own.

Platforms check the names at the top level of a schema only; the names inside its properties stay.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast, final

import msgspec

from loom.content.json_values import get_object
from loom.models import Model
from loom.struct_types import decode_json

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_CHARS: Final = 64
_CODE_CHARS: Final = 8
_ALTERNATIVES: Final = ("allOf", "anyOf", "oneOf")
_SAME_OBJECT: Final = (*_ALTERNATIVES, "required", "not", "if", "then", "else")
"""Keywords whose names are those of the object itself."""
_BY_NAME: Final = ("dependentRequired", "dependentSchemas", "dependencies")


def legal_properties(schema: Mapping[str, Any], model: Model) -> dict[str, str]:
    """Return a legal name for each argument whose own name the platform refuses. The result does not depend on the
    order of the names, and no two arguments share one."""
    if not model.property_names:
        return {}
    pattern = re.compile(model.property_names)
    names = set(_top_names(schema))
    refused = sorted(name for name in names if not pattern.fullmatch(name))
    used = names.difference(refused)
    found: dict[str, str] = {}
    for name in refused:
        plain = _ILLEGAL.sub("_", name).strip("_")[:_MAX_CHARS] or "value"
        legal, seed = plain, name
        while legal in used:
            seed = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:_CODE_CHARS]
            legal = f"{plain[: _MAX_CHARS - _CODE_CHARS - 1]}_{seed}"
        used.add(legal)
        found[name] = legal
    return found


def _top_names(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments that a schema names, those of its alternatives included."""
    todo: list[Any] = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, Mapping):
            continue
        found = cast("Mapping[str, Any]", part)
        yield from cast("Iterable[str]", get_object(found.get("properties")))
        for key in _ALTERNATIVES:
            branches = found.get(key)
            todo += cast("list[Any]", branches) if isinstance(branches, list) else ()


def rename_properties(schema: dict[str, Any], legal: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema with the arguments of `legal` under their legal names."""
    found = dict(schema)
    for key, value in schema.items():
        if key == "properties":
            found[key] = rename_keys(get_object(value), legal)
        elif key in _BY_NAME:
            below = {name: _rename_below(item, legal) for name, item in get_object(value).items()}
            found[key] = rename_keys(below, legal)
        elif key in _SAME_OBJECT:
            found[key] = _rename_below(value, legal)
    return found


def _rename_below(value: Any, legal: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_rename_below(item, legal) for item in cast("list[Any]", value)]
    if isinstance(value, str):
        return legal.get(value, value)
    return rename_properties(cast("dict[str, Any]", value), legal) if isinstance(value, dict) else value


def rename_keys(arguments: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the object with some of its keys replaced, in the same order. No value is lost: a key that would repeat
    another one gets `_` at its end."""
    taken = {names[key] for key in arguments if key in names}
    found: dict[str, Any] = {}
    for key, value in arguments.items():
        name = names.get(key, key)
        while name in found or (key not in names and name in taken):
            name += "_"
        found[name] = value
    return found


@final
class KeyRenamer:
    """Replaces keys at the top level of a JSON object while its text arrives. Everything else, also text that is not
    JSON, passes unchanged."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._depth = 0
        self._is_object = False
        self._is_key_next = False
        self._is_in_string = False
        self._is_escaped = False
        self._held: list[str] = []
        """The text of a key that is not complete."""

    def add(self, text: str) -> str:
        """Return the text with its keys replaced; the start of a key is held until its end arrives."""
        return "".join(self._pass(char) for char in text)

    def finish(self) -> str:
        """Return the text that is still held."""
        held, self._held = "".join(self._held), []
        return held

    def _pass(self, char: str) -> str:
        if self._is_in_string:
            return self._pass_string(char)
        match char:
            case '"':
                self._is_in_string = True
                if self._is_key_next:
                    self._held = [char]
                    self._is_key_next = False
                    return ""
            case "{" | "[":
                if not self._depth:
                    self._is_object = char == "{"
                self._depth += 1
                self._is_key_next = self._is_object and self._depth == 1
            case "}" | "]":
                self._depth -= 1
                self._is_key_next = False
            case ",":
                self._is_key_next = self._is_object and self._depth == 1
            case _:
                pass
        return char

    def _pass_string(self, char: str) -> str:
        is_end = char == '"' and not self._is_escaped
        self._is_escaped = char == "\\" and not self._is_escaped
        self._is_in_string = not is_end
        if not self._held:
            return char
        self._held.append(char)
        return self._model_key(self.finish()) if is_end else ""

    def _model_key(self, key: str) -> str:
        try:
            own = self._names.get(decode_json(key, str))
        except msgspec.DecodeError:
            return key
        return key if own is None else msgspec.json.encode(own).decode()
