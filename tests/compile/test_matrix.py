"""Every cell of the fallback matrix, asked of the compiler; and the page that is printed from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compile.matrix import AGES, BLOCKS, FALLBACKS, MODELS, PLACES, THINKING, THOUGHTS, page
from compile.world import all_known, digest, report, said, screenshot
from flow.judge import problems
from loom.compile.policy import Policy, Request
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import (
    AudioBlock,
    Block,
    ContentBlock,
    ImageBlock,
    Opaque,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
)
from loom.content.blocks import DocumentBlock as Document
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.models import Model
from loom.prompt import ShownBlock, ShownMedia, ShownMessage, ShownResult, ToolSpec
from loom.providers.catalog import model

PAGE = Path(__file__).parents[2] / "docs" / "fallback-matrix.md"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
SAMPLES: dict[str, ContentBlock] = {
    "image": screenshot(1),
    "animation": ImageBlock(
        Media(digest=digest(2), media_type="image/gif", size_bytes=9_000, width=90, height=60, frames=12)
    ),
    "PDF": report(3, pages=3),
    "long PDF": report(4, pages=1_200),
    "office file": Document(Media(digest=digest(5), media_type=DOCX, size_bytes=20_000, name="letter.docx")),
    "audio": AudioBlock(Media(digest=digest(6), media_type="audio/wav", size_bytes=90_000, duration_seconds=3.0)),
    "video": VideoBlock(
        Media(digest=digest(7), media_type="video/mp4", size_bytes=900_000, width=640, height=360, duration_seconds=30)
    ),
    "unknown": UnknownBlock({"type": "hologram"}),
}
REQUEST = Request(tools=(ToolSpec(name="look", description="See it again.", parameters={"type": "object"}),))


def path(block: ContentBlock, place: str) -> list[Message]:
    match place:
        case "user":
            return [user("Here:", block)]
        case "result":
            result = ToolResult("call_1", (TextBlock("done"), block), name="look")
            return [user("Look"), assistant("I look.", ToolCall("call_1", "look")), tool(result)]
        case _:
            return [user("Draw"), assistant("Here:", block), user("Nice")]


def compiled(messages: list[Message], target: Model, policy: Policy | None = None) -> Prepared:
    prepared = prepare(said(*messages), target, request=REQUEST, known=all_known(), policy=policy)
    assert problems(prepared) == []
    return prepared


def media_in(blocks: tuple[ShownBlock, ...]) -> list[ShownMedia]:
    return [block for block in blocks if isinstance(block, ShownMedia)]


def outcome(prepared: Prepared, place: str) -> str:
    """Where the medium is in the prompt, read off the prompt itself."""
    row = next(row for row in prepared.receipt.rows if row.kind not in ("text", "tool_call"))
    messages: tuple[ShownMessage, ...] = prepared.prompt.messages
    results = [block for message in messages for block in message.blocks if isinstance(block, ShownResult)]
    nested = [found for result in results for found in media_in(result.blocks)]
    loose = [found for message in messages for found in media_in(message.blocks)]
    if not nested and not loose:
        assert row.rendition in ("text", "omitted")
        assert row.reason
        return row.rendition
    pages = "pages" if row.rendition == "pages" else ""
    if nested:
        assert not loose
        return pages or "nested"
    if place == "user":
        return pages or "full"
    return f"{pages}, hoisted" if pages else "hoisted"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("place", PLACES)
def test_a_block_becomes_what_the_matrix_says(name: str, place: str) -> None:
    target = model(MODELS[name])
    expected = {block: FALLBACKS[name][block][PLACES.index(place)] for block in BLOCKS}
    found = {block: outcome(compiled(path(SAMPLES[block], place), target), place) for block in BLOCKS}
    assert found == expected


@pytest.mark.parametrize("name", MODELS)
def test_pictures_and_pages_never_leave_as_what_a_platform_may_refuse(name: str) -> None:
    target = model(MODELS[name])
    for block in ("image", "animation", "PDF"):
        for found in media_in(compiled(path(SAMPLES[block], "user"), target).prompt.messages[0].blocks):
            assert found.ref.media_type in target.capabilities.accepts
            assert found.ref.media_type != "image/gif"


def thought(kind: str, target: Model) -> ThinkingBlock:
    """With everything that any platform wants back."""
    keys = {"signature": "s", "thoughtSignature": "c2ln", "field": "reasoning_content", "encrypted_content": "e"}
    data = keys | {"id": "rs_1", "summary": []} if target.opaque_owner == "openai" else keys
    if target.opaque_owner == "openai":
        data = {key: data[key] for key in ("id", "summary", "encrypted_content")}
    own = Opaque(provider=target.opaque_owner, model=target.name, data=data)
    other = Opaque(provider="elsewhere", model="m", data=data)
    return ThinkingBlock(
        "hm", opaque=None if kind == "of unknown origin" else other if kind == "another model's" else own
    )


@pytest.mark.parametrize("name", MODELS)
def test_thinking_goes_where_the_matrix_says(name: str) -> None:
    target = model(MODELS[name])
    found: list[str] = []
    for kind in THOUGHTS:
        last: Block = TextBlock("so") if kind == "own, before text" else ToolCall("call_1", "look")
        answers = [tool(ToolResult("call_1", (TextBlock("x"),)))] if isinstance(last, ToolCall) else []
        messages = [user("Think"), assistant(thought(kind, target), last), *answers, user("And?")]
        rows = compiled(messages, target).receipt.rows
        found.append(next(row.rendition for row in rows if row.kind == "thinking"))
    assert tuple(found) == THINKING[name]


@pytest.mark.parametrize("block", AGES)
@pytest.mark.parametrize(
    ("kind", "reference"), [("with images", "anthropic/claude-opus-5"), ("text-only", "deepseek/deepseek-v4-pro")]
)
def test_a_block_grows_old_as_the_matrix_says(block: str, kind: str, reference: str) -> None:
    later = [message for number in range(3) for message in (assistant("ok"), user(f"Question {number}"))]
    found: list[str] = []
    for turns in (0, 1, 3):
        policy = Policy(aging="every-turn", full_turns=0, low_turns=2)
        prepared = compiled([user("Here:", SAMPLES[block]), *later[: turns * 2]], model(reference), policy)
        found.append(prepared.receipt.rows[1].rendition)
    assert tuple(found) == AGES[block][kind]


def test_a_document_that_grows_old_keeps_its_words_first_and_then_its_label() -> None:
    def shown(turns: int) -> str:
        later = [message for number in range(turns) for message in (assistant("ok"), user(f"Question {number}"))]
        policy = Policy(aging="every-turn", full_turns=0, low_turns=2)
        prepared = compiled([user("Here:", SAMPLES["PDF"]), *later], model("anthropic/claude-opus-5"), policy)
        block = prepared.prompt.messages[0].blocks[1]
        return block.text if isinstance(block, TextBlock) else "the document"

    assert shown(0) == "the document"
    assert "the words of" in shown(1)
    assert shown(3) == '[document: report3.pdf, 3 pages, 400 KB; look(media="000000000000") shows it]'


def test_the_page_in_the_docs_is_the_matrix() -> None:
    """LOOM_WRITE_GOLDEN=1 prints it anew."""
    if os.environ.get("LOOM_WRITE_GOLDEN"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page()
