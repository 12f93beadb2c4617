"""Bedrock Converse: one protocol for the families on Bedrock that are not Claude (Nova, Llama, Mistral, gpt-oss …).

Each element of content has exactly one key, its kind. Opaque data: on thinking `{"signature": …}`, or `{"data": …}`
(base64) if it is redacted. `providers.bedrock` sets the URL and signs requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, assert_never

from loom.content.blocks import TextBlock, ThinkingBlock, ToolCall
from loom.errors import ProviderError
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    DecoderEvent,
    Stopped,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
)
from loom.models import Model, Usage
from loom.prompt import Embedded, Prompt, ShownBlock, ShownMedia, ShownRaw, ShownResult
from loom.sampling import Sampling, keep_supported
from loom.wire import bedrock_anthropic, options, shapes
from loom.wire.event_frames import EventFrame, FrameSplitter
from loom.wire.framing import get_count, get_int, get_object, get_str, parse_object, wire_errors

HEADERS: Final = {"accept": "application/vnd.amazon.eventstream"}

_NAME_CHARS: Final = 200
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9\-()\[\] ]+")
_FORMATS: Final = {
    "audio/mpeg": "mp3",
    "audio/x-wav": "wav",
    "text/plain": "txt",
    "text/markdown": "md",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/3gpp": "three_gp",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
"""Formats whose name is not the subtype of the media type."""
_ATTACHED: Final = "(The document is attached.)"
"""Added to a message with a document and no text: Bedrock requires text."""
_CACHE_POINT: Final = {"cachePoint": {"type": "default"}}


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def path(model: Model) -> str:
    return f"/model/{bedrock_anthropic.quote_name(model.name)}/converse-stream"


def encode(prompt: Prompt) -> dict[str, Any]:
    model = prompt.model
    sampling = keep_supported(model, prompt.sampling)
    body: dict[str, Any] = {"messages": _messages(prompt)}
    if said := options.system_text(prompt):
        body["system"] = [{"text": said}, *([{**_CACHE_POINT}] if _is_marked(prompt) else ())]
    limits = model.limits
    inference = shapes.present(
        {
            "maxTokens": sampling.max_tokens or limits.default_output_tokens or limits.max_output_tokens,
            "temperature": sampling.temperature,
            "topP": sampling.top_p,
            "stopSequences": list(sampling.stop) or None,
        }
    )
    body["inferenceConfig"] = inference
    if prompt.tools:
        body["toolConfig"] = _tools(prompt, sampling)
    if fields := _thinking(model, sampling):
        body["additionalModelRequestFields"] = fields
    if sampling.service_tier:
        body["serviceTier"] = {"type": "default" if sampling.service_tier == "auto" else sampling.service_tier}
    return options.with_extra(body, prompt)


def _is_marked(prompt: Prompt) -> bool:
    return prompt.model.cache.mode == "explicit" and prompt.sampling.cache != "off"


def _tools(prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
    """Return `toolConfig`. Calls cannot be forbidden: tools must stay, because a history with calls is refused without
    them."""
    tools: list[dict[str, Any]] = [
        {"toolSpec": {"name": it.name, "description": it.description, "inputSchema": {"json": it.parameters}}}
        for it in prompt.tools
    ]
    if sampling.tool_choice != "any":
        return {"tools": tools}
    forced: dict[str, Any] = {"tool": {"name": sampling.tool_name}} if sampling.tool_name else {"any": {}}
    return {"tools": tools, "toolChoice": forced}


def _thinking(model: Model, sampling: Sampling) -> dict[str, Any]:
    """Return the thinking fields of the model family: Nova has a switch and an effort, gpt-oss only an effort."""
    level = model.thinking.nearest(sampling.thinking)
    if not level:
        return {}
    match model.thinking.request:
        case "level":
            if level == "off":
                return {"reasoningConfig": {"type": "disabled"}}
            return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
        case "effort":
            return {"reasoning_effort": level}
        case _:
            return {}


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    """Return the messages. Roles must alternate, so results and the user message after them are one message, results
    first."""
    names = _DocumentNames()
    marks = (prompt.stable_messages - 1, len(prompt.messages) - 1) if _is_marked(prompt) else ()
    messages: list[dict[str, Any]] = []
    for position, message in enumerate(prompt.messages):
        content = [written for block in message.blocks if (written := _block(block, names)) is not None]
        if not content:
            continue  # only thinking that cannot be sent back
        if position in marks:
            content.append({**_CACHE_POINT})
        role = "assistant" if message.role == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(content)
        else:
            messages.append({"role": role, "content": content})
    for message in messages:
        if any("document" in block for block in message["content"]) and not any(
            "text" in b for b in message["content"]
        ):
            message["content"].append({"text": _ATTACHED})
    return messages


class _DocumentNames:
    """Valid names for documents, unique within a request."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def name(self, wanted: str) -> str:
        plain = " ".join(_NOT_IN_NAMES.sub(" ", wanted).split())[: _NAME_CHARS - 8].strip() or "document"
        number, name = 1, plain
        while name in self._used:
            number += 1
            name = f"{plain} ({number})"
        self._used.add(name)
        return name


