"""Anthropic Messages, version 2026-10-21; the same body for Claude on Bedrock.

Opaque data: on thinking `{"signature": …}`, or `{"data": …}` if it is redacted; on a citation the whole object in the
form of a request (without `file_id`). It is sent back unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.json_values import json_text, sanitize_json
from loom.content.provider_blocks import provider_block
from loom.errors import ProviderError
from loom.events import (
    BlockAdded,
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
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
from loom.wire import faults, options, shapes
from loom.wire.framing import (
    SseParser,
    get_int,
    get_name,
    get_object,
    get_str,
    not_an_answer,
    parse_object,
    wire_errors,
)

PATH: Final = "/v1/messages"
HEADERS: Final = {"anthropic-version": "2026-10-21"}

_CACHE: Final = {"type": "ephemeral"}


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def path(model: Model) -> str:  # noqa: ARG001 - every wire has the same signature
    return PATH


def encode(prompt: Prompt) -> dict[str, Any]:
    model = prompt.model
    sampling = keep_supported(model, prompt.sampling)
    limits = model.limits
    max_tokens = sampling.max_tokens or limits.default_output_tokens or limits.max_output_tokens
    body: dict[str, Any] = {
        "max_tokens": max_tokens,
        "messages": _messages(prompt),
        "model": model.name,
        "stream": True,
    }
    if said := options.system_text(prompt):
        system: dict[str, Any] = {"type": "text", "text": said}
        body["system"] = [system | {"cache_control": _cache(prompt)} if _is_marked(prompt) else system]
    if prompt.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in prompt.tools
        ]
    if sampling.server_tools:
        body["tools"] = [*body.get("tools", ()), *(model.server_tools[name] for name in sampling.server_tools)]
    thinking = _thinking(model, sampling, max_tokens)
    if thinking is not None:
        body["thinking"] = thinking
    if output := _output(prompt, sampling):
        body["output_config"] = output
    if prompt.tools:
        body |= _tool_choice(sampling, is_thinking=thinking is not None or model.thinking.request == "always")
    if sampling.temperature is not None and thinking is None:
        body["temperature"] = sampling.temperature
    if sampling.top_p is not None and thinking is None:
        body["top_p"] = sampling.top_p
    if sampling.stop:
        body["stop_sequences"] = list(sampling.stop)
    if sampling.service_tier:
        body["service_tier"] = sampling.service_tier
    if sampling.user:
        body["metadata"] = {"user_id": sampling.user}
    return options.with_extra(body, prompt, required=("max_tokens", "tools", "tool_choice"))


def _cache(prompt: Prompt) -> dict[str, Any]:
    is_long = keep_supported(prompt.model, prompt.sampling).cache == "1h"
    return {**_CACHE, "ttl": "1h"} if is_long else {**_CACHE}


def _is_marked(prompt: Prompt) -> bool:
    """Return whether Loom sets the cache marks; a request body in original form has its own."""
    return prompt.body is None and prompt.model.cache.mode == "explicit" and prompt.sampling.cache != "off"


def _thinking(model: Model, sampling: Sampling, max_tokens: int) -> dict[str, Any] | None:
    """Return the `thinking` field: a budget, or adaptive thinking, whose depth is the effort in `output_config`."""
    rule = model.thinking
    summary: dict[str, Any] = {"display": "summarized"} if rule.asks_for_summary else {}
    if rule.request == "always":
        return {"type": "adaptive", **summary} if summary or sampling.thinking not in ("", "off") else None
    if not sampling.thinking or rule.request == "none":
        return None
    if sampling.thinking == "off":
        return {"type": "disabled"}
    if rule.request == "budget":
        return {"type": "enabled", "budget_tokens": rule.budget(sampling.thinking, max_tokens)}
    return {"type": "adaptive", **summary}


def _output(prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
    rule = prompt.model.thinking
    output: dict[str, Any] = {}
    level = rule.nearest(sampling.thinking)
    if rule.request in ("adaptive", "always") and level and level != "off":
        output["effort"] = level
    if sampling.output_schema is not None and options.has_native_schema(prompt):
        output["format"] = {"type": "json_schema", "schema": options.close_schema(sampling.output_schema.schema)}
    return output


def _tool_choice(sampling: Sampling, *, is_thinking: bool) -> dict[str, Any]:
    """Return `tool_choice`. A forced call is refused while the model thinks, so it becomes `auto` then."""
    single: dict[str, Any] = {"disable_parallel_tool_use": True} if sampling.parallel_calls is False else {}
    if sampling.tool_choice == "none":
        return {"tool_choice": {"type": "none"}}
    if sampling.tool_choice == "any" and not is_thinking:
        forced = {"type": "tool", "name": sampling.tool_name} if sampling.tool_name else {"type": "any"}
        return {"tool_choice": forced | single}
    return {"tool_choice": {"type": "auto", **single}} if single or sampling.tool_choice == "any" else {}


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    """Return the messages. Results and the user message after them are one message, results first."""
    ends = (prompt.stable_messages, len(prompt.messages)) if _is_marked(prompt) else ()
    marks = [max(at for at in range(-1, end) if at < 0 or prompt.messages[at].role != "system") for end in ends]
    messages: list[dict[str, Any]] = []
    is_joined = True
    for position, message in enumerate(prompt.messages):
        if message.form is not None:
            messages += _form_items(message.form, prompt, is_marked=position in marks)
            is_joined = False
            continue
        content = [written for block in message.blocks if (written := _block(block)) is not None]
        if options.has_native_schema(prompt):
            _without_citations(content)
        if not content:
            continue  # only thinking without its signature
        if position in marks:
            _mark(content, _cache(prompt))
        role = message.role if message.role in ("assistant", "system") else "user"
        if messages and messages[-1]["role"] == role and is_joined:
            messages[-1]["content"].extend(content)
        else:
            messages.append({"role": role, "content": content})
        is_joined = True
    return messages


def _form_items(form: Sequence[Any], prompt: Prompt, *, is_marked: bool) -> list[dict[str, Any]]:
    """Return messages in their original form. Without their original body, Loom sets the cache marks."""
    if prompt.body is not None:
        return [*form]
    items = [shapes.without_key(item, "cache_control") for item in form]
    if is_marked and items and isinstance(items[-1].get("content"), list):
        _mark(items[-1]["content"], _cache(prompt))
    return items


def _without_citations(content: list[dict[str, Any]]) -> None:
    """Remove the citations setting of documents: it cannot be combined with a schema for the answer."""
    for block in content:
        if block["type"] == "document":
            block.pop("citations", None)
        elif block["type"] == "tool_result":
            _without_citations(block["content"])


def _mark(content: list[dict[str, Any]], cache: dict[str, Any]) -> None:
    """Set the cache mark on the last block that may have one (thinking may not)."""
    for block in reversed(content):
        if block.get("type") not in ("thinking", "redacted_thinking"):
            block["cache_control"] = cache
            return


def _block(block: ShownBlock) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return _text(block)
        case ShownMedia():
            return _media(block)
        case ThinkingBlock():
            return _thinking_block(block)
        case ShownRaw():
            return {**block.data}
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case ShownResult():
            content = [_text(inner) if isinstance(inner, TextBlock) else _media(inner) for inner in block.blocks]
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.call_id, "content": content}
            return result | {"is_error": True} if block.is_error else result
        case _:
            assert_never(block)


def _thinking_block(block: ThinkingBlock) -> dict[str, Any] | None:
    owed: dict[str, Any] = shapes.opaque_data(block)
    if data := shapes.opaque_text(owed, "data"):
        return {"type": "redacted_thinking", "data": data}
    signature = shapes.opaque_text(owed, "signature")
    return {"type": "thinking", "thinking": block.text, "signature": signature} if signature else None


def _text(block: TextBlock) -> dict[str, Any]:
    owed = [citation.opaque.data for citation in block.citations if citation.opaque is not None]
    citations = [data for data in owed if _is_whole(data)]
    text: dict[str, Any] = {"type": "text", "text": block.text}
    return text | {"citations": citations} if citations else text


_PLACES: Final = {
    "char_location": (("document_index", "start_char_index", "end_char_index"), "document_title", ("cited_text",)),
    "page_location": (("document_index", "start_page_number", "end_page_number"), "document_title", ("cited_text",)),
    "content_block_location": (
        ("document_index", "start_block_index", "end_block_index"),
        "document_title",
        ("cited_text",),
    ),
    "search_result_location": (
        ("search_result_index", "start_block_index", "end_block_index"),
        "title",
        ("cited_text", "source"),
    ),
    "web_search_result_location": ((), "title", ("cited_text", "url", "encrypted_index")),
}
"""The fields of each type of citation: integers, the title (which may be null), and texts. There are no others."""


def _is_whole(data: dict[str, Any]) -> bool:
    """Return whether a citation has all its fields: one from a foreign file may lack some."""
    kind = shapes.opaque_text(data, "type")
    if kind not in _PLACES:
        return False
    numbers, title, texts = _PLACES[kind]
    return (
        data.keys() == {"type", title, *numbers, *texts}
        and all(type(data[key]) is int for key in numbers)
        and all(isinstance(data[key], str) for key in texts)
        and isinstance(data[title], str | None)
    )


def _media(block: ShownMedia) -> dict[str, Any]:
    ref = block.ref
    source: dict[str, Any] = (
        shapes.UploadedPart(ref, {"type": "file", "file_id": ref.file_id})
        if ref.file_id
        else {"type": "base64", "media_type": ref.media_type, "data": Embedded(ref)}
    )
    if block.kind == "image":
        return {"type": "image", "source": source}
    document: dict[str, Any] = {"type": "document", "source": source}
    if block.name:
        document["title"] = block.name
    if block.citations:
        document["citations"] = {"enabled": True}
    return document


# Bytes → events ----------------------------------------------------------------------------------------------------

_STOPS: Final[dict[str, StopReason]] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "overflow",
}


class Decoder:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = SseParser()
        self._kinds: dict[int, str] = {}
        self._usage: dict[str, int] = {}
        self._stop: tuple[StopReason, str] | None = None
        self._answered_by = self._response_id = ""
        self._closed_call: int | None = None
        self._own: dict[int, tuple[dict[str, Any], list[str]]] = {}
        """Unfinished blocks that only the platform has, with the pieces of their input."""

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for event in self._stream.feed(data):
                yield from self.decode(parse_object(event.data, self._model))

    def finish(self) -> Iterator[DecoderEvent]:
        """Decode an answer that was not streamed. After a stream nothing is pending: `message_stop` ends it."""
        with wire_errors(self._model):
            for answer in self._stream.whole_answers(self._model):
                yield from self._decode_whole(answer)

    def _decode_whole(self, answer: dict[str, Any]) -> Iterator[DecoderEvent]:
        """Decode a message that was not streamed, as the events of a stream."""
        if answer.get("error"):
            raise fault(None, answer, self._model)
        if not isinstance(answer.get("content"), list):
            raise not_an_answer(self._model, ", ".join(list(answer)[:8]))
        yield from self.decode({"type": "message_start", "message": answer})
        for index, block in enumerate(answer["content"]):
            yield from self.decode({"type": "content_block_start", "index": index, "content_block": block})
            for delta in _deltas_of(block):
                yield from self.decode({"type": "content_block_delta", "index": index, "delta": delta})
            yield from self.decode({"type": "content_block_stop", "index": index})
        yield from self.decode({"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}})
        yield from self.decode({"type": "message_stop"})

    def decode(self, event: dict[str, Any]) -> Iterator[DecoderEvent]:
        """Decode one event. Bedrock sends the same events in other frames."""
        match event.get("type"):
            case "message_start":
                self._answered_by = get_name(event["message"], "model")
                self._response_id = get_name(event["message"], "id")
                yield from self._count(event["message"].get("usage"))
            case "content_block_start":
                yield from self._finish_call()
                yield from self._start(get_int(event, "index"), event["content_block"])
            case "content_block_delta":
                yield from self._delta(get_int(event, "index"), event["delta"])
            case "content_block_stop":
                if self._kinds.get(event["index"]) == "tool_use":
                    self._closed_call = event["index"]
                elif event["index"] in self._own:
                    yield self._own_block(event["index"])
            case "message_delta":
                reason = get_str(event["delta"], "stop_reason")
                if reason:
                    self._stop = (_STOPS.get(reason, "other"), reason)
                    if self._stop[0] not in ("max_tokens", "overflow"):
                        yield from self._finish_call()
                yield from self._count(event.get("usage"))
            case "message_stop":
                reason, detail = self._stop or ("other", "")
                yield Stopped(reason=reason, detail=detail, model=self._answered_by, response_id=self._response_id)
            case "error":
                raise fault(None, event, self._model)
            case _:
                pass  # ping, and unknown events, which the protocol requires clients to skip

    def _own_block(self, index: int) -> DecoderEvent:
        block, pieces = self._own.pop(index)
        if pieces:
            block = {**block, "input": parse_object("".join(pieces) or "{}", self._model)}
        return BlockAdded(index=index, block=provider_block(self._model.opaque_owner, sanitize_json(block)))

    def _finish_call(self) -> Iterator[DecoderEvent]:
        """Finish the last closed call. It waits for the stop reason, because a call that was cut off by the token limit
        is closed too."""
        if self._closed_call is not None:
            yield CallFinished(index=self._closed_call)
            self._closed_call = None

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[DecoderEvent]:
        self._kinds[index] = block["type"]
        match block["type"]:
            case "text" if block.get("text"):
                yield TextDelta(index=index, text=get_str(block, "text"))
            case "thinking" if block.get("thinking"):
                yield ThinkingDelta(index=index, text=get_str(block, "thinking"))
            case "redacted_thinking":
                yield ThinkingSealed(
                    index=index, opaque=shapes.opaque_of(self._model, {"data": block["data"]}), redacted=True
                )
            case "tool_use":
                yield CallStarted(index=index, id=get_str(block, "id"), name=get_str(block, "name"))
            case "text" | "thinking":
                pass
            case _:
                self._own[index] = (block, [])  # a block that only the platform has; emitted at its end

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[DecoderEvent]:
        match delta["type"]:
            case "text_delta":
                yield TextDelta(index=index, text=get_str(delta, "text"))
            case "thinking_delta":
                yield ThinkingDelta(index=index, text=get_str(delta, "thinking"))
            case "signature_delta":
                yield ThinkingSealed(
                    index=index, opaque=shapes.opaque_of(self._model, {"signature": delta["signature"]})
                )
            case "input_json_delta" if self._kinds.get(index) == "tool_use":
                yield CallDelta(index=index, arguments=get_str(delta, "partial_json"))
            case "input_json_delta" if index in self._own:
                self._own[index][1].append(get_str(delta, "partial_json"))
            case "citations_delta":
                yield Cited(index=index, citation=self._citation(delta["citation"]))
            case _:
                pass

    def _count(self, usage: dict[str, Any] | None) -> Iterator[DecoderEvent]:
        """Report usage. Counts are cumulative; `input_tokens` excludes cached tokens."""
        if not usage:
            return
        counts = usage | get_object(usage, "output_tokens_details")
        self._usage |= {key: int(value) for key, value in counts.items() if isinstance(value, int)}
        read = self._usage.get("cache_read_input_tokens", 0)
        written = self._usage.get("cache_creation_input_tokens", 0)
        yield UsageReported(
            usage=Usage(
                input_tokens=self._usage.get("input_tokens", 0) + read + written,
                output_tokens=self._usage.get("output_tokens", 0),
                cache_read_tokens=read,
                cache_write_tokens=written,
                thinking_tokens=self._usage.get("thinking_tokens", 0),
            )
        )

    def _citation(self, raw: dict[str, Any]) -> Citation:
        """Convert a citation. Its opaque data lacks `file_id`, which a request must not contain."""
        data = {key: value for key, value in raw.items() if key != "file_id"}
        common: dict[str, Any] = {
            "quote": get_str(raw, "cited_text"),
            "title": get_str(raw, "document_title") or get_str(raw, "title"),
            "url": get_str(raw, "url"),
            "opaque": shapes.opaque_of(self._model, data),
        }
        match raw.get("type"):
            case "page_location":
                return Citation(
                    locator="page",
                    first=get_int(raw, "start_page_number"),
                    last=get_int(raw, "end_page_number") - 1,
                    **common,
                )
            case "char_location":
                return Citation(
                    locator="char",
                    first=get_int(raw, "start_char_index"),
                    last=get_int(raw, "end_char_index"),
                    **common,
                )
            case "content_block_location":
                return Citation(
                    locator="block",
                    first=get_int(raw, "start_block_index"),
                    last=get_int(raw, "end_block_index"),
                    **common,
                )
            case "search_result_location":
                return Citation(
                    locator="result",
                    first=get_int(raw, "start_block_index"),
                    last=get_int(raw, "end_block_index"),
                    **common,
                )
            case _:
                return Citation(**common)


def _deltas_of(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the deltas that a stream would send after the start of a block."""
    match block.get("type"):
        case "tool_use" if block.get("input"):
            yield {"type": "input_json_delta", "partial_json": json_text(block["input"])}
        case "thinking" if block.get("signature"):
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "text":
            for citation in block.get("citations") or ():
                yield {"type": "citations_delta", "citation": citation}
        case _:
            pass


# Answers other than 200 --------------------------------------------------------------------------------------------

_STATUS: Final = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "timeout_error": 504,
}


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """Return the error for a response body or an `error` event. `sent` is the request, to find the media at fault."""
    return faults.error_from_body(status, body, model, sent, _STATUS)
