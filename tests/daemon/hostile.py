"""Thirty conversations that brick other gateways, in three protocols; and far sides that enforce twelve models' rules.

HOSTILE["a picture in a result"]     parts by message, in no protocol
spell("anthropic", conversation)     the same as a request body
enforcing()                          a server that answers 400 where a platform would
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from PIL import Image

from flow.far_models import speak
from loom.prompt import Embedded, MediaRef
from loom.testing import sample_pdf, sample_png, sample_wav
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from wire.rules import check


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is text, image, pdf, audio, call, result, thinking, or raw: JSON that no protocol knows."""

    kind: str
    text: str = ""
    data: bytes = b""
    id: str = ""
    name: str = "look"
    arguments: Any = msgspec.field(default_factory=dict[str, Any])
    parts: tuple[Part, ...] = ()
    is_error: bool = False
    declared: str = ""


Conversation = Sequence[tuple[str, Sequence[Part]]]


def text(words: str) -> Part:
    return Part(kind="text", text=words)


def image(data: bytes, declared: str = "image/png") -> Part:
    return Part(kind="image", data=data, declared=declared)


def pdf(data: bytes) -> Part:
    return Part(kind="pdf", data=data, declared="application/pdf")


def call(call_id: str, arguments: Any = None, name: str = "look") -> Part:
    return Part(kind="call", id=call_id, name=name, arguments={} if arguments is None else arguments)


def result(call_id: str, *parts: Part, is_error: bool = False) -> Part:
    return Part(kind="result", id=call_id, parts=parts, is_error=is_error)


def thinking(words: str, signature: str = "Zm9yZWlnbg==") -> Part:
    return Part(kind="thinking", text=words, id=signature)


def noise(width: int, height: int) -> bytes:
    """A picture that does not compress."""
    rows = hashlib.shake_256(b"noise").digest(width * height * 3)
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), rows).save(out, "PNG", compress_level=1)
    return out.getvalue()


def gif() -> bytes:
    out = io.BytesIO()
    frames = [Image.new("P", (32, 24), color) for color in (1, 2, 3)]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    return out.getvalue()


PNG = sample_png(64, 48)
LARGE = noise(1_400, 1_200)
HUGE = sample_png(9_000, 40)
ASK = ("user", [text("what is this?")])
GO_ON = ("user", [text("go on")])


def looped(*shown: Part, call_id: str = "toolu_01", is_error: bool = False) -> Conversation:
    """A question, a call, its result, an answer, and the next question."""
    return [
        ASK,
        ("assistant", [text("Looking."), call(call_id)]),
        ("user", [result(call_id, *shown, is_error=is_error)]),
        ("assistant", [text("I see.")]),
        GO_ON,
    ]


