"""The answer of a gateway to a client of Anthropic Messages."""

from __future__ import annotations

from typing import Any, Final

from loom.content.blocks import Citation
from loom.content.json_values import get_object, parse_json
from loom.errors import LoomError
from loom.events import StopReason
from loom.models import Usage
from loom.wire.answer import AnswerWriter, WrittenBlock, sse
from loom.wire.answer_errors import anthropic_error, fault_of

_STOPS: Final[dict[StopReason, str]] = {
    "end": "end_turn",
    "tool_calls": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause": "pause_turn",
    "overflow": "model_context_window_exceeded",
    "other": "end_turn",
}


class MessagesWriter(AnswerWriter):
    OWNER = "anthropic"

    def start(self) -> bytes:
        message: dict[str, Any] = {
            **self._message(),
            "content": [],
            "stop_reason": None,
            "usage": _usage(self.head.usage),
        }
        return _event({"type": "message_start", "message": message})

    def begin_block(self, block: WrittenBlock) -> bytes:
        match block.kind:
            case "text":
                content: dict[str, Any] = {"type": "text", "text": ""}
            case "thinking" if block.is_redacted:
                content = {"type": "redacted_thinking", "data": self.sign(block.index, block.opaque)}
            case "thinking":
                content = {"type": "thinking", "thinking": "", "signature": ""}
            case "call":
                content = {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}
            case "raw":
                content = block.raw
        return _event({"type": "content_block_start", "index": block.place, "content_block": content})

    def add_text(self, block: WrittenBlock, text: str) -> bytes:
        match block.kind:
            case "text":
                return _delta(block, {"type": "text_delta", "text": text})
            case "thinking":
                return _delta(block, {"type": "thinking_delta", "thinking": text})
            case "call":
                return _delta(block, {"type": "input_json_delta", "partial_json": text})
            case "raw":
                return b""

    def add_citation(self, block: WrittenBlock, citation: Citation) -> bytes:
        data = _citation(citation)
        return _delta(block, {"type": "citations_delta", "citation": data}) if data is not None else b""

    def end_block(self, block: WrittenBlock) -> bytes:
        signed = b""
        if block.kind == "thinking" and not block.is_redacted:
            signed = _delta(block, {"type": "signature_delta", "signature": self.sign(block.index, block.opaque)})
        return signed + _event({"type": "content_block_stop", "index": block.place})

    def end(self) -> bytes:
        delta = {"stop_reason": _STOPS[self.stop], "stop_sequence": None}
        ended = _event({"type": "message_delta", "delta": delta, "usage": _usage(self.usage)})
        return ended + _event({"type": "message_stop"})

    def fail(self, error: LoomError) -> bytes:
        return _event(anthropic_error(fault_of(error)))

    def to_object(self) -> dict[str, Any]:
        content = [self._content(block) for block in self.blocks]
        return {**self._message(), "content": content, "stop_reason": _STOPS[self.stop], "usage": _usage(self.usage)}

    def _message(self) -> dict[str, Any]:
        return {
            "id": self.head.id,
            "type": "message",
            "role": "assistant",
            "model": self.head.model,
            "stop_sequence": None,
        }

    def _content(self, block: WrittenBlock) -> dict[str, Any]:
        match block.kind:
            case "text":
                citations = [data for found in block.citations if (data := _citation(found)) is not None]
                return {"type": "text", "text": block.text, "citations": citations or None}
            case "thinking" if block.is_redacted:
                return {"type": "redacted_thinking", "data": self.sign(block.index, block.opaque)}
            case "thinking":
                signature = self.sign(block.index, block.opaque)
                return {"type": "thinking", "thinking": block.text, "signature": signature}
            case "call":
                return {
                    "type": "tool_use",
                    "id": block.call_id,
                    "name": block.name,
                    "input": get_object(parse_json(block.text)),
                }
            case "raw":
                return block.raw


def _citation(citation: Citation) -> dict[str, Any] | None:
    """Return a citation in this protocol's format: its original data, or a link as a web search result; None for
    others."""
    if citation.opaque is not None and str(citation.opaque.data.get("type", "")).endswith("_location"):
        return citation.opaque.data
    if not citation.url:
        return None
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title or None,
        "encrypted_index": "",
        "cited_text": citation.quote,
    }


def _delta(block: WrittenBlock, delta: dict[str, Any]) -> bytes:
    return _event({"type": "content_block_delta", "index": block.place, "delta": delta})


def _event(data: dict[str, Any]) -> bytes:
    return sse(data, data["type"])


def _usage(usage: Usage) -> dict[str, Any]:
    fresh = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
