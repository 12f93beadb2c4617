"""A history that grows is read from where the last request ended, and that is the same as reading all of it."""

from __future__ import annotations

import copy
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.tiny_media import lift
from loom.content.media import digest_of
from loom.importers import UpgradedConversation
from loom.importers.conversation import ConversationReading
from loom.importers.prefix_readings import PrefixReadings, hash_prefixes
from loom.importers.reader import LegacyReader

Protocol = Literal["anthropic", "openai_chat", "openai_responses"]
ITEMS: dict[Protocol, list[Any]] = {
    "anthropic": [
        {"role": "user", "content": "ask"},
        {"role": "user", "content": [{"type": "text", "text": "x" * 400}, {"type": "text", "text": ""}]},
        {"role": "system", "content": "hurry"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {"n": [1.5]}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "and"}]},
        {"role": "assistant", "content": []},
        "words alone",
    ],
    "openai_chat": [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "ask"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "assistant", "content": "said \ud83d"},
    ],
    "openai_responses": [
        {"type": "message", "role": "developer", "content": "rules"},
        {"role": "user", "content": "ask"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "eA"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "said"}]},
        {"type": "from_the_future", "data": 1},
    ],
}


def read(items: list[Any], protocol: Protocol, readings: PrefixReadings) -> tuple[int, UpgradedConversation]:
    """Read a request; return how many of its items were read before, too."""
    named = hash_prefixes(items, protocol)
    count, found = readings.find(named)
    reader = LegacyReader(lift=lift, fetch=lambda _: None, identify=digest_of)
    reading = ConversationReading(reader, protocol) if found is None else found.copy(reader)
    for at in range(count, len(items)):
        reading.add(named.clean(at))
    readings.keep(named, reading)
    return count, reading.finish()


@pytest.mark.parametrize("protocol", list(ITEMS))
@settings(max_examples=150)
@given(data=st.data())
def test_a_history_that_grows_and_branches_is_read_like_a_new_one(protocol: Protocol, data: st.DataObject) -> None:
    readings = PrefixReadings()
    history: list[Any] = []
    for _ in range(data.draw(st.integers(1, 5))):
        kept = data.draw(st.integers(0, len(history)))
        history = history[:kept] + data.draw(st.lists(st.sampled_from(ITEMS[protocol]), min_size=1, max_size=4))
        before = copy.deepcopy(history)
        assert read(history, protocol, readings)[1] == read(history, protocol, PrefixReadings())[1]
        assert history == before


def test_only_what_is_new_is_read() -> None:
    readings = PrefixReadings()
    history: list[Any] = [{"role": "user", "content": "a"}]
    assert read(history, "openai_chat", readings)[0] == 0
    history += [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert read(history, "openai_chat", readings)[0] == 1
    assert read([*history, {"role": "user", "content": "d"}], "openai_chat", readings)[0] == 3
    assert read([*history, {"role": "user", "content": "e"}], "openai_chat", readings)[0] == 3
    assert read(history, "openai_responses", readings)[0] == 0, "another protocol reads differently"
