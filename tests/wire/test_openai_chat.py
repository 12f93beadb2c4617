from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import assistant
from loom.events import Stopped, UsageReported
from loom.models import Model, Usage
from loom.prompt import Prompt, ShownMedia, ShownMessage, ShownResult
from loom.sampling import Sampling
from loom.wire import openai_chat
from wire.prompts import (
    CHART,
    DEEPSEEK,
    GPT,
    GPT_CHAT,
    LOOK,
    MEMO,
    MISTRAL,
    PAGES,
    PHOTO,
    REPORT,
    VLLM,
    compare,
    expanded,
    owed,
    ref,
    replay,
    rich,
    two_calls,
)
from wire.sdk_types import check_openai_chat
from wire.streams import OPENAI_CHAT, cut_everywhere, decode, told

BEYOND = ("reasoning_content", "reasoning", "thinking")
"""Keys that DeepSeek and vLLM document and OpenAI's own types lack."""
THOUGHT = ThinkingBlock("The report first.", opaque=owed(DEEPSEEK, {"field": "reasoning_content"}))


def messages(model: Model, *said: ShownMessage, **options: Any) -> list[dict[str, Any]]:
    return expanded(openai_chat.encode(Prompt(model=model, messages=said, **options)))["messages"]


def test_a_rich_prompt_leaves_as_reviewed_and_as_the_sdk_types_it() -> None:
    check_openai_chat(compare("openai_chat", openai_chat.encode(rich(GPT_CHAT, None, two_calls(), hoisted=True))))


def test_deepseek_gets_its_thoughts_back() -> None:
    body = compare("deepseek", openai_chat.encode(rich(DEEPSEEK, THOUGHT, two_calls(), hoisted=True, report=PAGES)))
    check_openai_chat(body, beyond=BEYOND)


def test_mistral_keeps_pictures_inside_the_tool_message() -> None:
    body = compare("mistral", openai_chat.encode(rich(MISTRAL, None, two_calls(), hoisted=False)))
    assert "stream_options" not in body
    tool = next(message for message in body["messages"] if message["role"] == "tool")
    assert [part["type"] for part in tool["content"]] == ["text", "image_url"]
    document = body["messages"][1]["content"][2]
    assert document["type"] == "document_url"
    assert document["document_name"] == "report.pdf"


def test_the_system_prompt_is_the_developers_only_at_openai() -> None:
    said = ShownMessage("user", (TextBlock("Hi"),))
    assert messages(GPT_CHAT, said, system="Be brief.")[0] == {"role": "developer", "content": "Be brief."}
    assert messages(VLLM, said, system="Be brief.")[0] == {"role": "system", "content": "Be brief."}


def test_words_alone_are_a_plain_string_and_errors_say_so() -> None:
    result = ShownResult(call_id="call_chart", name="look", blocks=(TextBlock("no such file"),), is_error=True)
    shy = ShownResult(call_id="call_other", name="look", blocks=(TextBlock("Error: gone"),), is_error=True)
    user, *tools = messages(
        VLLM, ShownMessage("user", (TextBlock("One."), TextBlock("Two."))), ShownMessage("tool", (result, shy))
    )
    assert user["content"] == "One.\n\nTwo."
    assert [tool["content"] for tool in tools] == ["Error: no such file", "Error: gone"]


def test_a_text_that_citations_cut_into_pieces_is_whole_again() -> None:
    said = ShownMessage("assistant", (TextBlock("It says that "), TextBlock("sales rose"), TextBlock(".")))
    assert messages(VLLM, said)[0]["content"] == "It says that sales rose."


def test_calls_without_words_have_no_content_and_keep_the_order_of_their_arguments() -> None:
    (message,) = messages(GPT_CHAT, ShownMessage("assistant", (ToolCall("call_1", "look", {"z": 1, "a": "ü"}),)))
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["arguments"] == '{"z":1,"a":"ü"}'


@pytest.mark.parametrize(
    ("model", "block", "expected"),
    [
        (DEEPSEEK, None, {"reasoning_content": ""}),
        (DEEPSEEK, THOUGHT, {"reasoning_content": "The report first."}),
        (VLLM, None, {}),
        (VLLM, ThinkingBlock("Hm.", opaque=owed(VLLM, {"field": "reasoning"})), {"reasoning": "Hm."}),
        (VLLM, ThinkingBlock("Hm.", opaque=owed(VLLM, {"field": "content"})), {}),
        (GPT_CHAT, ThinkingBlock("Hm.", opaque=owed(GPT, {"id": "rs_1", "encrypted_content": "x"})), {}),
    ],
)
def test_thinking_goes_back_in_the_field_that_it_came_in(
    model: Model, block: ThinkingBlock | None, expected: dict[str, str]
) -> None:
    call = ToolCall("call_1", "look")
    (message,) = messages(model, ShownMessage("assistant", (block, call) if block else (call,)))
    assert {key: value for key, value in message.items() if key.startswith("reasoning")} == expected


