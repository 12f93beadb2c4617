"""docs/flow.md is drawn from a real turn: every function that it names is on the way."""

from __future__ import annotations

import re
from pathlib import Path

from flow.turn_trace import Function, trace_turn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flow.md"
_NAMED = re.compile(r"([\w/]+\.py): ([\w.]+)\(\)")


def named_functions(text: str) -> list[Function]:
    return [Function(*found) for found in _NAMED.findall(text)]


async def test_every_function_that_the_page_names_is_on_the_way() -> None:
    named = named_functions(PAGE.read_text("utf-8"))
    assert len(named) > 50
    recorded = await trace_turn()
    assert [str(function) for function in named if function not in recorded.functions] == []


async def test_a_function_that_is_not_on_the_way_is_found() -> None:
    recorded = await trace_turn()
    stale = named_functions("agent/compact.py: summary_change() and store/journal.py: Journal.commit()")
    assert [function for function in stale if function not in recorded.functions] == stale[:1]
