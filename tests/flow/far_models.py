"""Models behind real sockets, one for each protocol: what they say, and what they were sent.

    async with far_model("gemini", ToolCall("c1", "shoot"), "A blue picture.") as far:
        session = await far.runtime.session(model="far")
        ...
        assert far.pictures(1) == ...

Only questions to the model count: whatever else a server is asked about itself, it does not know.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Unpack

from loom.content.blocks import ToolCall
from loom.events import DecoderEvent
from loom.prompt import Prompt
from loom.providers.http import HttpProvider, Timeouts
from loom.runtime import Runtime
from loom.runtime.options import RuntimeKeywords
from loom.testing import memory_runtime
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from wire.streams import ndjson, sse

PLATFORMS = {
    "anthropic": ("anthropic", "claude-opus-5"),
    "openai_chat": ("openai-chat", "gpt-5.5"),
    "openai_responses": ("openai", "gpt-5.5"),
    "gemini": ("gemini", "gemini-4-argon"),
    "ollama": ("ollama", "gemma3"),
}
WIRES = tuple(PLATFORMS)
_ASKED = ("/messages", "/chat/completions", "/responses", "streamGenerateContent", "/api/chat")

Words = str | ToolCall
Answer = Words | Sequence[Words] | Reply | Callable[[Request], Reply]


class FarModel:
    def __init__(self, wire: str, server: FarSide, runtime: Runtime) -> None:
        self.wire = wire
        self.server = server
        self.runtime = runtime

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [request.json for request in self.server.requests if is_question(request)]

    def pictures(self, number: int) -> dict[str, str]:
        """Digest → where it stood, of every medium in a request, decoded from what the server received."""
        return dict(media_in(self.requests[number]))

    def texts(self, number: int) -> str:
        """Everything that a request says, without its media."""
        return "\n".join(text for _, text in _strings(self.requests[number], "") if _decoded(text) is None)


def is_question(request: Request) -> bool:
    return any(part in request.target for part in _ASKED)


@asynccontextmanager
async def far_model(
    wire: str,
    *answers: Answer,
    patience: Timeouts | None = None,
    given: bool = False,
    more: Mapping[str, Any] | None = None,
    **options: Unpack[RuntimeKeywords],
) -> AsyncGenerator[FarModel]:
    """A runtime whose model `far` is behind a socket; answers are given in order, the last one for ever.

    `patience` (or `given`) hands the provider in by hand; otherwise the runtime opens it by itself. `more` are settings
    besides those of the model.
    """
    left = list(answers)

    def answer(request: Request) -> Reply:
        if not is_question(request):
            return refusal(404, {"error": "not found"})
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Reply):
            return found
        return found(request) if callable(found) else speak(wire, found)

    provider = GivenProvider(patience or Timeouts(attempts=1))
    if patience is not None or given:
        options["providers"] = {PLATFORMS[wire][0]: provider}
    async with (
        far_side(answer) as server,
        memory_runtime(settings(wire, server.url) | dict(more or {}), **options) as runtime,
        provider.open(runtime),
    ):
        yield FarModel(wire, server, runtime)


class GivenProvider:
    """A provider that is handed in, and that reads media from the runtime it is handed to."""

    def __init__(self, patience: Timeouts) -> None:
        self._patience = patience
        self._http: HttpProvider | None = None

    @asynccontextmanager
    async def open(self, runtime: Runtime) -> AsyncGenerator[None]:
        self._http = HttpProvider(runtime.stores.renditions, lambda _: "sk-far-away-0123", patience=self._patience)
        try:
            yield
        finally:
            await self._http.close()

    def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        assert self._http is not None
        return self._http.stream(prompt)


def settings(wire: str, url: str, name: str = "far", **capabilities: bool) -> dict[str, Any]:
    platform, model = PLATFORMS[wire]
    entry = {"provider": platform, "model": model, "base_url": url, "capabilities": capabilities}
    keys = dict.fromkeys(("anthropic", "openai", "gemini"), "sk-far-away-0123")
    return {"models": {name: entry}, "keys": keys}


# What they say -------------------------------------------------------------------------------------------------------


def speak(wire: str, answer: Words | Sequence[Words]) -> Reply:
    words = [answer] if isinstance(answer, str | ToolCall) else list(answer)
    kind = "application/x-ndjson" if wire == "ollama" else "text/event-stream"
    return Reply(body=_SPOKEN[wire](words), content_type=kind)


def half(wire: str, text: str, call: ToolCall | None = None, **reply: Any) -> Reply:
    """An answer that never comes to its terminal event."""
    whole = speak(wire, [text] if call is None else [text, call])
    kept = {"anthropic": b"event: message_delta", "openai_chat": b'"finish_reason": "', "ollama": b'"done": true'}
    mark = kept.get(wire, b"response.completed" if wire == "openai_responses" else b"finishReason")
    end = whole.body.index(mark)
    start = max(whole.body.rfind(b"\n\n", 0, end) + 2, whole.body.rfind(b"}\n", 0, end) + 2)
    return Reply(body=whole.body[:start], content_type=whole.content_type, **reply)


def _called(words: Sequence[Words]) -> bool:
    return any(isinstance(part, ToolCall) for part in words)


def _anthropic(words: Sequence[Words]) -> bytes:
    events: list[Any] = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-5-20261101",
                "content": [],
                "usage": {"input_tokens": 9},
            },
        }
    ]
    for at, part in enumerate(words):
        if isinstance(part, str):
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": part}
        else:
            block = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(part.arguments)}
        events += [
            {"type": "content_block_start", "index": at, "content_block": block},
            {"type": "content_block_delta", "index": at, "delta": delta},
            {"type": "content_block_stop", "index": at},
        ]
    reason = "tool_use" if _called(words) else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    return sse(*events, {"type": "message_stop"})


def _chat(words: Sequence[Words]) -> bytes:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return {"id": "c", "object": "chat.completion.chunk", "choices": choices}

    events: list[Any] = [chunk({"role": "assistant", "content": ""})]
    for at, part in enumerate(words):
        if isinstance(part, str):
            events.append(chunk({"content": part}))
        else:
            function = {"name": part.name, "arguments": json.dumps(part.arguments)}
            call = {"index": at, "id": part.id, "type": "function", "function": function}
            events.append(chunk({"tool_calls": [call]}))
    events.append(chunk({}, "tool_calls" if _called(words) else "stop"))
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    return sse(*events, {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}, "data: [DONE]")


def _responses(words: Sequence[Words]) -> bytes:
    events: list[Any] = [{"type": "response.created", "response": {"id": "r"}}]
    for at, part in enumerate(words):
        place: dict[str, Any] = {"output_index": at}
        if isinstance(part, str):
            item: dict[str, Any] = {"type": "message", "id": f"msg_{at}", "role": "assistant", "content": []}
            done = {"content": [{"type": "output_text", "text": part, "annotations": []}]}
            delta = {"type": "response.output_text.delta", "content_index": 0, "item_id": item["id"], "delta": part}
        else:
            item = {"type": "function_call", "id": f"fc_{at}", "call_id": part.id, "name": part.name, "arguments": ""}
            done = {"arguments": json.dumps(part.arguments)}
            delta = {"type": "response.function_call_arguments.delta", "delta": done["arguments"]}
        events += [
            {"type": "response.output_item.added", "item": item, **place},
            delta | place,
            {"type": "response.output_item.done", "item": item | done, **place},
        ]
    response = {"id": "r", "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 5}}
    return sse(*events, {"type": "response.completed", "response": response})


def _gemini(words: Sequence[Words]) -> bytes:
    parts = [
        {"text": part}
        if isinstance(part, str)
        else {
            "functionCall": {"id": part.id, "name": part.name, "args": part.arguments},
            "thoughtSignature": "c2lnbmVk",
        }
        for part in words
    ]
    events: list[Any] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts
    ]
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 5}
    return sse(*events, {"candidates": [{"finishReason": "STOP", "index": 0}], "usageMetadata": usage})


def _ollama(words: Sequence[Words]) -> bytes:
    def line(**message: Any) -> dict[str, Any]:
        return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": False}

    lines = [
        line(content=part)
        if isinstance(part, str)
        else line(tool_calls=[{"id": part.id, "function": {"name": part.name, "arguments": part.arguments}}])
        for part in words
    ]
    return ndjson(*lines, line() | {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 5})


_SPOKEN: dict[str, Callable[[Sequence[Words]], bytes]] = {
    "anthropic": _anthropic,
    "openai_chat": _chat,
    "openai_responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
}


# What they were sent -------------------------------------------------------------------------------------------------


def media_in(request: Any) -> Iterator[tuple[str, str]]:
    for place, text in _strings(request, ""):
        data = _decoded(text)
        if data is not None:
            yield f"sha256:{hashlib.sha256(data).hexdigest()}", place


def _decoded(text: str) -> bytes | None:
    """Base64, bare or in a data URL, that holds the beginning of a file."""
    encoded = text.partition(";base64,")[2] if text.startswith("data:") else text
    if len(encoded) < 60 or " " in encoded:
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    is_file = data.startswith((b"\x89PNG", b"\xff\xd8\xff", b"%PDF", b"RIFF", b"GIF8")) or data[4:8] == b"ftyp"
    return data if is_file else None


def _strings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield place, value
        case dict():
            for key, item in value.items():
                yield from _strings(item, f"{place}.{key}" if place else key)
        case list():
            for at, item in enumerate(value):
                yield from _strings(item, f"{place}.{at}")
        case _:
            pass
