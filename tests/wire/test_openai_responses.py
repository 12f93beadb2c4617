from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import assistant
from loom.events import MediaArrived
from loom.models import ThinkingRule, Usage
from loom.prompt import Prompt, ShownMedia, ShownMessage, ShownResult
from loom.sampling import Sampling
from loom.wire import openai_responses
from wire.prompts import CHART, CLAUDE, GPT, LOOK, REPORT, compare, expanded, owed, ref, replay, rich, two_calls
from wire.sdk_types import check_openai_responses
from wire.streams import OPENAI_RESPONSES, PICTURE, cut_everywhere, decode, told

REASONING = {
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "The report first."}],
    "encrypted_content": "gAAA",
}
THOUGHT = ThinkingBlock("The report first.", opaque=owed(GPT, REASONING))


def items(*said: ShownMessage) -> list[dict[str, Any]]:
    body = expanded(openai_responses.encode(Prompt(model=GPT, messages=said)))
    check_openai_responses(body)
    return body["input"]


def test_a_rich_prompt_leaves_as_reviewed_and_as_the_sdk_types_it() -> None:
    calls = two_calls(owed(GPT, {"id": "fc_1"}), owed(GPT, {"id": "fc_2"}))
    said = TextBlock("I look at both.", (), owed(GPT, {"id": "msg_1", "phase": "commentary"}))
    prompt = rich(GPT, THOUGHT, calls, hoisted=False, said=said)
    check_openai_responses(compare("openai_responses", openai_responses.encode(prompt)))


def test_nothing_is_stored_and_only_reasoning_models_are_asked_for_their_reasoning() -> None:
    said = (ShownMessage("user", (TextBlock("Hi"),)),)
    body = openai_responses.encode(Prompt(model=GPT, messages=said))
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    plain = msgspec.structs.replace(GPT, thinking=ThinkingRule())
    assert "include" not in openai_responses.encode(Prompt(model=plain, messages=said))


def test_reasoning_stands_before_what_it_led_to_with_its_summary() -> None:
    bare = ThinkingBlock(opaque=owed(GPT, {"id": "rs_2", "encrypted_content": "gBBB"}))
    text = TextBlock("I look.", (), owed(GPT, {"id": "msg_1", "phase": "commentary"}))
    call = ToolCall("call_1", "look", {}, None, owed(GPT, {"id": "fc_1"}))
    found = items(ShownMessage("assistant", (THOUGHT, text, bare, call)))
    assert [item["type"] for item in found] == ["reasoning", "message", "reasoning", "function_call"]
    assert found[0]["summary"] == REASONING["summary"]
    assert found[2]["summary"] == []
    assert (found[1]["id"], found[1]["phase"], found[3]["id"]) == ("msg_1", "commentary", "fc_1")
    assert found[1]["content"] == [{"type": "output_text", "text": "I look.", "annotations": []}]