def test_a_message_of_nothing_but_thoughts_that_are_not_sent_is_left_out() -> None:
    thought = ThinkingBlock("Hm.", opaque=owed(VLLM, {"field": "content"}))
    assert messages(VLLM, ShownMessage("assistant", (thought,))) == []


def test_sound_files_and_uploads_have_their_own_parts() -> None:
    uploaded = ShownMedia(kind="document", ref=ref(b"a report", "application/pdf", file_id="file-1"))
    sheet = ShownMedia(kind="document", ref=ref(b"a report", "application/pdf"), name="sheet.xlsx")
    said = ShownMessage("user", (MEMO, uploaded, sheet, PHOTO, CHART))
    body = expanded(openai_chat.encode(Prompt(model=GPT_CHAT, messages=(said,))))
    check_openai_chat(body)
    audio, file, named, high, automatic = body["messages"][0]["content"]
    assert audio["input_audio"]["format"] == "wav"
    assert file == {"type": "file", "file": {"file_id": "file-1"}}
    assert named["file"]["filename"] == "sheet.xlsx.pdf"
    assert high["image_url"]["detail"] == "high"
    assert "detail" not in automatic["image_url"]
    (mistral,) = messages(MISTRAL, ShownMessage("user", (MEMO, REPORT)))
    assert mistral["content"][0] == {"type": "input_audio", "input_audio": "YSBtZW1v"}


def test_each_server_is_asked_in_its_own_words() -> None:
    sampling = Sampling(max_tokens=5, temperature=0.2, thinking="medium", tool_choice="any")
    said = (ShownMessage("user", (TextBlock("Hi"),)),)

    def asked(model: Model, sampling: Sampling = sampling) -> dict[str, Any]:
        body = openai_chat.encode(Prompt(model=model, messages=said, tools=(LOOK,), sampling=sampling))
        check_openai_chat(body, beyond=BEYOND)
        return {key: body[key] for key in body if key not in ("model", "messages", "stream", "stream_options", "tools")}

    assert asked(GPT_CHAT) == {
        "tool_choice": "required", "max_completion_tokens": 5, "temperature": 0.2, "reasoning_effort": "medium",
    }  # fmt: skip
    assert asked(DEEPSEEK) == {
        "tool_choice": "required", "max_tokens": 5, "temperature": 0.2,
        "thinking": {"type": "enabled"}, "reasoning_effort": "medium",
    }  # fmt: skip
    assert asked(DEEPSEEK, Sampling(thinking="off", tool_choice="none")) == {
        "tool_choice": "none", "thinking": {"type": "disabled"},
    }  # fmt: skip
    assert asked(GPT_CHAT, Sampling(thinking="off")) == {"reasoning_effort": "none"}
    assert asked(VLLM) == {"tool_choice": "required", "max_tokens": 5, "temperature": 0.2}
    unwilling = msgspec.structs.replace(GPT_CHAT, sampling=False)
    assert "temperature" not in asked(unwilling)


@pytest.mark.parametrize("name", OPENAI_CHAT)
def test_a_stream_gives_the_same_events_however_it_is_cut(name: str) -> None:
    cut_everywhere(openai_chat, VLLM, OPENAI_CHAT[name])


@pytest.mark.parametrize("name", ["text", "calls", "all numbered 0", "thinking", "reasoning", "tags", "annotations"])
def test_what_was_said_can_be_sent_back(name: str) -> None:
    message = told(openai_chat, DEEPSEEK, OPENAI_CHAT[name]).message
    assert message is not None
    check_openai_chat(openai_chat.encode(replay(DEEPSEEK, message, tools=(LOOK,))), beyond=BEYOND)


def test_text_and_tokens_are_read_cached_ones_included() -> None:
    folded = told(openai_chat, GPT_CHAT, OPENAI_CHAT["text"])
    assert folded.message == assistant("Grüße aus Köln 🙂")
    assert folded.usage == Usage(
        input_tokens=120, output_tokens=30, cache_read_tokens=100, cache_write_tokens=8, thinking_tokens=12
    )
    assert folded.stop == "end"


