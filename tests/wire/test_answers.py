"""Answer writers: what a gateway says in a protocol is what our decoder, and the official SDKs, read in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.content.blocks import Block, Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.errors import ContextOverflow, LoomError, RateLimited
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    Folded,
    ModelEvent,
    Stopped,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
    fold,
)
from loom.models import Usage
from loom.providers.catalog import model as resolve
from loom.wire import anthropic as anthropic_wire
from loom.wire import openai_chat, openai_responses
from loom.wire.answer import AnswerHead, AnswerWriter, ForeignTool
from loom.wire.answer_errors import fault_of
from loom.wire.anthropic_answer import MessagesWriter
from loom.wire.chat_answer import ChatWriter
from loom.wire.responses_answer import ResponsesWriter
from wire.sdk_types import check

HEAD = AnswerHead(id="resp_1", model="any", created_at=1_700_000_000, usage=Usage(input_tokens=12))


def handle(index: int, _: Opaque | None) -> str:
    return f"handle-{index}"


def chat(head: AnswerHead = HEAD) -> AnswerWriter:
    return ChatWriter(head, handle, includes_usage=True)


WRITERS: dict[str, tuple[Callable[[], AnswerWriter], Any, str]] = {
    "anthropic": (lambda: MessagesWriter(HEAD, handle), anthropic_wire, "anthropic/claude-opus-5"),
    "chat": (chat, openai_chat, "openai-compatible/any"),
    "responses": (lambda: ResponsesWriter(HEAD, handle), openai_responses, "openai/gpt-5.5"),
}
words = st.text('ab é漢🙂\\"<{}\n', min_size=1, max_size=12).filter(str.strip)
names = st.text("abcdefgh_", min_size=1, max_size=8)
arguments = st.dictionaries(names, st.one_of(words, st.integers(-9, 9), st.booleans(), st.none()), max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> list[ModelEvent]:
    """Blocks as services stream them: thinking, text, then calls whose pieces may be interleaved."""
    events: list[ModelEvent] = []
    index = 0
    if draw(st.booleans()):
        events += [ThinkingDelta(index=index, text=piece) for piece in draw(st.lists(words, min_size=1, max_size=3))]
        events.append(ThinkingSealed(index=index, opaque=Opaque(provider="p", model="m", data={"signature": "s"})))
        index += 1
    if draw(st.booleans()):
        events += [TextDelta(index=index, text=piece) for piece in draw(st.lists(words, min_size=1, max_size=4))]
        index += 1
    calls = draw(st.lists(st.tuples(names, arguments), max_size=3))
    pending: list[list[ModelEvent]] = []
    for number, (name, given_arguments) in enumerate(calls):
        text = json.dumps(given_arguments)
        cut = draw(st.integers(0, len(text)))
        pieces = [piece for piece in (text[:cut], text[cut:]) if piece]
        pending.append(
            [
                CallStarted(index=index, id=f"call_{number}", name=name),
                *(CallDelta(index=index, arguments=piece) for piece in pieces),
                CallFinished(index=index),
            ]
        )
        index += 1
    while pending:
        at = draw(st.integers(0, len(pending) - 1))
        events.append(pending[at].pop(0))
        if not pending[at]:
            del pending[at]
    events.append(UsageReported(usage=Usage(input_tokens=20, output_tokens=7, cache_read_tokens=5)))
    reason: StopReason = "tool_calls" if calls else draw(st.sampled_from(["end", "max_tokens"]))
    return [*events, Stopped(reason=reason)]


def stream(writer: AnswerWriter, events: list[ModelEvent]) -> bytes:
    return writer.start() + b"".join(writer.write(event) for event in events) + writer.finish()


def plain(folded: Folded) -> list[tuple[str, ...]]:
    """Blocks without opaque data, in an order that does not depend on which call ended first."""

    def shape(block: Block) -> tuple[str, ...]:
        match block:
            case TextBlock(text=text):
                return ("text", text)
            case ThinkingBlock(text=text):
                return ("thinking", text)
            case ToolCall(id=call_id, name=name, arguments=found):
                return ("z-call", call_id, name, json.dumps(found, sort_keys=True))
            case _:
                raise AssertionError(block)

    blocks = folded.message.blocks if folded.message is not None else ()
    return sorted(shape(block) for block in blocks)


@pytest.mark.parametrize("protocol", WRITERS)
@given(events=answers(), size=st.integers(1, 200))
def test_what_is_written_is_what_our_decoder_reads(protocol: str, events: list[ModelEvent], size: int) -> None:
    new, wire, reference = WRITERS[protocol]
    data = stream(new(), events)
    decoder = wire.Decoder(resolve(reference))
    read: list[ModelEvent] = []
    for at in range(0, len(data), size):
        read += decoder.feed(data[at : at + size])
    read += decoder.finish()
    wanted, found = fold(events), fold(read)
    assert found.complete
    assert plain(found) == plain(wanted)
    assert found.usage.input_tokens == wanted.usage.input_tokens
    assert found.usage.output_tokens == wanted.usage.output_tokens
    assert found.stop == wanted.stop


@pytest.mark.parametrize("protocol", WRITERS)
@given(events=answers())
def test_a_whole_answer_is_what_our_decoder_reads(protocol: str, events: list[ModelEvent]) -> None:
    new, wire, reference = WRITERS[protocol]
    writer = new()
    for event in events:
        writer.write(event)
    writer.flush()
    decoder = wire.Decoder(resolve(reference))
    read = [*decoder.feed(json.dumps(writer.to_object()).encode()), *decoder.finish()]
    assert plain(fold(read)) == plain(fold(events))
    assert fold(read).stop == fold(events).stop


def sse_objects(data: bytes) -> Iterator[dict[str, Any]]:
    for part in data.decode().split("\n\n"):
        for line in part.splitlines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))


SDK_STREAM: dict[str, Any] = {
    "anthropic": anthropic.types.RawMessageStreamEvent,
    "chat": openai.types.chat.ChatCompletionChunk,
    "responses": openai.types.responses.ResponseStreamEvent,
}
SDK_WHOLE: dict[str, Any] = {
    "anthropic": anthropic.types.Message,
    "chat": openai.types.chat.ChatCompletion,
    "responses": openai.types.responses.Response,
}
BEYOND_THE_SDK = {"reasoning_content", "annotations"}
"""What servers of Chat Completions send and the SDK's types do not know."""


