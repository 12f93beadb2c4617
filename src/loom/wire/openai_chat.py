"""OpenAI Chat Completions, and the servers that use it: DeepSeek, Mistral, Groq, vLLM, llama.cpp, LM Studio …

Opaque data, sent back unchanged: on a call `{"extra_content": …}` and on thinking `{"reasoning_details": […]}`, if a
gateway sends them (both contain signatures); otherwise on thinking `{"field": …}`, the field in which the server sent
it and in which it is sent back (`reasoning_content` or `reasoning`; thinking in the content is not sent back). OpenAI
itself neither sends nor accepts reasoning here; opaque data of the Responses wire is not sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.json_values import json_text
from loom.errors import ProviderError
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
    DecoderEvent,
    Stopped,
    StopReason,
    ThinkingSealed,
    UsageReported,
)
from loom.models import Model, Usage
from loom.prompt import Embedded, Prompt, ShownMessage, ShownResult
from loom.sampling import Sampling, keep_supported
from loom.wire import faults, options, shapes
from loom.wire.deltas import Deltas
from loom.wire.framing import (
    SseParser,
    get_count,
    get_name,
    get_object,
    get_str,
    not_an_answer,
    parse_object,
    wire_errors,
)

PATH: Final = "/chat/completions"
"""The path after a base URL with a version, as users write it: `https://api.openai.com/v1`."""
HEADERS: Final[dict[str, str]] = {}

_AUDIO: Final = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}


def path(model: Model) -> str:  # noqa: ARG001 - every wire has the same signature
    return PATH


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def encode(prompt: Prompt) -> dict[str, Any]:
    model, dialect = prompt.model, prompt.model.dialect
    sampling = keep_supported(model, prompt.sampling)
    body: dict[str, Any] = {"model": model.name, "messages": _messages(prompt), "stream": True}
    if dialect.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if prompt.tools:
        body["tools"] = [shapes.function_tool(tool) for tool in prompt.tools]
        if sampling.tool_name:
            body["tool_choice"] = {"type": "function", "function": {"name": sampling.tool_name}}
        elif sampling.tool_choice != "auto":
            body["tool_choice"] = "none" if sampling.tool_choice == "none" else dialect.forced_word
        if sampling.parallel_calls is not None:
            body["parallel_tool_calls"] = sampling.parallel_calls
    if sampling.max_tokens is not None:
        body[dialect.max_tokens_field] = sampling.max_tokens
    body |= shapes.present(
        {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            dialect.seed_field: sampling.seed,
            "stop": list(sampling.stop) or None,
            "service_tier": sampling.service_tier or None,
            dialect.user_field: sampling.user or None,
            "prompt_cache_key": sampling.cache_key or None,
        }
    )
    if sampling.output_schema is not None and options.has_native_schema(prompt):
        body["response_format"] = _response_format(prompt, sampling.output_schema.schema)
    return options.with_extra(body | _thinking(model, sampling), prompt, required=("stream_options",))


def _response_format(prompt: Prompt, schema: dict[str, Any]) -> dict[str, Any]:
    if prompt.model.dialect.output_schema == "json_object":
        return {"type": "json_object"}
    named = {"name": options.schema_name(prompt), "schema": schema, "strict": options.is_strict(schema)}
    return {"type": "json_schema", "json_schema": named}


def _thinking(model: Model, sampling: Sampling) -> dict[str, Any]:
    rule, dialect = model.thinking, model.dialect
    level = rule.nearest(sampling.thinking)
    if not level or rule.request == "none":
        return {}
    is_off = level == "off"
    effort = dialect.off_word if is_off else level
    match dialect.thinking:
        case "effort":
            return {"reasoning_effort": effort}
        case "switch_and_effort":
            switch = {"thinking": {"type": "disabled" if is_off else "enabled"}}
            return switch if is_off else {**switch, "reasoning_effort": effort}
        case "reasoning_object":
            return {"reasoning": {"enabled": False} if is_off else {"effort": effort}}
        case "template_flag":
            return {"chat_template_kwargs": {"enable_thinking": not is_off}}


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    model = prompt.model
    messages: list[dict[str, Any]] = []
    if prompt.body is not None and options.is_system_own(prompt):
        messages += prompt.body.head
    elif said := options.system_text(prompt):
        messages.append({"role": model.dialect.system_role, "content": said})
    for message in prompt.messages:
        if message.form is not None:
            messages += message.form
            continue
        match message.role:
            case "user":
                messages.append({"role": "user", "content": _content(shapes.contents(message.blocks), model)})
            case "system":
                said = shapes.paragraphs(shapes.contents(message.blocks))
                messages.append({"role": model.dialect.system_role, "content": said})
            case "assistant":
                messages.extend(_assistant(message, model))
            case "tool":
                messages.extend(_result(block, model) for block in message.blocks if isinstance(block, ShownResult))
    return messages


def _content(blocks: list[shapes.WireContent], model: Model) -> str | list[dict[str, Any]]:
    """Return the content; a plain string if there is only text, because several servers mishandle or refuse lists."""
    if all(isinstance(block, TextBlock) for block in blocks):
        return shapes.paragraphs(blocks)
    return [_part(block, model) for block in blocks]


def _assistant(message: ShownMessage, model: Model) -> Iterator[dict[str, Any]]:
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    content: Any = shapes.joined_text(message.blocks) or None
    if shapes.media_among(message.blocks):
        content = [_part(block, model) for block in shapes.contents(message.blocks)]
    if content is None and not calls:
        return  # only thinking, which is not sent here; an empty message is refused
    written: dict[str, Any] = {"role": "assistant", "content": content, **_reasoning(message, model, bool(calls))}
    if calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json_text(call.arguments)},
                **_extra_content(call),
            }
            for call in calls
        ]
    yield written


def _extra_content(call: ToolCall) -> dict[str, Any]:
    owed: Any = shapes.opaque_data(call)
    return {"extra_content": owed["extra_content"]} if isinstance(owed, dict) and "extra_content" in owed else {}


_REASONING: Final = ("reasoning_content", "reasoning")
"""The fields in which servers send thinking. A foreign file may name another one, which could overwrite the content."""


def _reasoning(message: ShownMessage, model: Model, called: bool) -> dict[str, Any]:
    """Return thinking in the field that it came in; if it came with details, return these instead, because they contain
    the signatures. DeepSeek requires the field, even empty, on every message with calls."""
    if not model.dialect.reasoning_fields:
        return {}
    fields: dict[str, Any] = {"reasoning_content": ""} if called and model.thinking.replay == "tool_turns" else {}
    for block in message.blocks:
        if isinstance(block, ThinkingBlock):
            details = block.opaque.data.get("reasoning_details") if block.opaque else None
            if isinstance(details, list) and details:
                fields["reasoning_details"] = [*fields.get("reasoning_details", ()), *cast("list[Any]", details)]
                continue
            field = shapes.opaque_text(block.opaque.data, "field") if block.opaque else ""
            if field != "content":
                field = field if field in _REASONING else _REASONING[0]
                fields[field] = fields.get(field, "") + block.text
    return fields


def _result(block: ShownResult, model: Model) -> dict[str, Any]:
    answer = shapes.result_with_error_prefix(block)
    media = shapes.media_among(answer)
    content = [_part(inner, model) for inner in answer] if media else shapes.answer_text(block)
    return {"role": "tool", "tool_call_id": block.call_id, "content": content}


def _part(block: shapes.WireContent, model: Model) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if block.ref.file_id:
        return {"type": "file", "file": shapes.UploadedPart(block.ref, {"file_id": block.ref.file_id})}
    match block.kind:
        case "image":
            detail = {} if block.detail == "auto" else {"detail": block.detail}
            return {"type": "image_url", "image_url": {"url": shapes.media_data_url(block), **detail}}
        case "audio":
            if model.dialect.audio_part == "bare":
                return {"type": "input_audio", "input_audio": Embedded(block.ref)}
            kind = block.ref.media_type
            form = _AUDIO.get(kind, kind.removeprefix("audio/"))
            return {"type": "input_audio", "input_audio": {"data": Embedded(block.ref), "format": form}}
        case "video":  # the format of OpenRouter and vLLM
            return {"type": "video_url", "video_url": {"url": shapes.media_data_url(block)}}
        case "document":
            name, data = shapes.filename(block), shapes.media_data_url(block)
            if model.dialect.document_part == "document_url":
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
"""Finish reasons for a failure of the server, not for the end of the answer."""


class _PartialCall(msgspec.Struct):
    """An unfinished call. `CallStarted` is emitted once its name is known."""

    id: str = ""
    name: str = ""
    pieces: list[str] = msgspec.field(default_factory=list[str])
    """The pieces of its arguments; joined only when needed, because there may be very many."""
    index: int = -1
    finished: bool = False
    extra: Any = None
    """`extra_content`, which is sent back with the call: gateways put its signature there."""


class ReasoningDetails:
    """Joins the `reasoning_details` of a stream: pieces with the same index and type are one detail."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, Any], dict[str, Any]] = {}

    def add(self, pieces: Any) -> None:
        for piece in cast("list[Any]", pieces) if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                self._join(cast("dict[str, Any]", piece))

    def join(self) -> list[dict[str, Any]]:
        return list(self._found.values())

    def _join(self, piece: dict[str, Any]) -> None:
        place = (piece.get("index", len(self._found)), piece.get("type"))
        known = self._found.setdefault(place, {})
        for key, value in piece.items():
            grows = key in ("text", "summary", "data") and isinstance(known.get(key), str) and isinstance(value, str)
            if grows:
                known[key] += value
            elif value is not None or key not in known:
                known[key] = value


