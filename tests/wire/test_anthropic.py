from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loom.content.blocks import Citation, Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import assistant
from loom.events import CallFinished
from loom.models import Model, ThinkingRule, Usage
from loom.prompt import Prompt, ShownMedia, ShownMessage
from loom.sampling import Sampling
from loom.wire import anthropic, bedrock_anthropic
from wire.prompts import (
    CHART,
    CLAUDE,
    LOOK,
    PHOTO,
    REPORT,
    THINKING,
    compare,
    expanded,
    owed,
    ref,
    replay,
    rich,
    two_calls,
)
from wire.sdk_types import check_anthropic
from wire.streams import ANTHROPIC, cut_everywhere, decode, told

SIGNED = ThinkingBlock("The report first.", opaque=owed(CLAUDE, {"signature": "c2lnbmVk"}))


def test_a_rich_prompt_leaves_as_reviewed_and_as_the_sdk_types_it() -> None:
    body = compare("anthropic", anthropic.encode(rich(CLAUDE, SIGNED, two_calls(), hoisted=False)))
    check_anthropic(body)


def test_results_and_the_words_after_them_are_one_message_with_the_results_first() -> None:
    prompt = rich(CLAUDE, None, two_calls(), hoisted=True)
    message = anthropic.encode(prompt)["messages"][2]
    assert [block["type"] for block in message["content"]] == ["tool_result", "tool_result", "text", "image"]


def test_a_temperature_goes_only_to_the_older_version_on_bedrock() -> None:
    warm = Sampling(temperature=0.5)
    bedrock = Model(provider="bedrock-anthropic", name="anthropic.claude-haiku-4-5", wire="bedrock_anthropic")
    message = ShownMessage("user", (TextBlock("Hi"),))
    assert "temperature" not in anthropic.encode(Prompt(model=CLAUDE, messages=(message,), sampling=warm))
    body = bedrock_anthropic.encode(Prompt(model=bedrock, messages=(message,), sampling=warm))
    assert body["temperature"] == 0.5
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    assert "model" not in body
    assert "stream" not in body


@pytest.mark.parametrize(
    ("rule", "wish", "asked"),
    [
        ("adaptive", "high", {"type": "adaptive"}),
        ("adaptive", "off", {"type": "disabled"}),
        ("always", "off", None),
        ("always", "low", {"type": "adaptive"}),
        ("budget", "high", {"type": "enabled", "budget_tokens": 1024}),
        ("none", "high", None),
    ],
)
def test_thinking_is_asked_for_by_the_models_rule(rule: str, wish: str, asked: object) -> None:
    model = msgspec.structs.replace(CLAUDE, thinking=msgspec.convert({"request": rule}, ThinkingRule))
    sampling = msgspec.convert({"max_tokens": 2000, "thinking": wish}, Sampling)
    body = anthropic.encode(Prompt(model=model, messages=(ShownMessage("user", (PHOTO,)),), sampling=sampling))
    assert body.get("thinking") == asked
    check_anthropic(expanded(body))


def test_an_uploaded_file_is_named_by_its_id() -> None:
    uploaded = ShownMedia(kind="image", ref=ref(b"a chart", "image/png", file_id="file_1"))
    body = anthropic.encode(Prompt(model=CLAUDE, messages=(ShownMessage("user", (uploaded, REPORT, CHART)),)))
    assert body["messages"][0]["content"][0]["source"] == {"type": "file", "file_id": "file_1"}
    check_anthropic(expanded(body))


@pytest.mark.parametrize("choice", ["none", "any", "auto"])
def test_a_forced_call_is_only_asked_for_while_the_model_does_not_think(choice: str) -> None:
    sampling = msgspec.convert({"tool_choice": choice, "thinking": "high"}, Sampling)
    prompt = Prompt(model=CLAUDE, messages=(ShownMessage("user", (PHOTO,)),), tools=(LOOK,), sampling=sampling)
    asked = anthropic.encode(prompt).get("tool_choice", {}).get("type")
    assert asked == {"none": "none", "any": "auto", "auto": None}[choice]
    unthinking = msgspec.structs.replace(prompt, sampling=msgspec.structs.replace(sampling, thinking=""))
    assert anthropic.encode(unthinking).get("tool_choice", {}).get("type") == {"none": "none", "any": "any"}.get(choice)


@pytest.mark.parametrize("name", ANTHROPIC)
def test_a_stream_gives_the_same_events_however_it_is_cut(name: str) -> None:
    cut_everywhere(anthropic, CLAUDE, ANTHROPIC[name])


@pytest.mark.parametrize("name", ["text", "thinking", "calls", "citations"])
def test_what_was_said_can_be_sent_back(name: str) -> None:
    message = told(anthropic, CLAUDE, ANTHROPIC[name]).message
    assert message is not None
    check_anthropic(anthropic.encode(replay(CLAUDE, message, tools=(LOOK,), sampling=THINKING)))


