from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import assistant
from loom.events import MediaArrived, Stopped
from loom.models import Model, ThinkingRule, TokenRule, Usage
from loom.prompt import Prompt, ShownMedia, ShownMessage, ShownResult
from loom.sampling import Sampling
from loom.wire import gemini
from wire.prompts import (
    CHART,
    GEMINI,
    LOOK,
    MAP,
    MEMO,
    OLD_PHOTO,
    compare,
    expanded,
    owed,
    ref,
    replay,
    rich,
    two_calls,
)
from wire.sdk_types import check_gemini
from wire.streams import GEMINI as STREAMS
from wire.streams import PICTURE, cut_everywhere, decode, told

OLDER = Model(
    provider="gemini",
    name="gemini-2.5-flash",
    wire="gemini",
    thinking=ThinkingRule(request="budget"),
    tokens=TokenRule(image="crops"),
)


def contents(model: Model, *said: ShownMessage) -> list[dict[str, Any]]:
    body = expanded(gemini.encode(Prompt(model=model, messages=said)))
    check_gemini(body)
    return body["contents"]


def test_a_rich_prompt_leaves_as_reviewed_and_as_the_sdk_types_it() -> None:
    calls = two_calls(owed(GEMINI, {"id": "f1", "thoughtSignature": "c2lnbmVk"}), owed(GEMINI, {"id": "f2"}))
    thought = ThinkingBlock("The report first.")
    check_gemini(compare("gemini", gemini.encode(rich(GEMINI, thought, calls, hoisted=False))))


def test_media_hoisted_for_older_models_stand_behind_all_the_responses() -> None:
    prompt = rich(OLDER, None, two_calls(), hoisted=True)
    body = compare("gemini_hoisted", gemini.encode(prompt))
    check_gemini(body)
    assert [next(iter(part)) for part in body["contents"][2]["parts"]] == [
        "functionResponse", "functionResponse", "text", "inlineData",
    ]  # fmt: skip


def test_the_address_names_the_model() -> None:
    assert gemini.path(GEMINI) == "/models/gemini-4-argon:streamGenerateContent?alt=sse"


def test_a_foreign_call_carries_the_sentinel_on_the_first_of_each_step_and_no_id() -> None:
    first, second = two_calls()
    answers = tuple(ShownResult(call_id=call.id, name=call.name, blocks=(TextBlock("ok"),)) for call in (second, first))
    model_turn, user_turn, again = contents(
        GEMINI,
        ShownMessage("assistant", (TextBlock("I look."), first, second)),
        ShownMessage("tool", answers),
        ShownMessage("assistant", (ToolCall("call_3", "now"),)),
    )
    signatures = [part.get("thoughtSignature") for part in model_turn["parts"]]
    assert signatures == [None, gemini.UNSIGNED, None]
    assert again["parts"][0]["thoughtSignature"] == gemini.UNSIGNED
    assert all("id" not in part.get("functionCall", {}) for part in model_turn["parts"])
    assert all("id" not in part["functionResponse"] for part in user_turn["parts"])


def test_responses_stand_in_the_order_of_their_calls_under_their_names() -> None:
    calls = (ToolCall("a", "look"), ToolCall("b", "now"), ToolCall("c", "look"))
    results = tuple(ShownResult(call_id=name, name="", blocks=(TextBlock(name),)) for name in "cab")
    turn = contents(OLDER, ShownMessage("assistant", calls), ShownMessage("tool", results))[1]
    responses = [part["functionResponse"] for part in turn["parts"]]
    assert [(item["name"], item["response"]["output"]) for item in responses] == [
        ("look", "a"),
        ("now", "b"),
        ("look", "c"),
    ]


def test_no_sentinel_where_none_is_needed() -> None:
    (turn,) = contents(OLDER, ShownMessage("assistant", two_calls()))
    assert all("thoughtSignature" not in part for part in turn["parts"])


def test_results_say_output_or_error_and_carry_their_media() -> None:
    results = (
        ShownResult(call_id="a", name="look", blocks=(CHART, TextBlock("Two."), MAP)),
        ShownResult(call_id="b", name="look", blocks=(TextBlock("gone"),), is_error=True),
        ShownResult(call_id="c", name="look", blocks=(CHART,)),
    )
    (turn,) = contents(GEMINI, ShownMessage("tool", results))
    first, second, third = (part["functionResponse"] for part in turn["parts"])
    assert first["response"] == {"output": "Two."}
    assert [part["inlineData"]["data"] for part in first["parts"]] == ["YSBjaGFydA==", "YSBtYXA="]
    assert second["response"] == {"error": "gone"}
    assert third["response"] == {}
    assert len(third["parts"]) == 1


