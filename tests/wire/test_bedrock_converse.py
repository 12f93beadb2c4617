"""Bedrock Converse: requests as botocore's model of the service describes them, answers however they are cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

from loom.content.blocks import TextBlock, ThinkingBlock, ToolCall
from loom.errors import RateLimited, Refused, Unavailable
from loom.events import Folded, MediaArrived, RetryScheduled, fold
from loom.models import Model
from loom.prompt import Prompt, ShownMessage
from loom.providers.catalog import model as catalog_model
from loom.providers.connections import Timeouts
from loom.providers.http import HttpProvider
from loom.wire import bedrock_converse
from loom.wire.bedrock_converse import Decoder, encode
from providers.far_side import Reply, far_side
from providers.test_bedrock import EVENT_STREAM, exception, frame
from providers.worlds import Folder, asking, at
from wire.prompts import PHOTO, REPORT, compare, expanded, owed, rich, two_calls
from wire.rules import check as refusals
from wire.sdk_types import check_converse

NOVA = catalog_model("bedrock/us.amazon.nova-2-lite-v1:0")
USAGE = {"inputTokens": 20, "outputTokens": 9, "totalTokens": 129, "cacheReadInputTokens": 100}


def event(kind: str, payload: dict[str, Any]) -> bytes:
    return frame(payload, event_type=kind, content_type="application/json", message_type="event")


def block(index: int, *deltas: dict[str, Any], start: dict[str, Any] | None = None) -> list[bytes]:
    at_index = {"contentBlockIndex": index}
    begin = [event("contentBlockStart", {**at_index, "start": start})] if start else []
    said = [event("contentBlockDelta", {**at_index, "delta": delta}) for delta in deltas]
    return [*begin, *said, event("contentBlockStop", at_index)]


ANSWER = [
    event("messageStart", {"role": "assistant", "p": "abc"}),
    *block(
        0,
        {"reasoningContent": {"text": "Let me "}},
        {"reasoningContent": {"text": "look."}},
        {"reasoningContent": {"signature": "c2lnbmVk"}},
    ),
    *block(1, {"text": "I look "}, {"text": "at both."}),
    *block(
        2,
        {"toolUse": {"input": '{"name": '}},
        {"toolUse": {"input": '"chart.png"}'}},
        start={"toolUse": {"toolUseId": "tooluse_1", "name": "look"}},
    ),
    *block(3, start={"toolUse": {"toolUseId": "tooluse_2", "name": "list"}}),
    event("messageStop", {"stopReason": "tool_use"}),
    event("metadata", {"usage": USAGE, "metrics": {"latencyMs": 12}}),
]


def read(stream: bytes, size: int, target: Model = NOVA) -> Folded:
    decoder = Decoder(target)
    events = [found for at in range(0, len(stream), size) for found in decoder.feed(stream[at : at + size])]
    events += decoder.finish()
    return fold(found for found in events if not isinstance(found, MediaArrived | RetryScheduled))


def test_a_request_is_what_the_service_takes() -> None:
    thought = ThinkingBlock("A report.", opaque=owed(NOVA, {"signature": "c2lnbmVk"}))
    body = compare("bedrock_converse", encode(rich(NOVA, thought, two_calls(), hoisted=False)))
    check_converse(body)
    assert list(refusals(NOVA.provider, NOVA.name, encode(rich(NOVA, thought, two_calls(), hoisted=False)))) == []


def test_names_of_documents_are_legal_and_each_is_there_once() -> None:
    shown = ShownMessage("user", (REPORT, REPORT))
    body = encode(Prompt(model=NOVA, messages=(shown,)))
    content = body["messages"][0]["content"]
    assert [found["document"]["name"] for found in content if "document" in found] == ["report pdf", "report pdf (2)"]
    assert content[-1] == {"cachePoint": {"type": "default"}} or "text" in content[-1]
    assert any("text" in found for found in content), "a document needs a text beside it"
    check_converse(expanded(body))


def test_the_address_names_the_model() -> None:
    assert bedrock_converse.path(NOVA) == "/model/us.amazon.nova-2-lite-v1%3A0/converse-stream"
    assert catalog_model("bedrock/anthropic.claude-opus-5").wire == "bedrock_anthropic"


@given(size=st.integers(1, 400))
def test_an_answer_is_the_same_however_it_is_cut(size: int) -> None:
    found = read(b"".join(ANSWER), size)
    assert found.complete and found.stop == "tool_calls"
    assert found.message is not None
    thinking, said, first, second = found.message.blocks
    assert isinstance(thinking, ThinkingBlock) and thinking.opaque is not None
    assert (thinking.text, thinking.opaque.data) == ("Let me look.", {"signature": "c2lnbmVk"})
    assert said == TextBlock("I look at both.")
    assert isinstance(first, ToolCall) and (first.id, first.arguments) == ("tooluse_1", {"name": "chart.png"})
    assert isinstance(second, ToolCall) and (second.name, second.arguments) == ("list", {})
    assert (found.usage.input_tokens, found.usage.cache_read_tokens, found.usage.output_tokens) == (120, 100, 9)


def test_the_frames_are_those_that_botocore_reads() -> None:
    """The oracle of the stream above: each frame is an event of the service's own output."""
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    shape = service.operation_model("ConverseStream").output_shape.members["stream"]
    parser = create_parser("rest-json")._event_stream_parser
    buffer = EventStreamBuffer()
    buffer.add_data(b"".join(ANSWER))
    parsed = [parser.parse(found.to_response_dict(), shape) for found in buffer]
    assert [next(iter(found)) for found in parsed][:2] == ["messageStart", "contentBlockDelta"]
    deltas = [found["contentBlockDelta"]["delta"] for found in parsed if "contentBlockDelta" in found]
    assert {"text": "at both."} in deltas and {"toolUse": {"input": '{"name": '}} in deltas


