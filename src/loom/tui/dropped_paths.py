"""Paths that a terminal pastes when a file is dropped on it. The format depends on the terminal."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_MAX_CHARACTERS: Final = 16_384
_MAX_PATH: Final = 4_096
_QUOTES: Final = ("'", '"')
_PATH_STARTS: Final = ("/", "~/", "./", "../", "file://")


def parse_dropped_paths(text: str) -> tuple[Path, ...]:
    """Return the files that a pasted text consists of; empty if it contains anything else.

    A whole line is tried first, because some terminals escape nothing; then shell words with quotes and escapes. Only
    text in the form of a path counts: the word `README` is no path.
    """
    text = text.strip()
    if not text or len(text) > _MAX_CHARACTERS or "\0" in text:
        return ()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [path for line in lines if (path := _existing_file(line)) is not None]
    if len(found) == len(lines):
        return tuple(found)
    paths = [path for line in lines for path in _shell_words(line)]
    return tuple(path for path in paths if path is not None) if None not in paths else ()


def _shell_words(line: str) -> list[Path | None]:
    try:
        words = shlex.split(line)
    except ValueError:  # an apostrophe in a sentence
        return [None]
    return [_existing_file(word) for word in words]


def _existing_file(written: str) -> Path | None:
    if len(written) > 1 and written[0] in _QUOTES and written[0] == written[-1]:
        written = written[1:-1]
    if not written.startswith(_PATH_STARTS) or len(written) > _MAX_PATH:
        return None
    for name in dict.fromkeys((_path_of_url(written), written.replace("\\ ", " "))):
        try:
            path = Path(name).expanduser()
            if path.is_file():
                return path
        except (OSError, RuntimeError, ValueError):  # too long for a file name, or no home folder
            continue
    return None


def _path_of_url(written: str) -> str:
    """Return the path of a `file://` URL of this machine; other text unchanged."""
    if not written.startswith("file://"):
        return written
    try:
        url = urlsplit(written)
    except ValueError:
        return written
    if url.netloc not in ("", "localhost", socket.gethostname()):
        return written
    return unquote(url.path)
