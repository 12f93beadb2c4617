"""Configuration files: how they are found, read, and how keys get line numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from loom.config import toml_reader, yaml_reader
from loom.config.schema_tree import KeyPath
from loom.errors import ConfigError

USER_NAMES: Final = ("loom.toml", "loom.yaml", "loom.yml")
PROJECT_NAMES: Final = (*USER_NAMES, *(f".loom/{name}" for name in USER_NAMES))
KEYS_NAME: Final = "keys.toml"
MAX_FILE_BYTES: Final = 100_000  # PyYAML takes a second for this size, and a project's file may be hostile


class ConfigFile(msgspec.Struct, frozen=True, dict=True):
    """A file that was read. `name` is its display path; `folder` is its folder, or the one above `.loom`."""

    file: Path
    name: str
    data: Mapping[str, object]
    text: str
    is_project: bool = False

    def __repr__(self) -> str:
        return f"ConfigFile({self.name!r})"

    @property
    def folder(self) -> Path:
        parent = self.file.parent
        return parent.parent if parent.name == ".loom" else parent

    @functools.cached_property
    def lines(self) -> Mapping[KeyPath, int]:
        """The line of each key; computed on first use, since most callers never need it."""
        placed = _format_of(self.file).lines(self.text)
        lines: dict[KeyPath, int] = {}
        for path, line in placed:
            for length in range(1, len(path) + 1):
                lines.setdefault(path[:length], line)
        return lines


def home_folder() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # no HOME and no entry for this user, as in some containers
        return None


def display_path(file: Path, cwd: Path) -> str:
    """Return a display path: relative to the working directory, else to the home folder, else absolute."""
    home = home_folder()
    if file.is_relative_to(cwd):
        return str(file.relative_to(cwd))
    if home is not None and file.is_relative_to(home):
        return f"~/{file.relative_to(home)}"
    return str(file)


def find_project_file(cwd: Path) -> Path | None:
    """Return the nearest project file from `cwd` up to the repository's root, else the home folder, else in `cwd`."""
    for folder in folders_upwards(cwd):
        if found := pick_file(folder, PROJECT_NAMES, cwd):
            return found
    return None


def folders_upwards(cwd: Path) -> list[Path]:
    """Return the folders of a project from `cwd` up to the root of its repository, else up to the home folder, else
    only `cwd`."""
    home = home_folder()
    passed: list[Path] = []
    for folder in (cwd, *cwd.parents):
        passed.append(folder)
        if folder == home or (folder / ".git").exists():
            return passed
    return [cwd]


def pick_file(folder: Path, names: tuple[str, ...], cwd: Path) -> Path | None:
    """Return the file that exists. Raise `ConfigError` if two exist, since their order would be unclear, or if one is
    no file."""
    try:
        found = [file for name in names if (file := folder / name).exists() or file.is_symlink()]
        others = [file for file in found if not file.is_file()]
    except PermissionError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=display_path(folder, cwd)) from None
    for file in others:
        what = "is a link to a file that does not exist." if not file.exists() else "is not a file."
        raise ConfigError(what, file=display_path(file, cwd), hint="Remove it, or put a file in its place.")
    if len(found) > 1:
        both = " and ".join(display_path(file, cwd) for file in found[:2])
        raise ConfigError(f"{both} both exist; only one can be used.", hint="Keep one and delete the other.")
    return found[0] if found else None


def _format_of(file: Path) -> ModuleType:
    return toml_reader if file.suffix == ".toml" else yaml_reader


def read_document(file: Path, cwd: Path, *, is_project: bool = False) -> ConfigFile:
    name = display_path(file, cwd)
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=name) from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"is over {MAX_FILE_BYTES} bytes.", file=name)
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("this is not UTF-8 text.", file=name, key=f"line {line}") from None
    try:
        data = _format_of(file).parse(text, name)
    except RecursionError:
        raise ConfigError("is nested too deeply.", file=name) from None
    return ConfigFile(file, name, data, text, is_project)