def test_a_call_that_was_cut_off_by_the_limit_is_not_run() -> None:
    cut = [*ANSWER[:-2], event("messageStop", {"stopReason": "max_tokens"}), ANSWER[-1]]
    found = read(b"".join(cut), 64)
    assert found.stop == "max_tokens" and found.message is not None
    assert [call.name for call in found.message.calls] == ["look"]


def test_redacted_thoughts_go_back_as_they_came() -> None:
    stream = [*block(0, {"reasoningContent": {"redactedContent": "cmVkYWN0ZWQ="}}), *block(1, {"text": "Hi."})]
    stream += [event("messageStop", {"stopReason": "end_turn"})]
    found = read(b"".join(stream), 100)
    assert found.complete and found.message is not None
    prompt = Prompt(
        model=NOVA,
        messages=(
            ShownMessage("user", (TextBlock("Hello."),)),
            ShownMessage(
                "assistant", tuple(b for b in found.message.blocks if isinstance(b, ThinkingBlock | TextBlock))
            ),
            ShownMessage("user", (TextBlock("And?"), PHOTO)),
        ),
    )
    body = encode(prompt)
    assert body["messages"][1]["content"][0] == {"reasoningContent": {"redactedContent": "cmVkYWN0ZWQ="}}


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[HttpProvider]:
    patience = Timeouts(connect_seconds=5, silence_seconds=20, deadline_seconds=30, attempts=1)
    found = HttpProvider(Folder(tmp_path), lambda model: "bedrock-api-key-0123456789", patience=patience)
    yield found
    await found.close()


async def test_a_server_is_asked_and_answers_over_a_socket(provider: HttpProvider) -> None:
    async with far_side(Reply(body=b"".join(ANSWER), content_type=EVENT_STREAM, chunk=7)) as server:
        events = [found async for found in provider.stream(asking(at(NOVA, server.url)))]
    assert fold(events).complete  # type: ignore[arg-type]  # nothing is retried here
    (request,) = server.requests
    assert request.target == "/model/us.amazon.nova-2-lite-v1%3A0/converse-stream"
    assert request.headers["authorization"] == "Bearer bedrock-api-key-0123456789"
    check_converse(request.json)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("throttlingException", RateLimited),
        ("serviceUnavailableException", Unavailable),
        ("validationException", Refused),
    ],
)
async def test_an_exception_in_the_stream_is_typed(name: str, problem: type, provider: HttpProvider) -> None:
    body = ANSWER[0] + exception(name, "It is so.")
    async with far_side(Reply(body=body, content_type=EVENT_STREAM)) as server:
        with pytest.raises(problem, match="It is so"):
            [found async for found in provider.stream(asking(at(NOVA, server.url)))]
