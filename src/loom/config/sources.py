"""Configuration files: where they are looked for, and how each becomes plain data whose keys have line numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from loom.config import toml_text, yaml_text
from loom.config.shape import KeyPath
from loom.errors import ConfigError

USER_NAMES: Final = ("loom.toml", "loom.yaml", "loom.yml")
PROJECT_NAMES: Final = (*USER_NAMES, *(f".loom/{name}" for name in USER_NAMES))
KEYS_NAME: Final = "keys.toml"
MAX_FILE_BYTES: Final = 100_000  # PyYAML takes a second for it, and the file may be a stranger's


class Document(msgspec.Struct, frozen=True, dict=True):
    """One file, read. `name` is how people are told about it; `folder` is the project's (above `.loom`)."""

    file: Path
    name: str
    data: Mapping[str, object]
    text: str
    is_project: bool = False

    def __repr__(self) -> str:
        return f"Document({self.name!r})"

    @property
    def folder(self) -> Path:
        parent = self.file.parent
        return parent.parent if parent.name == ".loom" else parent

    @functools.cached_property
    def lines(self) -> Mapping[KeyPath, int]:
        """The line on which each key stands; found when somebody asks, since most readers never do."""
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


def shown(file: Path, cwd: Path) -> str:
    """A path for people: from the working directory, else from the home folder, else whole."""
    home = home_folder()
    if file.is_relative_to(cwd):
        return str(file.relative_to(cwd))
    if home is not None and file.is_relative_to(home):
        return f"~/{file.relative_to(home)}"
    return str(file)


def find_project_file(cwd: Path) -> Path | None:
    """The nearest one from `cwd` upwards: to the repository's root, else to the home folder, else only in `cwd`."""
    for folder in _upwards(cwd):
        if found := pick_file(folder, PROJECT_NAMES, cwd):
            return found
    return None


def _upwards(cwd: Path) -> list[Path]:
    home = home_folder()
    passed: list[Path] = []
    for folder in (cwd, *cwd.parents):
        passed.append(folder)
        if folder == home or (folder / ".git").exists():
            return passed
    return [cwd]


def pick_file(folder: Path, names: tuple[str, ...], cwd: Path) -> Path | None:
    """The one of these files that exists; two are one too many, since neither could be seen to win."""
    try:
        found = [folder / name for name in names if (folder / name).is_file()]
    except PermissionError as error:
        raise ConfigError(f"cannot be looked into: {error.strerror}.", file=shown(folder, cwd)) from None
    if len(found) > 1:
        both = " and ".join(shown(file, cwd) for file in found[:2])
        raise ConfigError(f"{both} are both there, and only one can count.", hint="Keep one and delete the other.")
    return found[0] if found else None


def _format_of(file: Path) -> ModuleType:
    return toml_text if file.suffix == ".toml" else yaml_text


def read_document(file: Path, cwd: Path, *, is_project: bool = False) -> Document:
    name = shown(file, cwd)
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=name) from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"is over {MAX_FILE_BYTES} bytes, which no configuration needs.", file=name)
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("this is not UTF-8 text.", file=name, key=f"line {line}") from None
    try:
        data = _format_of(file).parse(text, name)
    except RecursionError:
        raise ConfigError("is nested too deeply to be a configuration.", file=name) from None
    return Document(file, name, data, text, is_project)
