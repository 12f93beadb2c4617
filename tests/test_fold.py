"""Deltas in, a message out: what is shown is what is stored."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.content.blocks import Citation, ImageBlock, Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.json_values import arguments_problem
from loom.content.media import Media
from loom.content.messages import assistant
from loom.errors import ContentError
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
    Fold,
    ImageAdded,
    MessageStored,
    ModelEvent,
    NoticeRaised,
    Stopped,
    TextDelta,
    TextSealed,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
    decode_event,
    encode_event,
    fold,
    parse_arguments,
)
from loom.models import Usage

SEAL = Opaque(provider="anthropic", model="claude-opus-5", data={"signature": "abc"})
PICTURE = ImageBlock(Media(digest="sha256:" + "0" * 64, media_type="image/png", size_bytes=1, width=1, height=1))


def test_blocks_stand_in_the_order_of_their_index_however_they_arrive() -> None:
    folded = fold(
        [
            ThinkingDelta(index=0, text="let me "),
            TextDelta(index=1, text="It says "),
            ThinkingDelta(index=0, text="see"),
            ThinkingSealed(index=0, opaque=SEAL),
            TextDelta(index=1, text="502."),
            Cited(index=1, citation=Citation(quote="502", title="manual.pdf", locator="page", first=3, last=3)),
            CallStarted(index=2, id="a", name="read_file"),
            CallDelta(index=2, arguments='{"path": '),
            CallDelta(index=2, arguments='"x"}'),
            CallFinished(index=2),
            ImageAdded(index=3, image=PICTURE),
            UsageReported(usage=Usage(input_tokens=5, output_tokens=1)),
            UsageReported(usage=Usage(input_tokens=5, output_tokens=9)),
            Stopped(reason="tool_calls"),
        ]
    )
    assert folded.message == assistant(
        ThinkingBlock("let me see", opaque=SEAL),
        TextBlock("It says 502.", (Citation(quote="502", title="manual.pdf", locator="page", first=3, last=3),)),
        ToolCall("a", "read_file", {"path": "x"}),
        PICTURE,
    )
    assert folded.usage == Usage(input_tokens=5, output_tokens=9)
    assert folded.complete


def test_a_stream_without_its_terminal_event_keeps_its_words_and_is_not_complete() -> None:
    folded = fold([TextDelta(text="half an ans")])
    assert folded.message == assistant("half an ans")
    assert not folded.complete


def test_a_call_that_was_cut_off_is_not_a_call() -> None:
    folded = fold(
        [TextDelta(text="I will"), CallStarted(index=1, id="a", name="rm"), CallDelta(index=1, arguments='{"p')]
    )
    assert folded.message == assistant("I will")
    assert folded.cut_calls == ("rm",)


def test_white_space_alone_is_nothing() -> None:
    assert fold([TextDelta(text="\n\n"), Stopped(reason="end")]).message is None


def test_thinking_that_the_provider_keeps_survives_by_its_seal_alone() -> None:
    folded = fold([ThinkingSealed(index=0, opaque=SEAL), TextDelta(index=1, text="x"), Stopped(reason="end")])
    assert folded.message is not None
    assert folded.message.blocks[0] == ThinkingBlock("", opaque=SEAL)


def test_redacted_thinking_is_kept_as_such() -> None:
    folded = fold([ThinkingSealed(index=0, opaque=SEAL, redacted=True)])
    assert folded.message == assistant(ThinkingBlock("", redacted=True, opaque=SEAL))


def test_calls_without_an_id_or_with_one_twice_can_still_be_answered() -> None:
    events: list[ModelEvent] = []
    for index, call_id in enumerate(["", "x", "x", ""]):
        events += [CallStarted(index=index, id=call_id, name="t"), CallFinished(index=index)]
    folded = fold(events)
    assert folded.message is not None
    assert len({call.id for call in folded.message.calls}) == 4


def test_a_block_cannot_change_its_kind_in_the_middle() -> None:
    with pytest.raises(ContentError, match="started as text"):
        fold([TextDelta(index=0, text="a"), ThinkingDelta(index=0, text="b")])


def test_text_that_is_owed_back_carries_its_data() -> None:
    folded = fold([TextDelta(text="a"), TextSealed(index=0, opaque=SEAL)])
    assert folded.message == assistant(TextBlock("a", (), SEAL))


@pytest.mark.parametrize(
    ("text", "arguments", "raw"),
    [
        ("", {}, None),
        ("  ", {}, None),
        ("null", {}, None),
        ('{"a": 1}', {"a": 1}, None),
        ('{"a": ', {}, '{"a": '),
        ("[1]", {}, "[1]"),
        ('"x"', {}, '"x"'),
        ('{"n": NaN}', {}, '{"n": NaN}'),
    ],
)
def test_arguments_are_an_object_or_kept_raw(text: str, arguments: dict[str, object], raw: str | None) -> None:
    assert parse_arguments(text) == (arguments, raw)


@given(st.one_of(st.integers(min_value=2**64), st.integers(max_value=-(2**63) - 1)))
def test_an_integer_that_loom_cannot_hold_is_named(number: int) -> None:
    text = f'{{"a": [{number}]}}'
    assert parse_arguments(text) == ({}, text)
    assert arguments_problem(text) == "the arguments contain an integer beyond 64 bits: send it as a string"


@given(st.text(max_size=20))
def test_other_arguments_that_cannot_be_read_are_no_object(text: str) -> None:
    if parse_arguments(text)[1] is not None:
        assert arguments_problem(text, "they") == "they were not a JSON object"


def test_arguments_nested_a_thousand_deep_are_kept_raw() -> None:
    text = '{"a":' * 1000 + "1" + "}" * 1000
    assert parse_arguments(text) == ({}, text)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=20), max_size=20))
def test_the_fold_gives_the_same_message_however_the_text_is_cut(pieces: list[str]) -> None:
    whole = "".join(pieces)
    cut = Fold()
    for piece in pieces:
        cut.add(TextDelta(text=piece))
    assert cut.result() == fold([TextDelta(text=whole)] if pieces else [])


def test_events_travel_as_json_and_come_back_equal() -> None:
    for event in (
        MessageStored(node="node:sha256:00", message=assistant("hi", ToolCall("a", "b", {"c": [1, None]}))),
        NoticeRaised(text="smaller", code="resized"),
        CallFinished(index=1, opaque=SEAL),
        Stopped(reason="end"),
    ):
        assert decode_event(encode_event(event)) == event
    assert TextDelta(text="x").type == "text"
    with pytest.raises(ContentError, match="Not an event"):
        decode_event(b'{"type":"nonsense"}')
    with pytest.raises(ContentError, match="Not an event"):
        decode_event('{"type":"text","text":"half \ud83d"}')
