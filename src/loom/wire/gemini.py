"""Gemini generateContent, streamed.

Opaque data, sent back on the part that it came with:
- on a call `{"id"?, "thoughtSignature"?}`: the id is sent, with call and response, only if Gemini set one;
- on a text `{"thoughtSignature"}`: a signed part is a separate block, never merged with its neighbours;
- on thinking `{"thoughtSignature", "text"?, "thought"?}`: a signature on a blank part (`text` is its white space) or on
  a thought (`thought` true). Thought summaries without a signature are not sent back.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, assert_never, cast

from loom.content.blocks import NO_OUTPUT, TextBlock, ThinkingBlock, ToolCall
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
    MediaArrived,
    Stopped,
    StopReason,
    TextDelta,
    TextSealed,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
)
from loom.models import Model, Usage
from loom.prompt import Embedded, Prompt, ShownBlock, ShownMedia, ShownMessage, ShownRaw, ShownResult
from loom.sampling import Sampling, keep_supported
from loom.wire import faults, grounding, options, shapes
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

HEADERS: Final[dict[str, str]] = {}
_IMAGES: Final = "image_generation"
"""Not a tool in this protocol, but an option that allows images in the answer."""
UNSIGNED: Final = "skip_thought_signature_validator"
"""The value that replaces the signature of a call which this model did not make."""


def path(model: Model) -> str:
    """Return the path after a base URL with a version: `https://generativelanguage.googleapis.com/v1beta`."""
    return f"/models/{model.name.removeprefix('models/')}:streamGenerateContent?alt=sse"


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def encode(prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {"contents": _contents(prompt)}
    sampling = keep_supported(prompt.model, prompt.sampling)
    if said := options.system_text(prompt):
        body["systemInstruction"] = {"parts": [{"text": said}]}
    if prompt.tools:
        declarations = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in prompt.tools
        ]
        body["tools"] = [{"functionDeclarations": declarations}]
        if sampling.tool_choice != "auto":
            named = {"allowedFunctionNames": [sampling.tool_name]} if sampling.tool_name else {}
            body["toolConfig"] = {"functionCallingConfig": {"mode": sampling.tool_choice.upper(), **named}}
    if sampling.server_tools:
        own = [prompt.model.server_tools[name] for name in sampling.server_tools if name != _IMAGES]
        if own:
            body["tools"] = [*body.get("tools", ()), *own]
    generation = _generation(prompt, sampling)
    if generation:
        body["generationConfig"] = generation
    if sampling.service_tier:
        body["serviceTier"] = sampling.service_tier
    return options.with_extra(body, prompt)


def _generation(prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
    generation = shapes.present(
        {
            "maxOutputTokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "topP": sampling.top_p,
            "seed": sampling.seed,
            "stopSequences": list(sampling.stop) or None,
        }
    )
    if sampling.output_schema is not None and options.has_native_schema(prompt):
        generation["responseMimeType"] = "application/json"
        generation["responseJsonSchema"] = sampling.output_schema.schema
    if _IMAGES in sampling.server_tools:
        generation |= prompt.model.server_tools[_IMAGES]
    if thinking := _thinking(prompt.model, sampling):
        generation["thinkingConfig"] = thinking
    return generation


def _thinking(model: Model, sampling: Sampling) -> dict[str, Any]:
    """Return `thinkingConfig`. The budget leaves tokens for the answer, because both share one limit."""
    rule = model.thinking
    if rule.request not in ("level", "budget"):
        return {}
    shown = {"includeThoughts": sampling.thinking != "off"}
    if not sampling.thinking:
        return shown
    if rule.request == "level":
        return {
            "thinkingLevel": rule.nearest("minimal" if sampling.thinking == "off" else sampling.thinking).upper(),
            **shown,
        }
    most = sampling.max_tokens or model.limits.max_output_tokens
    return {"thinkingBudget": rule.budget(sampling.thinking, most), **shown}


def _contents(prompt: Prompt) -> list[dict[str, Any]]:
    """Return the contents. Results and the user message after them are one content, results first."""
    contents: list[dict[str, Any]] = []
    calls: list[ToolCall] = []
    is_joined = True
    for message in prompt.messages:
        if message.role == "assistant":
            calls = [block for block in message.blocks if isinstance(block, ToolCall)]
        if message.form is not None:
            contents += message.form
            is_joined = False
            continue
        match message.role:
            case "user" | "system":
                role, parts = "user", [_content(block, prompt.model) for block in shapes.contents(message.blocks)]
            case "assistant":
                role, parts = "model", _model_parts(message, prompt.model)
            case "tool":
                role, parts = "user", _responses(message, calls)
        if not parts:
            continue  # only thinking, which is not sent back
        if contents and is_joined and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
        is_joined = True
    return contents


def _model_parts(message: ShownMessage, model: Model) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    unsigned = model.thinking.signature_required
    for block in message.blocks:
        part = _model_part(block, model)
        if part is None:
            continue
        if isinstance(block, ToolCall):
            if unsigned and "thoughtSignature" not in part:
                part["thoughtSignature"] = UNSIGNED
            unsigned = False  # only the first call of a step has a signature
        parts.append(part)
    return parts


def _model_part(block: ShownBlock, model: Model) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"text": block.text, **_signature(block)}
        case ThinkingBlock():
            data, signed = shapes.opaque_data(block), _signature(block)
            if not signed:
                return None
            if data.get("thought"):
                return {"text": block.text, "thought": True, **signed}
            return {"text": shapes.opaque_text(data, "text"), **signed}
        case ToolCall():
            call = {**_own_id(block), "name": block.name, "args": block.arguments}
            return {"functionCall": call, **_signature(block)}
        case ShownMedia():
            return _content(block, model)
        case ShownResult():
            return _response(block, block.name, {})
        case ShownRaw():
            return {key: value for key, value in block.data.items() if key != "type"}
        case _:
            assert_never(block)


def _signature(block: TextBlock | ThinkingBlock | ToolCall) -> dict[str, Any]:
    signature = shapes.opaque_text(shapes.opaque_data(block), "thoughtSignature")
    return {"thoughtSignature": signature} if signature else {}


def _own_id(call: ToolCall) -> dict[str, Any]:
    own = shapes.opaque_text(shapes.opaque_data(call), "id")
    return {"id": own} if own else {}


def _responses(message: ShownMessage, calls: list[ToolCall]) -> list[dict[str, Any]]:
    """Return the results in the order of the calls, because Gemini matches them by order if they have no ids."""
    asked = {call.id: (position, call) for position, call in enumerate(calls)}
    results = [block for block in message.blocks if isinstance(block, ShownResult)]
    results.sort(key=lambda result: asked[result.call_id][0] if result.call_id in asked else len(asked))
    parts: list[dict[str, Any]] = []
    for result in results:
        _, call = asked.get(result.call_id, (0, None))
        own = _own_id(call) if call is not None else {}
        parts.append(_response(result, call.name if call is not None else result.name, own))
    return parts


def _response(result: ShownResult, name: str, own: dict[str, Any]) -> dict[str, Any]:
    media = [_source(block) for block in shapes.media_among(result.blocks)]
    said = shapes.paragraphs(result.blocks) or ("" if media else NO_OUTPUT)
    response = {"error" if result.is_error else "output": said} if said or result.is_error else {}
    function: dict[str, Any] = {**own, "name": name, "response": response}
    return {"functionResponse": function | {"parts": media} if media else function}


def _content(block: shapes.WireContent, model: Model) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"text": block.text}
    part = _source(block)
    if block.detail == "low" and model.tokens.image == "ceiling":
        # Models with a token ceiling per image accept a resolution for each part; older ones only for a whole request.
        part["mediaResolution"] = {"level": "MEDIA_RESOLUTION_LOW"}
    return part


_NAMES: Final = {"video/quicktime": "video/mov", "video/x-msvideo": "video/avi"}
"""Media types that have another name on this platform."""


def _source(block: ShownMedia) -> dict[str, Any]:
    ref = block.ref
    media_type = _NAMES.get(ref.media_type, ref.media_type)
    if ref.file_id:
        return {"fileData": shapes.UploadedPart(ref, {"mimeType": media_type, "fileUri": ref.file_id})}
    return {"inlineData": {"mimeType": media_type, "data": Embedded(ref)}}


# Bytes → events ----------------------------------------------------------------------------------------------------

_STOPS: Final[dict[str, StopReason]] = {
    "STOP": "end",
    "MAX_TOKENS": "max_tokens",
    "CONTINUATION": "max_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}


class Decoder:
    """Decodes events that are complete responses; the last one has a finish reason."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = SseParser()
        self._next = 0
        self._open = ""
        self._texts: dict[int, str] = {}
        self._sources: list[dict[str, Any]] = []
        self._usage: Usage | None = None
        self._called = False

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for event in self._stream.feed(data):
                yield from self._response(parse_object(event.data, self._model))

    def finish(self) -> Iterator[DecoderEvent]:
        """Decode an answer that was not streamed. After a stream nothing is pending: the finish reason ends it."""
        with wire_errors(self._model):
            for answer in self._stream.whole_answers(self._model):
                if not answer.keys() & {"candidates", "promptFeedback", "usageMetadata", "error"}:
                    raise not_an_answer(self._model, ", ".join(list(answer)[:8]))
                yield from self._response(answer)

    def _response(self, response: dict[str, Any]) -> Iterator[DecoderEvent]:
        if response.get("error"):
            raise fault(None, response, self._model)
        candidates = response.get("candidates") or ()
        candidate: dict[str, Any] = candidates[0] if candidates else {}
        for part in get_object(candidate, "content").get("parts") or ():
            yield from self._part(part)
        self._sources += [candidate[key] for key in ("groundingMetadata", "citationMetadata") if candidate.get(key)]
        usage = _usage(get_object(response, "usageMetadata"))
        if usage is not None and usage != self._usage:
            self._usage = usage
            yield UsageReported(usage=usage)
        blocked = get_str(get_object(response, "promptFeedback"), "blockReason")
        reason = get_str(candidate, "finishReason")
        if reason:
            for index, citation in grounding.citations(self._sources, self._texts):
                yield Cited(index=index, citation=citation)
            stop = _STOPS.get(reason, "other")
            detail = get_str(candidate, "finishMessage") or reason
            yield _stop_event("tool_calls" if self._called and stop == "end" else stop, detail, response)
        elif blocked:
            yield _stop_event("refusal", blocked, response)

    def _part(self, part: dict[str, Any]) -> Iterator[DecoderEvent]:
        signature = part.get("thoughtSignature")
        signed: dict[str, Any] = {"thoughtSignature": signature} if signature else {}
        if "functionCall" in part:
            yield from self._call(part["functionCall"], signed)
        elif "inlineData" in part:
            blob = part["inlineData"]
            data = b64decode(blob["data"], validate=True)
            yield MediaArrived(index=self._begin(""), media_type=get_str(blob, "mimeType"), data=data)
        elif "executableCode" in part or "codeExecutionResult" in part:
            block = provider_block(self._model.opaque_owner, sanitize_json(part))
            yield BlockAdded(index=self._begin(""), block=block)
        elif part.get("thought"):
            yield from self._thinking_events(get_str(part, "text"), signed)
        elif "text" in part or signed:
            yield from self._text(get_str(part, "text"), signed)

    def _thinking_events(self, text: str, signed: dict[str, Any]) -> Iterator[DecoderEvent]:
        index = self._begin("thinking", apart=bool(signed))
        if text:
            yield ThinkingDelta(index=index, text=text)
        if signed:
            yield ThinkingSealed(index=index, opaque=shapes.opaque_of(self._model, {"thought": True, **signed}))
            self._open = ""

    def _text(self, text: str, signed: dict[str, Any]) -> Iterator[DecoderEvent]:
        """Decode a text part. A signature often comes at the very end, on a blank part."""
        if signed and not text.strip():
            yield ThinkingSealed(index=self._begin(""), opaque=shapes.opaque_of(self._model, {"text": text, **signed}))
        elif text:
            index = self._begin("text", apart=bool(signed))
            self._texts[index] = self._texts.get(index, "") + text
            yield TextDelta(index=index, text=text)
            if signed:
                yield TextSealed(index=index, opaque=shapes.opaque_of(self._model, signed))
                self._open = ""

    def _call(self, call: dict[str, Any], signed: dict[str, Any]) -> Iterator[DecoderEvent]:
        index = self._begin("")
        self._called = True
        given = {"id": call["id"]} if call.get("id") else {}
        yield CallStarted(index=index, id=get_str(call, "id"), name=get_str(call, "name"))
        if call.get("args"):
            yield CallDelta(index=index, arguments=json_text(call["args"]))
        owed = given | signed
        yield CallFinished(index=index, opaque=shapes.opaque_of(self._model, owed) if owed else None)

    def _begin(self, kind: str, *, apart: bool = False) -> int:
        """Return the number of the open block if it is of this kind and not `apart`, else of a new one."""
        if not kind or apart or self._open != kind:
            self._open = kind
            self._next += 1
        return self._next - 1


