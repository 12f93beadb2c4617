"""Options that several protocols share: additional fields, and the schema of an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from loom.content.wire_forms import BodyForm
from loom.models import Model
from loom.prompt import Prompt
from loom.sampling import merge_objects, unsupported_options

_KEPT: Final = frozenset(("messages", "input", "contents", "model", "stream"))
"""Fields that `extra_body` cannot replace: the conversation, and those that the decoder relies on."""
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def with_extra(body: dict[str, Any], prompt: Prompt, *, required: Sequence[str] = ()) -> dict[str, Any]:
    """Return the request with the fields of `extra_body` merged in, objects into objects.

    A request that came in this protocol keeps its own fields instead of Loom's; `required` names fields of Loom's that
    are added if it lacks them.
    """
    if prompt.body is not None:
        body = _as_it_came(body, prompt.body, prompt, required)
    own = prompt.body.fields if prompt.body is not None else {}
    extra = {key: value for key, value in prompt.sampling.extra_body.items() if key not in _KEPT and key not in own}
    return merge_objects(body, extra) if extra else body


# Requests that came in the provider's own protocol -----------------------------------------------------------------

_SAMPLED: Final = ("temperature", "top_p", "top_k", "topK", "topP", "seed", "logprobs", "logit_bias")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "temperature": _SAMPLED,
    "top_p": _SAMPLED,
    "seed": ("seed",),
    "stop": ("stop", "stop_sequences"),
    "thinking": ("thinking", "reasoning_effort", "reasoning", "output_config"),
    "tool_choice": ("tool_choice", "toolConfig"),
    "tool_name": ("tool_choice", "toolConfig"),
    "parallel_calls": ("parallel_tool_calls", "tool_choice"),
    "service_tier": ("service_tier", "serviceTier"),
    "user": ("metadata", "user", "safety_identifier"),
    "cache_key": ("prompt_cache_key",),
}
"""The request fields that each option may be in."""
_SYSTEM: Final = ("system", "instructions", "systemInstruction", "system_instruction")


def is_system_own(prompt: Prompt) -> bool:
    """Return whether the system prompt can be sent in its original form, because nothing was added to it."""
    return system_text(prompt) == prompt.system


def _as_it_came(body: dict[str, Any], form: BodyForm, prompt: Prompt, required: Sequence[str]) -> dict[str, Any]:
    """Return the body with the original fields. Fields that the model would refuse are replaced by Loom's or left
    out."""
    repaired = _repaired_fields(form, prompt)
    kept = {key: value for key, value in body.items() if key in _KEPT or key in repaired}
    kept |= {key: body[key] for key in required if key in body and key not in form.fields}
    own = {key: value for key, value in form.fields.items() if key not in repaired}
    if prompt.property_names and isinstance(own.get("tools"), list):
        own["tools"] = [_with_legal_properties(tool, prompt) for tool in own["tools"]]
    if "stream_options" in own and "stream_options" in body:
        own["stream_options"] = {**own["stream_options"], **body["stream_options"]}
    merged = {**own, **kept}
    return {**{name: merged[name] for name in form.names if name in merged}, **merged}


def _with_legal_properties(tool: Any, prompt: Prompt) -> Any:
    """Return a tool in Anthropic's form with legal names of its arguments; of the platforms whose requests are passed
    through, only Anthropic refuses others."""
    fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
    spec = next((spec for spec in prompt.tools if spec.name == fields.get("name")), None)
    if spec is None or spec.name not in prompt.property_names or "input_schema" not in fields:
        return cast("Any", tool)
    repaired = {**fields, "input_schema": spec.parameters}
    if isinstance(examples := fields.get("input_examples"), list):
        legal = {own: name for name, own in prompt.property_names[spec.name].items()}
        repaired["input_examples"] = [
            {legal.get(key, key): value for key, value in cast("dict[str, Any]", one).items()}
            for one in cast("list[Any]", examples)
            if isinstance(one, dict)
        ]
    return repaired


def _repaired_fields(form: BodyForm, prompt: Prompt) -> frozenset[str]:
    model, fields = prompt.model, form.fields
    repaired: set[str] = set()
    for name in unsupported_options(model, prompt.sampling):
        repaired.update(_FIELDS.get(name, ()))
    if not model.sampling:
        repaired.update(_SAMPLED)
    if not model.capabilities.tools:
        repaired.update(("tools", "tool_choice", "toolConfig"))
    if not is_system_own(prompt) or not _is_legal_system(form, model):
        repaired.update(_SYSTEM)
    most = fields.get("max_tokens", fields.get("max_completion_tokens", fields.get("max_output_tokens")))
    if isinstance(most, int) and most > model.limits.max_output_tokens:
        repaired.update(("max_tokens", "max_completion_tokens", "max_output_tokens"))
    if not _is_legal_thinking(fields.get("thinking"), model):
        repaired.update(("thinking", "output_config"))
    return frozenset(repaired)


def _is_legal_system(form: BodyForm, model: Model) -> bool:
    """Return whether the model accepts the original system prompt. Anthropic accepts a text or non-empty text blocks,
    and no system prompt in the list of messages."""
    if model.wire != "anthropic":
        return True
    system = form.fields.get("system", "")
    blocks = cast("list[Any]", system) if isinstance(system, list) else []
    return not form.head and isinstance(system, str | list) and all(map(_is_text_block, blocks))


def _is_text_block(block: Any) -> bool:
    fields = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
    text = fields.get("text")
    return fields.get("type") == "text" and isinstance(text, str) and bool(text.strip())


def _is_legal_thinking(thinking: Any, model: Model) -> bool:
    """Return whether the model accepts this `thinking` field. Claude families accept either a budget or adaptive
    thinking, and some cannot disable it."""
    if not isinstance(thinking, dict) or model.wire != "anthropic":
        return True
    match cast("dict[str, Any]", thinking).get("type"):
        case "enabled":
            return model.thinking.request == "budget"
        case "adaptive":
            return model.thinking.request in ("adaptive", "always")
        case "disabled":
            return "off" in model.thinking.levels and model.thinking.request != "always"
        case _:
            return True


# Structured output -------------------------------------------------------------------------------------------------


def schema_name(prompt: Prompt) -> str:
    """Return a name for the schema from letters, digits, `_` and `-`, which some services require."""
    schema = prompt.sampling.output_schema
    return _NOT_A_NAME.sub("_", schema.name)[:64] if schema is not None and schema.name else "answer"


def has_native_schema(prompt: Prompt) -> bool:
    """Return whether the request has a field for the schema."""
    schema, model = prompt.sampling.output_schema, prompt.model
    return schema is not None and "output_schema" in model.options and (model.schema_with_tools or not prompt.tools)


def system_text(prompt: Prompt) -> str:
    """Return the system prompt, with the schema as text if the request has no field for it."""
    schema = prompt.sampling.output_schema
    if schema is None or (has_native_schema(prompt) and prompt.model.dialect.output_schema == "json_schema"):
        return prompt.system
    asked = (
        "Answer with one JSON value and nothing else. It must match this JSON Schema:\n"
        + msgspec.json.encode(schema.schema).decode()
    )
    return f"{prompt.system}\n\n{asked}" if prompt.system else asked


def is_strict(schema: dict[str, Any]) -> bool:
    """Return whether a schema follows the rules of strict decoding: closed objects, every property required."""
    return all(
        found.get("additionalProperties") is False
        and set(cast("dict[str, Any]", found.get("properties", {})))
        <= set(cast("list[str]", found.get("required", [])))
        for found in _objects(schema)
    )


def close_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with `additionalProperties: false` on every object that does not set it, as Anthropic
    requires."""
    return cast("dict[str, Any]", _close_objects(schema))


def _close_objects(value: Any) -> Any:
    if isinstance(value, list):
        return [_close_objects(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    copy = {key: _close_objects(item) for key, item in cast("dict[str, Any]", value).items()}
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
