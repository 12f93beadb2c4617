"""The page, the schema and the example say what the code does."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from loom.config import config_schema, load_config
from loom.config.reference import BEGIN, END, reference, update_page

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "config.md"
EXAMPLE = ROOT / "examples" / "loom.example.toml"


def test_the_page_holds_the_tables_of_today(tmp_path: Path) -> None:
    renewed = tmp_path / "config.md"
    renewed.write_bytes(PAGE.read_bytes())
    update_page(renewed)
    assert renewed.read_text("utf-8") == PAGE.read_text("utf-8"), "run: python -m loom.config docs docs/config.md"
    assert reference() in PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0]


def test_the_example_loads_without_a_warning_and_shows_every_section(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_bytes(EXAMPLE.read_bytes())
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, strict=True)
    assert config.warnings == ()
    sections = {row.key.split(".")[0] for row in config.show()}
    assert {row.key.split(".")[0] for row in config.show() if row.origin and row.origin.layer == "user"} >= sections - {
        "home"
    }
    assert sections >= {"keys", "models", "agents", "mcp"}


def test_the_example_says_of_each_key_that_a_project_may_not_set_that_it_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_bytes(EXAMPLE.read_bytes())
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    (warning,) = config.warnings
    ignored = {key.split(".")[0] for key in warning.split("ignored ")[1].split(": a project")[0].split(", ")}
    marked = [line for line in EXAMPLE.read_text("utf-8").splitlines() if "(user)" in line and not line.startswith("#")]
    assert len(marked) == 22
    assert ignored == {
        *("cleanup_after_days", "trusted_folders", "keys", "models", "agents", "worker"),
        *(
            "context",
            "turn",
            "budget",
            "tools",
            "hooks",
            "sandbox",
            "store",
            "media",
            "bus",
            "server",
            "gateway",
            "telemetry",
            "mcp",
        ),
    }


def test_the_example_is_valid_by_the_schema_and_mistakes_are_not() -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    validator.check_schema(config_schema())
    data = tomllib.loads(EXAMPLE.read_text("utf-8"))
    validator.validate(data)
    validator.validate(yaml.safe_load("agents: [{id: a, vision: auto}]"))
    for wrong in (
        {"server": {"port": "abc"}},
        {"server": {"port": 0}},
        {"server": {"prot": 1}},
        {"context": {"aging": "no"}},
        {"agents": [{"vision": True}]},
        {"models": {"fast": {"api_key": 5}}},
        {"approval": {"rules": [{"tool": "a"}]}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


def test_every_key_of_the_schema_is_described() -> None:
    schema = config_schema()
    for name, definition in schema["$defs"].items():
        assert definition["description"], name
        for key, field in definition["properties"].items():
            described = field.get("description") or "$ref" in str(field)
            assert described, f"{name}.{key}"


def test_the_module_prints_the_schema_and_says_how_it_is_used(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "loom.config", "schema"], capture_output=True, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(config_schema()))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    subprocess.run([sys.executable, "-m", "loom.config", "docs", str(page)], check=True)
    assert page.read_text("utf-8") == f"before\n{BEGIN}\n\n{reference()}\n{END}\nafter\n"
    usage = subprocess.run([sys.executable, "-m", "loom.config"], capture_output=True, text=True, check=False)
    assert (usage.returncode, usage.stderr) == (2, "usage: python -m loom.config schema | docs FILE\n")
