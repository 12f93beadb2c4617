from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loom.content.blocks import TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import assistant
from loom.models import ThinkingRule, Usage
from loom.prompt import Prompt, ShownMessage, ShownResult
from loom.sampling import Sampling
from loom.wire import ollama
from wire.prompts import CHART, LOOK, OLLAMA, PAGES, compare, expanded, owed, replay, rich, two_calls
from wire.sdk_types import check_ollama
from wire.streams import OLLAMA as STREAMS
from wire.streams import cut_everywhere, decode, told

THOUGHT = ThinkingBlock("The report first.", opaque=owed(OLLAMA, {"field": "thinking"}))
HELLO = ShownMessage("user", (TextBlock("Hi"),))


def test_a_rich_prompt_leaves_as_reviewed_and_as_the_sdk_types_it() -> None:
    check_ollama(compare("ollama", ollama.encode(rich(OLLAMA, THOUGHT, two_calls(), hoisted=True, report=PAGES))))


def test_the_window_is_set_and_nothing_may_be_dropped_in_silence() -> None:
    body = ollama.encode(Prompt(model=OLLAMA, messages=(HELLO,)))
    assert body["options"] == {"num_ctx": 32_768}
    assert body["truncate"] is False


def test_a_picture_alone_still_has_a_content_and_no_prefix() -> None:
    body = expanded(ollama.encode(Prompt(model=OLLAMA, messages=(ShownMessage("user", (CHART,)),))))
    check_ollama(body)
    assert body["messages"] == [{"role": "user", "content": "", "images": ["YSBjaGFydA=="]}]


def test_pictures_may_stand_in_a_result() -> None:
    result = ShownResult(call_id="a", name="look", blocks=(TextBlock("Here:"), CHART))
    body = expanded(ollama.encode(Prompt(model=OLLAMA, messages=(ShownMessage("tool", (result,)),))))
    check_ollama(body)
    assert body["messages"][0] == {"role": "tool", "tool_name": "look", "content": "Here:", "images": ["YSBjaGFydA=="]}


@pytest.mark.parametrize(
    ("rule", "wish", "asked"),
    [
        ("flag", "high", True), ("flag", "off", False), ("flag", "", None),
        ("level", "medium", "medium"), ("level", "off", "low"), ("none", "high", None),
    ],
)  # fmt: skip
def test_thinking_is_asked_for_by_the_models_rule(rule: str, wish: str, asked: object) -> None:
    model = msgspec.structs.replace(OLLAMA, thinking=msgspec.convert({"request": rule}, ThinkingRule))
    body = ollama.encode(Prompt(model=model, messages=(HELLO,), sampling=msgspec.convert({"thinking": wish}, Sampling)))
    check_ollama(body)
    assert body.get("think") == asked


def test_wishes_are_options_and_no_tools_are_shown_where_none_may_be_used() -> None:
    def encoded(**wishes: Any) -> dict[str, Any]:
        return ollama.encode(Prompt(model=OLLAMA, messages=(HELLO,), tools=(LOOK,), sampling=Sampling(**wishes)))

    assert encoded(max_tokens=5, temperature=0.5)["options"] == {
        "num_ctx": 32_768,
        "num_predict": 5,
        "temperature": 0.5,
    }
    assert "tools" not in encoded(tool_choice="none")
    assert "tools" in encoded(tool_choice="any")


def test_thoughts_from_the_content_are_not_sent_back() -> None:
    tagged = ThinkingBlock("Hm.", opaque=owed(OLLAMA, {"field": "content"}))
    said = ShownMessage("assistant", (tagged, TextBlock("Yes.")))
    (message,) = ollama.encode(Prompt(model=OLLAMA, messages=(said,)))["messages"]
    assert message == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_the_same_events_however_it_is_cut(name: str) -> None:
    cut_everywhere(ollama, OLLAMA, STREAMS[name])


@pytest.mark.parametrize("name", ["text", "calls", "tags"])
def test_what_was_said_can_be_sent_back(name: str) -> None:
    message = told(ollama, OLLAMA, STREAMS[name]).message
    assert message is not None
    check_ollama(ollama.encode(replay(OLLAMA, message, tools=(LOOK,))))


def test_text_and_tokens_are_read_with_or_without_the_last_line_end() -> None:
    folded = told(ollama, OLLAMA, STREAMS["text"])
    assert folded.message == assistant("Grüße aus Köln 🙂")
    assert (folded.usage, folded.stop) == (Usage(input_tokens=120, output_tokens=30), "end")
    assert told(ollama, OLLAMA, STREAMS["no line end"]).complete
    assert told(ollama, OLLAMA, STREAMS["length"]).stop == "max_tokens"


def test_thoughts_and_calls_are_read() -> None:
    folded = told(ollama, OLLAMA, STREAMS["calls"])
    assert folded.message == assistant(
        ThinkingBlock("First the report.", opaque=owed(OLLAMA, {"field": "thinking"})),
        "I look.",
        ToolCall("call_1", "look", {"name": "Übersicht.png"}),
        ToolCall("call_3", "now"),
    )
    assert folded.stop == "tool_calls"


def test_an_error_in_mid_stream_is_raised() -> None:
    assert str(decode(ollama, OLLAMA, [STREAMS["error"]])[-1]).startswith("provider.unavailable")


@pytest.mark.parametrize("name", ["cut", "cut in a line"])
def test_a_stream_that_ends_early_is_not_complete(name: str) -> None:
    folded = told(ollama, OLLAMA, STREAMS[name])
    assert (folded.message, folded.complete) == (assistant("Half a sen"), False)
