"""Names, schemas and arguments of a server's tools, as every platform can take them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mcp_types import Tool

from loom.errors import ToolError
from loom.tools.mcp_schema import checked, fingerprint, parameters, tool_name, tool_spec


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


def test_references_are_put_in_place_and_definitions_dropped() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/Point", "description": "where"},
            "definitions": {"type": "string"},
            "far": {"$ref": "https://evil.example/schema.json"},
        },
        "required": ["at"],
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    assert parameters(schema) == {
        "type": "object",
        "properties": {
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "description": "where"},
            "definitions": {"type": "string"},
            "far": {},
        },
        "required": ["at"],
    }


def test_a_schema_that_refers_to_itself_is_cut_where_it_repeats() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    found = parameters({"$defs": {"Tree": tree}, **tree})
    inner = found["properties"]["children"]["items"]["properties"]["children"]
    assert inner == {"type": "array", "items": {}}


def test_a_schema_that_explodes_becomes_any_object() -> None:
    bomb: dict[str, Any] = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 10} for n in range(12)}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": bomb}
    assert parameters(schema) == {"type": "object", "properties": {}}
    nested: Any = {"type": "string"}
    for _ in range(3_000):
        nested = {"items": nested}
    assert parameters({"properties": {"x": nested}})["type"] == "object"


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "string"}, {"properties": 3}, {"properties": {"a": True}}, {"type": ["object", "null"]}],
)
def test_odd_schemas_still_are_objects(schema: dict[str, Any]) -> None:
    found = parameters(schema)
    assert found["type"] == "object"
    assert isinstance(found["properties"], dict)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "name is missing"),
        ({"name": 3}, "name must be string"),
        ({"name": "x", "count": True}, "count must be integer or null"),
        ({"name": "x", "count": 1.5}, "count must be integer or null"),
        ({"name": "x", "colour": "red"}, "colour is not known"),
    ],
)
def test_wrong_arguments_are_told_with_what_is_expected(arguments: dict[str, Any], said: str) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "count": {"type": ["integer", "null"]}, "any": {"anyOf": []}},
        "required": ["name"],
        "additionalProperties": False,
    }
    with pytest.raises(ToolError, match=re.escape(said)) as raised:
        checked("s__t", schema, arguments)
    assert "Expected: (name: string, count?: integer | null, any?: value)" in str(raised.value)
    assert checked("s__t", schema, {"name": "x", "count": 2.0, "any": [1]})


def test_the_fingerprint_changes_with_all_that_was_told_and_with_nothing_else() -> None:
    tool = Tool(name="a", description="does a", input_schema={"type": "object", "properties": {"x": {}, "y": {}}})
    turned = Tool(name="a", description="does a", input_schema={"properties": {"y": {}, "x": {}}, "type": "object"})
    assert fingerprint(tool) == fingerprint(turned)
    other = Tool(name="a", description="does b", input_schema=tool.input_schema)
    wider = Tool(name="a", description="does a", input_schema={"type": "object"})
    assert len({fingerprint(found) for found in (tool, other, wider)}) == 3


def test_a_description_without_end_is_cut() -> None:
    spec = tool_spec("a", Tool(name="a", description="x" * 100_000 + "\ud800", input_schema={}))
    assert len(spec.description) == 4_001
