"""One rich prompt for every protocol, as `prepare` would leave it, and the bytes that its media stand for."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from loom.content.blocks import Citation, ImageBlock, Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import Message
from loom.models import CacheRule, Capabilities, Limits, Model, ThinkingRule, TokenRule
from loom.prompt import Embedded, MediaRef, Prompt, ShownMedia, ShownMessage, ShownResult, ToolSpec
from loom.providers import catalog
from loom.sampling import Sampling

GOLDEN = Path(__file__).parent / "golden"

MEDIA = {
    f"sha256:{hashlib.sha256(data).hexdigest()}": data
    for data in (b"a photo", b"a report", b"a chart", b"a map", b"a memo", b"a page")
}


def ref(data: bytes, media_type: str, **facts: Any) -> MediaRef:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return MediaRef(digest=digest, media_type=media_type, size_bytes=len(data), **facts)


PHOTO = ShownMedia(kind="image", ref=ref(b"a photo", "image/jpeg"), name="photo.jpg", detail="high")
OLD_PHOTO = ShownMedia(kind="image", ref=ref(b"a photo", "image/jpeg"), name="photo.jpg", detail="low")
REPORT = ShownMedia(kind="document", ref=ref(b"a report", "application/pdf"), name="report.pdf", citations=True)
CHART = ShownMedia(kind="image", ref=ref(b"a chart", "image/png"), name="chart.png")
MAP = ShownMedia(kind="image", ref=ref(b"a map", "image/png"), name="map.png")
PAGE = ShownMedia(kind="image", ref=ref(b"a page", "image/png"), name="report.pdf, page 1")
PAGES = (TextBlock("[document: report.pdf, 1 page, as pictures]"), PAGE)
MEMO = ShownMedia(kind="audio", ref=ref(b"a memo", "audio/wav"), name="memo.wav")

SAID = TextBlock("I look at both.")

LOOK = ToolSpec(
    name="look",
    description="Show a picture again.",
    parameters={
        "type": "object",
        "properties": {"name": {"type": "string", "description": "What it was called."}},
        "required": ["name"],
    },
)
THINKING = Sampling(max_tokens=2_000, thinking="high")

CLAUDE = Model(
    provider="anthropic",
    name="claude-opus-5",
    wire="anthropic",
    capabilities=Capabilities(thinking=True, citations=True),
    limits=Limits(context_tokens=1_000_000, max_output_tokens=128_000),
    thinking=ThinkingRule(replay="own", request="adaptive"),
    cache=CacheRule(mode="explicit"),
    sampling=False,
)
GPT = Model(
    provider="openai-responses",
    name="gpt-6-astra",
    wire="openai_responses",
    thinking=ThinkingRule(replay="own", request="effort"),
)
GPT_CHAT = Model(
    provider="openai-chat",
    name="gpt-6-astra",
    wire="openai_chat",
    thinking=ThinkingRule(request="effort"),
    dialect=catalog.model("openai-chat/gpt-6-astra").dialect,
)
DEEPSEEK = Model(
    provider="deepseek",
    name="deepseek-flash",
    wire="openai_chat",
    thinking=ThinkingRule(replay="tool_turns", request="effort"),
    dialect=catalog.model("deepseek/deepseek-flash").dialect,
)
MISTRAL = Model(
    provider="mistral",
    name="mistral-medium-latest",
    wire="openai_chat",
    dialect=catalog.model("mistral/mistral-medium-latest").dialect,
)
VLLM = Model(
    provider="openai-compatible",
    name="qwen3-vl",
    wire="openai_chat",
    thinking=ThinkingRule(replay="own"),
)
GEMINI = Model(
    provider="gemini",
    name="gemini-4-argon",
    wire="gemini",
    auth="x-goog-api-key",
    thinking=ThinkingRule(
        replay="own",
        request="level",
        signature_required=True,
        levels=("minimal", "low", "medium", "high"),
    ),
    tokens=TokenRule(image="ceiling"),
)
OLLAMA = Model(
    provider="ollama",
    name="qwen3-vl:8b",
    wire="ollama",
    limits=Limits(context_tokens=32_768),
    thinking=ThinkingRule(replay="own", request="flag"),
)


def owed(model: Model, data: Any) -> Opaque:
    return Opaque(provider=model.opaque_owner, model=model.name, data=data)


def rich(
    model: Model,
    thinking: ThinkingBlock | None,
    calls: tuple[ToolCall, ...],
    *,
    hoisted: bool,
    report: tuple[TextBlock | ShownMedia, ...] = (REPORT,),
    said: TextBlock = SAID,
) -> Prompt:
    """A question with a picture and a PDF; thoughts, two calls at once, their pictures; a cited answer; a new turn."""
    chart = (TextBlock("The chart of page 3:"), CHART)
    results = ShownMessage(
        "tool",
        (
            ShownResult(call_id=calls[0].id, name="look", blocks=chart[:1] if hoisted else chart),
            ShownResult(call_id=calls[1].id, name="look", blocks=(TextBlock("no such file"),), is_error=True),
        ),
    )
    shown = ShownMessage("user", (TextBlock(f"[pictures of {calls[0].id}]"), CHART))
    source = {
        "type": "page_location",
        "cited_text": "Sales rose by 4 %.",
        "document_index": 0,
        "document_title": "report.pdf",
        "start_page_number": 3,
        "end_page_number": 4,
    }
    quoted = Citation(
        quote="Sales rose by 4 %.",
        title="report.pdf",
        locator="page",
        first=3,
        last=3,
        opaque=owed(model, source) if model.wire == "anthropic" else None,
    )
    return Prompt(
        model=model,
        system="You are brief.",
        messages=(
            ShownMessage("user", (TextBlock("What does the report say about this?"), PHOTO, *report)),
            ShownMessage("assistant", (*((thinking,) if thinking else ()), said, *calls)),
            results,
            *((shown,) if hoisted else ()),
            ShownMessage(
                "assistant", (TextBlock("It says that "), TextBlock("sales rose by 4 %", (quoted,)), TextBlock("."))
            ),
            ShownMessage("user", (TextBlock("And here?"), OLD_PHOTO)),
        ),
        tools=(LOOK,),
        sampling=THINKING,
        stable_messages=3,
    )


def two_calls(*opaques: Opaque | None) -> tuple[ToolCall, ToolCall]:
    first, second = (*opaques, None, None)[:2]
    return (
        ToolCall("call_chart", "look", {"name": "chart.png", "dpi": 150}, None, first),
        ToolCall("call_other", "look", {"name": "Übersicht.png"}, None, second),
    )


def expanded(value: Any) -> Any:
    """The JSON as it leaves the process: references replaced by base64."""
    match value:
        case Embedded():
            return value.prefix + base64.b64encode(MEDIA[value.ref.digest]).decode()
        case dict():
            return {key: expanded(item) for key, item in value.items()}
        case list():
            return [expanded(item) for item in value]
        case _:
            return value


def compare(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request against the reviewed one; LOOM_WRITE_GOLDEN=1 writes it anew, to be reviewed."""
    file = GOLDEN / f"{name}.json"
    found = json.loads(json.dumps(expanded(body)))
    if os.environ.get("LOOM_WRITE_GOLDEN"):
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    assert found == json.loads(file.read_text())
    assert json.dumps(found) == json.dumps(json.loads(file.read_text())), "the order of keys changed"
    return found


def replay(model: Model, message: Message, **options: Any) -> Prompt:
    """The prompt of the next step: what the model said goes back, its calls answered."""
    shown = tuple(
        TextBlock("[a picture]") if isinstance(block, ImageBlock) else block
        for block in message.blocks
        if isinstance(block, TextBlock | ThinkingBlock | ToolCall | ImageBlock)
    )
    results = tuple(ShownResult(call_id=call.id, name=call.name, blocks=(TextBlock("done"),)) for call in message.calls)
    answers = (ShownMessage("tool", results),) if results else (ShownMessage("user", (TextBlock("Go on."),)),)
    question = ShownMessage("user", (TextBlock("Please begin."),))
    return Prompt(model=model, messages=(question, ShownMessage("assistant", shown), *answers), **options)
