"""Resolve `{env:NAME}` and `{file:PATH}` when the value is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from loom.config.layer_values import LayerValue
from loom.config.secret import REFERENCE
from loom.errors import ConfigError

MAX_BYTES: Final = 1_000_000
PROMPT_SUFFIXES: Final = (".md", ".txt")
_FILE_ONLY = re.compile(r"\{file:([^{}]+)\}")


def resolve_reference(written: str, entry: LayerValue, environ: Mapping[str, str]) -> str:
    """Return `written` with every reference replaced by its value. Raise `ConfigError` if one cannot be resolved."""

    def replace(found: re.Match[str]) -> str:
        kind, name = found.groups()
        return _variable(name, entry, environ) if kind == "env" else _read(name, entry).strip("\r\n")

    return REFERENCE.sub(replace, written)


def prompt_text(written: str, entry: LayerValue) -> str:
    """Return a system prompt: the text itself, or the text of the file that it names."""
    found = _FILE_ONLY.fullmatch(written.strip())
    return _read(found[1], entry) if found else written


def leaves_folder(written: object, entry: LayerValue) -> bool:
    """Return whether a prompt names a file that an untrusted project may not read."""
    found = _FILE_ONLY.fullmatch(written.strip()) if isinstance(written, str) else None
    return found is not None and not _is_own_prompt(_place(found[1], entry), entry)


def _is_own_prompt(file: Path, entry: LayerValue) -> bool:
    document = entry.source.document
    try:
        real = file.resolve()
    except (OSError, RuntimeError):  # a circular link
        return False
    return document is not None and real.is_relative_to(document.folder.resolve()) and real.suffix in PROMPT_SUFFIXES


def _place(name: str, entry: LayerValue) -> Path:
    if "\0" in name:
        raise _fault(entry, "a path in {file:…} cannot contain a NUL character.")
    try:
        return entry.source.folder / Path(name.strip()).expanduser()
    except RuntimeError:
        raise _fault(entry, f"the home folder in {{file:{name}}} is unknown.") from None


def _variable(name: str, entry: LayerValue, environ: Mapping[str, str]) -> str:
    value = environ.get(name.strip(), "")
    if not value:
        raise _fault(entry, f"the environment variable {name.strip()} is not set.")
    return value


def _read(name: str, entry: LayerValue) -> str:
    file = _place(name, entry)
    if entry.source.confined and not _is_own_prompt(file, entry):
        raise _fault(entry, f"{{file:{name}}} is outside the project folder, which is not trusted.")
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


def _fault(entry: LayerValue, what: str) -> ConfigError:
    return entry.source.fault(entry.path, what)
