from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import ProviderError, WireError
from loom.events import MediaArrived, Stopped, decode_event, encode_event, fold
from loom.wire import anthropic, framing, gemini, ollama, openai_chat, openai_responses
from loom.wire.deltas import ThinkTags
from loom.wire.framing import LineSplitter, ServerSentEvent, SseParser, parse_object
from wire.prompts import CLAUDE, DEEPSEEK, GEMINI, GPT, OLLAMA, VLLM
from wire.streams import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, decode, ndjson, sse
from wire.streams import GEMINI as GEMINI_STREAMS
from wire.streams import OLLAMA as OLLAMA_STREAMS

WIRES = {
    "anthropic": (anthropic, CLAUDE, ANTHROPIC),
    "openai_chat": (openai_chat, DEEPSEEK, OPENAI_CHAT),
    "openai_responses": (openai_responses, GPT, OPENAI_RESPONSES),
    "gemini": (gemini, GEMINI, GEMINI_STREAMS),
    "ollama": (ollama, OLLAMA, OLLAMA_STREAMS),
}


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(
    st.lists(st.sampled_from(["a", "ü", "", "data: x", "  "])),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(0, 99)),
)
def test_lines_are_found_however_they_end_and_are_cut(lines: list[str], end: str, places: list[int]) -> None:
    data = "".join(line + end for line in lines).encode() + b"rest"
    splitter = LineSplitter()
    found = [line.decode() for chunk in cuts(data, places) for line in splitter.feed(chunk)]
    assert found == lines
    assert splitter.rest() == b"rest"


def test_events_have_names_several_lines_comments_and_unknown_fields() -> None:
    stream = SseParser()
    data = b"\xef\xbb\xbf: hello\nevent: a\ndata: 1\ndata:2\nid: 5\nretry: 1\nwhat\n\n\n\ndata\n\nevent: b\n\ndata: cut"
    assert list(stream.feed(data)) == [ServerSentEvent("a", "1\n2"), ServerSentEvent("", "")]
    assert list(stream.feed(b"\n\n")) == [ServerSentEvent("", "cut")]


def test_a_line_or_an_event_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(WireError, match="a line of more than 1000 bytes"):
        list(LineSplitter().feed(b"x" * 1001))
    with pytest.raises(WireError, match="an event of more than 1000 bytes"):
        list(SseParser().feed(b"data: xxxxxxxxxxxxxxxxxxxx\n" * 60))


def test_an_object_is_demanded_and_anything_else_is_quoted() -> None:
    assert parse_object('{"a": 1}', VLLM) == {"a": 1}
    for text in ("[1]", "<html>", "", '{"a": '):
        with pytest.raises(WireError, match="sent an answer that Loom cannot read") as caught:
            parse_object(text, VLLM)
        assert caught.value.provider == "openai-compatible"


def test_half_a_character_does_not_end_the_answer() -> None:
    assert parse_object('{"a": ["\\ud83d", {"b": "\\ud83d\\ude00"}, 1]}', VLLM) == {"a": ["\ufffd", {"b": "😀"}, 1]}
    data = b'data: {"choices":[{"delta":{"content":"a \\ud83d"}}]}\n\n'
    (event,) = decode(openai_chat, VLLM, [data])[:1]
    assert not isinstance(event, str | MediaArrived)
    assert decode_event(encode_event(event)) == event


@given(st.text("<think>/ a\n", max_size=40), st.lists(st.integers(0, 60), max_size=8))
def test_tags_are_read_the_same_however_the_text_is_cut(text: str, places: list[int]) -> None:
    def split(pieces: list[str]) -> dict[str, str]:
        tags = ThinkTags()
        found = {"thinking": "", "text": ""}
        for kind, words in [*(pair for piece in pieces for pair in tags.feed(piece)), *tags.end()]:
            found[kind] += words
        return found

    whole = split([text])
    assert split([piece.decode() for piece in cuts(text.encode(), places)]) == whole
    if not text.lstrip().startswith("<think>"):
        assert whole == {"thinking": "", "text": text}


