"""Conversations of every kind, drawn from a random source: well behaved, broken, foreign, far too large.

The same function serves a seeded `random.Random` (many cases, fast) and Hypothesis's (few, but shrunk to the smallest).
"""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import msgspec

from loom.compile.cost import Calibration
from loom.compile.policy import (
    DerivedFacts,
    Description,
    DetachedMessage,
    Known,
    Need,
    Override,
    Policy,
    Request,
    Watermark,
    override_key,
)
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import (
    AudioBlock,
    Block,
    Citation,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Opaque,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
)
from loom.content.media import Media
from loom.content.messages import Message
from loom.content.recipes import Fit, Low, Ocr, Page, Slice, Text, recipe_key
from loom.models import Model
from loom.prompt import ToolSpec
from loom.sampling import Sampling
from wire.rules import made_by

TARGETS = (
    *(f"anthropic/claude-{name}" for name in ("opus-5-5", "haiku-5-5", "fable-5-1", "opus-5", "sonnet-5", "opus-4-8")),
    *(
        f"anthropic/claude-{name}"
        for name in ("opus-4-7", "opus-4-6", "sonnet-4-6", "opus-4-5", "sonnet-4-5", "haiku-4-5")
    ),
    *(f"bedrock/anthropic.claude-{name}" for name in ("opus-5-5", "sonnet-4-5")),
    *(f"openai/gpt-{name}" for name in ("6-astra", "5.5", "5.4", "5.4-mini", "5-nano", "5-mini", "5", "audio")),
    *(
        f"openai/{name}"
        for name in ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-4o", "gpt-4o-mini", "o3", "o3-mini", "o4-mini")
    ),
    *(f"openai-chat/{name}" for name in ("gpt-5.5", "gpt-4o", "gpt-audio", "gpt-6.1-sol", "o3-mini")),
    *("gemini/gemini-4-argon", "gemini/gemini-2.5-pro", "ollama/llava", "ollama/llama3.2"),
    *("deepseek/deepseek-flash", "deepseek/deepseek-v4-pro"),
    *("mistral/mistral-large-latest", "mistral/codestral-latest", "mistral/voxtral-small"),
    *("compatible/qwen3-vl", "compatible/smollm2-135m"),
    *(f"openai/gpt-{name}" for name in ("5.1", "5.2", "5-codex", "5-pro")),
    *("gemini/gemini-2.5-flash", "gemini/gemini-3-pro", "gemini/gemini-3-flash", "ollama/gpt-oss"),
    *(f"bedrock-converse/amazon.nova-{name}-v1:0" for name in ("2-lite", "micro", "pro")),
    *(f"bedrock-converse/{name}-v1:0" for name in ("openai.gpt-oss-120b", "meta.llama4-maverick-17b-instruct")),
    "bedrock-converse/us.mistral.pixtral-large-2502-v1:0",
    *("groq/openai/gpt-oss-120b", "groq/qwen/qwen3-32b", "xai/grok-4-mini"),
)
"""One of every family in the catalog, and of each provider that has families."""

