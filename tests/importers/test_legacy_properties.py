"""Whatever an old conversation holds: nothing that was said is lost, and the result is valid, stable and ours."""

from __future__ import annotations

import base64
import copy
import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from content.conversations import encode_conversation
from content.tiny_media import PNG, fetch, lift
from importers.old_conversations import Said, non_blank, old_conversations
from loom.content.blocks import ToolCall, clean_text
from loom.content.codec import Conversation, decode_conversation, encode_message
from loom.content.messages import Message, text_of
from loom.errors import ContentError
from loom.importers import UpgradedConversation, upgrade, upgrade_tree
from strategies import CONVERSATIONS, WORDS

ENCODED = base64.b64encode(PNG).decode()
KEYS = [
    "role",
    "content",
    "type",
    "text",
    "parts",
    "messages",
    "input",
    "contents",
    "system",
    "tool_calls",
    "function_call",
    "id",
    "name",
    "arguments",
    "source",
    "data",
    "image_url",
    "url",
    "source_path",
    "message",
    "blocks",
    "v",
    "loom",
    "media",
    "call_id",
    "output",
    "success",
    "error",
    "content_blocks",
    "functionCall",
    "functionResponse",
    "response",
    "inlineData",
    "image",
    "images",
    "thinking",
    "signature",
    "citations",
    "annotations",
    "toolResult",
    "reasoningContent",
    "audio",
    "summary",
    "parent_id",
    "child_ids",
]
WORDS_OF_SHAPES = [
    "user",
    "assistant",
    "tool",
    "system",
    "text",
    "image",
    "document",
    "tool_use",
    "tool_result",
    "thinking",
    "reasoning",
    "message",
]
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=3), inner | st.sampled_from(WORDS_OF_SHAPES), max_size=5
        )
    ),
    max_leaves=20,
)


def read(items: Any) -> UpgradedConversation:
    return upgrade(items, lift=lift, fetch=fetch)


def all_text(found: UpgradedConversation) -> str:
    texts = [text_of(block) for message in found.messages for block in message.blocks]
    return "\n".join([found.system, *texts])


def matches(found: str, said: str) -> bool:
    """An id is kept; where it was not unique it has a number behind it."""
    said = clean_text(said)
    return not said or found == said or found.startswith(f"{said}~")


def same_arguments(call: ToolCall, given_as: Any) -> bool:
    """Equal to what was given as an object or as its JSON, or kept raw."""
    if given_as is None or (isinstance(given_as, str) and given_as.strip() in ("", "null")):
        return call.arguments == {}
    if isinstance(given_as, dict):
        return call.arguments == given_as
    if not isinstance(given_as, str):
        return call.raw_arguments is not None and call.raw_arguments == json.dumps(given_as)
    if call.raw_arguments is not None:
        return call.raw_arguments == given_as
    try:
        return json.loads(given_as) == call.arguments
    except json.JSONDecodeError:
        return False


@settings(deadline=None, max_examples=150)
@given(old_conversations())
def test_no_text_no_call_and_no_id_is_lost(said: Said) -> None:
    found = read(said.items)
    text = all_text(found)
    for expected in non_blank(said.texts):
        assert expected in text
    calls = [call for message in found.messages for call in message.calls]
    for call_id, name, arguments in said.calls:
        kept = (call.name == name and matches(call.id, call_id) and same_arguments(call, arguments) for call in calls)
        assert (
            any(kept) or (f"{clean_text(call_id)}] [tool call: {name}(" if call_id else f"[tool call: {name}(") in text
        )
    results = [result for message in found.messages for result in message.results]
    for call_id in said.result_ids:
        assert (
            any(matches(result.call_id, call_id) for result in results)
            or f"[tool result {clean_text(call_id)}]" in text
        )


@settings(deadline=None, max_examples=100)
@given(old_conversations())
def test_the_result_survives_the_codec_and_is_its_own_upgrade(said: Said) -> None:
    found = read(said.items)
    conversation = Conversation(messages=found.messages, system=found.system)
    written = encode_conversation(conversation)
    assert decode_conversation(written) == conversation
    again = read(json.loads(written))
    assert (again.system, again.messages, again.notices) == (found.system, found.messages, ())
    one_by_one = read([json.loads(encode_message(message)) for message in found.messages])
    assert one_by_one.messages == found.messages


@settings(deadline=None)
@given(old_conversations())
def test_reading_twice_gives_the_same_and_changes_nothing(said: Said) -> None:
    before = copy.deepcopy(said.items)
    assert read(said.items) == read(said.items)
    assert said.items == before


@settings(deadline=None)
@given(old_conversations())
def test_neighbouring_tool_messages_are_one_and_no_bytes_are_left_in_text(said: Said) -> None:
    found = read(said.items)
    roles = [message.role for message in found.messages]
    assert ("tool", "tool") not in list(itertools.pairwise(roles))
    assert ENCODED not in all_text(found)


@settings(deadline=None, max_examples=40)
@given(CONVERSATIONS, st.just("") | WORDS)
def test_our_own_export_is_read_exactly(messages: list[Message], system: str) -> None:
    written = encode_conversation(Conversation(messages=tuple(messages), system=system))
    assert read(json.loads(written)) == UpgradedConversation(system=system, messages=tuple(messages))


@settings(deadline=None, max_examples=150)
@given(ANY_JSON)
def test_any_json_is_read_or_refused_as_content(value: Any) -> None:
    for data in (
        value,
        [value],
        {"messages": [{"role": "user", "content": value}, value]},
        [{"role": "tool", **_keyed(value)}],
    ):
        try:
            found = read(data)
        except ContentError:
            continue
        conversation = Conversation(messages=found.messages, system=found.system)
        assert decode_conversation(encode_conversation(conversation)) == conversation


@settings(deadline=None, max_examples=100)
@given(st.lists(ANY_JSON, max_size=5))
def test_any_json_is_a_tree_or_refused_as_content(nodes: list[Any]) -> None:
    try:
        tree = upgrade_tree(nodes, lift=lift, fetch=fetch)
    except ContentError:
        return
    seen: set[str | None] = {None}
    for node in tree.nodes:
        assert node.parent_id in seen
        seen.add(node.id)


def _keyed(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"content": value}
