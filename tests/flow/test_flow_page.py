"""docs/flow.md is drawn from a real turn: every function that it names is on the way."""

from __future__ import annotations

import re
from pathlib import Path

from flow.turn_trace import TROUBLE, Function, trace_turn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flow.md"
_NAMED = re.compile(r"([\w/]+\.py): ([\w.]+)\(\)")


def named_functions(text: str) -> list[Function]:
    return [Function(*found) for found in _NAMED.findall(text)]


async def test_every_function_that_the_page_names_is_on_the_way() -> None:
    named = named_functions(PAGE.read_text("utf-8"))
    assert len(named) > 50
    on_the_way = {*(await trace_turn()).functions, *(await trace_turn(TROUBLE)).functions}
    assert [str(function) for function in named if function not in on_the_way] == []


async def test_the_page_shows_where_a_429_becomes_a_retry() -> None:
    _, _, section = PAGE.read_text("utf-8").partition("## When a request is refused or cut off")
    named = named_functions(section.partition("\n## ")[0])
    plain, trouble = await trace_turn(), await trace_turn(TROUBLE)
    assert Function("providers/http.py", "_delay") in named
    assert [str(function) for function in named if function not in trouble.functions] == []
    assert [str(function) for function in named if function in plain.functions] == [
        "providers/http.py: HttpProvider._attempt()"
    ]


async def test_a_function_that_is_not_on_the_way_is_found() -> None:
    recorded = await trace_turn()
    stale = named_functions("agent/compact.py: summary_change() and store/journal.py: Journal.commit()")
    assert [function for function in stale if function not in recorded.functions] == stale[:1]