class Decoder:
    """Decodes chunks. `finish_reason` is passed on at `[DONE]`, or at the end of the stream if that is missing."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = SseParser()
        self._deltas = Deltas(model, tags=model.dialect.think_tags)
        self._calls: list[_PartialCall] = []
        self._places: dict[int, _PartialCall] = {}
        self._details = ReasoningDetails()
        self._citations: list[Citation] = []
        self._reason: str | None = None
        self._refused = False
        self._stopped = False
        self._answered_by = self._response_id = ""

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for event in self._stream.feed(data):
                if event.data.strip() == "[DONE]":
                    yield from self._stop()
                else:
                    yield from self._chunk(parse_object(event.data, self._model))

    def finish(self) -> Iterator[DecoderEvent]:
        """Decode an answer that was not streamed, and emit pending events."""
        with wire_errors(self._model):
            for answer in self._stream.whole_answers(self._model):
                yield from self._decode_whole(answer)
            yield from self._deltas.end()
            if self._reason is not None:
                yield from self._stop()

    def _decode_whole(self, answer: dict[str, Any]) -> Iterator[DecoderEvent]:
        """Decode a completion that was not streamed: its message is the only delta."""
        if answer.get("error") or answer.get("object") == "error":
            raise fault(None, answer, self._model)
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices:
            raise not_an_answer(self._model, ", ".join(list(answer)[:8]))
        deltas = [{**choice, "delta": choice.get("message")} for choice in cast("list[dict[str, Any]]", choices)]
        yield from self._chunk({**answer, "choices": deltas})

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[DecoderEvent]:
        if chunk.get("error") or chunk.get("object") == "error":
            raise fault(None, chunk, self._model)
        self._answered_by = get_name(chunk, "model") or self._answered_by
        self._response_id = get_name(chunk, "id") or self._response_id
        choices = chunk.get("choices") or ()
        if choices:
            yield from self._choice(choices[0])
        if chunk.get("usage"):
            yield UsageReported(usage=_usage(chunk["usage"]))

    def _choice(self, choice: dict[str, Any]) -> Iterator[DecoderEvent]:
        delta = get_object(choice, "delta")
        field = "reasoning_content" if delta.get("reasoning_content") else "reasoning"
        self._details.add(delta.get("reasoning_details"))
        yield from self._deltas.thinking(get_str(delta, field), field)
        yield from self._content(delta.get("content"))
        if delta.get("refusal"):
            self._refused = True
            yield from self._deltas.content(get_str(delta, "refusal"))
        yield from self._deltas.content(get_str(get_object(delta, "audio"), "transcript"))
        self._citations += [found for note in delta.get("annotations") or () if (found := _citation(note)) is not None]
        yield from self._cite()
        for fragment in delta.get("tool_calls") or ():
            yield from self._fragment(fragment)
        reason = get_str(choice, "finish_reason")
        if reason in _FAILURES:
            raise faults.classify(503, reason, f"the server failed ({reason}): overloaded", self._model)
        if reason:
            self._reason = reason
            yield from self._finish_calls()

    def _content(self, content: str | list[dict[str, Any]] | None) -> Iterator[DecoderEvent]:
        """Decode content: a string, or a list of chunks from Mistral's reasoning models."""
        if isinstance(content, str):
            yield from self._deltas.content(content)
        for chunk in content if isinstance(content, list) else ():
            if chunk.get("type") == "thinking":
                for piece in chunk["thinking"]:
                    yield from self._deltas.thinking(get_str(piece, "text"), "content")
            elif chunk.get("type") == "text":
                yield from self._deltas.content(get_str(chunk, "text"))

    def _cite(self) -> Iterator[DecoderEvent]:
        """Emit citations. They wait for the first text, because some services send them before it."""
        index = self._deltas.last_text
        if index is not None:
            for citation in self._citations:
                yield Cited(index=index, citation=citation)
            self._citations.clear()

    def _fragment(self, fragment: dict[str, Any]) -> Iterator[DecoderEvent]:
        function = get_object(fragment, "function")
        arguments: Any = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json_text(arguments)
        call = self._call_of(fragment.get("index"), get_str(fragment, "id"), get_str(function, "name"))
        if fragment.get("extra_content"):
            call.extra = fragment["extra_content"]
        if arguments:
            call.pieces.append(arguments)
        if call.index >= 0:
            if arguments:
                yield CallDelta(index=call.index, arguments=arguments)
        elif call.name:
            yield from self._start(call)

    def _call_of(self, place: int | None, call_id: str, name: str) -> _PartialCall:
        """Return the call that a fragment continues, or a new one.

        Some servers repeat the id and the name, some number every call 0, and some number none and send complete calls.
        """
        last = self._calls[-1] if self._calls else None
        if place is not None:
            call = self._places.get(place)
        else:
            call = next((known for known in self._calls if call_id and known.id == call_id), None if name else last)
        if call is None or (name and _is_another(call, call_id)):
            call = _PartialCall()
            self._calls.append(call)
            if place is not None:
                self._places[place] = call
        call.id = call.id or call_id
        call.name = call.name or name
        return call

    def _start(self, call: _PartialCall) -> Iterator[DecoderEvent]:
        yield from self._deltas.end()
        call.index = self._deltas.call()
        yield CallStarted(index=call.index, id=call.id, name=call.name)
        if call.pieces:
            yield CallDelta(index=call.index, arguments="".join(call.pieces))

    def _finish_calls(self) -> Iterator[DecoderEvent]:
        """Finish all calls; not the last one if the answer was cut off, because that call is incomplete."""
        yield from self._deltas.end()
        cut = _STOPS.get(self._reason or "") in ("max_tokens", "overflow", "refusal")
        for call in self._calls[:-1] if cut else self._calls:
            if call.index < 0:
                yield from self._start(call)
            if not call.finished:
                call.finished = True
                opaque = (
                    shapes.opaque_of(self._model, {"extra_content": call.extra}) if call.extra is not None else None
                )
                yield CallFinished(index=call.index, opaque=opaque)

    def _stop(self) -> Iterator[DecoderEvent]:
        if self._stopped:
            return
        self._stopped = True
        yield from self._finish_calls()
        yield from self._cite()
        if details := self._details.join():
            index = self._deltas.first_thinking
            field = self._deltas.first_field
            opaque = shapes.opaque_of(self._model, {"field": field or "reasoning", "reasoning_details": details})
            yield ThinkingSealed(index=self._deltas.call() if index is None else index, opaque=opaque)
        reason = _STOPS.get(self._reason or "", "other")
        if self._calls and reason in ("end", "other"):
            reason = "tool_calls"
        yield Stopped(
            reason="refusal" if self._refused else reason,
            detail=self._reason or "",
            model=self._answered_by,
            response_id=self._response_id,
        )


