"""Names, words and fingerprints of a server's tools, as every platform can take them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mcp_types import Tool

from loom.tools.input_schema import parse_input_schema
from loom.tools.mcp.tools import fingerprint, tool_name, tool_spec


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("github", "create_issue", "github__create_issue"),
        ("my server", "get/things", "my_server__get_things"),
        ("9lives", "purr", "m9lives__purr"),
        ("déjà", "vu", "d_j___vu"),
    ],
)
def test_names_are_made_legal(server: str, tool: str, name: str) -> None:
    assert tool_name(server, tool, {}) == name


def test_long_and_colliding_names_stay_unique_and_short_enough() -> None:
    taken: dict[str, Any] = {}
    for tool in ("a b", "a.b", "a/b", "x" * 100, "x" * 101, "", "…"):
        name = tool_name("server", tool, taken)
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
        assert name not in taken
        taken[name] = tool


def test_the_fingerprint_changes_with_all_that_was_told_and_with_nothing_else() -> None:
    tool = Tool(name="a", description="does a", input_schema={"type": "object", "properties": {"x": {}, "y": {}}})
    turned = Tool(name="a", description="does a", input_schema={"properties": {"y": {}, "x": {}}, "type": "object"})
    assert fingerprint(tool) == fingerprint(turned)
    other = Tool(name="a", description="does b", input_schema=tool.input_schema)
    wider = Tool(name="a", description="does a", input_schema={"type": "object"})
    assert len({fingerprint(found) for found in (tool, other, wider)}) == 3


def test_a_description_without_end_is_cut() -> None:
    spec = tool_spec("a", Tool(name="a", description="x" * 100_000 + "\ud800", input_schema={}), parse_input_schema({}))
    assert len(spec.description) == 4_001
