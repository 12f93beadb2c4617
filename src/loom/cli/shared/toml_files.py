"""Changes to a TOML file that a person wrote: one value or one table, and every comment stays where it is.

A change is made in the text and then parsed: unless exactly the wanted value differs, the file is left alone and the
person is told what to write.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from loom.config import user_folder
from loom.config.files import USER_NAMES, display_path, pick_file
from loom.errors import ConfigError

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"\s*\[")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_value(value: object) -> str:
    """A string, number, truth value, list or table on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return f'"{"".join(_escape(character) for character in value)}"'
        case Mapping():
            table = cast("Mapping[str, object]", value)
            return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in table.items()) + " }"
        case Sequence():
            return f"[{', '.join(toml_value(item) for item in cast('Sequence[object]', value))}]"
        case _:
            raise ConfigError(f"a {type(value).__name__} cannot be written as TOML.")


def toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() or ord(character) > 0xFF else f"\\u{ord(character):04x}"


def user_config_file() -> Path:
    """The user's own loom.toml, there or not. One in YAML is left to its owner."""
    folder = user_folder(os.environ, Path.cwd())
    found = pick_file(folder, USER_NAMES, Path.cwd())
    if found is not None and found.suffix != ".toml":
        raise ConfigError(
            "is YAML, which Loom does not edit.", file=_display_path(found), hint="Edit it: see docs/config.md."
        )
    return found or folder / USER_NAMES[0]


def read_toml(file: Path) -> tuple[str, dict[str, Any]]:
    """The text and what it says; nothing where there is no file."""
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
    """`key = "value"` above all tables."""
    text, data = read_toml(file)
    line = f"{toml_key(key)} = {toml_value(value)}"
    lines = text.split("\n")
    first_table = next((at for at, found in enumerate(lines) if _HEADER.match(found)), len(lines))
    place = _statement(lines[:first_table], key)
    if place is None:
        at = _after_opening_comment(lines[:first_table])
        lines[at:at] = [line] if at < len(lines) and not lines[at].strip() else [line, ""]
    else:
        lines[slice(*place)] = [line]
    _keep(file, "\n".join(lines), {**data, key: value}, by_hand=line)


def add_table(file: Path, path: Sequence[str], values: Mapping[str, object]) -> None:
    """`[a.b.c]` with these values, at the end of the file."""
    text, data = read_toml(file)
    header = f"[{'.'.join(toml_key(part) for part in path)}]"
    table = "\n".join([header, *(f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items())])
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    wanted = _with(data, path, dict(values))
    _keep(file, f"{text}{gap}{table}\n", wanted, by_hand=table)


def remove_table(file: Path, path: Sequence[str]) -> None:
    """Without this table and the tables below it; comments in front of the next one stay."""
    text, data = read_toml(file)
    lines = text.split("\n")
    headers = [at for at, line in enumerate(lines) if _HEADER.match(line)]
    kept: list[str] = []
    at = 0
    for start in headers:
        end = next((other for other in headers if other > start), len(lines))
        if _path_of(lines[start])[: len(path)] != list(path):
            continue
        while end < len(lines) and end > start + 1 and lines[end - 1].lstrip().startswith("#"):
            end -= 1
        kept += lines[at:start]
        at = end
    rest = "\n".join([*kept, *lines[at:]])
    header = ".".join(toml_key(part) for part in path)
    _keep(file, rest, _with(data, path, None), by_hand=f"without [{header}]")


def write_file_whole(file: Path, text: str, *, mode: int = 0o600) -> None:
    """All of it or none; a link stays a link, and who may read it stays so. `mode` is for a new file."""
    target = file.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept_mode = target.stat().st_mode & 0o777 if target.exists() else mode
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".loom-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            Path(name).chmod(kept_mode)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}.", file=_display_path(file)) from None


def _keep(file: Path, text: str, wanted: Mapping[str, Any], *, by_hand: str) -> None:
    try:
        is_right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise ConfigError(
            "cannot be edited safely; the file was not changed.",
            file=_display_path(file),
            hint=f"Edit it by hand: {by_hand}",
        )
    write_file_whole(file, text)


def _statement(lines: Sequence[str], key: str) -> tuple[int, int] | None:
    """From where to where `key = …` stands; a value may go over several lines."""
    for start, line in enumerate(lines):
        if not re.match(rf"\s*(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')\s*=", line):
            continue
        for end in range(start + 1, len(lines) + 1):
            try:
                tomllib.loads("\n".join(lines[start:end]))
            except tomllib.TOMLDecodeError:
                continue
            return start, end
    return None


def _after_opening_comment(lines: Sequence[str]) -> int:
    """Behind the comment that a file begins with, if a blank line ends it."""
    at = next((number for number, line in enumerate(lines) if not line.lstrip().startswith("#")), 0)
    return at + 1 if at and at < len(lines) and not lines[at].strip() else 0


def _path_of(header: str) -> list[str]:
    try:
        found: Any = tomllib.loads(header)
    except tomllib.TOMLDecodeError:
        return []
    path: list[str] = []
    while isinstance(found, dict) and len(cast("dict[str, Any]", found)) == 1:
        ((key, found),) = cast("dict[str, Any]", found).items()
        path.append(key)
    return path


def _with(data: Mapping[str, Any], path: Sequence[str], value: dict[str, Any] | None) -> dict[str, Any]:
    """The data with this table in it, or without it; tables that are left empty go, as their header does."""
    first, *rest = path
    below = data.get(first, {})
    table = cast("dict[str, Any]", below) if isinstance(below, dict) else {}
    made = _with(table, rest, value) if rest else value
    others = {key: item for key, item in data.items() if key != first}
    return others if made is None or (value is None and not made) else {**others, first: made}


def _display_path(file: Path) -> str:
    return display_path(file, Path.cwd())