def mutations(value: Any, wrong: Any) -> list[Any]:
    """The value with one thing in it replaced by something wrong, for every thing in it."""
    found: list[Any] = [wrong]
    match value:
        case dict():
            for key, item in value.items():
                found += [{**value, key: other} for other in mutations(item, wrong)]
                found.append({name: other for name, other in value.items() if name != key})
        case list():
            for at, item in enumerate(value):
                found += [[*value[:at], other, *value[at + 1 :]] for other in mutations(item, wrong)]
        case _:
            pass
    return found


@pytest.mark.parametrize("wrong", [None, 5, "odd", [], {}, [7], {"type": 3}, True], ids=repr)
@pytest.mark.parametrize("name", WIRES)
def test_wrong_shapes_give_typed_errors_or_events_that_can_be_stored(name: str, wrong: Any) -> None:
    wire, model, streams = WIRES[name]
    for data in streams.values():
        objects = [line.removeprefix(b"data: ") for line in data.splitlines() if b"{" in line]
        for text in objects:
            for mutant in mutations(msgspec.json.decode(text) if text.endswith(b"}") else {}, wrong):
                line = msgspec.json.encode(mutant)
                try:
                    decoder = wire.Decoder(model)
                    events = [
                        *decoder.feed(line + b"\n" if name == "ollama" else b"data: " + line + b"\n\n"),
                        *decoder.finish(),
                    ]
                except ProviderError:
                    continue
                told = [event for event in events if not isinstance(event, MediaArrived)]
                for event in told:
                    assert decode_event(encode_event(event)) == event
                fold(told)


@given(st.binary(max_size=300))
@settings(max_examples=60)
@pytest.mark.parametrize("name", WIRES)
def test_noise_gives_nothing_or_a_typed_error(name: str, noise: bytes) -> None:
    wire, model, _ = WIRES[name]
    decode(wire, model, [noise, b"\n\n", b"data: " + noise + b"\n\n"])


def _answers(model: Any, response_id: Any) -> dict[str, bytes]:
    """Return a short answer in each protocol that names the model and the answer."""
    message = {"model": model, "id": response_id, "usage": {}}
    chunk = {"model": model, "id": response_id}
    return {
        "anthropic": sse(
            {"type": "message_start", "message": message},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ),
        "openai_chat": sse(
            {**chunk, "choices": [{"delta": {"content": "hi"}}]},
            {**chunk, "choices": [{"delta": {}, "finish_reason": "stop"}]},
            "data: [DONE]",
        ),
        "openai_responses": sse({"type": "response.completed", "response": {**chunk, "status": "completed"}}),
        "gemini": sse({"candidates": [{"finishReason": "STOP"}], "modelVersion": model, "responseId": response_id}),
        "ollama": ndjson({"model": model, "id": response_id, "message": {"content": "hi"}, "done": True}),
    }


@pytest.mark.parametrize("name", WIRES)
def test_the_end_of_an_answer_names_the_model_that_wrote_it(name: str) -> None:
    wire, model, _ = WIRES[name]
    *_, end = decode(wire, model, [_answers("router-pick-2026-11", "answer-7")[name]])
    assert isinstance(end, Stopped)
    assert end.model == "router-pick-2026-11"
    assert end.response_id == ("" if name == "ollama" else "answer-7")  # Ollama names no answers


@pytest.mark.parametrize("wrong", [None, 7, ["x"], {"a": 1}, "x" * 100_000, "\x00\x1b[31m"])
@pytest.mark.parametrize("name", WIRES)
def test_an_odd_name_of_a_model_fails_no_answer(name: str, wrong: Any) -> None:
    wire, model, _ = WIRES[name]
    *_, end = decode(wire, model, [_answers(wrong, wrong)[name]])
    assert isinstance(end, Stopped)
    assert len(end.model) <= framing.MAX_NAME_CHARS
    assert decode_event(encode_event(end)) == end