def test_signed_parts_go_back_one_by_one_and_plain_thoughts_do_not() -> None:
    blocks = (
        ThinkingBlock("a summary"),
        TextBlock("One "),
        TextBlock("two", (), owed(GEMINI, {"thoughtSignature": "dHdv"})),
        ThinkingBlock(opaque=owed(GEMINI, {"thoughtSignature": "ZW1wdHk=", "text": "\n"})),
        ThinkingBlock(opaque=owed(GEMINI, {"thoughtSignature": "b2xk"})),
        ThinkingBlock("Hm.", opaque=owed(GEMINI, {"thoughtSignature": "aG0=", "thought": True})),
    )
    (turn,) = contents(GEMINI, ShownMessage("assistant", blocks))
    assert turn["parts"] == [
        {"text": "One "},
        {"text": "two", "thoughtSignature": "dHdv"},
        {"text": "\n", "thoughtSignature": "ZW1wdHk="},
        {"text": "", "thoughtSignature": "b2xk"},
        {"text": "Hm.", "thought": True, "thoughtSignature": "aG0="},
    ]


def test_a_message_of_nothing_but_summaries_is_left_out_and_its_neighbours_become_one() -> None:
    (turn,) = contents(
        GEMINI,
        ShownMessage("user", (TextBlock("One."),)),
        ShownMessage("assistant", (ThinkingBlock("a summary"),)),
        ShownMessage("user", (TextBlock("Two."),)),
    )
    assert turn == {"role": "user", "parts": [{"text": "One."}, {"text": "Two."}]}


def test_media_are_one_kind_of_part_and_only_newer_models_take_a_resolution_for_each() -> None:
    uploaded = ShownMedia(kind="document", ref=ref(b"a report", "application/pdf", file_id="https://files/1"))
    said = ShownMessage("user", (OLD_PHOTO, MEMO, uploaded))
    (new,) = contents(GEMINI, said)
    assert new["parts"][0]["mediaResolution"] == {"level": "MEDIA_RESOLUTION_LOW"}
    assert new["parts"][1]["inlineData"]["mimeType"] == "audio/wav"
    assert new["parts"][2] == {"fileData": {"mimeType": "application/pdf", "fileUri": "https://files/1"}}
    (old,) = contents(OLDER, said)
    assert "mediaResolution" not in old["parts"][0]


@pytest.mark.parametrize(
    ("model", "sampling", "config"),
    [
        (GEMINI, Sampling(thinking="high"), {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}}),
        (GEMINI, Sampling(thinking="off"), {"thinkingConfig": {"thinkingLevel": "MINIMAL", "includeThoughts": False}}),
        (OLDER, Sampling(thinking="low"), {"thinkingConfig": {"thinkingBudget": 2048, "includeThoughts": True}}),
        (OLDER, Sampling(thinking="off"), {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}}),
        (GEMINI, Sampling(max_tokens=5), {"maxOutputTokens": 5, "thinkingConfig": {"includeThoughts": True}}),
        (GEMINI, Sampling(), {"thinkingConfig": {"includeThoughts": True}}),
    ],
)
def test_wishes_are_written_by_the_models_rule(model: Model, sampling: Sampling, config: object) -> None:
    said = (ShownMessage("user", (TextBlock("Hi"),)),)
    body = gemini.encode(Prompt(model=model, messages=said, sampling=sampling))
    check_gemini(body)
    assert body.get("generationConfig") == config


@pytest.mark.parametrize("choice", ["any", "none"])
def test_the_choice_of_tools_is_a_mode(choice: str) -> None:
    sampling = msgspec.convert({"tool_choice": choice}, Sampling)
    said = (ShownMessage("user", (TextBlock("Hi"),)),)
    body = gemini.encode(Prompt(model=GEMINI, messages=said, tools=(LOOK,), sampling=sampling))
    check_gemini(body)
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": choice.upper()}}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_events_however_it_is_cut(name: str) -> None:
    cut_everywhere(gemini, GEMINI, STREAMS[name])


