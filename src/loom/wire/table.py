"""All wires by name. The type checker reports a module here that does not satisfy `Wire`."""

from __future__ import annotations

from typing import Final

from loom.models import Model, WireName
from loom.wire import anthropic, bedrock_anthropic, bedrock_converse, gemini, ollama, openai_chat, openai_responses
from loom.wire.protocol import Wire

WIRES: Final[dict[WireName, Wire]] = {
    "anthropic": anthropic,
    "bedrock_anthropic": bedrock_anthropic,
    "bedrock_converse": bedrock_converse,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "gemini": gemini,
    "ollama": ollama,
}


def wire_of(model: Model) -> Wire:
    """Return the protocol of a model. Raise `KeyError` for the built-in model, which has none."""
    return WIRES[model.wire]