HOSTILE: Mapping[str, Conversation] = {
    "a picture in a result": looped(image(PNG)),
    "a picture in a result that is too large": looped(image(LARGE)),
    "a picture that is too wide": [("user", [image(HUGE), text("see")])],
    "a picture whose declared type is wrong": [("user", [image(PNG, "image/jpeg"), text("see")])],
    "a picture that is none": [("user", [image(b"not a picture at all"), text("see")])],
    "a picture that ends in the middle": looped(image(PNG[: len(PNG) // 2])),
    "a picture of no bytes": [("user", [image(b""), text("see")])],
    "an animation": [("user", [image(gif(), "image/gif"), text("see")])],
    "thirty pictures": [("user", [*[image(sample_png(30 + n, 20)) for n in range(30)], text("see")])],
    "a PDF": [("user", [pdf(sample_pdf("The answer is 42.")), text("read")])],
    "a PDF in a result": looped(text("here"), pdf(sample_pdf("The answer is 42."))),
    "a PDF that is none": [("user", [pdf(b"%PDF-1.7 and nothing more"), text("read")])],
    "sound": [("user", [Part(kind="audio", data=sample_wav(), declared="audio/wav"), text("hear")])],
    "a foreign signature": [ASK, ("assistant", [thinking("Hm."), text("Blue.")]), GO_ON],
    "only thinking": [ASK, ("assistant", [thinking("Hm.")]), GO_ON],
    "an id that Anthropic refuses": looped(text("x"), call_id="functions.look:0"),
    "an id that is long": looped(text("x"), call_id="call_" + "x" * 80),
    "an id with a bar": looped(text("x"), call_id="call_1|fc_1"),
    "a call without a result": [ASK, ("assistant", [call("toolu_02")]), GO_ON],
    "a result without a call": [("user", [result("toolu_03", text("lost"))]), GO_ON],
    "two calls with one id": [
        ASK,
        ("assistant", [call("same"), call("same", {"n": 2})]),
        ("user", [result("same", text("one")), result("same", text("two"))]),
        GO_ON,
    ],
    "results in another order": [
        ASK,
        ("assistant", [call("a"), call("b")]),
        ("user", [result("b", text("B")), result("a", image(PNG))]),
        GO_ON,
    ],
    "arguments that are no object": [
        ASK, ("assistant", [call("toolu_04", "[1, 2")]), ("user", [result("toolu_04", text("x"))]), GO_ON,
    ],
    "a failed call without words": looped(is_error=True),
    "empty words": [("user", [text(""), text("  \n "), text("hi")]), ("assistant", [text("")]), GO_ON],
    "the assistant first and last": [("assistant", [text("Hello.")]), ASK, ("assistant", [text("Well, ")])],
    "a system message in the middle": [ASK, ("assistant", [text("Blue.")]), ("system", [text("Be short.")]), GO_ON],
    "blocks of the future": [("user", [Part(kind="raw", text='{"type":"hologram","depth":3}'), text("see")])],
    "surrogates and controls": [("user", [text("a\ud800b\x00c\u202e")]), ("assistant", [text("\x07ok")]), GO_ON],
    "a long tool name": [
        ASK, ("assistant", [call("toolu_05", name="mcp__server__" + "x" * 90)]),
        ("user", [result("toolu_05", text("x"))]), GO_ON,
    ],
}  # fmt: skip
assert len(HOSTILE) == 30


# The three protocols -------------------------------------------------------------------------------------------------


def spell(protocol: str, conversation: Conversation, model: str = "far") -> dict[str, Any]:
    spelled = {"anthropic": _anthropic, "openai_chat": _chat, "openai_responses": _responses}[protocol]
    return {"model": model, **spelled(conversation)}


def body_of(request: dict[str, Any]) -> bytes:
    """JSON as clients write it; a lone surrogate is escaped."""
    return json.dumps(request).encode()


def _b64(part: Part) -> str:
    return base64.b64encode(part.data).decode()


def _url(part: Part) -> str:
    return f"data:{part.declared};base64,{_b64(part)}"


def _anthropic(conversation: Conversation) -> dict[str, Any]:
    messages = [{"role": role, "content": [_claude(part) for part in parts]} for role, parts in conversation]
    tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
    return {"max_tokens": 99, "messages": messages, "tools": tools}


def _claude(part: Part) -> dict[str, Any]:
    source = {"type": "base64", "media_type": part.declared, "data": _b64(part)}
    match part.kind:
        case "text":
            return {"type": "text", "text": part.text}
        case "image":
            return {"type": "image", "source": source}
        case "pdf" | "audio":
            return {"type": "document", "source": source}
        case "call":
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        case "result":
            content = [_claude(inner) for inner in part.parts]
            return {"type": "tool_result", "tool_use_id": part.id, "content": content, "is_error": part.is_error}
        case "thinking":
            return {"type": "thinking", "thinking": part.text, "signature": part.id}
        case _:
            return json.loads(part.text)


def _arguments(part: Part) -> str:
    return part.arguments if isinstance(part.arguments, str) else json.dumps(part.arguments)


def _chat(conversation: Conversation) -> dict[str, Any]:
    messages: list[Any] = []
    for role, parts in conversation:
        calls = [
            {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": _arguments(part)}}
            for part in parts
            if part.kind == "call"
        ]
        for part in parts:
            if part.kind == "result":
                content = [_chat_part(inner) for inner in part.parts]
                messages.append({"role": "tool", "tool_call_id": part.id, "content": content})
        content = [_chat_part(part) for part in parts if part.kind not in ("call", "result", "thinking")]
        thoughts = "".join(part.text for part in parts if part.kind == "thinking")
        if content or calls or thoughts:
            message: dict[str, Any] = {"role": role, "content": content or None}
            message |= {"tool_calls": calls} if calls else {}
            messages.append(message | ({"reasoning_content": thoughts} if thoughts else {}))
    function = {"name": "look", "parameters": {"type": "object"}}
    return {"messages": messages, "tools": [{"type": "function", "function": function}]}


def _chat_part(part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "text", "text": part.text}
        case "image":
            return {"type": "image_url", "image_url": {"url": _url(part)}}
        case "pdf":
            return {"type": "file", "file": {"filename": "a.pdf", "file_data": _url(part)}}
        case "audio":
            return {"type": "input_audio", "input_audio": {"data": _b64(part), "format": "wav"}}
        case _:
            return json.loads(part.text)


def _responses(conversation: Conversation) -> dict[str, Any]:
    items: list[Any] = []
    for role, parts in conversation:
        for part in parts:
            match part.kind:
                case "call":
                    items.append(
                        {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": _arguments(part)}
                    )
                case "result":
                    output = [_item_part(inner, "user") for inner in part.parts]
                    items.append({"type": "function_call_output", "call_id": part.id, "output": output})
                case "thinking":
                    summary = [{"type": "summary_text", "text": part.text}]
                    items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": part.id})
                case _:
                    items.append({"type": "message", "role": role, "content": [_item_part(part, role)]})
    function = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    return {"input": items, "tools": [function], "store": False}


def _item_part(part: Part, role: str) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}
        case "image":
            return {"type": "input_image", "image_url": _url(part)}
        case "pdf":
            return {"type": "input_file", "filename": "a.pdf", "file_data": _url(part)}
        case "audio":
            return {"type": "input_audio", "input_audio": {"data": _b64(part), "format": "wav"}}
        case _:
            return json.loads(part.text)


# The far side --------------------------------------------------------------------------------------------------------

MODELS: Mapping[str, tuple[str, str]] = {
    "opus": ("anthropic", "claude-opus-5"),
    "haiku": ("anthropic", "claude-haiku-4-5"),
    "gpt": ("openai", "gpt-5.5"),
    "gpt-old": ("openai", "gpt-4.1"),
    "gpt-chat": ("openai-chat", "gpt-5.5"),
    "argon": ("gemini", "gemini-4-argon"),
    "flash": ("gemini", "gemini-2.5-flash"),
    "gemma": ("ollama", "gemma3"),
    "deepseek": ("deepseek", "deepseek-v4-pro"),
    "mistral": ("mistral", "mistral-large-latest"),
    "local": ("openai-compatible", "qwen"),
    "grok": ("xai", "grok-4"),
}
"""Twelve models of nine platforms, by the name under which they are configured."""
_RULES = {"openai": "openai-responses"}
_WIRES = {"anthropic": "anthropic", "openai": "openai_responses", "gemini": "gemini", "ollama": "ollama"}


def model_settings(url: str) -> dict[str, Any]:
    """Settings of a runtime whose models are all behind one server, each under its own path."""
    models = {
        name: {"provider": platform, "model": model, "base_url": f"{url}/{name}"}
        for name, (platform, model) in MODELS.items()
    }
    keys = dict.fromkeys(("anthropic", "openai", "gemini", "deepseek", "mistral", "xai"), "sk-far-away-0123")
    return {"models": models, "keys": keys}


class Enforcing:
    """What was asked of each model, and which of its rules a request broke."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.broken: list[tuple[str, list[str]]] = []

    def answer(self, request: Request) -> Reply:
        name = request.target.lstrip("/").partition("/")[0]
        is_question = request.method == "POST" and request.body[:1] == b"{" and "api/show" not in request.target
        if name not in MODELS or not is_question:
            return refusal(404, {"error": "not found"})
        platform, model = MODELS[name]
        body = request.json
        self.requests.append((name, body))
        broken = check(
            _RULES.get(platform, platform),
            model,
            _with_references(_as_lists(body) if platform == "anthropic" else body),
        )
        if broken:
            self.broken.append((name, broken))
            error = {"type": "invalid_request_error", "message": "; ".join(broken)}
            return refusal(400, {"type": "error", "error": error})
        return speak(_WIRES.get(platform, "openai_chat"), "fine")


@asynccontextmanager
async def enforcing() -> AsyncGenerator[tuple[FarSide, Enforcing]]:
    rules = Enforcing()
    async with far_side(rules.answer) as server:
        yield server, rules


def _as_lists(body: dict[str, Any]) -> dict[str, Any]:
    """Anthropic takes a text for a list of one; the rules read lists."""

    def listed(message: Any) -> Any:
        if isinstance(message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": message["content"]}]}
        blocks = [listed(block) if block.get("type") == "tool_result" else block for block in message["content"]]
        stated = [{key: value for key, value in block.items() if value is not None} for block in blocks]
        return {**message, "content": stated}

    return {**body, "messages": [listed(message) for message in body["messages"]]}


def _with_references(value: Any) -> Any:
    """The request with its media as the rules read them, described by their bytes."""
    match value:
        case str():
            return _reference(value) or value
        case dict():
            return {key: _with_references(item) for key, item in value.items()}
        case list():
            return [_with_references(item) for item in value]
        case _:
            return value


def _reference(found: str) -> Embedded | None:
    head, comma, encoded = found.rpartition(",") if found.startswith("data:") else ("", "", found)
    if len(encoded) < 60 or " " in encoded:
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    facts: dict[str, Any] = {"digest": digest, "size_bytes": len(data)}
    if data.startswith(b"%PDF"):
        return Embedded(MediaRef(media_type="application/pdf", pages=1, **facts), head + comma)
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return Embedded(MediaRef(media_type="audio/wav", **facts), head + comma)
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height, kind = *picture.size, str(picture.format).lower()
    except OSError:
        return Embedded(MediaRef(media_type="application/octet-stream", **facts), head + comma) if comma else None
    return Embedded(MediaRef(media_type=f"image/{kind}", width=width, height=height, **facts), head + comma)