def known(value: Any, protocol: str) -> Any:
    if protocol != "chat":
        return value
    if isinstance(value, dict):
        return {key: known(inner, protocol) for key, inner in value.items() if key not in BEYOND_THE_SDK}
    return [known(inner, protocol) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("protocol", WRITERS)
@given(events=answers())
def test_the_official_types_describe_every_event_and_the_whole_answer(protocol: str, events: list[ModelEvent]) -> None:
    writer = WRITERS[protocol][0]()
    for found in sse_objects(stream(writer, events)):
        check(known(found, protocol), SDK_STREAM[protocol])
    check(known(writer.to_object(), protocol), SDK_WHOLE[protocol])


@given(events=answers())
def test_blocks_of_messages_begin_and_end_in_order_with_rising_numbers(events: list[ModelEvent]) -> None:
    opened = -1
    is_open = False
    for found in sse_objects(stream(MessagesWriter(HEAD, handle), events)):
        match found["type"]:
            case "content_block_start":
                assert not is_open
                opened += 1
                is_open = True
                assert found["index"] == opened
            case "content_block_delta":
                assert is_open
                assert found["index"] == opened
            case "content_block_stop":
                assert is_open
                is_open = False
            case _:
                pass
    assert not is_open


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RateLimited("slow down", retry_after=3), 429, "rate_limit_exceeded"),
        (ContextOverflow("too long"), 413, "context_length_exceeded"),
    ],
)
def test_a_failure_in_the_middle_ends_the_stream_in_the_protocols_own_shape(
    error: LoomError, status: int, code: str
) -> None:
    for protocol, (new, wire, reference) in WRITERS.items():
        writer = new()
        data = writer.start() + writer.write(TextDelta(index=0, text="half")) + writer.fail(error)
        decoder = wire.Decoder(resolve(reference))
        with pytest.raises(LoomError) as raised:
            list(decoder.feed(data))
        assert error.message in str(raised.value), protocol
        assert code in data.decode() or protocol == "anthropic"
    assert status in (413, 429)


def test_a_failure_is_one_text_of_sentences() -> None:
    """A message without a full stop and its hint do not run into each other."""
    assert fault_of(LoomError("No API key for openai", hint="Set one.")).text == "No API key for openai. Set one."


@given(number=st.integers())
def test_integers_of_any_size_reach_clients_of_messages(number: int) -> None:
    writer = MessagesWriter(HEAD, handle)
    call = [CallStarted(index=0, id="c", name="f"), CallDelta(index=0, arguments=f'{{"n": {number}}}')]
    for event in (*call, CallFinished(index=0), Stopped(reason="tool_calls")):
        writer.write(event)
    writer.flush()
    assert writer.to_object()["content"][0]["input"] == {"n": number}


def test_freeform_and_namespaced_tools_get_their_own_names_back() -> None:
    tools = {
        "apply_patch": ForeignTool(name="apply_patch", is_freeform=True),
        "browser__open": ForeignTool(name="open", namespace="browser"),
    }
    writer = ResponsesWriter(AnswerHead(id="resp_2", model="m", tools=tools), handle)
    events: list[ModelEvent] = [
        CallStarted(index=0, id="a", name="apply_patch"),
        CallDelta(index=0, arguments='{"input": "*** Begin"}'),
        CallFinished(index=0),
        CallStarted(index=1, id="b", name="browser__open"),
        CallDelta(index=1, arguments='{"url": "x"}'),
        CallFinished(index=1),
        Stopped(reason="tool_calls"),
    ]
    done = [
        found["item"] for found in sse_objects(stream(writer, events)) if found["type"] == "response.output_item.done"
    ]
    assert [(item["type"], item["name"], item.get("namespace")) for item in done] == [
        ("custom_tool_call", "apply_patch", None),
        ("function_call", "open", "browser"),
    ]
    assert done[0]["input"] == "*** Begin"
    assert done[1]["arguments"] == '{"url": "x"}'
