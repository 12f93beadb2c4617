"""The answer of a gateway to a client of OpenAI Responses.

Every block of the answer is an output item. Clients read `response.output_item.done` and `response.completed`; the
deltas before them are only for live display.
"""

from __future__ import annotations

from typing import Any, Final

from loom.errors import LoomError
from loom.events import StopReason
from loom.wire.answer import AnswerHead, AnswerWriter, SignThinking, WrittenBlock, freeform_input, sse
from loom.wire.answer_errors import fault_of

_INCOMPLETE: Final[dict[StopReason, str]] = {
    "max_tokens": "max_output_tokens",
    "overflow": "max_output_tokens",
    "refusal": "content_filter",
}


class ResponsesWriter(AnswerWriter):
    """`echo` are the fields of the request that a response repeats (`instructions`, `tools`, `metadata` …)."""

    OWNER = "openai"

    def __init__(self, head: AnswerHead, sign: SignThinking, *, echo: dict[str, Any] | None = None) -> None:
        super().__init__(head, sign)
        self._echo = echo or {}
        self._number = 0

    def start(self) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", {"response": response}) + self._event(
            "response.in_progress", {"response": response}
        )

    def begin_block(self, block: WrittenBlock) -> bytes:
        item = self._item(block, is_done=False)
        added = self._event("response.output_item.added", {"output_index": block.place, "item": item})
        match block.kind:
            case "text":
                part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
                return added + self._event(
                    "response.content_part.added", {**self._place(block), "content_index": 0, "part": part}
                )
            case "thinking" if not block.is_redacted:
                part = {"type": "summary_text", "text": ""}
                return added + self._event(
                    "response.reasoning_summary_part.added", {**self._place(block), "summary_index": 0, "part": part}
                )
            case _:
                return added

    def add_text(self, block: WrittenBlock, text: str) -> bytes:
        match block.kind:
            case "text":
                delta: dict[str, Any] = {**self._place(block), "content_index": 0, "delta": text, "logprobs": []}
                return self._event("response.output_text.delta", delta)
            case "thinking":
                delta = {**self._place(block), "summary_index": 0, "delta": text}
                return self._event("response.reasoning_summary_text.delta", delta)
            case "call" if self._is_freeform(block):
                return b""  # the JSON around the text is not part of it: the text comes at once
            case "call":
                return self._event("response.function_call_arguments.delta", {**self._place(block), "delta": text})
            case "raw":
                return b""

    def end_block(self, block: WrittenBlock) -> bytes:
        return b"".join(self._ends(block)) + self._event(
            "response.output_item.done", {"output_index": block.place, "item": self._item(block, is_done=True)}
        )

    def _ends(self, block: WrittenBlock) -> list[bytes]:
        place = self._place(block)
        match block.kind:
            case "text":
                part = _text_part(block)
                done: dict[str, Any] = {**place, "content_index": 0, "text": block.text, "logprobs": []}
                return [
                    self._event("response.output_text.done", done),
                    self._event("response.content_part.done", {**place, "content_index": 0, "part": part}),
                ]
            case "thinking" if not block.is_redacted:
                part = {"type": "summary_text", "text": block.text}
                return [
                    self._event(
                        "response.reasoning_summary_text.done", {**place, "summary_index": 0, "text": block.text}
                    ),
                    self._event("response.reasoning_summary_part.done", {**place, "summary_index": 0, "part": part}),
                ]
            case "call" if self._is_freeform(block):
                text = freeform_input(block.text)
                return [
                    self._event("response.custom_tool_call_input.delta", {**place, "delta": text}),
                    self._event("response.custom_tool_call_input.done", {**place, "input": text}),
                ]
            case "call":
                done = {**place, "arguments": block.text or "{}"}
                return [self._event("response.function_call_arguments.done", done)]
            case _:
                return []

    def end(self) -> bytes:
        status = "incomplete" if self.stop in _INCOMPLETE else "completed"
        return self._event(f"response.{status}", {"response": self.to_object()})

    def fail(self, error: LoomError) -> bytes:
        fault = fault_of(error)
        # The code by which clients of this protocol know that repeating the request is of no use.
        code = "invalid_prompt" if fault.status == 400 else fault.code
        failed = {**self._response("failed"), "error": {"code": code, "message": fault.text}}
        return self._event("response.failed", {"response": failed})

    def to_object(self) -> dict[str, Any]:
        reason = _INCOMPLETE.get(self.stop)
        response = self._response("incomplete" if reason else "completed")
        response["output"] = [self._item(block, is_done=True) for block in self.blocks]
        response["usage"] = {
            "input_tokens": self.usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": self.usage.cache_read_tokens,
                "cache_write_tokens": self.usage.cache_write_tokens,
            },
            "output_tokens": self.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.usage.thinking_tokens},
            "total_tokens": self.usage.input_tokens + self.usage.output_tokens,
        }
        response["incomplete_details"] = {"reason": reason} if reason else None
        return response

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": self.head.id,
            "object": "response",
            "created_at": self.head.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self.head.model,
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
            **self._echo,
        }

    def _item(self, block: WrittenBlock, *, is_done: bool) -> dict[str, Any]:
        status = "completed" if is_done else "in_progress"
        match block.kind:
            case "text":
                content = [_text_part(block)] if is_done else []
                return {
                    "type": "message",
                    "id": self._item_id(block),
                    "status": status,
                    "role": "assistant",
                    "content": content,
                }
            case "thinking":
                summary = [{"type": "summary_text", "text": block.text}] if is_done and block.text else []
                item: dict[str, Any] = {"type": "reasoning", "id": self._item_id(block), "summary": summary}
                return item | {"encrypted_content": self.sign(block.index, block.opaque)} if is_done else item
            case "call" if self._is_freeform(block):
                text = freeform_input(block.text) if is_done else ""
                return self._call(block, "custom_tool_call") | {"input": text}
            case "call":
                arguments = (block.text or "{}") if is_done else ""
                return self._call(block, "function_call") | {"arguments": arguments, "status": status}
            case "raw":
                return block.raw

    def _call(self, block: WrittenBlock, kind: str) -> dict[str, Any]:
        tool = self.head.tools.get(block.name)
        item = {
            "type": kind,
            "id": self._item_id(block),
            "call_id": block.call_id,
            "name": tool.name if tool is not None else block.name,
        }
        return item | {"namespace": tool.namespace} if tool is not None and tool.namespace else item

    def _is_freeform(self, block: WrittenBlock) -> bool:
        tool = self.head.tools.get(block.name)
        return tool is not None and tool.is_freeform

    def _place(self, block: WrittenBlock) -> dict[str, Any]:
        return {"item_id": self._item_id(block), "output_index": block.place}

    def _item_id(self, block: WrittenBlock) -> str:
        prefix = {"text": "msg", "thinking": "rs", "call": "fc", "raw": "ws"}[block.kind]
        return f"{prefix}_{self.head.id.removeprefix('resp_')}_{block.place}"

    def _event(self, kind: str, data: dict[str, Any]) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return sse(event, kind)


def _text_part(block: WrittenBlock) -> dict[str, Any]:
    annotations = [
        {
            "type": "url_citation",
            "url": found.url,
            "title": found.title,
            "start_index": found.start or 0,
            "end_index": found.end or 0,
        }
        for found in block.citations
        if found.url
    ]
    return {"type": "output_text", "text": block.text, "annotations": annotations, "logprobs": []}
