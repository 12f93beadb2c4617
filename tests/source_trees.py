"""The parsed modules of Loom and its scripts. Tests that read them are one group, so that one process parses each
module once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "loom"


def python_files(folder: Path) -> list[Path]:
    """Return the modules below `folder`, without those of installed packages."""
    return sorted(path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


FILES: Final = python_files(SOURCE)
SCRIPT_FOLDERS: Final = (".ci", "benchmarks", "docs", "examples", "web")
"""Folders with modules that are not in the package."""
ONE_PROCESS: Final = pytest.mark.xdist_group("source trees")


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, in the order of `ast.walk`."""
    return tuple(ast.walk(tree_of(file)))
