"""Front matter: the YAML between two lines `---` at the beginning of a Markdown file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from loom.config import yaml_reader
from loom.content.blocks import clean_text
from loom.errors import ConfigError

MAX_FILE_BYTES: Final = 200_000
_KEY: Final = re.compile(r"^(?=[\w-]+:)", re.MULTILINE)
_FACT: Final = re.compile(r"(?P<key>[\w-]+):[ \t]*(?P<value>.*)", re.DOTALL)


def read_front_matter(file: Path) -> tuple[dict[str, Any], str]:
    """Return the fields at the beginning of a file, and the text after them; nothing if it cannot be read."""
    try:
        with file.open("rb") as stream:
            text = clean_text(stream.read(MAX_FILE_BYTES).decode("utf-8-sig", "replace"))
    except OSError:
        return {}, ""
    if not text.startswith("---"):
        return {}, text
    head, mark, rest = text.removeprefix("---").partition("\n---")
    if not mark:
        return {}, text
    return _fields(head, file.name), rest.lstrip("-").lstrip("\n")


def _fields(head: str, name: str) -> dict[str, Any]:
    """Return the fields. If the whole is not YAML, read each field alone, and one that is not YAML as text: it was
    written for another program, whose reader accepts `description: Use this: always`."""
    try:
        return yaml_reader.parse(head, name)
    except ConfigError:
        fields: dict[str, Any] = {}
        for part in _KEY.split(head):
            found = _FACT.match(part)
            if found is None:
                continue
            try:
                fields |= yaml_reader.parse(part, name)
            except ConfigError:
                fields[found["key"]] = found["value"].strip()
        return fields
