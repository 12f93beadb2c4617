"""Options that several protocols write alike: free fields, and the schema of an answer. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from loom.prompt import Prompt
from loom.sampling import merge_objects

_KEPT: Final = frozenset(("messages", "input", "contents", "model", "stream"))
"""What a free field cannot replace: the conversation, and what its answer is read by."""
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def with_extra(body: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Return the request with the user's own fields merged in, objects into objects."""
    extra = {key: value for key, value in prompt.sampling.extra_body.items() if key not in _KEPT}
    return merge_objects(body, extra) if extra else body


# Structured output -------------------------------------------------------------------------------------------------


def schema_name(prompt: Prompt) -> str:
    """Return a name of letters, digits, `_` and `-`, as the services that ask for one want it."""
    schema = prompt.sampling.output_schema
    return _NOT_A_NAME.sub("_", schema.name)[:64] if schema is not None and schema.name else "answer"


def has_native_schema(prompt: Prompt) -> bool:
    """Whether the schema has a field of its own in this request."""
    schema, model = prompt.sampling.output_schema, prompt.model
    return schema is not None and "output_schema" in model.options and (model.schema_with_tools or not prompt.tools)


def system_text(prompt: Prompt) -> str:
    """Return the system prompt, with the schema in words where the request has no field for it."""
    schema = prompt.sampling.output_schema
    if schema is None or (has_native_schema(prompt) and prompt.model.dialect.output_schema == "json_schema"):
        return prompt.system
    asked = (
        "Answer with one JSON value and nothing else. It must match this JSON Schema:\n"
        + msgspec.json.encode(schema.schema).decode()
    )
    return f"{prompt.system}\n\n{asked}" if prompt.system else asked


def is_strict(schema: dict[str, Any]) -> bool:
    """Whether a schema obeys the rules of strict decoding: closed objects, every property required."""
    return all(
        found.get("additionalProperties") is False
        and set(cast("dict[str, Any]", found.get("properties", {})))
        <= set(cast("list[str]", found.get("required", [])))
        for found in _objects(schema)
    )


def close_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with every object closed that does not say otherwise, as Anthropic demands it."""
    return cast("dict[str, Any]", _closed(schema))


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    copy = {key: _closed(item) for key, item in cast("dict[str, Any]", value).items()}
    if copy.get("type") == "object" and isinstance(copy.get("properties"), dict):
        copy.setdefault("additionalProperties", False)
    return copy


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in cast("list[Any]", value) for found in _objects(item)]
    if not isinstance(value, dict):
        return []
    schema = cast("dict[str, Any]", value)
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for item in schema.values() for found in _objects(item)]
