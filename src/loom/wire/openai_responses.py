"""OpenAI Responses, without storage on the server: every request carries the whole conversation.

Opaque data, sent back unchanged:
- on thinking the reasoning item: `{"id", "summary", "encrypted_content"}` (and `content` if a server sends it);
- on a text its message: `{"id", "phase"?, "refusal"?: true}`; on a call `{"id"}` of its item.

An item's id is sent back only together with the reasoning of the same message; otherwise the server would look for that
reasoning. Without an id, a text is sent as a simple message, which needs none.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
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
from loom.prompt import Prompt, ShownMedia, ShownMessage, ShownRaw, ShownResult
from loom.sampling import keep_supported
from loom.wire import faults, options, shapes
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

PATH: Final = "/responses"
"""The path after a base URL with a version: `https://api.openai.com/v1`."""
HEADERS: Final[dict[str, str]] = {}


def path(model: Model) -> str:  # noqa: ARG001 - every wire has the same signature
    return PATH


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def encode(prompt: Prompt) -> dict[str, Any]:
    model = prompt.model
    sampling = keep_supported(model, prompt.sampling)
    body: dict[str, Any] = {"model": model.name, "input": _input(prompt), "stream": True, "store": False}
    if model.thinking.replay != "never":
        # A model without reasoning refuses this field.
        body["include"] = ["reasoning.encrypted_content"]
    if said := options.system_text(prompt):
        body["instructions"] = said
    if prompt.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in prompt.tools
        ]
        if sampling.tool_name:
            body["tool_choice"] = {"type": "function", "name": sampling.tool_name}
        elif sampling.tool_choice != "auto":
            body["tool_choice"] = "none" if sampling.tool_choice == "none" else "required"
        if sampling.parallel_calls is not None:
            body["parallel_tool_calls"] = sampling.parallel_calls
    if sampling.server_tools:
        body["tools"] = [*body.get("tools", ()), *(model.server_tools[name] for name in sampling.server_tools)]
    if sampling.max_tokens is not None:
        body["max_output_tokens"] = sampling.max_tokens
    body |= shapes.present(
        {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "service_tier": sampling.service_tier or None,
            "safety_identifier": sampling.user or None,
            "prompt_cache_key": sampling.cache_key or None,
        }
    )
    level = model.thinking.nearest(sampling.thinking)
    if level and model.thinking.request == "effort":
        effort = {"effort": "none" if level == "off" else level}
        body["reasoning"] = effort if sampling.thinking == "off" else effort | {"summary": "auto"}
    if sampling.output_schema is not None and options.has_native_schema(prompt):
        schema = sampling.output_schema.schema
        named = {"name": options.schema_name(prompt), "schema": schema, "strict": options.is_strict(schema)}
        body["text"] = {"format": {"type": "json_schema", **named}}
    return options.with_extra(body, prompt)


def _input(prompt: Prompt) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if prompt.body is not None and options.is_system_own(prompt):
        items += prompt.body.head
    for message in prompt.messages:
        if message.form is not None:
            items += message.form
            continue
        match message.role:
            case "user" | "system":
                content = [_part(block) for block in shapes.contents(message.blocks)]
                role = "developer" if message.role == "system" else "user"
                items.append({"type": "message", "role": role, "content": content})
            case "assistant":
                items.extend(_assistant(message))
            case "tool":
                items.extend(_output(block) for block in message.blocks if isinstance(block, ShownResult))
    return items


def _assistant(message: ShownMessage) -> list[dict[str, Any]]:
    """Return the items of an assistant message. Reasoning must directly precede an item; reasoning at the end, of an
    answer that was cut off, is left out, because the server refuses it."""
    items: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    reasoned = any(isinstance(block, ThinkingBlock) and _reasoning(block) for block in message.blocks)
    before: TextBlock | None = None
    for block in message.blocks:
        match block:
            case ThinkingBlock():
                waiting += _reasoning(block)
                continue
            case TextBlock():
                item = _text_item(block, with_id=reasoned)
                if before is not None and not waiting and _source(before) == _source(block):
                    items[-1]["content"] += item["content"]
                    continue
            case ToolCall():
                item = _call(block, with_id=reasoned)
            case ShownMedia():
                item = {"type": "message", "role": "assistant", "content": [_part(block)]}
            case ShownResult():
                item = _output(block)
            case ShownRaw():
                item = {**block.data}
            case _:
                assert_never(block)
        items += [*waiting, item]
        waiting, before = [], block if isinstance(block, TextBlock) else None
    return items


_REASONING: Final[dict[str, type]] = {"id": str, "summary": list, "content": list, "encrypted_content": str}
"""The fields of a reasoning item to send back, and their types, which are checked: a foreign file may contain
anything."""


def _reasoning(block: ThinkingBlock) -> list[dict[str, Any]]:
    owed = shapes.opaque_data(block)
    data = {key: owed[key] for key, kind in _REASONING.items() if isinstance(owed.get(key), kind)}
    if not (data.get("encrypted_content") or data.get("content")):
        return []  # the server would look up an id alone, and has nothing stored
    return [{"type": "reasoning", "summary": [], **data}]


def _text_item(block: TextBlock, *, with_id: bool) -> dict[str, Any]:
    data = shapes.opaque_data(block)
    message: dict[str, Any] = {"type": "message", "role": "assistant"}
    own, phase = shapes.opaque_text(data, "id"), shapes.opaque_text(data, "phase")
    if with_id and own:
        part: dict[str, Any] = (
            {"type": "refusal", "refusal": block.text}
            if data.get("refusal")
            else {"type": "output_text", "text": block.text, "annotations": []}
        )
        message |= {"id": own, "status": "completed", "content": [part]}
    else:
        message["content"] = block.text
    return message | {"phase": phase} if phase else message


def _source(block: TextBlock) -> tuple[Any, Any]:
    """Return the id and phase of a text. Adjacent texts with the same ones are pieces of one message; so are texts of
    other providers, which have none."""
    return shapes.opaque_data(block).get("id"), shapes.opaque_data(block).get("phase")


def _call(block: ToolCall, *, with_id: bool) -> dict[str, Any]:
    own = shapes.opaque_text(shapes.opaque_data(block), "id")
    named = {"id": own} if with_id and own else {}
    arguments = json_text(block.arguments)
    return {"type": "function_call", **named, "call_id": block.id, "name": block.name, "arguments": arguments}


def _output(block: ShownResult) -> dict[str, Any]:
    answer = shapes.result_with_error_prefix(block)
    output = [_part(inner) for inner in answer] if shapes.media_among(answer) else shapes.answer_text(block)
    return {"type": "function_call_output", "call_id": block.call_id, "output": output}


def _part(block: shapes.WireContent) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    file_id = block.ref.file_id
    if block.kind == "image":
        image: dict[str, Any] = {"type": "input_image", "detail": block.detail}
        if file_id:
            return shapes.UploadedPart(block.ref, image | {"file_id": file_id})
        return image | {"image_url": shapes.media_data_url(block)}
    if file_id:
        return shapes.UploadedPart(block.ref, {"type": "input_file", "file_id": file_id})
    return {"type": "input_file", "filename": shapes.filename(block), "file_data": shapes.media_data_url(block)}


# Bytes → events ----------------------------------------------------------------------------------------------------

_INCOMPLETE: Final[dict[str, StopReason]] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class Decoder:
    """Decodes events. Blocks are numbered by the first event of each, which is the order of the output."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stream = SseParser()
        self._numbers: dict[tuple[int | str, str, int], int] = {}
        self._spoken: set[int] = set()
        self._refusals: set[int] = set()
        self._cited: set[int] = set()
        self._called = False

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for event in self._stream.feed(data):
                if event.data.strip() != "[DONE]":
                    yield from self._event(parse_object(event.data, self._model))

    def finish(self) -> Iterator[DecoderEvent]:
        """Decode an answer that was not streamed. After a stream nothing is pending: `response.completed` ends it."""
        with wire_errors(self._model):
            for answer in self._stream.whole_answers(self._model):
                yield from self._decode_whole(answer)

    def _decode_whole(self, answer: dict[str, Any]) -> Iterator[DecoderEvent]:
        """Decode a response that was not streamed."""
        if answer.get("error"):
            raise fault(None, answer, self._model)
        if not isinstance(answer.get("output"), list):
            raise not_an_answer(self._model, ", ".join(list(answer)[:8]))
        for place, item in enumerate(answer["output"]):
            yield from self._on_item_done(place, item)
        yield from self._end(answer)

    def _event(self, event: dict[str, Any]) -> Iterator[DecoderEvent]:
        match event.get("type"):
            case "response.output_item.added":
                yield from self._on_item_added(_place(event), event["item"])
            case "response.output_item.done":
                yield from self._on_item_done(_place(event), event["item"])
            case "response.output_text.delta" | "response.refusal.delta" as kind:
                index = self._number(_place(event), "text", get_count(event, "content_index"))
                if kind == "response.refusal.delta":
                    self._refusals.add(index)
                yield from self._text(index, get_str(event, "delta"))
            case "response.output_text.annotation.added":
                index = self._number(_place(event), "text", get_count(event, "content_index"))
                self._cited.add(index)
                yield Cited(index=index, citation=_citation(event["annotation"]))
            case "response.reasoning_summary_part.added":
                index = self._number(_place(event), "thinking")
                if index in self._spoken:
                    yield ThinkingDelta(index=index, text="\n\n")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield from self._thinking_delta(self._number(_place(event), "thinking"), get_str(event, "delta"))
            case "response.function_call_arguments.delta":
                yield from self._arguments(self._number(_place(event), "call"), get_str(event, "delta"))
            case "response.completed" | "response.incomplete":
                yield from self._end(event["response"])
            case "response.failed":
                raise fault(None, event["response"], self._model)
            case "error":
                raise fault(None, event, self._model)
            case _:
                pass  # progress of items that also arrive complete, and unknown events

    def _on_item_added(self, place: int | str, item: dict[str, Any]) -> Iterator[DecoderEvent]:
        match item["type"]:
            case "reasoning":
                self._number(place, "thinking")
            case "function_call" | "custom_tool_call":
                yield from self._begin_call(place, item)
            case _:
                pass

    def _on_item_done(self, place: int | str, item: dict[str, Any]) -> Iterator[DecoderEvent]:
        match item["type"]:
            case "reasoning":
                index = self._number(place, "thinking")
                if index not in self._spoken:
                    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                    yield from self._thinking_delta(index, "\n\n".join(get_str(part, "text") for part in parts))
                kept = ("id", "summary", "content", "encrypted_content")
                owed = {key: item[key] for key in kept if item.get(key) is not None}
                yield ThinkingSealed(index=index, opaque=shapes.opaque_of(self._model, owed))
            case "message":
                for number, part in enumerate(item.get("content") or ()):
                    yield from self._seal_text(self._number(place, "text", number), part, item)
            case "function_call" | "custom_tool_call" as kind:
                yield from self._begin_call(place, item)
                index = self._number(place, "call")
                if index not in self._spoken:
                    # The input of a freeform tool is text: it becomes the only argument of a function.
                    freeform = {"input": get_str(item, "input")} if kind == "custom_tool_call" else None
                    text = get_str(item, "arguments") if freeform is None else json.dumps(freeform)
                    yield from self._arguments(index, text)
                if item.get("status") != "incomplete":
                    yield CallFinished(
                        index=index,
                        opaque=shapes.opaque_of(self._model, {"id": item["id"]}) if item.get("id") else None,
                    )
            case "image_generation_call" if item.get("result"):
                data = b64decode(item["result"], validate=True)
                media_type = f"image/{get_str(item, 'output_format') or 'png'}"
                yield MediaArrived(index=self._number(place, "image"), media_type=media_type, data=data)
            case "web_search_call" | "file_search_call" | "code_interpreter_call" as kind if (
                kind in self._model.own_blocks
            ):
                block = provider_block(self._model.opaque_owner, sanitize_json(item))
                yield BlockAdded(index=self._number(place, "block"), block=block)
            case _:
                pass

    def _begin_call(self, place: int | str, item: dict[str, Any]) -> Iterator[DecoderEvent]:
        if (place, "call", 0) not in self._numbers:
            self._called = True
            name, namespace = get_str(item, "name"), get_str(item, "namespace")
            yield CallStarted(
                index=self._number(place, "call"),
                id=get_str(item, "call_id"),
                name=f"{namespace}__{name}" if namespace else name,
            )

    def _seal_text(self, index: int, part: dict[str, Any], item: dict[str, Any]) -> Iterator[DecoderEvent]:
        if part["type"] == "refusal":
            self._refusals.add(index)
        if index not in self._spoken:
            yield from self._text(index, get_str(part, "text") or get_str(part, "refusal"))
        if index not in self._cited:
            for annotation in part.get("annotations") or ():
                yield Cited(index=index, citation=_citation(annotation))
        owed = {key: item[key] for key in ("id", "phase") if item.get(key)}
        if index in self._refusals:
            owed["refusal"] = True
        if owed:
            yield TextSealed(index=index, opaque=shapes.opaque_of(self._model, owed))

    def _text(self, index: int, text: str) -> Iterator[DecoderEvent]:
        if text:
            self._spoken.add(index)
            yield TextDelta(index=index, text=text)

    def _thinking_delta(self, index: int, text: str) -> Iterator[DecoderEvent]:
        if text:
            self._spoken.add(index)
            yield ThinkingDelta(index=index, text=text)

    def _arguments(self, index: int, text: str) -> Iterator[DecoderEvent]:
        if text:
            self._spoken.add(index)
            yield CallDelta(index=index, arguments=text)

    def _end(self, response: dict[str, Any]) -> Iterator[DecoderEvent]:
        if response.get("usage"):
            yield UsageReported(usage=_usage(response["usage"]))
        detail = get_str(get_object(response, "incomplete_details"), "reason")
        reason: StopReason = "tool_calls" if self._called else "refusal" if self._refusals else "end"
        if response.get("status") == "incomplete" or detail:
            reason = _INCOMPLETE.get(detail, "other")
        yield Stopped(
            reason=reason, detail=detail, model=get_name(response, "model"), response_id=get_name(response, "id")
        )

    def _number(self, place: int | str, kind: str, part: int = 0) -> int:
        return self._numbers.setdefault((place, kind, part), len(self._numbers))


