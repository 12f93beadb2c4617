"""TOML and YAML say the same things, and every value knows its line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from loom.config import Config, load_config
from loom.config.schema_tree import NamedTables, Shape, TableShape, ValueShape, shape

TRICKY = ["off", "yes", "null", "~", "1e5", "0o17", "010", "1:30", "2026-01-01", "<<", "=", "1_000", ".5", "#", "a: b"]
TEXT = st.sampled_from(TRICKY) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{}\x7f"), max_size=8
)
NAME = st.sampled_from(["fast", "gpt-5.5", "off", "a b", "é", '"', "<<"]) | TEXT.filter(lambda text: text.strip() != "")


class Dumper(yaml.SafeDumper):
    """Writes YAML 1.2 as we read it: PyYAML itself leaves text that is a number there, such as 1e1, without quotes."""


Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+\Z|0o[0-7]+\Z"), list("-+.0123456789")
)


def values(at: ValueShape) -> st.SearchStrategy[Any]:
    if at.rows:
        required = {name: documents(at.rows.keys[name]) for name in at.rows.required}
        optional = {name: documents(below) for name, below in at.rows.keys.items() if name not in required}
        return st.lists(st.fixed_dictionaries(required, optional=optional), max_size=3)
    if at.schemes:
        return TEXT.map(lambda text: f"https://{text}")
    return of_type(at.info)


def of_type(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.UnionType():
            return st.one_of([of_type(item) for item in info.types if not isinstance(item, inspect.NoneType)])
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(info.ge, info.le)
        case inspect.FloatType():
            return st.floats(info.ge, info.le)
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.VarTupleType():
            return st.lists(TEXT, max_size=3)
        case inspect.DictType():
            return st.dictionaries(NAME, TEXT | st.integers(0, 9) | st.booleans(), max_size=2)
        case inspect.StrType(min_length=int()):
            return NAME
        case _:
            return TEXT


def documents(at: Shape, path: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    """Any valid content for a place of the schema."""
    match at:
        case ValueShape() if path == ("trusted_folders",):
            return st.lists(TEXT.map(lambda text: "/" + text), max_size=2)
        case ValueShape():
            return values(at)
        case NamedTables():
            return st.dictionaries(NAME, documents(at.of, (*path, "*")), max_size=2)
        case TableShape():
            keys = {name: documents(below, (*path, name)) for name, below in at.keys.items() if name != "id"}
            if path == ("mcp", "servers", "*"):
                one_of_two = st.sampled_from([{"command": "npx"}, {"url": "https://example.org"}])
                del keys["command"], keys["url"]
                return st.builds(
                    lambda some, one: {**some, **one}, st.fixed_dictionaries({}, optional=keys), one_of_two
                )
            needed: dict[str, st.SearchStrategy[Any]] = {}
            if path == ("webhooks", "*"):
                needed = {"url": st.just("https://example.org"), "secret": st.just("s3cret")}
                needed["events"] = st.just(["turn_failed"])
            made = st.fixed_dictionaries(needed, optional={name: it for name, it in keys.items() if name not in needed})
            return st.just(None).flatmap(lambda _: made)  # Hypothesis prints what it draws from: here all of the schema


def toml(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    plain = {name: value for name, value in data.items() if not isinstance(value, dict)}
    text = "".join(f"{quoted(name)} = {inline(value)}\n" for name, value in plain.items())
    for name, value in data.items():
        if isinstance(value, dict):
            text += f"[{'.'.join(map(quoted, (*path, name)))}]\n" + toml(value, (*path, name))
    return text


def inline(value: object) -> str:
    if isinstance(value, list):
        return "[\n" + "".join(f"  {inline(item)}, # ]\n" for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(name)} = {inline(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def load_as(folder: Path, name: str, text: str) -> Config:
    (folder / name).write_text(text, "utf-8")
    try:
        return load_config(cwd=folder, environ={"LOOM_HOME": str(folder)}, strict=True)
    finally:
        (folder / name).unlink()


@settings(deadline=None)
@given(data=documents(shape()))
def test_any_valid_configuration_is_the_same_in_toml_and_in_yaml(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("same")
    in_toml = load_as(folder, "loom.toml", toml(data))
    in_yaml = load_as(folder, "loom.yaml", yaml.dump(data, Dumper=Dumper, allow_unicode=True, sort_keys=False))
    assert in_toml == in_yaml
    assert [(row.key, row.value) for row in in_toml.show()] == [(row.key, row.value) for row in in_yaml.show()]
    assert in_toml.warnings == in_yaml.warnings == ()


@settings(deadline=None)
@given(data=documents(shape()))
def test_the_line_of_an_origin_is_the_line_on_which_the_key_stands(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    for name, text in (("loom.toml", toml(data)), ("loom.yaml", json.dumps(data, ensure_ascii=False, indent=1))):
        lines = text.split("\n")
        config = load_as(folder, name, text)
        for path, entry in config.provenance.entries.items():
            line = entry.origin().line
            if entry.source.layer == "user" and path[-1] != "id":
                assert line is not None
                assert quoted(path[-1]) in lines[line - 1]


def test_values_over_many_lines_do_not_shift_the_lines_of_those_after_them(tmp_path: Path) -> None:
    text = '''
model = """
[server]
port = 1
not the end: \\"""
"""

