"""Settings from variables such as `LOOM_SERVER__PORT=9000`: `LOOM_`, then the key in capitals, joined by `__`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import msgspec

from loom.config.layer_values import ConfigFindings, LayerSource, suggest, walk_data
from loom.config.schema_tree import KeyPath, NamedTables, Shape, TableShape, ValueShape, shape

PREFIX: Final = "LOOM_"
NOT_SETTINGS: Final = frozenset(
    PREFIX + name
    for name in ("ASCII", "IMAGES", "MOUSE", "NOTIFY", "OFFLINE", "PLAIN", "STARTED", "THEME", "TOKEN", "WEB")
)
"""Variables that interfaces and the build read, and the mark of programs that Loom starts; they are not settings."""


def walk_environment(environ: Mapping[str, str], folder: Path, found: ConfigFindings) -> None:
    """Read all variables that begin with `LOOM_`. An empty one counts as unset, because compose files set unset ones to
    an empty text."""
    known = [entry.path for entry in found.entries]
    for variable in sorted(environ):
        text = environ[variable]
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not text.strip():
            continue
        source = LayerSource(layer="environment", folder=folder, variable=variable)
        data: object = text
        path = _path_of(variable, known, source, found)
        for part in reversed(path):
            data = {part: data}
        if isinstance(data, dict):
            source = msgspec.structs.replace(source, variable_path=path)
            walk_data(cast("dict[str, object]", data), source, found)


def _path_of(
    variable: str, known: list[tuple[str, ...]], source: LayerSource, found: ConfigFindings
) -> tuple[str, ...]:
    """Return the key that a variable sets; empty if there is none, which is recorded as unknown."""
    parts = variable.removeprefix(PREFIX).split("__")
    at: Shape = shape()
    path: tuple[str, ...] = ()
    for position, part in enumerate(parts):
        match at:
            case TableShape() if part.lower() in at.keys:
                path = (*path, part.lower())
                at = at.keys[path[-1]]
            case TableShape():
                found.unknown.append(source.fault((), _unknown_reason(suggest(at, part.lower(), path))))
                return ()
            case NamedTables(of=ValueShape()):
                name = "__".join(parts[position:])
                return (*path, name.lower() if path == ("keys",) else name)
            case NamedTables():
                # The name that a file already uses (`gpt-5.5` for GPT_5_5), else the part in lower case.
                names = (entry[len(path)] for entry in known if len(entry) > len(path) and entry[: len(path)] == path)
                path = (*path, next((name for name in names if _to_upper(name) == part.upper()), part.lower()))
                at = at.of
            case ValueShape():
                found.unknown.append(source.fault((), _unknown_reason(path)))
                return ()
    return path


def _unknown_reason(meant: KeyPath) -> str:
    return "is not a known setting" + (f"; did you mean {variable_for(meant)}?" if meant else "")


def variable_for(path: KeyPath) -> str:
    """Return the variable that sets the key at `path`."""
    return PREFIX + "__".join(_to_upper(str(part)) for part in path)


def _to_upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())
