"""The answer of a gateway to a client of OpenAI Chat Completions."""

from __future__ import annotations

from typing import Any, Final

from loom.content.blocks import Citation
from loom.errors import LoomError
from loom.events import StopReason
from loom.models import Usage
from loom.wire.answer import AnswerHead, AnswerWriter, SignThinking, WrittenBlock, sse
from loom.wire.answer_errors import fault_of, openai_error

_STOPS: Final[dict[StopReason, str]] = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "refusal": "content_filter",
    "pause": "stop",
    "overflow": "length",
    "other": "stop",
}


class ChatWriter(AnswerWriter):
    """Thinking is written to `reasoning_content`, the field that most servers and clients of this protocol use."""

    def __init__(self, head: AnswerHead, sign: SignThinking, *, includes_usage: bool = False) -> None:
        super().__init__(head, sign)
        self._includes_usage = includes_usage
        self._calls: dict[int, int] = {}

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def begin_block(self, block: WrittenBlock) -> bytes:
        if block.kind != "call":
            return b""
        self._calls[block.index] = len(self._calls)
        function = {"name": block.name, "arguments": ""}
        return self._call(block, {"id": block.call_id, "type": "function", "function": function})

    def add_text(self, block: WrittenBlock, text: str) -> bytes:
        match block.kind:
            case "text":
                return self._chunk({"content": text})
            case "thinking":
                return self._chunk({"reasoning_content": text})
            case "call":
                return self._call(block, {"function": {"arguments": text}})
            case "raw":
                return b""

    def add_citation(self, block: WrittenBlock, citation: Citation) -> bytes:
        return self._chunk({"annotations": [_annotation(citation)]}) if citation.url else b""

    def end_block(self, block: WrittenBlock) -> bytes:
        return b""

    def end(self) -> bytes:
        ended = self._chunk({}, _STOPS[self.stop])
        if self._includes_usage:
            ended += sse({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(self.usage)})
        return ended + b"data: [DONE]\n\n"

    def fail(self, error: LoomError) -> bytes:
        return sse(openai_error(fault_of(error)))

    def to_object(self) -> dict[str, Any]:
        text = "".join(block.text for block in self.blocks if block.kind == "text")
        thoughts = "\n\n".join(block.text for block in self.blocks if block.kind == "thinking" and block.text)
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        if thoughts:
            message["reasoning_content"] = thoughts
        calls = [
            {"id": block.call_id, "type": "function", "function": {"name": block.name, "arguments": block.text or "{}"}}
            for block in self.blocks
            if block.kind == "call"
        ]
        if calls:
            message["tool_calls"] = calls
        annotations = [_annotation(found) for block in self.blocks for found in block.citations if found.url]
        if annotations:
            message["annotations"] = annotations
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[self.stop]}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(self.usage)}

    def _call(self, block: WrittenBlock, call: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls[block.index], **call}]})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return sse({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.head.id, "object": kind, "created": self.head.created_at, "model": self.head.model}


def _annotation(citation: Citation) -> dict[str, Any]:
    cited = {
        "url": citation.url,
        "title": citation.title,
        "start_index": citation.start or 0,
        "end_index": citation.end or 0,
    }
    return {"type": "url_citation", "url_citation": cited}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
    }
