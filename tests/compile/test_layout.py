"""Costs of a layout: trimming adds up in a shorter way what every request is measured by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile.world import report, said, screenshot, tool_turn
from loom.compile.layout import Layout
from loom.compile.measure import RenderTarget
from loom.compile.policy import Known, Policy, Request, Watermark
from loom.content.blocks import ThinkingBlock
from loom.content.messages import Message, assistant, user
from loom.providers.catalog import model

BORDERS = [name for name in Watermark.__struct_fields__ if name.endswith(("_before", "_from"))]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 6))):
        match draw(st.sampled_from(["words", "image", "document", "tool", "steps"])):
            case "words":
                messages += [user("ask " * number or "ask"), assistant(ThinkingBlock("hm"), "answer " * 40)]
            case "image":
                messages += [user("look", screenshot(number)), assistant("seen")]
            case "document":
                messages += [user("read", report(number)), assistant("done")]
            case "tool":
                messages += tool_turn(number)
            case _:
                messages += [*tool_turn(number), *tool_turn(number + 50)[1:]]
    return messages


@pytest.mark.parametrize("reference", ["anthropic/claude-opus-5", "openai/gpt-5.5", "ollama/llama3.2"])
@given(messages=conversations(), data=st.data())
def test_the_sum_of_a_watermark_is_the_sum_of_its_blocks(reference: str, messages: list[Message], data: Any) -> None:
    borders = {name: data.draw(st.integers(0, len(messages)), name) for name in BORDERS}
    caps = {"text_cap": data.draw(st.sampled_from([0, 0, 20])), "page_cap": data.draw(st.sampled_from([0, 3]))}
    overrides = data.draw(st.dictionaries(st.sampled_from(["n0/0", "n0/1", "n2/1"]), st.just("full")))
    mark = Watermark(**borders, **caps)
    target = RenderTarget(model=model(reference), policy=Policy(), known=Known(), request=Request())
    short = Layout(said(*messages), target, overrides).sum_costs(mark)
    costs = Layout(said(*messages), target, overrides).render_costs(mark)
    assert short == tuple(
        sum(getattr(cost, field) for cost in costs) for field in ("tokens", "wire_bytes", "images", "pages")
    )