def _citation(annotation: dict[str, Any]) -> Citation | None:
    cited = get_object(annotation, "url_citation")
    if not cited:
        return None
    return Citation(
        url=get_str(cited, "url"),
        title=get_str(cited, "title"),
        start=get_count(cited, "start_index"),
        end=get_count(cited, "end_index"),
    )


def _is_another(call: _PartialCall, call_id: str) -> bool:
    """Return whether a fragment with a name starts another call: its id differs, or `call` is already complete."""
    if call_id and call.id:
        return call_id != call.id
    try:
        return isinstance(msgspec.json.decode("".join(call.pieces)), dict)
    except msgspec.DecodeError:
        return False


def _usage(usage: dict[str, Any]) -> Usage:
    """Convert usage. The prompt count includes cached tokens; DeepSeek reports those in a separate field."""
    prompt, completion = get_object(usage, "prompt_tokens_details"), get_object(usage, "completion_tokens_details")
    return Usage(
        input_tokens=get_count(usage, "prompt_tokens"),
        output_tokens=get_count(usage, "completion_tokens"),
        cache_read_tokens=get_count(prompt, "cached_tokens") or get_count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=get_count(prompt, "cache_write_tokens"),
        thinking_tokens=get_count(completion, "reasoning_tokens"),
    )


# Answers other than 200 --------------------------------------------------------------------------------------------


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """Return the error for a response body or an event with an error. `sent` is the request, to find the media at
    fault."""
    return faults.error_from_body(status, body, model, sent, faults.OPENAI_STATUS)
