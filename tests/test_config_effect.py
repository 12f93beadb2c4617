"""Every setting has an effect: each key of the schema is read by code that is not the configuration itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from loom.config import load_config
from loom.config.schema_tree import Shape, TableShape, shape
from source_trees import FILES, ONE_PROCESS, nodes_of

READERS = ("effective.py", "approval.py", "loader.py")
"""Modules of the configuration that other rooms call; the others only describe and check the keys."""


def keys(at: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(at, TableShape):
        for name, below in at.keys.items():
            yield from keys(below, (*path, name))
    elif hasattr(at, "of"):
        yield from keys(at.of, (*path, "*"))
    else:
        yield path


def names_read() -> set[str]:
    """Attributes that are read, and the names in calls such as `config.secret("media", "url")`."""
    found: set[str] = set()
    for file in FILES:
        if file.parent.name == "config" and file.name not in READERS:
            continue
        for node in nodes_of(file):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "secret" in node.func.attr:
                found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return found


@ONE_PROCESS
def test_every_key_of_the_schema_is_read_somewhere() -> None:
    read = names_read()
    capabilities = {
        "vision",
        "native_pdf",
        "thinking",
        "citations",
        "tools",
        "audio",
        "accepts",
    }  # by getattr, as a set
    every = list(keys(shape()))
    assert len(every) > 60
    assert [path for path in every if path[-1] not in read | capabilities | {"*", "id"}] == []


def test_keys_that_were_removed_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_text('[models.m]\nmodel = "x"\nroles = ["describe"]\ntier = "fast"\n')
    warnings = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}).warnings
    assert len(warnings) == 2
    assert "context.describer" in warnings[0]
    assert "was removed" in warnings[1]