def _block(block: ShownBlock, names: _DocumentNames) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ShownMedia():
            return _media(block, names)
        case ThinkingBlock():
            return _thinking_block(block)
        case ShownRaw():
            return {**block.data}
        case ToolCall():
            return {"toolUse": {"toolUseId": block.id, "name": block.name, "input": block.arguments}}
        case ShownResult():
            return {
                "toolResult": {
                    "toolUseId": block.call_id,
                    "content": [
                        {"text": inner.text} if isinstance(inner, TextBlock) else _media(inner, names)
                        for inner in block.blocks
                    ],
                    "status": "error" if block.is_error else "success",
                }
            }
        case _:
            assert_never(block)


def _media(block: ShownMedia, names: _DocumentNames) -> dict[str, Any]:
    kind = block.ref.media_type
    form = _FORMATS.get(kind, kind.partition("/")[2])
    source = {"format": form, "source": {"bytes": Embedded(block.ref)}}
    return {block.kind: {**source, "name": names.name(block.name)} if block.kind == "document" else source}


def _thinking_block(block: ThinkingBlock) -> dict[str, Any] | None:
    owed: dict[str, Any] = shapes.opaque_data(block)
    if data := shapes.opaque_text(owed, "data"):
        return {"reasoningContent": {"redactedContent": data}}
    text = shapes.present({"text": block.text, "signature": shapes.opaque_text(owed, "signature") or None})
    return {"reasoningContent": {"reasoningText": text}} if block.text else None


# Bytes → events ----------------------------------------------------------------------------------------------------

_STOPS: Final[dict[str, StopReason]] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "model_context_window_exceeded": "overflow",
}


class Decoder:
    """Decodes event frames. Usage follows after the end of the message; errors are frames, too."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._frames = FrameSplitter()
        self._calls: set[int] = set()
        self._closed_call: int | None = None
        self._stop: Stopped | None = None

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for frame in self._frames.feed(data):
                yield from self._frame(frame)

    def finish(self) -> Iterator[DecoderEvent]:
        """Emit the stop reason of a message that ended without its usage: it is complete."""
        if self._stop is not None:
            yield self._stop
            self._stop = None

    def _frame(self, frame: EventFrame) -> Iterator[DecoderEvent]:
        if frame.headers.get(":message-type", "event") != "event":
            raise bedrock_anthropic.frame_error(frame, self._model)
        event = parse_object(frame.payload, self._model)
        match frame.headers.get(":event-type", ""):
            case "contentBlockStart":
                yield from self._finish_call()
                call = get_object(get_object(event, "start"), "toolUse")
                if call:
                    index = get_int(event, "contentBlockIndex")
                    self._calls.add(index)
                    yield CallStarted(index=index, id=get_str(call, "toolUseId"), name=get_str(call, "name"))
            case "contentBlockDelta":
                yield from self._delta(get_int(event, "contentBlockIndex"), get_object(event, "delta"))
            case "contentBlockStop":
                if get_int(event, "contentBlockIndex") in self._calls:
                    self._closed_call = get_int(event, "contentBlockIndex")
            case "messageStop":
                reason = get_str(event, "stopReason")
                self._stop = Stopped(reason=_STOPS.get(reason, "other"), detail=reason)
                if self._stop.reason not in ("max_tokens", "overflow"):
                    yield from self._finish_call()
            case "metadata":
                yield from _usage(get_object(event, "usage"))
                yield from self.finish()
            case _:
                pass  # messageStart, and unknown events

    def _finish_call(self) -> Iterator[DecoderEvent]:
        """Finish the last closed call. It waits for the stop reason, because a call that was cut off by the token limit
        is closed too."""
        if self._closed_call is not None:
            yield CallFinished(index=self._closed_call)
            self._closed_call = None

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[DecoderEvent]:
        if text := get_str(delta, "text"):
            yield TextDelta(index=index, text=text)
        if index in self._calls:
            yield CallDelta(index=index, arguments=get_str(get_object(delta, "toolUse"), "input"))
        thought = get_object(delta, "reasoningContent")
        if text := get_str(thought, "text"):
            yield ThinkingDelta(index=index, text=text)
        if signature := get_str(thought, "signature"):
            yield ThinkingSealed(index=index, opaque=shapes.opaque_of(self._model, {"signature": signature}))
        if data := get_str(thought, "redactedContent"):
            yield ThinkingSealed(index=index, opaque=shapes.opaque_of(self._model, {"data": data}), redacted=True)


def _usage(counts: dict[str, Any]) -> Iterator[DecoderEvent]:
    """Report usage; `inputTokens` excludes cached tokens."""
    if not counts:
        return
    read, written = get_count(counts, "cacheReadInputTokens"), get_count(counts, "cacheWriteInputTokens")
    yield UsageReported(
        usage=Usage(
            input_tokens=get_count(counts, "inputTokens") + read + written,
            output_tokens=get_count(counts, "outputTokens"),
            cache_read_tokens=read,
            cache_write_tokens=written,
        )
    )


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    return bedrock_anthropic.fault(status, body, model, sent)
