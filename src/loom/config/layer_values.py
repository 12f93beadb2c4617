"""Check the values of one layer against the schema and record the origin of each.

All mistakes are collected, so that a user can fix them at once. Unknown keys are collected separately.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from loom.config.files import ConfigFile
from loom.config.schema import REMOVED
from loom.config.schema_tree import (
    KeyPath,
    NamedTables,
    Shape,
    TableShape,
    ValueShape,
    actual_text,
    as_list,
    as_table,
    fault,
    key_text,
    read_json,
    read_text,
    shape,
)
from loom.errors import ConfigError

LayerName: TypeAlias = Literal["default", "user", "project", "environment", "flags"]


class ValueOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value came from. `file` is a display path; `variable` is set for the environment."""

    layer: LayerName
    file: str = ""
    line: int | None = None
    variable: str = ""

    def __str__(self) -> str:
        place = self.variable or (f"{self.file}:{self.line}" if self.line else self.file)
        return f"{self.layer} {place}".rstrip()


class LayerSource(msgspec.Struct, frozen=True, kw_only=True):
    """The file or variable of a layer. Relative paths start at `folder`; if `confined`, they must stay in the project.
    `variable_path` is the key that a variable sets."""

    layer: LayerName
    folder: Path
    document: ConfigFile | None = None
    variable: str = ""
    variable_path: KeyPath = ()
    confined: bool = False

    def fault(self, path: KeyPath, what: str) -> ConfigError:
        if self.variable:
            inner = key_text(path[len(self.variable_path) :])
            return ConfigError(what, key=f"{self.variable}: {inner}" if inner else self.variable)
        return ConfigError(what, file=self.document.name if self.document else self.layer, key=key_text(path))


class LayerValue(msgspec.Struct, frozen=True, kw_only=True):
    """One checked value. An empty table as `value` means that the name exists. `written_at` is its path in the file."""

    path: tuple[str, ...]
    value: object
    source: LayerSource
    written_at: KeyPath

    def __repr__(self) -> str:
        return f"LayerValue({key_text(self.path)})"

    def origin(self) -> ValueOrigin:
        document = self.source.document
        return ValueOrigin(
            layer=self.source.layer,
            file=document.name if document else "",
            line=document.lines.get(self.written_at) if document else None,
            variable=self.source.variable,
        )


class ConfigFindings(msgspec.Struct):
    """The values, mistakes and unknown keys of all layers."""

    entries: list[LayerValue] = []
    faults: list[ConfigError] = []
    unknown: list[ConfigError] = []


def walk_data(data: Mapping[str, object], source: LayerSource, found: ConfigFindings) -> None:
    """Check the data of a file, of the flags, or of one variable, and add them to `found`."""
    _Walk(source, found).table(shape(), data, (), ())


