"""`LOOM_SERVER__PORT=9000` → a checked value: `LOOM_`, then the key in capitals with `__` between its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import msgspec

from loom.config.entries import Findings, Source, suggest, walk_data
from loom.config.shape import KeyPath, Names, Shape, Table, Value, shape

PREFIX: Final = "LOOM_"
NOT_SETTINGS: Final = frozenset({"LOOM_PLAIN", "LOOM_IMAGES", "LOOM_WEB", "LOOM_TOKEN", "LOOM_OFFLINE"})
"""Variables that speak to the faces, not to the configuration."""


def walk_environment(environ: Mapping[str, str], folder: Path, found: Findings) -> None:
    """All variables that begin with `LOOM_`; an empty one counts as not set, as compose files write it."""
    known = [entry.path for entry in found.entries]
    for variable in sorted(environ):
        text = environ[variable]
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not text.strip():
            continue
        source = Source(layer="environment", folder=folder, variable=variable)
        data: object = text
        path = _path_of(variable, known, source, found)
        for part in reversed(path):
            data = {part: data}
        if isinstance(data, dict):
            source = msgspec.structs.replace(source, variable_path=path)
            walk_data(cast("dict[str, object]", data), source, found)


def _path_of(variable: str, known: list[tuple[str, ...]], source: Source, found: Findings) -> tuple[str, ...]:
    """The key that a variable stands for; empty if there is none, which is noted as unknown."""
    parts = variable.removeprefix(PREFIX).split("__")
    at: Shape = shape()
    path: tuple[str, ...] = ()
    for position, part in enumerate(parts):
        match at:
            case Table() if part.lower() in at.keys:
                path = (*path, part.lower())
                at = at.keys[path[-1]]
            case Table():
                found.unknown.append(source.fault((), _unknown(suggest(at, part.lower(), path))))
                return ()
            case Names(of=Value()):
                name = "__".join(parts[position:])
                return (*path, name.lower() if path == ("keys",) else name)
            case Names():
                path = (*path, _existing_name(part, path, known))
                at = at.of
            case Value():
                found.unknown.append(source.fault((), _unknown(path)))
                return ()
    return path


def _existing_name(part: str, path: tuple[str, ...], known: list[tuple[str, ...]]) -> str:
    """The name that a file has already given (`gpt-5.5` for GPT_5_5), else the part in small letters."""
    names = (entry[len(path)] for entry in known if len(entry) > len(path) and entry[: len(path)] == path)
    return next((name for name in names if _shouted(name) == part.upper()), part.lower())


def _unknown(meant: KeyPath) -> str:
    return "is not a known setting" + (f"; did you mean {variable_for(meant)}?" if meant else "")


def variable_for(path: KeyPath) -> str:
    """The variable that sets the key at `path`."""
    return PREFIX + "__".join(_shouted(str(part)) for part in path)


def _shouted(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())
