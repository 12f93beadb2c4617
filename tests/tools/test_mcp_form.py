"""What a server's tool takes: told to models as every platform can take it, checked by what the server says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from loom.errors import ToolError
from loom.tools.input_schema import InputSchema, parse_input_schema, repair_arguments


def told(schema: dict[str, Any]) -> dict[str, Any]:
    return parse_input_schema(schema).parameters


def obj(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}


STRING: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}


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
    assert told(schema) == {
        "type": "object",
        "properties": {
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "description": "where"},
            "definitions": {"type": "string"},
            "far": {},
        },
        "required": ["at"],
    }


def test_no_reference_is_left_dangling_wherever_it_stands() -> None:
    schema = {
        **obj(
            beside={"$ref": "#/$defs/Point", "properties": {"name": {"$ref": "#/$defs/Name"}}},
            spelled={"$ref": "#/$defs/My%20Name"},
            listed={"$ref": "#/allOf/0"},
            endless={"$ref": f"#/allOf/{'1' * 5_000}"},
            dynamic={"$dynamicRef": "#node", "type": "object"},
            odd={"$ref": 5, "type": "string"},
        ),
        "allOf": [STRING],
        "$defs": {"Point": obj(x={"$ref": "#/$defs/Name"}), "Name": STRING, "My Name": STRING},
    }
    assert told(schema) == obj(
        beside=obj(x=STRING, name=STRING),
        spelled=STRING,
        listed=STRING,
        endless={},
        dynamic={"type": "object"},
        odd=STRING,
    )
    root = {"$ref": "#/$defs/A", "properties": {"y": STRING}, "$defs": {"A": obj("x", x=NUMBER)}}
    assert told(root) == obj("x", x=NUMBER, y=STRING)


def test_what_is_no_schema_stays_as_it_is() -> None:
    odd = {"$id": 1, "$ref": "#/$defs/Name"}
    schema = obj(a={"default": odd, "enum": [odd], "patternProperties": {"$id": STRING}})
    assert told(schema) == schema


def test_a_schema_that_refers_to_itself_is_cut_where_it_repeats() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    found = told({"$defs": {"Tree": tree}, **tree})
    inner = found["properties"]["children"]["items"]["properties"]["children"]
    assert inner == {"type": "array", "items": {}}


def test_a_schema_that_explodes_becomes_any_object() -> None:
    bomb: dict[str, Any] = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 10} for n in range(12)}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": bomb}
    assert told(schema) == {"type": "object", "properties": {}}
    nested: Any = {"type": "string"}
    for _ in range(3_000):
        nested = {"items": nested}
    assert told({"properties": {"x": nested}})["type"] == "object"
    deep: dict[str, Any] = {}
    for number in range(16):
        deep[f"L{number}"] = {"$ref": f"#/$defs/L{number + 1}"}
        for _ in range(150):
            deep[f"L{number}"] = {"items": deep[f"L{number}"]}
    assert told({"properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": deep})["type"] == "object"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"properties": 3},
        {"properties": {"a": True}},
        {"type": ["object", "null"]},
        {"properties": {"a": 3, "b": None}, "required": [1, "a", "a"]},
        {"anyOf": 5, "allOf": [], "oneOf": [7, None, False, {"type": "null"}]},
        {"anyOf": [{"properties": []}, {"required": {}}], "required": "a"},
    ],
)
def test_odd_schemas_still_are_objects(schema: dict[str, Any]) -> None:
    found = told(schema)
    assert found["type"] == "object"
    assert isinstance(found["properties"], dict)
    assert all(isinstance(facts, dict | bool) for facts in found["properties"].values())
    assert not {"anyOf", "oneOf", "allOf"} & found.keys()
    assert found.get("required", ["a"]) == ["a"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {**obj(a=STRING), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            obj(a=STRING, b={}),
        ),
        (
            {**obj("id", id=STRING), "allOf": [obj("a", a=STRING), {"$ref": "#/$defs/B"}], "$defs": {"B": obj(b={})}},
            obj("id", "a", id=STRING, a=STRING, b={}),
        ),
        (
            {"oneOf": [obj("kind", "x", kind={"const": "a"}, x=NUMBER), obj("kind", kind={"const": "b"})]},
            obj("kind", kind={"anyOf": [{"const": "a"}, {"const": "b"}]}, x=NUMBER),
        ),
        (
            {"anyOf": [{"anyOf": [obj("a", a=STRING), obj("a", a=NUMBER)]}, {"type": "null"}]},
            obj("a", a={"anyOf": [STRING, NUMBER]}),
        ),
        (
            {**obj(kind={"type": "string", "enum": ["a", "b"]}), "anyOf": [obj(kind={"const": "a"}), obj(x=NUMBER)]},
            obj(kind={"type": "string", "enum": ["a", "b"]}, x=NUMBER),
        ),
        (
            {**obj(a=STRING), "not": {"required": ["b"]}, "enum": [{}], "if": {}, "then": {"required": ["c"]}},
            obj(a=STRING),
        ),
    ],
)
def test_alternatives_at_the_root_become_one_object(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert told(schema) == expected


def test_alternatives_below_the_root_stay() -> None:
    schema = obj(a={"anyOf": [STRING, NUMBER]})
    assert told(schema) == schema


def test_a_tool_keeps_its_own_names() -> None:
    """What a platform refuses is renamed when a request is compiled for it."""
    schema = {"anyOf": [obj("$a", **{"$a": STRING}), obj("$a", "b[]", **{"$a": STRING, "b[]": NUMBER})]}
    form = parse_input_schema(schema)
    assert form.parameters == obj("$a", **{"$a": STRING, "b[]": NUMBER})
    assert form.check_arguments("s__t", {"$a": "x", "b[]": 2}) == {"$a": "x", "b[]": 2}
    with pytest.raises(ToolError, match=r"\$a must be string"):
        form.check_arguments("s__t", {"$a": 5})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "name is missing"),
        ({"name": 3}, "name must be string"),
        ({"name": "x", "count": True}, "count must be integer or null"),
        ({"name": "x", "count": 1.5}, "count must be integer or null"),
        ({"name": "x", "color": "red"}, "color is not known"),
    ],
)
def test_wrong_arguments_are_told_with_what_is_expected(arguments: dict[str, Any], said: str) -> None:
    form = parse_input_schema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "count": {"type": ["integer", "null"]}, "any": {"anyOf": []}},
            "required": ["name"],
            "additionalProperties": False,
        }
    )
    with pytest.raises(ToolError, match=re.escape(said)) as raised:
        form.check_arguments("s__t", arguments)
    assert "Expected: (name: string, count?: integer | null, any?: value)" in str(raised.value)
    assert form.check_arguments("s__t", {"name": "x", "count": 2.0, "any": [1]})


def takes(form: InputSchema, arguments: dict[str, Any]) -> bool:
    try:
        return form.check_arguments("s__t", arguments) == arguments
    except ToolError:
        return False


def test_one_of_the_alternatives_must_do_and_nothing_that_the_server_takes_is_refused() -> None:
    either = parse_input_schema({"anyOf": [obj("a", a=STRING), obj("b", b=NUMBER)]})
    assert takes(either, {"a": "x"})
    assert takes(either, {"b": 1})
    assert takes(either, {"a": "x", "b": "the first alternative does not speak of it"})
    with pytest.raises(ToolError, match=re.escape("a is missing, or b must be number.")):
        either.check_arguments("s__t", {"b": "x"})
    both = parse_input_schema({**obj("id", id=STRING), "allOf": [obj("a", a=STRING)]})
    assert takes(both, {"id": "1", "a": "x", "other": 1})
    assert not takes(both, {"id": "1"})


def test_only_names_that_no_alternative_knows_are_refused_and_none_where_patterns_take_them() -> None:
    closed = {"additionalProperties": False}
    union = parse_input_schema({"oneOf": [{**obj(a=STRING), **closed}, {**obj(b=STRING), **closed}]})
    assert takes(union, {"b": "x"})
    assert not takes(union, {"c": "x"})
    met = parse_input_schema({**obj(a=STRING), **closed, "allOf": [{**obj(b=STRING), **closed}]})
    assert takes(met, {"a": "x", "b": "x"})
    assert takes(parse_input_schema({"anyOf": [{**obj(a=STRING), **closed}, obj(b=STRING)]}), {"c": "x"})
    assert takes(parse_input_schema({**obj(a=STRING), **closed, "patternProperties": {"^x-": STRING}}), {"x-y": "z"})


def test_arguments_that_are_valid_are_never_repaired_and_others_become_what_the_schema_says() -> None:
    either = {"type": ["integer", "null"]}
    schema = obj("id", "need", id=STRING, need=NUMBER, name=STRING, either=either, list={"type": "array"}, any={})
    valid = {"id": "7", "need": 1.5, "name": "[1]", "either": None, "list": ["1"], "any": None, "other": None}
    assert repair_arguments(schema, valid) == valid
    found = repair_arguments(
        schema, {"id": None, "need": "2", "name": None, "either": "3", "list": '["a"]', "any": "4"}
    )
    assert found == {"id": None, "need": 2, "either": 3, "list": ["a"], "any": "4"}
    assert repair_arguments(schema, {"need": "two", "list": "{}"}) == {"need": "two", "list": "{}"}