class _Walk:
    def __init__(self, source: LayerSource, found: ConfigFindings) -> None:
        self.source = source
        self.found = found

    def value(self, at: Shape, value: object, path: tuple[str, ...], raw: KeyPath) -> None:
        """Check one value of any kind. `path` is its key; `raw` is its path in the file."""
        if self.source.document is None and isinstance(value, str):
            value = read_text(value, at) if isinstance(at, ValueShape) else read_json(value)
        table = as_table(value)
        match at:
            case ValueShape():
                self._leaf(at, value, path, raw)
            case NamedTables() if path == ("agents",) and (items := as_list(value)) is not None:
                self._agents(items, at)
            case _ if table is None:
                holds_secrets = isinstance(at, NamedTables) and isinstance(at.of, ValueShape)
                self._fault(path, f"expected a table, got {actual_text(value, secret=holds_secrets)}")
            case TableShape():
                self.table(at, table, path, raw)
            case NamedTables():
                self._names(at, table, path, raw)

    def table(self, at: TableShape, values: Mapping[str, object], path: tuple[str, ...], raw: KeyPath) -> None:
        for name, value in values.items():
            if name in at.keys:
                self.value(at.keys[name], value, (*path, name), (*raw, name))
            else:
                self.found.unknown.append(self.source.fault((*path, name), unknown_key(at, name, path)))

    def _names(self, at: NamedTables, values: Mapping[str, object], path: tuple[str, ...], raw: KeyPath) -> None:
        for name, value in values.items():
            if not name.strip():
                self._fault((*path, name), "expected a name that is not empty")
                continue
            if isinstance(at.of, TableShape):
                self._add((*path, name), {}, (*raw, name))
            if path == ("agents",):
                written = (as_table(value) or {}).get("id", name)
                if isinstance(written, str) and written != name:
                    what = f"expected {actual_text(name)}, the name of its table, or no id at all"
                    self._fault((*path, name, "id"), what)
                self._add((*path, name, "id"), name, (*raw, name))
            self.value(at.of, value, (*path, name), (*raw, name))

    def _agents(self, items: list[object], at: NamedTables) -> None:
        """Read the list form: each item becomes the table of its `id`."""
        seen: set[str] = set()
        for position, item in enumerate(items):
            name = (as_table(item) or {}).get("id")
            if not isinstance(name, str) or not name.strip():
                self._fault(("agents", position), "expected a table with an id")
            elif name in seen:
                self._fault(("agents", position, "id"), f"{actual_text(name)} is defined twice")
            else:
                seen.add(name)
                self._add(("agents", name), {}, ("agents", position))
                self.value(at.of, item, ("agents", name), ("agents", position))

    def _leaf(self, at: ValueShape, value: object, path: tuple[str, ...], raw: KeyPath) -> None:
        before = len(self.found.faults)
        rows = as_list(value)
        if at.rows and rows is not None:
            for position, row in enumerate(rows):
                self._row(at.rows, row, (*path, position))
        elif what := fault(value, at):
            self._fault(path, what)
        if len(self.found.faults) == before:
            self._add(path, value, raw)

    def _row(self, at: TableShape, row: object, path: KeyPath) -> None:
        """Check a table in a list. An unknown key is an error: a rule without its pattern would match everything."""
        values = as_table(row)
        if values is None:
            self._fault(path, f"expected a table, got {actual_text(row)}")
            return
        for name, value in values.items():
            field = at.keys.get(name)
            if not isinstance(field, ValueShape):
                self._fault((*path, name), unknown_key(at, name, path))
            elif what := fault(value, field):
                self._fault((*path, name), what)
        for name in at.required:
            if name not in values:
                self._fault(path, f"expected a key {name}")

    def _fault(self, path: KeyPath, what: str) -> None:
        self.found.faults.append(self.source.fault(path, what))

    def _add(self, path: tuple[str, ...], value: object, raw: KeyPath) -> None:
        self.found.entries.append(LayerValue(path=path, value=value, source=self.source, written_at=raw))


def unknown_key(at: TableShape, name: str, path: KeyPath) -> str:
    written = (*path, name)
    for key, advice in REMOVED.items():
        if len(key) == len(written) and all(part in ("*", found) for part, found in zip(key, written, strict=True)):
            return advice
    meant = suggest(at, name, path)
    return "is not a known key" + (f"; did you mean {key_text(meant)}?" if meant else "")


def suggest(at: TableShape, name: str, path: KeyPath) -> KeyPath:
    """Return the key that the user probably meant: a sibling that differs only in case, a key of the same name in
    another table, or a similar sibling; empty if there is none."""
    close = difflib.get_close_matches(name.lower(), at.keys, n=1)
    if close and close[0] == name.lower():
        return (*path, close[0])
    elsewhere = next((known for known in _known_keys(shape(), ()) if known[-1] == name), ())
    return elsewhere or ((*path, close[0]) if close else ())


def _known_keys(at: Shape, path: KeyPath) -> Iterator[KeyPath]:
    """Yield all keys whose path contains no user-chosen names."""
    if isinstance(at, TableShape):
        for name, below in at.keys.items():
            yield (*path, name)
            yield from _known_keys(below, (*path, name))