def _stop_event(reason: StopReason, detail: str, response: dict[str, Any]) -> Stopped:
    return Stopped(
        reason=reason,
        detail=detail,
        model=get_name(response, "modelVersion"),
        response_id=get_name(response, "responseId"),
    )


def _usage(usage: dict[str, Any]) -> Usage | None:
    """Convert usage. The prompt count includes cached tokens; thoughts are not part of the candidates' count, but are
    billed as output."""
    if not usage:
        return None
    thoughts = get_count(usage, "thoughtsTokenCount")
    return Usage(
        input_tokens=get_count(usage, "promptTokenCount") + get_count(usage, "toolUsePromptTokenCount"),
        output_tokens=get_count(usage, "candidatesTokenCount") + thoughts,
        cache_read_tokens=get_count(usage, "cachedContentTokenCount"),
        thinking_tokens=thoughts,
    )


# Answers other than 200 --------------------------------------------------------------------------------------------

_STATUS: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """Return the error for `{"error": {"code", "status", "message", "details"}}` of a response or an event."""
    return faults.error_from_body(status, body, model, sent, _STATUS, retry_after=_retry_after(body))


def _retry_after(body: dict[str, Any]) -> float | None:
    """Return the seconds to wait from a detail such as `"retryDelay": "34.07s"`; None if there is none."""
    details = get_object(body, "error").get("details")
    for detail in cast("list[Any]", details) if isinstance(details, list) else ():
        delay = str(get_object({"detail": detail}, "detail").get("retryDelay", "")).removesuffix("s")
        if delay.replace(".", "", 1).isdecimal():
            return float(delay)
    return None