PRODUCERS = (
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5.5"),
    ("gemini", "gemini-4-argon"),
    ("ollama", "llava"),
    ("deepseek", "deepseek-flash"),
    ("mistral", "mistral-large-latest"),
    ("openai-compatible", "qwen3-vl"),
)
ODD_TEXTS = (
    "x",
    "\0",
    "\u200b.",
    " padded \n",
    "{}",
    '{"$media": "sha256:0"}',
    "漢字かな",
    "e\u0301",
    "🙂" * 3,
    "\x1b[31mred",
    "$1 & $0",
)
ODD_NAMES = (
    "",
    "a.png",
    "../etc/passwd",
    "bad\nname.pdf",
    " ",
    "$HOME.pdf",
    '"quoted".png',
    "n" * 400,
    "\u202egnp.exe",
    "Übersicht.pdf",
)
ODD_IDS = (
    "functions.shot:0",
    "call_abc|fc_def",
    "x" * 90,
    "call_1",
    "call_1 ",
    "ünïcode",
    "toolu_01",
    "a",
    "123456789",
)
TOOLS = ("look", "read_file", "mcp.server.tool", "name with spaces", "n" * 80, "日本", "-", "screenshot")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/heic", "image/tiff")
DOCUMENT_TYPES = (
    "application/pdf",
    "application/pdf",
    "application/pdf",
    "text/csv",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
)
VIDEO_TYPES = ("video/mp4", "video/webm", "video/x-msvideo")
AUDIO_TYPES = ("audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "audio/mp4")


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A path and everything else that `prepare` is told."""

    path: list[DetachedMessage]
    policy: Policy
    request: Request
    overrides: dict[str, Override]
    watermark: Watermark
    calibration: Calibration
    quarantine: frozenset[str]
    missing: frozenset[str]
    descriptions: dict[str, Description]
    luck: int

    def prepared(self, model: Model, known: Known) -> Prepared:
        return prepare(
            self.path,
            model,
            policy=self.policy,
            request=self.request,
            overrides=self.overrides,
            watermark=self.watermark,
            calibration=self.calibration,
            known=known,
            quarantine=self.quarantine,
        )

    def settled(self, model: Model) -> Prepared:
        """As the runtime does it: first with bounds, then with what the derived bytes turned out to be, until nothing
        is lacking. Every round makes at least one rendition, so that ends."""
        known = Known(missing=self.missing, descriptions=self.descriptions)
        prepared = self.prepared(model, known)
        rng = Random(self.luck)
        for _ in range(12):
            needs = [need for need in prepared.needs if not is_settled(need, known)]
            if not needs:
                break
            known = grown(known, needs, rng)
            prepared = self.prepared(model, known)
        return prepared


def is_settled(need: Need, known: Known) -> bool:
    key = (need.digest, recipe_key(need.recipe))
    return key in known.derived or key in known.texts or key in known.failed or need.digest in known.missing


def grown(known: Known, needs: list[Need], rng: Random, failing: float = 0.05) -> Known:
    """What making derived bytes finds out: sizes and types within the recipe, a text, or a failure."""
    derived, texts, failed = dict(known.derived), dict(known.texts), dict(known.failed)
    for need in needs:
        key = (need.digest, recipe_key(need.recipe))
        recipe = need.recipe
        if rng.random() < failing:
            failed[key] = "the file is damaged"
        elif isinstance(recipe, Text | Ocr):
            texts[key] = rng.choice(("", "  ", "[page 1]\nits words", "words " * rng.choice((10, 400, 40_000))))
        elif isinstance(recipe, Slice):
            size = rng.choice((1_000, 300_000, 9_000_000, 40_000_000))
            derived[key] = DerivedFacts(media_type=need.media_type, size_bytes=size)
        elif isinstance(recipe, Fit | Low | Page):
            side = recipe.side_px if isinstance(recipe, Low) else recipe.max_side_px
            most = 500_000 if isinstance(recipe, Low) else recipe.max_encoded_bytes * 3 // 4
            derived[key] = DerivedFacts(
                media_type=rng.choice(recipe.formats),
                size_bytes=rng.choice((1, most // 50 + 1, most)),
                width=rng.randint(1, side),
                height=side,
            )
        else:
            failed[key] = "not made here"
    return msgspec.structs.replace(known, derived=derived, texts=texts, failed=failed)


# Blocks --------------------------------------------------------------------------------------------------------------


def _digest(rng: Random) -> str:
    """Few enough that the same medium is said more than once."""
    return f"sha256:{rng.randint(1, 400):064x}"


def _media(rng: Random, kinds: tuple[str, ...]) -> Media:
    kind = rng.choice(kinds)
    picture = kind.startswith("image/")
    sized = picture and rng.random() < 0.9
    return Media(
        digest=_digest(rng),
        media_type=kind,
        size_bytes=rng.choice((1, 60_000, 1_200_000, 7_000_000, 30_000_000)),
        width=rng.choice((1, 20, 640, 1_920, 8_001, 20_000)) if sized else None,
        height=rng.choice((1, 20, 480, 1_080, 2_001, 12_000)) if sized else None,
        pages=rng.choice((None, 1, 3, 47, 101, 700)) if not picture else None,
        duration_seconds=rng.choice((None, 0.2, 61.0)) if kind.startswith(("audio/", "video/")) else None,
        name=rng.choice(ODD_NAMES),
    )


def _text(rng: Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(ODD_TEXTS)
    return "some words " * rng.choice((1, 5, 40, 400)) if rng.random() < 0.97 else "long text " * 30_000


def content_block(rng: Random) -> ContentBlock:
    match rng.choice(("text", "text", "text", "image", "image", "document", "audio", "video", "unknown")):
        case "text":
            if rng.random() < 0.1:
                return TextBlock(f"[system] {_text(rng)}", is_system=True)
            return _said_text(rng, ("anthropic", "claude-opus-5-5")) if rng.random() < 0.05 else TextBlock(_text(rng))
        case "image":
            return image_block(rng)
        case "document":
            pages = rng.choice(("", "", "1", "2-5", "21-40", "90-120", "600-900"))
            return DocumentBlock(_media(rng, DOCUMENT_TYPES), pages=pages, title=rng.choice(ODD_NAMES))
        case "audio":
            return AudioBlock(_media(rng, AUDIO_TYPES), transcript=rng.choice(("", "hello there")))
        case "video":
            return VideoBlock(_media(rng, VIDEO_TYPES), transcript=rng.choice(("", "hello there")))
        case _:
            return UnknownBlock({"type": "hologram", "text": rng.choice(("", "words", "  "))})


def image_block(rng: Random) -> ImageBlock:
    return ImageBlock(
        _media(rng, IMAGE_TYPES),
        alt=rng.choice(("", "", "a person's words", " \n")),
        description=rng.choice(("", "a model's words")),
        detail=rng.choice(("auto", "low", "high")),
    )


def _opaque(rng: Random, maker: tuple[str, str], data: Any) -> Opaque:
    """Sometimes not whole: written by an older version, or by hand."""
    if rng.random() < 0.04:
        data = rng.choice(({}, [], None, "text", {"signature": ""}, {"other": 1}))
    return Opaque(provider=maker[0], model=maker[1], data=data)


def thinking_block(rng: Random, maker: tuple[str, str]) -> ThinkingBlock:
    mark = f"{made_by(*maker)} {rng.randint(0, 10**9)}"
    signature = base64.b64encode(mark.encode()).decode()
    text = rng.choice((mark + " a thought", mark + " long thought" * 200))
    match maker[0]:
        case "anthropic" if rng.random() < 0.25:
            return ThinkingBlock("", redacted=True, opaque=_opaque(rng, maker, {"data": mark}))
        case "anthropic":
            return ThinkingBlock(
                rng.choice(("", text)), opaque=_opaque(rng, maker, {"signature": mark * rng.choice((1, 50))})
            )
        case "openai":
            summary = [{"type": "summary_text", "text": text}] if rng.random() < 0.5 else []
            data = {"id": f"rs_{rng.randint(0, 99)}", "summary": summary, "encrypted_content": mark}
            return ThinkingBlock(text, opaque=_opaque(rng, maker, data))
        case "gemini":
            owed: dict[str, Any] = rng.choice(({"thought": True}, {"text": ""}))
            return ThinkingBlock(text, opaque=_opaque(rng, maker, {**owed, "thoughtSignature": signature}))
        case "ollama":
            return ThinkingBlock(text, opaque=_opaque(rng, maker, {"field": rng.choice(("thinking", "content"))}))
        case _:
            field = rng.choice(("reasoning_content", "reasoning", "content"))
            return ThinkingBlock(text, opaque=_opaque(rng, maker, {"field": field}))


def _said_text(rng: Random, maker: tuple[str, str]) -> TextBlock:
    text = _text(rng)
    match maker[0]:
        case "anthropic" if rng.random() < 0.4:
            index = rng.randint(0, 2)
            where = {"start_page_number": 1, "end_page_number": 2, "cited_text": "q", "document_title": None}
            data = {"type": "page_location", "document_index": index, **where}
            cited = Citation(quote="q", locator="page", first=1, last=1, opaque=_opaque(rng, maker, data))
            return TextBlock(text, (cited,))
        case "openai" if rng.random() < 0.6:
            owed: dict[str, Any] = {"id": f"msg_{rng.randint(0, 99)}", **rng.choice(({}, {"phase": "commentary"}))}
            return TextBlock(text, (), _opaque(rng, maker, owed))
        case "gemini" if rng.random() < 0.3:
            signature = base64.b64encode(made_by(*maker).encode()).decode()
            return TextBlock(text, (), _opaque(rng, maker, {"thoughtSignature": signature}))
        case _:
            return TextBlock(text, (Citation(url="http://a.example"),) if rng.random() < 0.1 else ())


def tool_call(rng: Random, maker: tuple[str, str], call_id: str) -> ToolCall:
    name = rng.choice(TOOLS)
    if rng.random() < 0.07:
        return ToolCall(call_id, name, {}, raw_arguments=rng.choice(('{"cut', "[1]", "")))
    arguments: dict[str, Any] = rng.choice(
        (
            {},
            {"path": "a.txt"},
            {"deep": [{"list": [1, None, 2.5, True]}]},
            {'quo"te': 'new\nline "x"' * 20},
            {"text": "content " * 5_000},
        )
    )
    opaque: Opaque | None = None
    if maker[0] == "gemini" and rng.random() < 0.7:
        signature = base64.b64encode(made_by(*maker).encode()).decode()
        opaque = _opaque(
            rng, maker, {"thoughtSignature": signature, **rng.choice(({}, {"id": f"g{rng.randint(0, 99)}"}))}
        )
    if maker[0] == "openai":
        opaque = _opaque(rng, maker, {"id": f"fc_{rng.randint(0, 99)}"})
    return ToolCall(call_id, name, arguments, None, opaque)


# Messages ------------------------------------------------------------------------------------------------------------


def _ids(rng: Random, count: int) -> list[str]:
    ids: list[str] = []
    for _ in range(count):
        found = rng.choice(ODD_IDS) if rng.random() < 0.5 else f"call_{rng.randint(0, 10**6)}"
        if found not in ids:
            ids.append(found)
    return ids


def assistant_message(rng: Random, maker: tuple[str, str], calls: int) -> Message:
    blocks: list[Block] = []
    if rng.random() < 0.6:
        blocks += [thinking_block(rng, maker) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.8:
        blocks += [_said_text(rng, maker) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.12:
        blocks.append(content_block(rng))
    blocks += [tool_call(rng, maker, call_id) for call_id in _ids(rng, calls)]
    if rng.random() < 0.15:
        blocks.append(thinking_block(rng, maker))
    if rng.random() < 0.15:
        rng.shuffle(blocks)
    return Message("assistant", tuple(blocks or [TextBlock("…")]))


def result(rng: Random, call_id: str, images: int = 0) -> ToolResult:
    blocks: list[ContentBlock] = [content_block(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    blocks += [image_block(rng) for _ in range(images)]
    name = rng.choice(("", "look", "odd\nname"))
    return ToolResult(call_id, tuple(blocks), name=name, is_error=rng.random() < 0.2)


def _answers(rng: Random, asked: list[str]) -> list[Message]:
    """Mostly one message with every result; sometimes some are missing, strange, doubled or split."""
    ids = [call_id for call_id in asked if rng.random() < 0.93]
    if rng.random() < 0.1:
        ids.append("ghost")
    if not ids:
        return []
    results = [result(rng, call_id) for call_id in ids]
    if rng.random() < 0.1:
        results.reverse()
    messages = [Message("tool", tuple(results))]
    if rng.random() < 0.08:
        messages.append(Message("tool", (result(rng, ids[0]),)))
    if len(results) > 1 and rng.random() < 0.1:
        messages = [Message("tool", (found,)) for found in results]
    return messages


def turn(rng: Random, makers: list[tuple[str, str]]) -> list[Message]:
    messages = [Message("user", tuple(content_block(rng) for _ in range(rng.choice((1, 1, 2, 4)))))]
    if rng.random() < 0.04:
        messages.append(Message("user", tuple(image_block(rng) for _ in range(rng.choice((9, 12, 40))))))
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        message = assistant_message(rng, rng.choice(makers), rng.choice((0, 1, 1, 2, 3)))
        messages += [message, *_answers(rng, [call.id for call in message.calls])]
        if rng.random() < 0.05:
            messages.append(Message("user", (TextBlock("stop"),)))
    if rng.random() < 0.8:
        messages.append(assistant_message(rng, rng.choice(makers), 0))
    return messages


def messages_of(rng: Random, model: Model) -> list[Message]:
    """Turns, with the end cut at any message, and sometimes in no order at all."""
    own = (model.opaque_owner, model.name)
    makers = [own, own, rng.choice(PRODUCERS), rng.choice(PRODUCERS)]
    messages = [message for _ in range(rng.choice((1, 1, 2, 3, 5, 9))) for message in turn(rng, makers)]
    if rng.random() < 0.04:
        messages += [Message("user", (image_block(rng),)) for _ in range(rng.choice((30, 110)))]
    if rng.random() < 0.25:
        rng.shuffle(messages)
    return messages[: rng.randint(1, len(messages))] if rng.random() < 0.5 else messages


def _policy(rng: Random) -> Policy:
    tight = rng.random() < 0.4
    return Policy(
        aging=rng.choice(("stepped", "every-turn", "off")),
        full_turns=rng.choice((0, 1, 3)),
        low_turns=rng.choice((0, 2)),
        keep_turns=rng.choice((0, 1, 2, 2, 50)),
        low_side_px=rng.choice((16, 512)),
        max_side_px=rng.choice((64, 2_048, 20_000)),
        max_images_per_message=rng.choice((0, 1, 10, 10, 500)),
        max_images_per_session=rng.choice((0, 3, 100, 1_000)),
        page_images=rng.choice((1, 20)),
        max_tokens=rng.choice((None, 1_500, 20_000)) if tight else None,
        max_bytes=rng.choice((None, 40_000, 2_000_000)) if tight else None,
        max_images=rng.choice((None, 0, 2)) if tight else None,
        max_pages=rng.choice((None, 0, 5)) if tight else None,
    )


def _request(rng: Random) -> Request:
    schema = {"type": "object", "properties": {"media": {"type": "string"}}}
    tools = [ToolSpec(name=name, description=f"The tool {name}.", parameters=schema) for name in ("look", "read_file")]
    return Request(
        system=rng.choice(("", "You are brief.")),
        tools=tuple(tools) if rng.random() < 0.7 else (),
        sampling=Sampling(
            max_tokens=rng.choice((None, 900, 4_000, 10**6)),
            temperature=rng.choice((None, 0.5)),
            thinking=rng.choice(("", "off", "low", "high")),
            tool_choice=rng.choice(("auto", "auto", "none", "any")),
        ),
    )


def _watermark(rng: Random, length: int) -> Watermark:
    if rng.random() < 0.6:
        return Watermark()
    borders = (
        "low_before",
        "text_before",
        "result_media_before",
        "media_before",
        "media_low_before",
        "tool_text_before",
        "dropped_before",
        "thinking_from",
    )
    chosen = {border: rng.randint(0, length + 3) for border in borders if rng.random() < 0.4}
    return Watermark(
        **chosen,
        text_cap=rng.choice((0, 0, 100, 5_000)),
        capped_before=rng.choice((0, 3, 1_000)),
        unpinned_before=rng.choice((0, 0, 0, 0, 1_000)),
        sent_blocks=rng.randint(0, 9),
        sent_hash=rng.choice(("", "stale")),
        sent_messages=rng.randint(0, 9),
        sent_path=rng.choice(("", "stale")),
    )


def history(rng: Random, model: Model) -> History:
    path = [
        DetachedMessage(f"n{at}", message, message.role == "assistant" and rng.random() < 0.2)
        for at, message in enumerate(messages_of(rng, model))
    ]
    keys = [
        override_key(said.id, at, inner)
        for said in path
        for at, block in enumerate(said.message.blocks)
        for inner in (range(len(block.blocks)) if isinstance(block, ToolResult) else (None,))
    ]
    overrides: dict[str, Override] = {}
    if rng.random() < 0.3:
        overrides = {key: rng.choice(("full", "low", "text", "omitted")) for key in keys if rng.random() < 0.3}
    return History(
        path=path,
        policy=_policy(rng) if rng.random() < 0.6 else Policy(),
        request=_request(rng),
        overrides=overrides,
        watermark=_watermark(rng, len(path)),
        calibration=Calibration(ratio=rng.choice((1.0, 1.0, 0.25, 1.3, 4.0)), samples=1),
        quarantine=frozenset(_digest(rng) for _ in range(rng.choice((0, 0, 40)))),
        missing=frozenset(_digest(rng) for _ in range(rng.choice((0, 0, 40)))),
        descriptions={_digest(rng): Description("described\nby a model", "openai/gpt-5.5") for _ in range(20)},
        luck=rng.randint(0, 10**9),
    )
