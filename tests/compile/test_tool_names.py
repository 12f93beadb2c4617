"""Names of tools that a platform would refuse: shown in a legal form, called back by their own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile.world import said
from loom.compile.policy import Request
from loom.compile.prepare import prepare
from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import assistant, tool, user
from loom.prompt import ShownResult, ToolSpec
from loom.providers.catalog import model
from loom.sampling import Sampling

LEGAL = {
    "anthropic/claude-opus-5": r"[a-zA-Z0-9_-]{1,128}",
    "bedrock/anthropic.claude-opus-5-v1:0": r"[a-zA-Z0-9_-]{1,64}",
    "openai/gpt-5.5": r"[a-zA-Z0-9_-]{1,64}",
    "openai-chat/gpt-5.5": r"[a-zA-Z0-9_-]{1,64}",
    "gemini/gemini-3.7-flash": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    "vertex/gemini-3.7-flash": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    "mistral/mistral-medium-latest": r"[a-zA-Z0-9_-]{1,64}",
}
names = st.one_of(
    st.sampled_from(
        ("look", "a.b", "a_b", "a b", "9lives", "-x", "x" * 64, "x" * 65, "x" * 128, "x" * 200, "ä", "漢字")
    ),
    st.text("ab_-.9/ é", min_size=1, max_size=90).filter(str.strip),
)


@pytest.mark.parametrize("reference", list(LEGAL))
@given(declared=st.lists(names, min_size=1, max_size=8, unique=True), other=names)
def test_every_name_is_legal_and_comes_back_as_it_was(reference: str, declared: list[str], other: str) -> None:
    specs = tuple(ToolSpec(name=name, description="", parameters={"type": "object"}) for name in declared)
    calls = [ToolCall(f"call_{at}", name, {}) for at, name in enumerate([*declared, other])]
    results = [ToolResult(call.id, (TextBlock("ok"),), name=call.name) for call in calls]
    path = said(user("go"), assistant(*calls), tool(*results), user("on"))
    forced = Sampling(tool_choice="any", tool_name=declared[0])
    prompt = prepare(path, model(reference), request=Request(tools=specs, sampling=forced)).prompt
    shown = [spec.name for spec in prompt.tools]
    assert all(re.fullmatch(LEGAL[reference], name) for name in shown)
    assert len(set(shown)) == len(shown)
    assert [prompt.tool_names.get(name, name) for name in shown] == declared
    assert prompt.sampling.tool_name == shown[0]
    called = [block.name for block in prompt.messages[1].blocks if isinstance(block, ToolCall)]
    answered = [block.name for block in prompt.messages[2].blocks if isinstance(block, ShownResult)]
    assert called[:-1] == answered[:-1] == shown
    assert re.fullmatch(LEGAL[reference], called[-1])
    for name, legal in zip(declared, shown, strict=True):
        if re.fullmatch(LEGAL[reference], name) and re.fullmatch(r"[a-zA-Z0-9_-]+", name):
            assert legal == name, "a legal name stays"
