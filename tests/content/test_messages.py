"""Messages: what each role may hold, and the text form that every block has."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from content.tiny_media import pdf, png, wav
from loom.content.blocks import Block, Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult, UnknownBlock
from loom.content.messages import (
    BrokenPair,
    Message,
    assistant,
    broken_pairs,
    media_of,
    text_of,
    tool,
    user,
)
from loom.errors import ContentError

CALL = ToolCall("a", "f", {"x": 1})
DONE = ToolResult("a", (TextBlock("done"),))
NEW = UnknownBlock({"type": "hologram"})
THOUGHT = ThinkingBlock("hm")


def test_a_message_is_never_empty() -> None:
    with pytest.raises(ContentError, match="User messages must not be empty"):
        user()


def test_a_role_is_one_of_three() -> None:
    with pytest.raises(ContentError, match="A role is user, assistant or tool, not 'system'"):
        Message("system", (TextBlock("x"),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("role", "block", "kind"),
    [
        ("user", CALL, "ToolCall"),
        ("user", THOUGHT, "ThinkingBlock"),
        ("user", DONE, "ToolResult"),
        ("assistant", DONE, "ToolResult"),
        ("tool", TextBlock("x"), "TextBlock"),
        ("tool", CALL, "ToolCall"),
        ("tool", png(), "ImageBlock"),
    ],
)
def test_a_role_holds_only_its_blocks(role: str, block: Block, kind: str) -> None:
    with pytest.raises(ContentError, match=f"{role.capitalize()} messages cannot contain a {kind}"):
        Message(role, (block,))  # type: ignore[arg-type]


def test_every_role_takes_what_is_its_own() -> None:
    assert user("x", png(), pdf(), wav(), NEW).text == "x"
    assert assistant(THOUGHT, "a", CALL, "b", png(), NEW).text == "a\n\nb"
    assert tool(DONE).results == (DONE,)
    assert Message("tool", (DONE, NEW)).calls == ()


def test_neighbouring_texts_of_a_model_are_pieces_of_one_and_those_of_a_person_are_paragraphs() -> None:
    assert assistant("Profit ", "rose.", png(), "More.").text == "Profit rose.\n\nMore."
    assert user("one", "two").text == "one\n\ntwo"


def test_ids_are_unique_within_a_message() -> None:
    with pytest.raises(ContentError, match="Two ToolCalls of one message share the id 'a'"):
        assistant(CALL, replace(CALL, name="g"))
    with pytest.raises(ContentError, match="Two ToolResults of one message share the id 'a'"):
        tool(DONE, DONE)


def test_media_are_found_inside_results_too() -> None:
    message = tool(ToolResult("a", (png(), TextBlock("x"), pdf())), ToolResult("b", (wav(),)))
    assert media_of(message) == (png().media, pdf().media, wav().media)


OWED = Opaque(provider="p", model="m", data="s")


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (TextBlock("words"), "words"),
        (png("a.png"), "[image: a.png, 2×1, 72 bytes]"),
        (replace(png("a.png"), alt="a dot", description="red"), "[image: a.png, 2×1, 72 bytes: a dot]"),
        (replace(png("a.png"), description="red"), "[image: a.png, 2×1, 72 bytes: red]"),
        (pdf("r.pdf"), "[document: r.pdf, 68 bytes]"),
        (replace(pdf("r.pdf"), pages="2-3"), "[document: r.pdf, 68 bytes, pages 2-3]"),
        (wav("s.wav"), "[audio: s.wav, 0.0 s, 52 bytes]"),
        (replace(wav("s.wav"), transcript="beep"), "[audio: s.wav, 0.0 s, 52 bytes: beep]"),
        (THOUGHT, "hm"),
        (ThinkingBlock(redacted=True, opaque=OWED), "[thinking, kept by the provider]"),
        (CALL, '[tool call: f({"x":1})]'),
        (ToolCall("a", "f", raw_arguments="{oops"), "[tool call: f({oops)]"),
        (ToolResult("a", (TextBlock("one"), png("a.png"))), "one\n[image: a.png, 2×1, 72 bytes]"),
        (NEW, "[hologram: not known to this version]"),
        (UnknownBlock({"type": "hologram", "text": "a ghost"}), "a ghost"),
        (UnknownBlock({"type": "hologram", "text": 3}), "[hologram: not known to this version]"),
    ],
)
def test_every_block_has_a_text(block: Block, text: str) -> None:
    assert text_of(block) == text


def test_a_whole_path_has_no_broken_pairs() -> None:
    path = (user("go"), assistant(CALL, ToolCall("b", "g")), tool(ToolResult("b", (png(),)), DONE), assistant("ok"))
    assert broken_pairs(path) == ()


def test_unanswered_calls_and_orphan_results_are_named_with_their_place() -> None:
    path = (
        tool(DONE),
        assistant(CALL, ToolCall("b", "g")),
        tool(DONE, ToolResult("c", (TextBlock("?"),))),
        user("and?"),
        tool(ToolResult("b", (TextBlock("late"),))),
        assistant(CALL),
    )
    assert set(broken_pairs(path)) == {
        BrokenPair(0, "a", "orphan"),
        BrokenPair(2, "c", "orphan"),
        BrokenPair(1, "b", "unanswered"),
        BrokenPair(4, "b", "orphan"),
        BrokenPair(5, "a", "unanswered"),
    }
    assert len(broken_pairs(path)) == 5
