"""Names of arguments that a platform would refuse: shown in a legal form, called back by their own."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile.world import said
from loom.compile.policy import Request
from loom.compile.prepare import prepare
from loom.compile.property_names import KeyRenamer, rename_keys
from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import assistant, tool, user
from loom.prompt import Prompt, ToolSpec
from loom.providers.catalog import model

ANTHROPIC = r"[a-zA-Z0-9_.-]{1,64}"
STRICTEST = r"[a-zA-Z0-9_-]{1,64}"
LEGAL = {
    "anthropic/claude-opus-5": ANTHROPIC,
    "bedrock/anthropic.claude-opus-5-v1:0": ANTHROPIC,
    "bedrock/amazon.nova-pro-v1:0": STRICTEST,
    "openai/gpt-5.5": r"(?s).*",
    "openai-chat/gpt-5.5": r"(?s).*",
    "openrouter/anthropic/claude-opus-5": STRICTEST,
    "gemini/gemini-3.7-flash": STRICTEST,
    "mistral/mistral-medium-latest": STRICTEST,
    "ollama/llava": STRICTEST,
}
names = st.one_of(
    st.sampled_from(
        ("id", "filter[id]", "filter(id)", "filter_id", "$filter", "a.b", "a b", "", "…", '"', "\\", "x" * 65, "x" * 66)
    ),
    st.text('ab_-.9/[]$@" \\é漢🙂', max_size=70),
)
values = st.recursive(
    st.one_of(st.integers(-(2**63), 2**64 - 1), st.text('a"\\{}[],:é'), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


def compiled(reference: str, schema: dict[str, Any], arguments: dict[str, Any]) -> Prompt:
    call = ToolCall("call_1", "t", arguments)
    path = said(user("go"), assistant(call), tool(ToolResult("call_1", (TextBlock("ok"),), name="t")), user("on"))
    spec = ToolSpec(name="t", description="", parameters=schema)
    return prepare(path, model(reference), request=Request(tools=(spec,))).prompt


def called_back(prompt: Prompt, text: str, cuts: list[int]) -> str:
    renamer = KeyRenamer(prompt.property_names.get("t", {}))
    places = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    return "".join(map(renamer.add, pieces)) + renamer.finish()


@pytest.mark.parametrize("reference", list(LEGAL))
@given(
    own=st.lists(names, min_size=1, max_size=8, unique=True),
    root=st.sampled_from(("plain", "anyOf", "allOf")),
    given_values=st.lists(values, min_size=8, max_size=8),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
    indent=st.sampled_from((None, 1)),
    is_ascii=st.booleans(),
)
def test_names_are_legal_and_arguments_come_back_as_they_were(
    reference: str,
    own: list[str],
    root: str,
    given_values: list[Any],
    cuts: list[int],
    indent: int | None,
    is_ascii: bool,
) -> None:
    inner = {"type": "object", "properties": {"filter[deep]": {"type": "string"}}}
    named: dict[str, Any] = {"type": "object", "properties": dict.fromkeys(own, inner), "required": own[:2]}
    schema = named if root == "plain" else {"type": "object", root: [named, {"required": own[-1:]}]}
    arguments = dict(zip(own, given_values, strict=False))
    prompt = compiled(reference, schema, arguments)
    sent = prompt.tools[0].parameters if root == "plain" else prompt.tools[0].parameters[root][0]
    shown = list(sent["properties"])
    assert all(re.fullmatch(LEGAL[reference], name) for name in shown)
    assert len(set(shown)) == len(own)
    assert sent["required"] == shown[:2]
    assert all(facts == inner for facts in sent["properties"].values()), "names inside a property stay"
    if root != "plain":
        assert prompt.tools[0].parameters[root][1] == {"required": shown[-1:]}
    for before, after in zip(own, shown, strict=True):
        assert after == before or not re.fullmatch(LEGAL[reference], before), "a legal name stays"
    (call,) = [block for block in prompt.messages[1].blocks if isinstance(block, ToolCall)]
    assert list(call.arguments.items()) == list(zip(shown, given_values, strict=False))
    text = json.dumps(call.arguments, indent=indent, ensure_ascii=is_ascii)
    assert json.loads(called_back(prompt, text, cuts)) == arguments
    if shown == own:
        assert called_back(prompt, text, cuts) == text


@given(
    own=st.lists(names, min_size=1, max_size=4, unique=True),
    arguments=st.dictionaries(names, st.integers(0, 99), max_size=6),
)
def test_no_argument_of_the_history_is_lost(own: list[str], arguments: dict[str, int]) -> None:
    prompt = compiled("anthropic/claude-opus-5", {"type": "object", "properties": {key: {} for key in own}}, arguments)
    (call,) = [block for block in prompt.messages[1].blocks if isinstance(block, ToolCall)]
    assert list(call.arguments.values()) == list(arguments.values())
    assert set(prompt.property_names.get("t", {})).isdisjoint(own)


@given(st.text('{}[]",:\\ab1 ', max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_text_without_such_a_name_passes_unchanged(text: str, cuts: list[int]) -> None:
    prompt = compiled("anthropic/claude-opus-5", {"properties": {"$only": {}}}, {})
    assert prompt.property_names == {"t": {"only": "$only"}}
    assert called_back(prompt, text, cuts) == text


def test_names_do_not_depend_on_their_order() -> None:
    own = ["filter[id]", "filter(id)", "filter_id", "", "…", "x" * 65, "x" * 66]
    prompts = [
        compiled("anthropic/claude-opus-5", {"properties": {key: {} for key in order}}, {})
        for order in (own, own[::-1])
    ]
    assert prompts[0].property_names == prompts[1].property_names


def test_a_name_that_would_repeat_another_gets_a_mark() -> None:
    assert rename_keys({"a": 1, "$a": 2, "a_": 3}, {"$a": "a"}) == {"a_": 1, "a": 2, "a__": 3}
