"""Following `{env:NAME}` and `{file:PATH}`, when the value is needed and not before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from loom.config.entries import Entry
from loom.config.secret import REFERENCE
from loom.errors import ConfigError

MAX_BYTES: Final = 1_000_000
PROMPT_SUFFIXES: Final = (".md", ".txt")
_FILE_ONLY = re.compile(r"\{file:([^{}]+)\}")


def follow(written: str, entry: Entry, environ: Mapping[str, str]) -> str:
    """`written` with every reference replaced by what it stands for."""

    def replace(found: re.Match[str]) -> str:
        kind, name = found.groups()
        return _variable(name, entry, environ) if kind == "env" else _read(name, entry).strip("\r\n")

    return REFERENCE.sub(replace, written)


def prompt_text(written: str, entry: Entry) -> str:
    """A system prompt: the text itself, or that of the one file that it names."""
    found = _FILE_ONLY.fullmatch(written.strip())
    return _read(found[1], entry) if found else written


def leaves_folder(written: object, entry: Entry) -> bool:
    """Whether a prompt names a file that the project has no business to show."""
    found = _FILE_ONLY.fullmatch(written.strip()) if isinstance(written, str) else None
    return found is not None and not _is_own_prompt(_place(found[1], entry), entry)


def _is_own_prompt(file: Path, entry: Entry) -> bool:
    document = entry.source.document
    try:
        real = file.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself leads nowhere
        return False
    return document is not None and real.is_relative_to(document.folder.resolve()) and real.suffix in PROMPT_SUFFIXES


def _place(name: str, entry: Entry) -> Path:
    if "\0" in name:
        raise _fault(entry, "a path in {file:…} cannot hold a NUL character.")
    try:
        return entry.source.folder / Path(name.strip()).expanduser()
    except RuntimeError:
        raise _fault(entry, f"the home folder in {{file:{name}}} is not known.") from None


def _variable(name: str, entry: Entry, environ: Mapping[str, str]) -> str:
    value = environ.get(name.strip(), "")
    if not value:
        raise _fault(entry, f"the environment variable {name.strip()} is not set.")
    return value


def _read(name: str, entry: Entry) -> str:
    file = _place(name, entry)
    if entry.source.confined and not _is_own_prompt(file, entry):
        raise _fault(entry, f"{{file:{name}}} leads out of a folder that is not trusted.")
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise _fault(entry, f"{{file:{name}}} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise _fault(entry, f"{{file:{name}}} is not UTF-8 text.") from None
    if len(raw) > MAX_BYTES:
        raise _fault(entry, f"{{file:{name}}} is over {MAX_BYTES} bytes.")
    if not text.strip():
        raise _fault(entry, f"{{file:{name}}} is empty.")
    return text


def _fault(entry: Entry, what: str) -> ConfigError:
    return entry.source.fault(entry.path, what)
