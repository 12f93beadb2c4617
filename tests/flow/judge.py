"""Would the platform take this request? The SDK's types and the platform's rules, asked of what an encoder wrote."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from loom.compile.prepare import Prepared
from loom.models import Model
from loom.prompt import Prompt
from loom.wire.table import WIRES
from wire.rules import body_bytes, check, plain
from wire.sdk_types import (
    Mismatch,
    check_anthropic,
    check_converse,
    check_gemini,
    check_mistral,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)

_LISTS = {
    "anthropic": "messages",
    "bedrock_anthropic": "messages",
    "bedrock_converse": "messages",
    "gemini": "contents",
    "ollama": "messages",
    "openai_chat": "messages",
    "openai_responses": "input",
}
_FREE = frozenset(
    (
        "text",
        "thinking",
        "arguments",
        "title",
        "filename",
        "output",
        "content",
        "signature",
        "data",
        "encrypted_content",
    )
)
_FREE_IDS = frozenset(
    ("id", "call_id", "tool_call_id", "tool_use_id", "name", "tool_name", "reasoning_content", "reasoning")
)
_known_shapes: set[str] = set()


def encode(prompt: Prompt) -> dict[str, Any]:
    return WIRES[prompt.model.wire].encode(prompt)


def problems(prepared: Prepared) -> list[str]:
    """Everything that is wrong with a prepared prompt and the request that is made of it."""
    prompt, receipt = prepared.prompt, prepared.receipt
    request = encode(prompt)
    found = [*check(prompt.model.provider, prompt.model.name, request), *shape_problems(prompt.model, request)]
    if _has_own_neighbours(prompt):
        found = [problem for problem in found if problem != "two messages of one role are neighbours"]
    if not all(ref.exact for ref in prompt.media()):
        found.append("a size is still a guess")
    size = body_bytes(request)
    if size > receipt.totals.wire_bytes:
        found.append(f"the receipt says {receipt.totals.wire_bytes} bytes, the body has {size}")
    return found


def _has_own_neighbours(prompt: Prompt) -> bool:
    """Anthropic combines neighbours of one role. Compiled messages are never such; those that go back as they came may
    be, with each other and with a repaired one."""
    return any(
        (one.role == "assistant") == (other.role == "assistant") and (one.form is not None or other.form is not None)
        for one, other in pairwise(prompt.messages)
    )


def shape_problems(model: Model, request: dict[str, Any]) -> list[str]:
    """The types of a request do not depend on the words in it: every shape of a message is walked once."""
    key = _LISTS[model.wire]
    body = _with_model(plain(request), model)
    new: list[Any] = []
    shapes: list[str] = []
    for message in body[key]:
        shape = f"{model.provider} {json.dumps(_shape(message))}"
        if shape not in _known_shapes:
            new.append(message)
            shapes.append(shape)
    rest = {name: value for name, value in body.items() if name != key}
    frame = f"{model.provider} {json.dumps(_shape(rest))}"
    if not new and frame in _known_shapes:
        return []
    try:
        _walk(model, rest | {key: new})
    except Mismatch as mismatch:
        return [f"the SDK's type: {mismatch}"]
    _known_shapes.update((*shapes, frame))
    return []


def _with_model(body: dict[str, Any], model: Model) -> dict[str, Any]:
    """Bedrock's body is Anthropic's without the model and the stream, which its address says."""
    if model.provider != "bedrock-anthropic":
        return body
    return {name: value for name, value in body.items() if name != "anthropic_version"} | {
        "model": model.name,
        "stream": True,
    }


def _walk(model: Model, body: dict[str, Any]) -> None:
    match model.wire:
        case "anthropic" | "bedrock_anthropic":
            return check_anthropic(body)
        case "bedrock_converse":
            return check_converse(body)
        case "openai_responses":
            return check_openai_responses(body)
        case "gemini":
            return check_gemini(body)
        case "ollama":
            return check_ollama(body)
        case _:
            return _walk_chat(model, body)


def _walk_chat(model: Model, body: dict[str, Any]) -> None:
    if model.provider == "mistral":
        return check_mistral(body)
    beyond = () if model.provider == "openai-chat" else ("reasoning_content", "reasoning", "thinking")
    return check_openai_chat(body, beyond=beyond)


def _shape(value: Any, key: str = "") -> Any:
    match value:
        case str() if key in _FREE or key in _FREE_IDS:
            return "…"
        case dict() if key in ("input", "args", "response"):
            return "{}"
        case dict() if key == "arguments":
            return "{}"
        case dict():
            return {name: _shape(item, name) for name, item in value.items()}
        case list():
            shapes = [_shape(item, key) for item in value]
            return [shape for at, shape in enumerate(shapes) if at == 0 or shape != shapes[at - 1]]
        case _:
            return value
