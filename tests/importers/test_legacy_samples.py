"""One realistic conversation of each shape, with the exact values that it becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from content.conversations import encode_conversation
from content.tiny_media import PNG, fetch, lift, pdf, png, wav
from loom.content.blocks import Citation, Opaque, TextBlock, ThinkingBlock, ToolCall, ToolResult, UnknownBlock
from loom.content.codec import Conversation, decode_conversation
from loom.content.messages import assistant, broken_pairs, tool, user
from loom.importers import UpgradedConversation, upgrade
from loom.importers.forms import OriginalForms

SAMPLES = Path(__file__).parent / "legacy_samples"
CONVERSATIONS = sorted(path.stem for path in SAMPLES.glob("*.json") if path.stem != "tree")


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def upgraded(name: str) -> UpgradedConversation:
    """What was read; how it came is the subject of `test_identity`."""
    return replace(upgrade(sample(name), lift=lift, fetch=fetch), originals=OriginalForms(), head=())


def result(call_id: str, *blocks: Any, **rest: Any) -> ToolResult:
    return ToolResult(call_id, tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks), **rest)


def test_old_loom_messages_keep_text_before_calls_and_broken_arguments_raw() -> None:
    assert upgraded("loom_old") == UpgradedConversation(
        system="You are Loom.",
        messages=(
            user("List the files, then read notes.txt"),
            assistant(
                "Two things at once.",
                ToolCall("call_1", "list_files"),
                ToolCall("call_2", "read_file", {"path": "notes.txt"}),
                ToolCall("call_3", "write_file", raw_arguments='{"path": "a.txt", "tex'),
            ),
            tool(
                result("call_1", "notes.txt\nphoto.png", name="list_files"),
                result("call_2", "(no output)", name="read_file"),
                result("call_3", "bad arguments", name="write_file"),
            ),
            assistant(ToolCall("call_7_1", "unknown", raw_arguments="[1, 2]")),
            assistant("There is a note and a photo."),
        ),
        notices=("message 8: empty; left out",),
    )


def test_tool_results_that_were_json_text_become_blocks() -> None:
    messages = upgraded("tool_json").messages
    assert messages[2] == tool(
        result("s1", "A screenshot of the page", replace(png("photo.png"), alt="the page"), '{"took_ms":12}'),
        result("s2", "gone.png does not exist", is_error=True),
        result("s3", '{"title":"Sales","picture":"[image: image/png, 2×1, 72 bytes]","rows":[1,2.5]}', png()),
        result("s4", '{ "success": true,  "size": 3 }'),
    )


def test_blocks_that_point_at_files_are_copied_in_or_their_text_stands_in() -> None:
    found = upgraded("source_path")
    assert found.messages == (
        user(
            "Compare these",
            replace(png("photo.png"), alt="a red dot"),
            replace(pdf("report.pdf"), title="Q3", pages="2-3"),
            "Page one said: profit.",
            "[audio: gone.wav: the file is not available]",
            '{"type":"image","source_path":"/etc/passwd"}',
        ),
        assistant("They differ."),
    )
    assert found.notices == (
        "message 1: document: gone.pdf is not available; replaced by text",
        "message 1: audio: gone.wav is not available; replaced by text",
    )


def test_openai_chat_is_read() -> None:
    annotation = sample("openai_chat")["messages"][3]["annotations"][0]
    cited = Citation(
        title="Dots",
        url="https://dots.example",
        start=0,
        end=5,
        opaque=Opaque(provider="openai", model="gpt-4.1", data=annotation),
    )
    found = upgraded("openai_chat")
    assert found.system == "Be brief.\n\nUse metric units."
    assert found.messages == (
        user(
            "What is this?",
            replace(png(), detail="low"),
            "[image at https://example.com/cat.png]",
            wav(),
            pdf("report.pdf"),
            "[document: file file-abc, stored by a provider]",
        ),
        assistant(ThinkingBlock("It is small."), TextBlock("A dot, see the web.", (cited,))),
        user("Look closer"),
        assistant(ToolCall("call_6_1", "zoom", {"by": 2})),
        tool(result("call_6_1", "zoomed", name="zoom")),
        assistant("I cannot help with that."),
        user(TextBlock("[system] Stay polite.", is_system=True)),
        assistant(replace(wav(), transcript="Hello")),
    )
    assert found.notices == (
        "message 3: image at https://example.com/cat.png was not fetched",
        "message 3: document file-abc is stored by a provider and was not copied",
    )


def test_openai_responses_items_of_one_answer_become_one_message() -> None:
    def owed(data: Any) -> Opaque:
        return Opaque(provider="openai", model="gpt-5.4", data=data)

    reasoning = {key: sample("openai_responses")["input"][1][key] for key in ("id", "summary", "encrypted_content")}
    citation = sample("openai_responses")["input"][-1]["content"][0]["annotations"][0]
    found = upgraded("openai_responses")
    assert found.system == "Be brief."
    assert found.messages == (
        user(
            "Read both", replace(png(), detail="high"), pdf("report.pdf"), "[image: file file-9, stored by a provider]"
        ),
        assistant(
            ThinkingBlock("Two files.", opaque=owed(reasoning)),
            TextBlock("Reading.", opaque=owed({"phase": "commentary"})),
            ToolCall("call_a", "read", {"n": 1}, opaque=owed({"id": "fc_1"})),
            ToolCall("call_b", "read", {"n": 2}),
        ),
        tool(result("call_a", "one"), result("call_b", "two", png())),
        assistant(
            UnknownBlock({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
            TextBlock("Done.", (Citation(title="x.pdf", opaque=owed(citation)),)),
            "But not more.",
        ),
    )


def test_anthropic_results_come_before_the_words_that_were_sent_with_them() -> None:
    def owed(data: Any) -> Opaque:
        return Opaque(provider="anthropic", model="claude-opus-4-5", data=data)

    raw = sample("anthropic")["messages"][1]["content"][2]["citations"][0]
    cited = Citation(quote="profit +3%", title="Report", locator="page", first=2, last=2, opaque=owed(raw))
    found = upgraded("anthropic")
    assert found.system == "Be kind.\n\nBe exact."
    assert found.messages == (
        user(
            png(),
            "[image at https://example.com/a.png]",
            replace(pdf("Report"), title="Report"),
            "[document: Notes]\nfrom Monday",
            "Milk and eggs.",
            "[document]",
            "Chunk one",
            "[search result: Found, https://example.com/s]",
            "A hit.",
            "Summarise",
        ),
        assistant(
            ThinkingBlock("First the report.", opaque=owed({"signature": "EqQB"})),
            ThinkingBlock(redacted=True, opaque=owed({"data": "EmwK"})),
            TextBlock("Profit rose", (cited,)),
            ToolCall("toolu_1", "lookup", {"q": "profit"}),
            ToolCall("toolu_2", "plot"),
        ),
        tool(result("toolu_1", "3%", png()), result("toolu_2", "(no output)", is_error=True)),
        user("Go on, please"),
        assistant(
            ThinkingBlock(opaque=owed({"signature": "Ewww"})),
            UnknownBlock({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}),
            "All done.",
        ),
    )


def test_gemini_calls_without_ids_are_paired_by_name_and_order() -> None:
    def owed(signature: str) -> Opaque:
        return Opaque(provider="gemini", model="gemini-3-pro", data={"thoughtSignature": signature})

    found = upgraded("gemini")
    assert found.system == "Be vivid."
    assert found.messages == (
        user("What is in the picture?", png(), "[document at https://generativelanguage.example/files/1]"),
        assistant(
            ThinkingBlock("Let me think."),
            "I will look.",
            ToolCall("call_2_1", "crop", {"x": 1}, opaque=owed("c2ln")),
            ToolCall("call_2_2", "crop", {"x": 2}),
            ToolCall("own", "name_it"),
        ),
        tool(
            result("own", "no name", name="name_it", is_error=True),
            result("call_2_1", "first", name="crop"),
            result("call_2_2", '{"width":2}', png(), name="crop"),
        ),
        assistant("A red dot.", ThinkingBlock(opaque=owed("ZW5k"))),
    )


def test_ollama_images_are_lifted_by_their_bytes() -> None:
    assert upgraded("ollama").messages == (
        user("What do you see and hear?", png(), wav(), "[image: its base64 data could not be decoded]"),
        assistant(ThinkingBlock("Let me zoom."), ToolCall("call_2_1", "zoom", {"by": 2}), ToolCall("call_2_2", "hear")),
        tool(result("call_2_2", "a beep", name="hear"), result("call_2_1", "larger", png(), name="zoom")),
        assistant("A dot and a beep."),
    )


def test_bedrock_converse_is_read() -> None:
    def owed(provider: str, data: Any) -> Opaque:
        return Opaque(provider=provider, model="anthropic.claude", data=data)

    raw = {"title": "notes", "sourceContent": [{"text": "Milk."}]}
    found = upgraded("bedrock")
    assert found.system == "Be calm."
    assert found.messages == (
        user("Read it", png(), pdf("report"), "[document: notes]", "Milk.", "[video at s3://bucket/clip.mp4]"),
        assistant(
            ThinkingBlock("Hm.", opaque=owed("anthropic", {"signature": "c2ln"})),
            "Calling",
            ToolCall("tu_1", "look", {"a": 1}),
        ),
        tool(result("tu_1", "no", '{"code":404}', png(), is_error=True)),
        assistant(
            TextBlock("It says milk.", (Citation(quote="Milk.", title="notes", opaque=owed("bedrock", raw)),)),
        ),
    )


def test_sdk_dicts_with_raw_bytes_are_read_like_their_json() -> None:
    data = [{"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": PNG}}}]}]
    assert upgrade(data, lift=lift, fetch=fetch).messages == (user(png()),)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_sample_has_whole_pairs_and_survives_the_codec(name: str) -> None:
    found = upgraded(name)
    conversation = Conversation(messages=found.messages, system=found.system)
    written = encode_conversation(conversation)
    assert decode_conversation(written) == conversation
    again = upgrade(json.loads(written), lift=lift, fetch=fetch)
    assert (again.system, again.messages, again.notices) == (found.system, found.messages, ())
    unpaired = {pair.call_id for pair in broken_pairs(found.messages)}
    assert unpaired == ({"call_7_1"} if name == "loom_old" else set())


def test_all_shapes_may_stand_in_one_list() -> None:
    names = ("loom_old", "openai_responses", "anthropic", "gemini", "ollama", "bedrock")
    bodies = [sample(name) for name in names]
    lists = [
        body if isinstance(body, list) else next(body[k] for k in ("messages", "input", "contents") if k in body)
        for body in bodies
    ]
    together = upgrade([message for items in lists for message in items], lift=lift, fetch=fetch)
    apart = [len(upgrade(items, lift=lift, fetch=fetch).messages) for items in lists]
    assert len(together.messages) == sum(apart)
    assert {pair.call_id for pair in broken_pairs(together.messages)} == {"call_7_1"}