def test_without_its_reasoning_nothing_keeps_its_id() -> None:
    text = TextBlock("I look.", (), owed(GPT, {"id": "msg_1", "phase": "commentary"}))
    call = ToolCall("call_1", "look", {}, None, owed(GPT, {"id": "fc_1"}))
    said, called = items(ShownMessage("assistant", (text, call)))
    assert said == {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"}
    assert "id" not in called


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    lost = ThinkingBlock("Hm.", opaque=owed(GPT, {"id": "rs_3", "summary": []}))
    assert items(ShownMessage("assistant", (lost, TextBlock("Yes."), THOUGHT))) == [
        {"type": "message", "role": "assistant", "content": "Yes."}
    ]


def test_pieces_of_one_text_are_one_message_and_messages_stay_apart() -> None:
    def text(words: str, name: str) -> TextBlock:
        return TextBlock(words, (), owed(GPT, {"id": name}))

    one, two = items(ShownMessage("assistant", (THOUGHT, text("A", "msg_1"), text("B", "msg_1"), text("C", "msg_2"))))[
        1:
    ]
    assert [part["text"] for part in one["content"]] == ["A", "B"]
    assert [part["text"] for part in two["content"]] == ["C"]
    foreign = items(ShownMessage("assistant", (TextBlock("It says "), TextBlock("so", (Citation(quote="so"),)))))
    assert [item["content"] for item in foreign] == ["It says so"]


def test_a_refusal_goes_back_as_one() -> None:
    refused = TextBlock("No.", (), owed(GPT, {"id": "msg_1", "refusal": True}))
    assert items(ShownMessage("assistant", (THOUGHT, refused)))[1]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_results_carry_pictures_and_files_in_their_order() -> None:
    uploaded = ShownMedia(kind="image", ref=ref(b"a chart", "image/png", file_id="file-1"), detail="low")
    filed = ShownMedia(kind="document", ref=ref(b"a report", "application/pdf", file_id="file-2"), name="r.pdf")
    blocks = (TextBlock("broken"), CHART, REPORT, uploaded, filed)
    (output,) = items(ShownMessage("tool", (ShownResult(call_id="c", name="look", blocks=blocks, is_error=True),)))
    assert output["output"] == [
        {"type": "input_text", "text": "Error: broken"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,YSBjaGFydA=="},
        {"type": "input_file", "filename": "report.pdf", "file_data": "data:application/pdf;base64,YSByZXBvcnQ="},
        {"type": "input_image", "detail": "low", "file_id": "file-1"},
        {"type": "input_file", "file_id": "file-2"},
    ]


def test_a_result_that_is_only_a_picture_and_an_error_says_so() -> None:
    (output,) = items(ShownMessage("tool", (ShownResult(call_id="c", name="look", blocks=(CHART,), is_error=True),)))
    assert [part["type"] for part in output["output"]] == ["input_text", "input_image"]


@pytest.mark.parametrize(
    ("sampling", "asked"),
    [
        (Sampling(thinking="high"), {"reasoning": {"effort": "high", "summary": "auto"}}),
        (Sampling(thinking="off", max_tokens=5), {"reasoning": {"effort": "none"}, "max_output_tokens": 5}),
        (Sampling(temperature=0.1, tool_choice="any"), {"temperature": 0.1, "tool_choice": "required"}),
        (Sampling(tool_choice="none"), {"tool_choice": "none"}),
        (Sampling(), {}),
    ],
)
def test_wishes_are_written_in_its_words(sampling: Sampling, asked: dict[str, Any]) -> None:
    said = (ShownMessage("user", (TextBlock("Hi"),)),)
    body = openai_responses.encode(Prompt(model=GPT, messages=said, tools=(LOOK,), sampling=sampling))
    check_openai_responses(body)
    fixed = ("model", "input", "stream", "store", "include", "tools")
    assert {key: body[key] for key in body if key not in fixed} == asked


@pytest.mark.parametrize("name", OPENAI_RESPONSES)
def test_a_stream_gives_the_same_events_however_it_is_cut(name: str) -> None:
    cut_everywhere(openai_responses, GPT, OPENAI_RESPONSES[name])


@pytest.mark.parametrize(
    "name", ["text", "thinking", "thinking without words", "whole at once", "without numbers", "citations", "refusal"]
)
def test_what_was_said_can_be_sent_back(name: str) -> None:
    message = told(openai_responses, GPT, OPENAI_RESPONSES[name]).message
    assert message is not None
    check_openai_responses(openai_responses.encode(replay(GPT, message, tools=(LOOK,))))


def test_text_phase_and_tokens_are_read() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["text"])
    opaque = owed(GPT, {"id": "msg_1", "phase": "final_answer"})
    assert folded.message == assistant(TextBlock("Grüße aus Köln 🙂", (), opaque))
    assert folded.usage == Usage(
        input_tokens=120, output_tokens=30, cache_read_tokens=100, cache_write_tokens=8, thinking_tokens=12
    )
    assert folded.stop == "end"


def test_reasoning_is_sealed_with_what_its_end_says() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["thinking"])
    assert folded.message is not None
    thought, text, *calls = folded.message.blocks
    assert isinstance(thought, ThinkingBlock)
    assert thought.text == "First the report.\n\nThen the photo."
    assert thought.opaque is not None
    assert thought.opaque.data["encrypted_content"] == "gAAAwhole"
    assert len(thought.opaque.data["summary"]) == 2
    assert isinstance(text, TextBlock)
    assert calls == [
        ToolCall("call_1", "look", {"name": "Übersicht.png"}, None, owed(GPT, {"id": "fc_1"})),
        ToolCall("call_2", "now", {}, None, owed(GPT, {"id": "fc_2"})),
    ]
    assert folded.stop == "tool_calls"


def test_reasoning_without_words_survives() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["thinking without words"])
    assert folded.message is not None
    assert isinstance(folded.message.blocks[0], ThinkingBlock)


def test_items_that_arrive_whole_are_read_too() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["whole at once"])
    assert folded.message is not None
    assert [type(block) for block in folded.message.blocks] == [ThinkingBlock, TextBlock, TextBlock, ToolCall]
    assert folded.message.calls[0].arguments == {"name": "a"}


def test_items_without_numbers_are_told_apart_by_their_names() -> None:
    message = told(openai_responses, GPT, OPENAI_RESPONSES["without numbers"]).message
    assert message is not None
    thought, text = message.blocks
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(text, TextBlock)
    assert (thought.text, text.text) == ("Hm.", "Yes.")


def test_annotations_become_citations() -> None:
    message = told(openai_responses, GPT, OPENAI_RESPONSES["citations"]).message
    assert message is not None
    block = message.blocks[0]
    assert isinstance(block, TextBlock)
    assert block.citations == (
        Citation(title="News", url="https://example.org/", start=0, end=10),
        Citation(title="report.pdf", start=10, end=10),
    )


def test_a_refusal_is_said_and_marked() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["refusal"])
    assert folded.message is not None
    assert (folded.message.text, folded.stop) == ("I cannot do that.", "refusal")


def test_a_picture_arrives_as_its_bytes() -> None:
    events = decode(openai_responses, GPT, [OPENAI_RESPONSES["image"]])
    assert events[0] == MediaArrived(index=0, media_type="image/webp", data=PICTURE)


def test_a_call_that_the_token_limit_cut_off_is_not_whole() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["incomplete"])
    assert (folded.message, folded.cut_calls, folded.stop) == (None, ("look",), "max_tokens")


@pytest.mark.parametrize(("name", "code"), [("failed", "provider.unavailable"), ("error", "provider.rate_limited")])
def test_errors_in_mid_stream_are_raised_as_what_they_are(name: str, code: str) -> None:
    assert str(decode(openai_responses, GPT, [OPENAI_RESPONSES[name]])[-1]).startswith(code)


def test_a_stream_that_ends_early_is_not_complete() -> None:
    folded = told(openai_responses, GPT, OPENAI_RESPONSES["cut"])
    assert (folded.message, folded.complete) == (assistant("Half a sen"), False)


def test_thoughts_of_another_provider_have_no_form_here() -> None:
    foreign = ThinkingBlock("Hm.", opaque=owed(CLAUDE, {"signature": "x"}))
    assert items(ShownMessage("assistant", (foreign, TextBlock("Yes.")))) == [
        {"type": "message", "role": "assistant", "content": "Yes."}
    ]
