"""OpenAI Chat Completions, and the servers that speak it: DeepSeek, Mistral, Groq, vLLM, llama.cpp, LM Studio …

Opaque data: on thinking `{"field": …}`, the field in which the server sent it and in which it goes back
(`reasoning_content` or `reasoning`; what stood in the content itself is not sent back). OpenAI itself shows no
reasoning here and takes none; what its Responses wire stored on thinking, texts and calls is not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.errors import ProviderError
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
    DecoderEvent,
    Stopped,
    StopReason,
    UsageReported,
)
from loom.models import Model, Usage
from loom.prompt import Embedded, Prompt, ShownMessage, ShownResult
from loom.wire import faults, shapes
from loom.wire.deltas import Deltas
from loom.wire.framing import EventStream, count, inner, parse_object, reading, words

PATH: Final = "/chat/completions"
"""Behind a base URL that ends in the server's version, as its users know it: `https://api.openai.com/v1`."""
HEADERS: Final[dict[str, str]] = {}

_AUDIO: Final = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}


def path(model: Model) -> str:  # noqa: ARG001 - the same question is asked of every wire
    return PATH


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def encode(prompt: Prompt) -> dict[str, Any]:
    model, sampling = prompt.model, prompt.sampling
    body: dict[str, Any] = {"model": model.name, "messages": _messages(prompt), "stream": True}
    if not _is_mistral(model):
        # Mistral reports usage unasked and refuses what it does not know.
        body["stream_options"] = {"include_usage": True}
    if prompt.tools:
        body["tools"] = [shapes.function_tool(tool) for tool in prompt.tools]
        if sampling.tool_choice != "auto":
            body["tool_choice"] = "none" if sampling.tool_choice == "none" else "required"
    if sampling.max_tokens is not None:
        body["max_completion_tokens" if model.provider == "openai-chat" else "max_tokens"] = sampling.max_tokens
    if sampling.temperature is not None and model.sampling:
        body["temperature"] = sampling.temperature
    return body | _thinking(prompt)


def _thinking(prompt: Prompt) -> dict[str, Any]:
    wish, rule = prompt.sampling.thinking, prompt.model.thinking.request
    if not wish or rule == "none":
        return {}
    if prompt.model.provider == "deepseek":
        if wish == "off":
            return {"thinking": {"type": "disabled"}}
        return {"thinking": {"type": "enabled"}, "reasoning_effort": "low" if wish == "low" else "high"}
    if rule != "effort":
        return {}
    return {"reasoning_effort": "none" if wish == "off" else wish}


def _is_mistral(model: Model) -> bool:
    return "mistral" in (model.provider, model.profile)


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    model = prompt.model
    messages: list[dict[str, Any]] = []
    if prompt.system:
        role = "developer" if model.provider == "openai-chat" else "system"
        messages.append({"role": role, "content": prompt.system})
    for message in prompt.messages:
        match message.role:
            case "user":
                messages.append({"role": "user", "content": _content(shapes.contents(message.blocks), model)})
            case "assistant":
                messages.extend(_assistant(message, model))
            case "tool":
                messages.extend(_result(block, model) for block in message.blocks if isinstance(block, ShownResult))
    return messages


def _content(blocks: list[shapes.Content], model: Model) -> str | list[dict[str, Any]]:
    """A plain string wherever there are only words: several servers mishandle or refuse lists of text."""
    if all(isinstance(block, TextBlock) for block in blocks):
        return shapes.paragraphs(blocks)
    return [_part(block, model) for block in blocks]


def _assistant(message: ShownMessage, model: Model) -> Iterator[dict[str, Any]]:
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    content: Any = shapes.speech(message.blocks) or None
    if shapes.media_among(message.blocks):
        content = [_part(block, model) for block in shapes.contents(message.blocks)]
    if content is None and not calls:
        return  # only thinking that is not written here; a message of nothing is refused
    written: dict[str, Any] = {"role": "assistant", "content": content, **_reasoning(message, model, bool(calls))}
    if calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": shapes.arguments_text(call.arguments)},
            }
            for call in calls
        ]
    yield written


_REASONING: Final = ("reasoning_content", "reasoning")
"""The fields in which servers send thinking; a foreign file may name another, which would overwrite what is said."""