def _place(event: dict[str, Any]) -> int | str:
    """Return the index of an event's item; its id from llama.cpp, which sends no index."""
    place = event.get("output_index")
    return place if isinstance(place, int) else get_str(event, "item_id") or get_str(get_object(event, "item"), "id")


def _citation(raw: dict[str, Any]) -> Citation:
    """Convert a citation: of a file at one position of the text, of a web page for a range of it."""
    first, last = ("index", "index") if "index" in raw else ("start_index", "end_index")
    return Citation(
        url=get_str(raw, "url"),
        title=get_str(raw, "title") or get_str(raw, "filename"),
        start=get_count(raw, first),
        end=get_count(raw, last),
    )


def _usage(usage: dict[str, Any]) -> Usage:
    taken, given = get_object(usage, "input_tokens_details"), get_object(usage, "output_tokens_details")
    return Usage(
        input_tokens=get_count(usage, "input_tokens"),
        output_tokens=get_count(usage, "output_tokens"),
        cache_read_tokens=get_count(taken, "cached_tokens"),
        cache_write_tokens=get_count(taken, "cache_write_tokens"),
        thinking_tokens=get_count(given, "reasoning_tokens"),
    )


# Answers other than 200 --------------------------------------------------------------------------------------------


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """Return the error for a response body, an `error` event or a failed response. `sent` is the request, to find the
    media at fault."""
    return faults.error_from_body(status, body, model, sent, faults.OPENAI_STATUS)