LOOK_A, LOOK_B = ToolCall("call_1", "look", {"name": "a"}), ToolCall("call_2", "look", {"name": "b"})


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("calls", (ToolCall("call_1", "look", {"name": "Übersicht.png", "dpi": 150}), ToolCall("call_2", "now"))),
        ("interleaved calls", (LOOK_A, LOOK_B)),
        ("repeated names", (LOOK_A,)),
        ("late name", (LOOK_A,)),
        ("all numbered 0", (LOOK_A, LOOK_B, ToolCall("call_2_2", "look", {"name": "c"}))),
        ("without numbers or ids", (ToolCall("call_0", "look", {"name": "a"}), ToolCall("call_1", "now"))),
    ],
)
def test_calls_are_read_whatever_the_server_leaves_out_or_repeats(name: str, calls: tuple[ToolCall, ...]) -> None:
    folded = told(openai_chat, VLLM, OPENAI_CHAT[name])
    assert folded.message is not None
    assert folded.message.calls == calls
    assert folded.stop == "tool_calls"


def test_deepseeks_thoughts_and_cache_are_read() -> None:
    folded = told(openai_chat, DEEPSEEK, OPENAI_CHAT["thinking"])
    thought = ThinkingBlock("First the report.", opaque=owed(DEEPSEEK, {"field": "reasoning_content"}))
    assert folded.message == assistant(thought, "I look.", LOOK_A)
    assert folded.usage == Usage(input_tokens=9, output_tokens=7, cache_read_tokens=4)


@pytest.mark.parametrize(
    ("name", "field", "thought", "text"),
    [
        ("reasoning", "reasoning", "Hm.", "Yes."),
        ("tags", "content", "First the report. a</b ", "It <think> says so."),
        ("chunks of content", "content", "Hm.", "Yes."),
    ],
)
def test_thoughts_are_found_wherever_a_server_puts_them(name: str, field: str, thought: str, text: str) -> None:
    folded = told(openai_chat, VLLM, OPENAI_CHAT[name])
    assert folded.message == assistant(ThinkingBlock(thought, opaque=owed(VLLM, {"field": field})), text)


def test_openai_itself_may_write_about_tags() -> None:
    folded = told(openai_chat, GPT_CHAT, OPENAI_CHAT["tags"])
    assert folded.message is not None
    assert folded.message.text.startswith("\n<think>First")


def test_annotations_become_citations() -> None:
    folded = told(openai_chat, GPT_CHAT, OPENAI_CHAT["annotations"])
    citation = Citation(title="News", url="https://example.org/", start=0, end=10)
    assert folded.message == assistant(TextBlock("Sales rose.", (citation,)))


def test_a_refusal_is_said_and_marked_and_speech_is_read_as_its_transcript() -> None:
    folded = told(openai_chat, GPT_CHAT, OPENAI_CHAT["refusal"])
    assert (folded.message, folded.stop) == (assistant("I cannot do that."), "refusal")
    assert told(openai_chat, GPT_CHAT, OPENAI_CHAT["spoken"]).message == assistant("Good day.")


def test_the_last_call_is_not_whole_where_the_tokens_ran_out() -> None:
    folded = told(openai_chat, VLLM, OPENAI_CHAT["cut call"])
    assert (folded.message, folded.cut_calls, folded.stop) == (assistant(LOOK_A), ("look",), "max_tokens")


def test_the_end_is_told_once_and_after_the_tokens() -> None:
    for name in ("text", "no DONE"):
        events = decode(openai_chat, VLLM, [OPENAI_CHAT[name]])
        assert [type(event) for event in events[-2:]] == [UsageReported, Stopped]
        assert sum(isinstance(event, Stopped) for event in events) == 1
    assert told(openai_chat, VLLM, OPENAI_CHAT["no reason"]).stop == "other"


def test_a_stream_that_ends_early_is_not_complete() -> None:
    for name, text in (("cut", "Half a sen"), ("cut in a tag", "<thi")):
        folded = told(openai_chat, VLLM, OPENAI_CHAT[name])
        assert folded.message == assistant(text)
        assert not folded.complete


def test_errors_in_mid_stream_are_raised_as_what_they_are() -> None:
    assert str(decode(openai_chat, VLLM, [OPENAI_CHAT["error"]])[-1]).startswith("provider.unavailable")
    assert str(decode(openai_chat, VLLM, [OPENAI_CHAT["gave up"]])[-1]).startswith("provider.overloaded")