def _reasoning(message: ShownMessage, model: Model, called: bool) -> dict[str, str]:
    """Thinking in the field that it came in. DeepSeek wants the key on every message that called tools, even empty."""
    if model.provider == "openai-chat":
        return {}
    fields: dict[str, str] = {"reasoning_content": ""} if called and model.thinking.replay == "tool_turns" else {}
    for block in message.blocks:
        if isinstance(block, ThinkingBlock):
            field = shapes.owed_text(block.opaque.data, "field") if block.opaque else ""
            if field != "content":
                field = field if field in _REASONING else _REASONING[0]
                fields[field] = fields.get(field, "") + block.text
    return fields


def _result(block: ShownResult, model: Model) -> dict[str, Any]:
    answer = shapes.answer(block)
    media = shapes.media_among(answer)
    content = [_part(inner, model) for inner in answer] if media else shapes.answer_text(block)
    return {"role": "tool", "tool_call_id": block.call_id, "content": content}


def _part(block: shapes.Content, model: Model) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if block.ref.file_id:
        return {"type": "file", "file": shapes.Filed(block.ref, {"file_id": block.ref.file_id})}
    match block.kind:
        case "image":
            detail = {} if block.detail == "auto" else {"detail": block.detail}
            return {"type": "image_url", "image_url": {"url": shapes.data_url(block), **detail}}
        case "audio":
            if _is_mistral(model):
                return {"type": "input_audio", "input_audio": Embedded(block.ref)}
            kind = block.ref.media_type
            form = _AUDIO.get(kind, kind.removeprefix("audio/"))
            return {"type": "input_audio", "input_audio": {"data": Embedded(block.ref), "format": form}}
        case "document":
            name, data = shapes.filename(block), shapes.data_url(block)
            if _is_mistral(model):
                return {"type": "document_url", "document_url": data, "document_name": name}
            return {"type": "file", "file": {"filename": name, "file_data": data}}


# Bytes → events ----------------------------------------------------------------------------------------------------

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "length": "max_tokens",
    "model_length": "overflow",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}
_FAILURES: Final = ("error", "insufficient_system_resource")
"""Finish reasons by which a server says that it gave up, not that the model did."""


class _Call(msgspec.Struct):
    """One call in the making. It is announced once its name is known."""

    id: str = ""
    name: str = ""
    pieces: list[str] = msgspec.field(default_factory=list[str])
    """Of the arguments; joined only where somebody asks, because there may be very many."""
    index: int = -1
    finished: bool = False


