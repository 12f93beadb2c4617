"""The terminal: what it can show, and text that cannot harm it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from loom.errors import LoomError

GLYPHS: Final = {"full": "●", "low": "◐", "pages": "▤", "text": "○", "omitted": "✕"}
"""The five renditions, the same in every face."""

_HARMFUL: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t\r"},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}"),
    0x0D: None,
}
"""Escapes become pictures of themselves; a carriage return, which could overwrite what was read, goes."""

_INVISIBLE: Final = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]")


def harmless(text: str) -> str:
    """Model output and file names for a terminal: nothing in it moves the cursor, sets a title or answers a query."""
    return text.translate(_HARMFUL)


def one_line(text: str, width: int = 72) -> str:
    """The beginning of a text for a list: harmless, on one line, no invisible characters."""
    return clipped(" ".join(text.split()), width)


def clipped(line: str, width: int) -> str:
    """A line that is made already, cut to its column."""
    line = _INVISIBLE.sub("", harmless(line))
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def is_plain(environ: Mapping[str, str] | None = None) -> bool:
    """`LOOM_PLAIN=1`: for screen readers; no colours, boxes or pictures."""
    environ = os.environ if environ is None else environ
    return environ.get("LOOM_PLAIN", "") not in ("", "0")


def has_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR") or is_plain(environ) or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 120))


class Ink:
    """Colours for one stream, or none. Never the only carrier of a meaning."""

    def __init__(self, stream: TextIO) -> None:
        self._on = has_colour(stream)

    def dim(self, text: str) -> str:
        return self._wrapped(text, "2", "22")

    def bold(self, text: str) -> str:
        return self._wrapped(text, "1", "22")

    def red(self, text: str) -> str:
        return self._wrapped(text, "31", "39")

    def _wrapped(self, text: str, on: str, off: str) -> str:
        return f"\x1b[{on}m{text}\x1b[{off}m" if self._on and text else text


def say(text: str) -> None:
    """One sentence to the person, beside the output."""
    sys.stderr.write(f"loom: {harmless(text)}\n")
    sys.stderr.flush()


def sentence(error: LoomError) -> str:
    """What happened, and the next step."""
    message = error.message.rstrip()
    stop = "" if not error.hint or message.endswith((".", "!", "?", "…")) else "."
    return f"{message}{stop} {error.hint}".rstrip()


def tokens_label(count: int) -> str:
    """950, 5.4k, 31k, 1.2M"""
    if count < 1_000:
        return str(count)
    value, unit = (count / 1_000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"


def money_label(usd: float | None) -> str:
    """`$?` where the price is not known, rather than a wrong nought."""
    if usd is None:
        return "$?"
    if usd == 0:
        return "$0"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3f}" if usd >= 0.001 else "<$0.001"
