"""The options of a request: which of them a model's platform takes, and how the free ones are merged in. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from loom.models import Model
from loom.prompt import Prompt, Sampling

COMMON: Final = ("max_tokens", "temperature", "extra_body", "extra_headers")
"""Taken everywhere (a temperature where `Model.sampling` says so); the others are named in the catalogue."""
_WARMTH: Final = ("temperature", "top_p", "seed")
_KEPT: Final = frozenset(("messages", "input", "contents", "model", "stream"))
"""What a free field cannot replace: the conversation, and what its answer is read by."""
_DEFAULT: Final = Sampling()
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def unsupported_options(model: Model, sampling: Sampling) -> tuple[str, ...]:
    """Return the names of the fields of `sampling` that are set and that the model's platform does not take."""
    return tuple(
        name
        for name in Sampling.__struct_fields__
        if getattr(sampling, name) != getattr(_DEFAULT, name) and not _takes(model, sampling, name)
    )


def keep_supported(model: Model, sampling: Sampling) -> Sampling:
    """Return the same options without those that the platform does not take."""
    lacking = unsupported_options(model, sampling)
    if not lacking:
        return sampling
    return msgspec.structs.replace(sampling, **{name: getattr(_DEFAULT, name) for name in lacking})


def _takes(model: Model, sampling: Sampling, name: str) -> bool:
    if name in _WARMTH and not model.sampling:
        return False
    if name == "thinking":
        return model.thinking.request != "none"
    if name in ("tool_choice", "tool_name") and sampling.tool_choice == "any" and _is_never_forced(model, sampling):
        return False
    if name == "tool_name":
        return sampling.tool_choice == "any" and name in model.options
    if name == "output_schema":
        return True  # where there is no field for it, words ask for the JSON
    if name == "tool_choice" and sampling.tool_choice == "none":
        return True  # where there is no word for it, the tools are left out
    return name in COMMON or name in model.options or (f"{name}:sampling" in model.options and model.sampling)


def _is_never_forced(model: Model, sampling: Sampling) -> bool:
    thinks = model.thinking.request == "always" or sampling.thinking not in ("", "off")
    return model.thinking.refuses_forced_calls and thinks


def with_extra(body: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Return the request with the user's own fields merged in, objects into objects."""
    extra = {key: value for key, value in prompt.sampling.extra_body.items() if key not in _KEPT}
    return _merged(body, extra) if extra else body


def _merged(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    merged = dict(body)
    for key, value in extra.items():
        inside: Any = merged.get(key)
        both = isinstance(inside, dict) and isinstance(value, dict)
        merged[key] = _merged(cast("dict[str, Any]", inside), cast("dict[str, Any]", value)) if both else value
    return merged


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
