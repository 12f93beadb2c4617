"""The parsed modules of Loom. Tests that read them are one group, so that one process parses each module once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "loom"
FILES: Final = sorted(SOURCE.rglob("*.py"))
ONE_PROCESS: Final = pytest.mark.xdist_group("source trees")


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, in the order of `ast.walk`."""
    return tuple(ast.walk(tree_of(file)))