class Decoder:
    """`finish_reason` is the model's last word; it is passed on at `[DONE]`, or at the end where that never comes."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = EventStream()
        self._deltas = Deltas(model, tags=model.provider != "openai-chat")
        self._calls: list[_Call] = []
        self._places: dict[int, _Call] = {}
        self._reason: str | None = None
        self._refused = False
        self._stopped = False

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with reading(self._model):
            for event in self._stream.feed(data):
                if event.data.strip() == "[DONE]":
                    yield from self._stop()
                else:
                    yield from self._chunk(parse_object(event.data, self._model))

    def finish(self) -> Iterator[DecoderEvent]:
        """The stream ended without an error."""
        with reading(self._model):
            yield from self._deltas.end()
            if self._reason is not None:
                yield from self._stop()

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[DecoderEvent]:
        if chunk.get("error") or chunk.get("object") == "error":
            raise fault(None, chunk, self._model)
        choices = chunk.get("choices") or ()
        if choices:
            yield from self._choice(choices[0])
        if chunk.get("usage"):
            yield UsageReported(usage=_usage(chunk["usage"]))

    def _choice(self, choice: dict[str, Any]) -> Iterator[DecoderEvent]:
        delta = inner(choice, "delta")
        field = "reasoning_content" if delta.get("reasoning_content") else "reasoning"
        yield from self._deltas.thinking(words(delta, field), field)
        yield from self._content(delta.get("content"))
        if delta.get("refusal"):
            self._refused = True
            yield from self._deltas.content(words(delta, "refusal"))
        yield from self._deltas.content(words(inner(delta, "audio"), "transcript"))
        for annotation in delta.get("annotations") or ():
            yield from self._cite(annotation)
        for fragment in delta.get("tool_calls") or ():
            yield from self._fragment(fragment)
        reason = words(choice, "finish_reason")
        if reason in _FAILURES:
            raise faults.classify(503, reason, f"the server gave up ({reason}): overloaded", self._model)
        if reason:
            self._reason = reason
            yield from self._finish_calls()

    def _content(self, content: str | list[dict[str, Any]] | None) -> Iterator[DecoderEvent]:
        """Mistral's reasoning models send chunks instead of a string."""
        if isinstance(content, str):
            yield from self._deltas.content(content)
        for chunk in content if isinstance(content, list) else ():
            if chunk.get("type") == "thinking":
                for piece in chunk["thinking"]:
                    yield from self._deltas.thinking(words(piece, "text"), "content")
            elif chunk.get("type") == "text":
                yield from self._deltas.content(words(chunk, "text"))

    def _cite(self, annotation: dict[str, Any]) -> Iterator[DecoderEvent]:
        cited = inner(annotation, "url_citation")
        index = self._deltas.last_text
        if cited and index is not None:
            citation = Citation(
                url=words(cited, "url"),
                title=words(cited, "title"),
                start=count(cited, "start_index"),
                end=count(cited, "end_index"),
            )
            yield Cited(index=index, citation=citation)

    def _fragment(self, fragment: dict[str, Any]) -> Iterator[DecoderEvent]:
        function = inner(fragment, "function")
        arguments: Any = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = shapes.arguments_text(arguments)
        call = self._call_of(fragment.get("index"), words(fragment, "id"), words(function, "name"))
        if arguments:
            call.pieces.append(arguments)
        if call.index >= 0:
            if arguments:
                yield CallDelta(index=call.index, arguments=arguments)
        elif call.name:
            yield from self._start(call)

    def _call_of(self, place: int | None, call_id: str, name: str) -> _Call:
        """The call that a fragment continues, or a new one.

        Some servers repeat the id and the name, some number every call 0, some number none and send each call whole.
        """
        last = self._calls[-1] if self._calls else None
        if place is not None:
            call = self._places.get(place)
        else:
            call = next((known for known in self._calls if call_id and known.id == call_id), None if name else last)
        if call is None or (name and _is_another(call, call_id)):
            call = _Call()
            self._calls.append(call)
            if place is not None:
                self._places[place] = call
        call.id = call.id or call_id
        call.name = call.name or name
        return call

    def _start(self, call: _Call) -> Iterator[DecoderEvent]:
        yield from self._deltas.end()
        call.index = self._deltas.call()
        yield CallStarted(index=call.index, id=call.id, name=call.name)
        if call.pieces:
            yield CallDelta(index=call.index, arguments="".join(call.pieces))

    def _finish_calls(self) -> Iterator[DecoderEvent]:
        """Where the tokens ran out, the last call is the one that was being written."""
        yield from self._deltas.end()
        cut = _STOPS.get(self._reason or "") in ("max_tokens", "overflow", "refusal")
        for call in self._calls[:-1] if cut else self._calls:
            if call.index < 0:
                yield from self._start(call)
            if not call.finished:
                call.finished = True
                yield CallFinished(index=call.index)

    def _stop(self) -> Iterator[DecoderEvent]:
        if self._stopped:
            return
        self._stopped = True
        yield from self._finish_calls()
        reason = _STOPS.get(self._reason or "", "other")
        if self._calls and reason in ("end", "other"):
            reason = "tool_calls"
        yield Stopped(reason="refusal" if self._refused else reason, detail=self._reason or "")


def _is_another(call: _Call, call_id: str) -> bool:
    """Whether a fragment with a name begins another call: by its id, or else because this one is already whole."""
    if call_id and call.id:
        return call_id != call.id
    try:
        return isinstance(msgspec.json.decode("".join(call.pieces)), dict)
    except msgspec.DecodeError:
        return False


def _usage(usage: dict[str, Any]) -> Usage:
    """Cached tokens are among the prompt's; DeepSeek counts them in a field of its own."""
    prompt, completion = inner(usage, "prompt_tokens_details"), inner(usage, "completion_tokens_details")
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        cache_read_tokens=count(prompt, "cached_tokens") or count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=count(prompt, "cache_write_tokens"),
        thinking_tokens=count(completion, "reasoning_tokens"),
    )


# Answers other than 200 --------------------------------------------------------------------------------------------


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """`body` is the JSON of the answer (or of an event that holds an error), `sent` the request."""
    return faults.read(status, body, model, sent, faults.OPENAI_STATUS)