@pytest.mark.parametrize("name", ["text", "calls", "calls without ids", "signed text", "signed thought", "grounding"])
def test_what_was_said_can_be_sent_back(name: str) -> None:
    message = told(gemini, GEMINI, STREAMS[name]).message
    assert message is not None
    check_gemini(gemini.encode(replay(GEMINI, message, tools=(LOOK,))))


def test_text_and_tokens_are_read_thoughts_included() -> None:
    folded = told(gemini, GEMINI, STREAMS["text"])
    assert folded.message == assistant("Grüße aus Köln 🙂")
    assert folded.usage == Usage(input_tokens=120, output_tokens=30, cache_read_tokens=100, thinking_tokens=12)
    assert folded.stop == "end"


def test_calls_keep_their_ids_and_signatures_and_give_both_back() -> None:
    folded = told(gemini, GEMINI, STREAMS["calls"])
    look = ToolCall(
        "f1",
        "look",
        {"name": "Übersicht.png", "dpi": 150},
        None,
        owed(GEMINI, {"id": "f1", "thoughtSignature": "c2lnbmVk"}),
    )
    now = ToolCall("f2", "now", {}, None, owed(GEMINI, {"id": "f2"}))
    assert folded.message == assistant(ThinkingBlock("First the report."), "I look.", look, now)
    assert folded.stop == "tool_calls"
    assert folded.message is not None
    _, model_turn, user_turn = gemini.encode(replay(GEMINI, folded.message))["contents"]
    assert [part.get("thoughtSignature") for part in model_turn["parts"]] == [None, "c2lnbmVk", None]
    assert [part["functionResponse"]["id"] for part in user_turn["parts"]] == ["f1", "f2"]


def test_a_call_without_an_id_can_be_answered_without_one() -> None:
    folded = told(gemini, GEMINI, STREAMS["calls without ids"])
    assert folded.message == assistant(ToolCall("call_0", "look", {"name": "a"}))
    _, model_turn, user_turn = gemini.encode(replay(GEMINI, folded.message))["contents"]
    assert "id" not in model_turn["parts"][0]["functionCall"]
    assert "id" not in user_turn["parts"][0]["functionResponse"]


def test_signatures_stay_on_the_parts_that_carried_them() -> None:
    message = told(gemini, GEMINI, STREAMS["signed text"]).message
    assert message is not None
    turn = gemini.encode(replay(GEMINI, message))["contents"][1]
    assert turn["parts"] == [
        {"text": "One "},
        {"text": "two", "thoughtSignature": "b24gdGV4dA=="},
        {"text": " three."},
        {"text": "", "thoughtSignature": "b24gbm90aGluZw=="},
    ]


def test_bytes_of_utf8_become_places_in_the_text() -> None:
    message = told(gemini, GEMINI, STREAMS["grounding"]).message
    assert message is not None
    block = message.blocks[0]
    assert isinstance(block, TextBlock)
    assert [(c.title, block.text[c.start : c.end]) for c in block.citations] == [
        ("A", "stiegen die Umsätze."),
        ("B", "stiegen die Umsätze."),
        ("A", "In Köln"),
        ("A", "die"),
        ("", "Köln"),
    ]
    assert block.citations[1] == Citation(title="B", url="b.pdf", quote="um 4 %", start=8, end=28)


def test_a_picture_arrives_as_its_bytes() -> None:
    events = decode(gemini, GEMINI, [STREAMS["image"]])
    assert events[0] == MediaArrived(index=0, media_type="image/png", data=PICTURE)


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        ("blocked", Stopped(reason="refusal", detail="PROHIBITED_CONTENT")),
        ("malformed call", Stopped(reason="other", detail="print(look())")),
    ],
)
def test_other_ends_are_told_with_their_reason(name: str, stop: Stopped) -> None:
    *_, end = decode(gemini, GEMINI, [STREAMS[name]])
    assert isinstance(end, Stopped)
    assert (end.reason, end.detail) == (stop.reason, stop.detail)


def test_an_error_in_mid_stream_is_raised_as_what_it_is() -> None:
    assert str(decode(gemini, GEMINI, [STREAMS["error"]])[-1]).startswith("provider.overloaded")


def test_a_stream_that_ends_early_is_not_complete() -> None:
    folded = told(gemini, GEMINI, STREAMS["cut"])
    assert (folded.message, folded.complete) == (assistant("Half a sen"), False)
