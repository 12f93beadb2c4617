"""The JSON of messages: exact both ways, one way of writing, newer versions left alone."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.conversations import encode_conversation
from content.tiny_media import png
from loom.content.blocks import TextBlock, ToolCall, ToolResult, UnknownBlock
from loom.content.codec import (
    VERSION,
    Conversation,
    decode_conversation,
    decode_message,
    encode_message,
)
from loom.content.messages import Message, assistant, tool, user
from loom.errors import ContentError, Newer
from strategies import MESSAGES, WORDS


@settings(deadline=None)
@given(MESSAGES)
def test_a_message_comes_back_exactly_and_is_written_the_same_again(message: Message) -> None:
    written = encode_message(message)
    assert decode_message(written) == message
    assert encode_message(decode_message(written)) == written
    assert decode_message(written.decode()) == message
    assert json.loads(written)["v"] == VERSION


@settings(deadline=None, max_examples=50)
@given(st.lists(MESSAGES, max_size=4), st.just("") | WORDS)
def test_a_conversation_comes_back_exactly(messages: list[Message], system: str) -> None:
    conversation = Conversation(messages=tuple(messages), system=system)
    assert decode_conversation(encode_conversation(conversation)) == conversation


def test_the_bytes_are_pinned_because_node_ids_are_made_of_them() -> None:
    assert encode_message(user("hé")) == '{"v":1,"role":"user","blocks":[{"type":"text","text":"hé"}]}'.encode()
    call = ToolCall("a", "f", {"z": 1, "a": [True, None, 1.5]})
    assert encode_message(assistant(call)) == (
        b'{"v":1,"role":"assistant","blocks":[{"type":"tool_call","id":"a","name":"f",'
        b'"arguments":{"z":1,"a":[true,null,1.5]}}]}'
    )
    assert encode_message(user(png("a.png"))) == (
        b'{"v":1,"role":"user","blocks":[{"type":"image","media":{"digest":"'
        + png().media.digest.encode()
        + b'","media_type":"image/png","size_bytes":72,"width":2,"height":1,"name":"a.png"}}]}'
    )


def test_blocks_of_a_newer_version_survive_a_read_and_a_write_unchanged() -> None:
    written = (
        b'{"v":1,"role":"tool","blocks":[{"type":"tool_result","call_id":"a","blocks":['
        b'{"type":"hologram","depth":[1,2],"data":{"type":"text"}},{"type":"text","text":"x"}]},'
        b'{"type":"unknown","data":{"type":"text","text":"y"}}]}'
    )
    message = decode_message(written)
    nested = UnknownBlock({"type": "hologram", "depth": [1, 2], "data": {"type": "text"}})
    assert message == Message(
        "tool",
        (
            ToolResult("a", (nested, TextBlock("x"))),
            UnknownBlock({"type": "unknown", "data": {"type": "text", "text": "y"}}),
        ),
    )
    assert encode_message(message) == written


def test_a_newer_version_is_refused_and_says_what_to_do() -> None:
    newer = b'{"v":2,"role":"narrator","pieces":[]}'
    with pytest.raises(Newer, match=r"This message has format 2; this Loom reads up to 1\. Upgrade Loom to read it\."):
        decode_message(newer)
    with pytest.raises(Newer):
        decode_message(encode_message(user("x")).replace(b'"v":1', b'"v":2'))
    with pytest.raises(Newer):
        decode_conversation(b'{"loom":"conversation","v":7,"messages":[]}')
    with pytest.raises(Newer):
        decode_conversation(b'{"loom":"conversation","v":1,"messages":[{"v":9,"role":"user","blocks":[]}]}')


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b'{"role":"user","blocks":[{"type":"text","text":"x"}],"v":0}',
        b'{"v":1,"role":"king","blocks":[{"type":"text","text":"x"}]}',
        b'{"v":1,"role":"user","blocks":[]}',
        b'{"v":1,"role":"user","blocks":["x"]}',
        b'{"v":1,"role":"user","blocks":[{"text":"x"}]}',
        b'{"v":1,"role":"user","blocks":[{"type":"text"}]}',
        b'{"v":1,"role":"user","blocks":[{"type":"text","text":" "}]}',
        b'{"v":1,"role":"user","blocks":[{"type":"tool_call","id":"a","name":"f"}]}',
        b'{"v":1,"role":"user","blocks":[{"type":"image","media":{"digest":"x","media_type":"image/png","size_bytes":1}}]}',
        b'{"v":1,"role":"tool","blocks":[{"type":"tool_result","call_id":"a","blocks":[]}]}',
    ],
)
def test_what_is_no_message_is_refused_as_content(broken: bytes) -> None:
    with pytest.raises(ContentError):
        decode_message(broken)


def test_what_is_no_conversation_is_refused_as_content() -> None:
    for broken in (
        b"",
        b"{}",
        b"[]",
        b'{"loom":"song","v":1,"messages":[]}',
        b'{"loom":"conversation","v":1,"messages":[1]}',
    ):
        with pytest.raises(ContentError):
            decode_conversation(broken)


def test_defaults_are_left_out_and_taken_up_again() -> None:
    message = tool(ToolResult("a", (TextBlock("x"),)))
    assert msgspec.json.decode(encode_message(message))["blocks"] == [
        {"type": "tool_result", "call_id": "a", "blocks": [{"type": "text", "text": "x"}]}
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"v":1,"role":"user","blocks":[{"type":["x"]}]}',
        b'{"v":1,"role":"tool","blocks":[{"type":"tool_result","call_id":"a","blocks":["x",{"type":"new"}]}]}',
        b'{"v":1,"role":"user","blocks":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"v":1,"role":"user","blocks":[{"type":"text","text":"\xff\xfe"}]}',
        '{"v":1,"role":"user","blocks":[{"type":"text","text":"\ud800"}]}',
        b"\x00" * 10,
        b"",
    ],
)
def test_a_damaged_row_is_a_content_error_and_nothing_else(damaged: bytes | str) -> None:
    with pytest.raises(ContentError):
        decode_message(damaged)
