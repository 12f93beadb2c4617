"""Edit one value or table of a hand-written TOML file; comments stay in place.

The changed text is parsed before it is written. If anything but the intended value differs, the file is not changed,
and the error shows the line for the user to write.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from loom.atomic_file import write_file_whole
from loom.config.files import USER_NAMES, display_path, pick_file
from loom.config.loader import user_folder
from loom.errors import ConfigError

_NO_SAFE_EDIT: Final = "cannot be edited safely; the file was not changed."


def user_config_file() -> Path:
    """Return the path of the user's loom.toml, which may not exist yet. Raise `ConfigError` if the configuration is
    YAML."""
    folder = user_folder(os.environ, Path.cwd())
    found = pick_file(folder, USER_NAMES, Path.cwd())
    if found is not None and found.suffix != ".toml":
        raise ConfigError(
            "is YAML, which Loom does not edit.", file=_display_path(found), hint="Edit it: see docs/config.md."
        )
    return found or folder / USER_NAMES[0]


def read_toml(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of `file` and its data; both empty if there is no such file."""
    try:
        text = file.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=_display_path(file)) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ConfigError(
            "is not TOML.", file=_display_path(file), hint="Fix it first; the file was not changed."
        ) from None


def set_key(file: Path, key: str, value: str) -> None:
    """Set a top-level `key`."""
    line = tomlkit.dumps({key: value}).strip()

    def change(text: str) -> str:
        document = tomlkit.parse(text)
        if key in document:
            document[key] = value
            return tomlkit.dumps(document)
        lines = text.split("\n")
        comment = next((at for at, found in enumerate(lines) if not found.lstrip().startswith("#")), 0)
        at = comment + 1 if comment and not lines[comment].strip() else 0
        lines[at:at] = [line] if at < len(lines) and not lines[at].strip() else [line, ""]
        return "\n".join(lines)

    _edit(file, change, lambda data: {**data, key: value}, by_hand=line)


def set_value(file: Path, path: Sequence[str], value: str | float | bool | None) -> None:
    """Set the value at `path`, in an existing table or a new one; None removes it."""
    *tables, key = path
    if not tables and isinstance(value, str):
        set_key(file, key, value)
        return
    _, data = read_toml(file)
    above: dict[str, Any] | None = data
    for name in tables:
        above = cast("dict[str, Any] | None", above.get(name)) if above is not None else None
    if value is not None and tables and above is None:
        add_table(file, tables, {key: value})
        return

    def change(text: str) -> str:
        document = tomlkit.parse(text)
        table: Any = document
        for name in tables:
            table = table.get(name, {})
        if value is not None:
            table[key] = value
        elif key in table:
            del table[key]
        return tomlkit.dumps(document)

    by_hand = f"without {'.'.join(path)}" if value is None else f"{'.'.join(path)} = {value}"
    _edit(file, change, lambda found: _with_value(found, path, value), by_hand=by_hand)


def _with_value(data: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Return `data` with this value, or without it if `value` is None."""
    first, *rest = path
    if rest:
        return {**data, first: _with_value(data.get(first, {}), rest, value)}
    others = {key: item for key, item in data.items() if key != first}
    return others if value is None else {**others, first: value}


def add_table(file: Path, path: Sequence[str], values: Mapping[str, object]) -> None:
    """Add the table `path` with `values` at the end of the file."""
    nested: dict[str, Any] = {path[-1]: dict(values)}
    for name in reversed(path[:-1]):
        nested = {name: nested}
    table = tomlkit.dumps(nested)
    _edit(
        file,
        lambda text: f"{text.rstrip()}\n\n{table}" if text.strip() else table,
        lambda data: _with_table(data, path, dict(values)),
        by_hand=table,
    )


def remove_table(file: Path, path: Sequence[str]) -> None:
    """Remove the table `path` and the tables below it. Comments before the next table stay."""

    def change(text: str) -> str:
        document = tomlkit.parse(text)
        above: Any = document
        for name in path[:-1]:
            above = above[name]
        del above[path[-1]]
        before, after = text.split("\n"), tomlkit.dumps(document).split("\n")
        start = _count_equal(before, after)
        same = _count_equal(before[start:][::-1], after[start:][::-1])
        end = len(before) - same
        # tomlkit assigns the comments before a table to the previous table.
        kept = end
        while kept > start and before[kept - 1].lstrip().startswith("#"):
            kept -= 1
        return "\n".join([*after[: len(after) - same], *before[kept:]]).rstrip() + "\n"

    _edit(file, change, lambda data: _with_table(data, path, None), by_hand=f"without [{'.'.join(path)}]")


def write_toml(file: Path, data: Mapping[str, Any]) -> None:
    """Write `data` to a new file, readable only by the user."""
    write_user_file(file, tomlkit.dumps(data))


def write_user_file(file: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file atomically. Raise `ConfigError` if that fails."""
    try:
        write_file_whole(file, text, mode=mode)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}.", file=_display_path(file)) from None


def _edit(
    file: Path,
    change: Callable[[str], str],
    expected: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *,
    by_hand: str,
) -> None:
    """Write the changed text if it parses to `expected(data)`. Raise `ConfigError`, with `by_hand` in its hint, if
    not."""
    text, data = read_toml(file)
    try:
        changed = change(text)
        is_right = _without_empty(tomllib.loads(changed)) == _without_empty(expected(data))
    except (TOMLKitError, tomllib.TOMLDecodeError, KeyError):
        changed, is_right = "", False
    if not is_right:
        raise ConfigError(_NO_SAFE_EDIT, file=_display_path(file), hint=f"Edit the file: {by_hand}")
    write_user_file(file, changed)


def _count_equal(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of equal lines at the start."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def _with_table(data: Mapping[str, Any], path: Sequence[str], value: dict[str, Any] | None) -> dict[str, Any]:
    """Return `data` with this table, or without it if `value` is None."""
    first, *rest = path
    below = data.get(first, {})
    table = cast("dict[str, Any]", below) if isinstance(below, dict) else {}
    made = _with_table(table, rest, value) if rest else value
    others = {key: item for key, item in data.items() if key != first}
    return others if made is None else {**others, first: made}


def _without_empty(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` without empty tables, which may or may not have a header."""
    kept = {
        key: _without_empty(cast("dict[str, Any]", item)) if isinstance(item, dict) else item
        for key, item in data.items()
    }
    return {key: item for key, item in kept.items() if item != {}}


def _display_path(file: Path) -> str:
    return display_path(file, Path.cwd())
