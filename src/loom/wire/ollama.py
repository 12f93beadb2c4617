"""Ollama's own protocol, `/api/chat`: lines of JSON, content as one string, images in a separate field.

Opaque data: on thinking `{"field": "thinking"}`; the text is sent back in the same field. Thinking between tags in the
content, `{"field": "content"}`, is not sent back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from loom.content.blocks import ThinkingBlock, ToolCall
from loom.content.json_values import json_text
from loom.errors import ProviderError, WireError
from loom.events import CallDelta, CallFinished, CallStarted, DecoderEvent, Stopped, StopReason, UsageReported
from loom.models import Model, Usage
from loom.prompt import Embedded, Prompt, ShownBlock, ShownMessage, ShownResult
from loom.sampling import keep_supported
from loom.wire import faults, options, shapes
from loom.wire.deltas import Deltas
from loom.wire.framing import LineSplitter, get_count, get_name, get_object, get_str, parse_object, wire_errors

PATH: Final = "/api/chat"
HEADERS: Final[dict[str, str]] = {}


def path(model: Model) -> str:  # noqa: ARG001 - every wire has the same signature
    return PATH


# Prompt → JSON -----------------------------------------------------------------------------------------------------


def encode(prompt: Prompt) -> dict[str, Any]:
    """Return the request. `num_ctx` and `truncate` prevent the server from dropping the oldest messages silently."""
    model = prompt.model
    sampling = keep_supported(model, prompt.sampling)
    settings = {"num_ctx": model.limits.context_tokens} | shapes.present(
        {
            "num_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
        }
    )
    body: dict[str, Any] = {
        "model": model.name,
        "messages": _messages(prompt),
        "stream": True,
        "truncate": False,
        "options": settings,
    }
    if prompt.tools and sampling.tool_choice != "none":
        body["tools"] = [shapes.function_tool(tool) for tool in prompt.tools]
    if sampling.output_schema is not None and options.has_native_schema(prompt):
        body["format"] = sampling.output_schema.schema
    think = _think(prompt)
    return options.with_extra(body if think is None else body | {"think": think}, prompt)


def _think(prompt: Prompt) -> bool | str | None:
    """Return the value of `think`. Models with levels ignore true and false, so they get a level."""
    wish, rule = prompt.sampling.thinking, prompt.model.thinking.request
    if not wish or rule == "none":
        return None
    if rule in ("level", "effort"):
        return prompt.model.thinking.nearest("low" if wish == "off" else wish)
    return wish != "off"


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (
        [{"role": "system", "content": said}] if (said := options.system_text(prompt)) else []
    )
    for message in prompt.messages:
        match message.role:
            case "user" | "system":
                content = shapes.paragraphs(message.blocks)
                messages.append({"role": "user", "content": content, **_images(message.blocks)})
            case "assistant":
                messages.append(_assistant(message))
            case "tool":
                messages.extend(
                    {
                        "role": "tool",
                        "tool_name": block.name,
                        "content": shapes.answer_text(block),
                        **_images(block.blocks),
                    }
                    for block in message.blocks
                    if isinstance(block, ShownResult)
                )
    return messages


def _assistant(message: ShownMessage) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "assistant", "content": shapes.joined_text(message.blocks)}
    thoughts = [
        block.text
        for block in message.blocks
        if isinstance(block, ThinkingBlock) and (block.opaque is None or block.opaque.data.get("field") != "content")
    ]
    if thoughts:
        written["thinking"] = "".join(thoughts)
    calls = [
        {"function": {"name": block.name, "arguments": block.arguments}}
        for block in message.blocks
        if isinstance(block, ToolCall)
    ]
    if calls:
        written["tool_calls"] = calls
    return written | _images(message.blocks)


def _images(blocks: tuple[ShownBlock, ...]) -> dict[str, Any]:
    """Return the `images` field, which contains audio too: the server distinguishes them by their bytes."""
    images = [Embedded(block.ref) for block in shapes.media_among(blocks)]
    return {"images": images} if images else {}


# Bytes → events ----------------------------------------------------------------------------------------------------

_STOPS: Final[dict[str, StopReason]] = {"stop": "end", "length": "max_tokens"}


class Decoder:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._lines = LineSplitter()
        self._deltas = Deltas(model, tags=True)
        self._called = False

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for line in self._lines.feed(data):
                if line.strip():
                    yield from self._line(parse_object(line, self._model))

    def finish(self) -> Iterator[DecoderEvent]:
        """Decode the last line, which may lack its end. A partial line is ignored: the stream was cut off."""
        with wire_errors(self._model):
            try:
                last = parse_object(self._lines.rest() or b"{}", self._model)
            except WireError:
                last = {}
            yield from self._line(last)
            yield from self._deltas.end()

    def _line(self, line: dict[str, Any]) -> Iterator[DecoderEvent]:
        if line.get("error"):
            raise fault(None, line, self._model)
        message = get_object(line, "message")
        yield from self._deltas.thinking(get_str(message, "thinking"), "thinking")
        yield from self._deltas.content(get_str(message, "content"))
        for call in message.get("tool_calls") or ():
            yield from self._call(call)
        if line.get("done"):
            yield from self._deltas.end()
            yield UsageReported(
                usage=Usage(
                    input_tokens=get_count(line, "prompt_eval_count"),
                    output_tokens=get_count(line, "eval_count"),
                )
            )
            detail = get_str(line, "done_reason")
            reason = _STOPS.get(detail, "other")
            yield Stopped(
                reason="tool_calls" if self._called and reason == "end" else reason,
                detail=detail,
                model=get_name(line, "model"),
            )

    def _call(self, call: dict[str, Any]) -> Iterator[DecoderEvent]:
        """Decode a call; Ollama does not stream its arguments."""
        function = call["function"]
        self._called = True
        yield from self._deltas.end()
        index = self._deltas.call()
        yield CallStarted(index=index, id=get_str(call, "id"), name=get_str(function, "name"))
        arguments = function.get("arguments")
        if arguments:
            text = arguments if isinstance(arguments, str) else json_text(arguments)
            yield CallDelta(index=index, arguments=text)
        yield CallFinished(index=index)


# Answers other than 200 --------------------------------------------------------------------------------------------


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """Return the error for `{"error": "…"}` of a response or of a line in the stream."""
    return faults.error_from_body(status, body, model, sent, {})