def test_text_and_tokens_are_read_cached_ones_included() -> None:
    folded = told(anthropic, CLAUDE, ANTHROPIC["text"])
    assert folded.message == assistant("Grüße aus Köln 🙂")
    assert folded.usage == Usage(input_tokens=142, output_tokens=9, cache_read_tokens=100, cache_write_tokens=30)
    assert folded.stop == "end"


def test_thinking_keeps_its_signature_also_without_words() -> None:
    folded = told(anthropic, CLAUDE, ANTHROPIC["thinking"])
    assert folded.message == assistant(
        ThinkingBlock("First the report.", opaque=owed(CLAUDE, {"signature": "c2lnbmVk"})),
        ThinkingBlock(redacted=True, opaque=owed(CLAUDE, {"data": "cmVkYWN0ZWQ="})),
        ThinkingBlock(opaque=owed(CLAUDE, {"signature": "b21pdA=="})),
        "Done.",
    )
    assert folded.usage.thinking_tokens == 31


def test_parallel_calls_are_read() -> None:
    folded = told(anthropic, CLAUDE, ANTHROPIC["calls"])
    assert folded.message == assistant(
        "I look.", ToolCall("toolu_1", "look", {"name": "Übersicht.png", "dpi": 150}), ToolCall("toolu_2", "now")
    )
    assert folded.stop == "tool_calls"


def test_a_citation_names_the_page_and_is_kept_as_a_request_takes_it() -> None:
    message = told(anthropic, CLAUDE, ANTHROPIC["citations"]).message
    assert message is not None
    cited = message.blocks[1]
    assert isinstance(cited, TextBlock)
    (citation,) = cited.citations
    assert (citation.title, citation.locator, citation.first, citation.last) == ("report.pdf", "page", 3, 4)
    assert citation.quote == "Sales rose by 4 %."
    assert citation.opaque is not None
    assert "file_id" not in citation.opaque.data


def test_the_other_kinds_of_citation_are_read_too() -> None:
    raws = [
        {"type": "char_location", "cited_text": "a", "document_title": "t", "start_char_index": 1, "end_char_index": 4},
        {"type": "content_block_location", "cited_text": "a", "start_block_index": 0, "end_block_index": 2},
        {
            "type": "search_result_location",
            "cited_text": "a",
            "title": "s",
            "start_block_index": 0,
            "end_block_index": 1,
        },
        {"type": "web_search_result_location", "cited_text": "a", "title": "w", "url": "https://example.org/"},
    ]
    found: list[Citation] = []
    for raw in raws:
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": raw}}
        data = b"data: " + msgspec.json.encode(delta) + b"\n\n"
        found += [event.citation for event in decode(anthropic, CLAUDE, [data])]
    assert [(c.locator, c.first, c.last) for c in found] == [
        ("char", 1, 4),
        ("block", 0, 2),
        ("result", 0, 1),
        ("", None, None),
    ]
    assert found[3].url == "https://example.org/"


def test_an_error_in_mid_stream_is_raised_as_what_it_is() -> None:
    assert str(decode(anthropic, CLAUDE, [ANTHROPIC["error"]])[-1]).startswith("provider.overloaded")


def test_a_stream_that_ends_early_is_not_complete() -> None:
    folded = told(anthropic, CLAUDE, ANTHROPIC["cut"])
    assert folded.message == assistant("Half a sen")
    assert not folded.complete


def test_a_call_that_the_token_limit_cut_off_is_not_whole() -> None:
    events = decode(anthropic, CLAUDE, [ANTHROPIC["cut call"]])
    assert [event.index for event in events if isinstance(event, CallFinished)] == [0]
    assert told(anthropic, CLAUDE, ANTHROPIC["cut call"]).cut_calls == ("look",)


@pytest.mark.parametrize(
    "change",
    [
        {"document_index": None},
        {"document_index": "0"},
        {"start_page_number": True},
        {"cited_text": None},
        {"file_id": "file_1"},
        {"type": "hologram_location"},
        {"document_title": 5},
    ],
)
def test_a_citation_that_is_not_whole_is_not_sent_back(change: dict[str, Any]) -> None:
    whole = {
        "type": "page_location",
        "document_index": 0,
        "document_title": None,
        "start_page_number": 1,
        "end_page_number": 2,
        "cited_text": "so",
    }

    def sent(data: dict[str, Any]) -> list[Any]:
        cited = Citation(quote="so", opaque=Opaque(provider="anthropic", model=CLAUDE.name, data=data))
        messages = (ShownMessage("user", (TextBlock("a"),)), ShownMessage("assistant", (TextBlock("b", (cited,)),)))
        return anthropic.encode(Prompt(model=CLAUDE, messages=messages))["messages"][1]["content"][0].get(
            "citations", []
        )

    assert sent(whole) == [whole]
    assert sent(whole | change) == []