[agents.a]   # ]
system = \'\'\'
x = [
}
"""
\'\'\'
tools = [ # [
  "]",

  "x",
]
brain = { model = "m" }
[[approval.rules]]
tool = "a"
action = "ask"

[[approval.rules]]
tool = "b"
action = "deny"
[server]
port = 2
'''
    config = load_as(tmp_path, "loom.toml", text)
    assert config.server.port == 2
    lines = {row.key: row.origin.line for row in config.show() if row.origin and row.origin.layer == "user"}
    assert lines == {
        "model": 2,
        "agents.a.id": 8,
        "agents.a.brain.model": 19,
        "agents.a.system": 9,
        "agents.a.tools": 14,
        "server.port": 28,
        "approval.rules": 20,
    }


def test_yaml_words_are_words_and_anchors_work(tmp_path: Path) -> None:
    text = """
context: {aging: off}
models:
  one: &one {provider: yes, model: 1:30, max_tokens: 1_000}
  two: *one
agents:
  - {id: on, vision: true}
"""
    config = load_as(tmp_path, "loom.yaml", text)
    assert config.context.aging == "off"
    assert (config.models["one"].provider, config.models["one"].model, config.models["one"].max_tokens) == (
        "yes",
        "1:30",
        1000,
    )
    assert config.models["one"] == config.models["two"]
    assert config.agents["on"].vision is True


@pytest.mark.parametrize(("written", "port"), [("0x1F90", 8080), ("0o17620", 8080), ("8_080", 8080), ("+8080", 8080)])
def test_a_whole_number_is_one_however_it_is_written(tmp_path: Path, written: str, port: int) -> None:
    assert load_as(tmp_path, "loom.yaml", f"server: {{port: {written}}}").server.port == port
    assert load_as(tmp_path, "loom.toml", f"[server]\nport = {written}\n").server.port == port


@pytest.mark.parametrize(("written", "number"), [("1e1", 10.0), ("1.5e3", 1500.0), ("1.5E+3", 1500.0), ("5e-1", 0.5)])
def test_a_number_with_an_exponent_is_a_number_in_both_formats(tmp_path: Path, written: str, number: float) -> None:
    assert load_as(tmp_path, "loom.yaml", f"turn:\n  max_usd: {written}\n").turn.max_usd == number
    assert load_as(tmp_path, "loom.toml", f"[turn]\nmax_usd = {written}\n").turn.max_usd == number


def test_yaml_text_that_only_begins_like_a_number_is_text(tmp_path: Path) -> None:
    config = load_as(tmp_path, "loom.yaml", "models: {a: {provider: 007, model: 1e}, b: {provider: 0x, model: e5}}")
    assert [(entry.provider, entry.model) for entry in config.models.values()] == [("007", "1e"), ("0x", "e5")]
