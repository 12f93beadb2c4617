"""The terminal: what it can show, and text that cannot harm it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

from loom.content.labels import tokens_label
from loom.content.terminal_safe import safe_text
from loom.errors import LoomError, Unreadable

__all__ = [
    "GLYPHS",
    "PLAIN",
    "Colors",
    "clip",
    "has_colour",
    "is_plain",
    "money_label",
    "one_line",
    "print_line",
    "print_notice",
    "quiet_keys",
    "safe_text",
    "sentence",
    "tokens_label",
    "width",
]

PLAIN: Final = "LOOM_PLAIN"
GLYPHS: Final = {"full": "●", "low": "◐", "pages": "▤", "text": "○", "omitted": "✕"}
"""The five renditions, the same in every face."""

_SAVE_AGAIN: Final = "Save or export it again, and attach the new file."
_INVISIBLE: Final = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]")


def one_line(text: str, width: int = 72) -> str:
    """The beginning of a text for a list: harmless, on one line, no invisible characters."""
    return clip(" ".join(text.split()), width)


def clip(line: str, width: int) -> str:
    """A line that is made already, cut to its column."""
    line = _INVISIBLE.sub("", safe_text(line))
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def is_plain(environ: Mapping[str, str] | None = None) -> bool:
    """`LOOM_PLAIN=1`: for screen readers; no colours, boxes or pictures."""
    environ = os.environ if environ is None else environ
    return environ.get(PLAIN, "") not in ("", "0")


def has_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR") or is_plain(environ) or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 120))


class Colors:
    """Colours for one stream, or none. Never the only carrier of a meaning."""

    def __init__(self, stream: TextIO) -> None:
        self._on = has_colour(stream)

    def dim(self, text: str) -> str:
        return self._wrap(text, "2", "22")

    def bold(self, text: str) -> str:
        return self._wrap(text, "1", "22")

    def red(self, text: str) -> str:
        return self._wrap(text, "31", "39")

    def _wrap(self, text: str, on: str, off: str) -> str:
        return f"\x1b[{on}m{text}\x1b[{off}m" if self._on and text else text


def print_line(text: str) -> None:
    """One sentence to the person, beside the output; on a terminal its lines break between words."""
    print_notice(f"loom: {safe_text(text)}", indent=6)


def print_notice(text: str, *, indent: int = 1) -> None:
    """A line on stderr that is harmless already; the lines that it takes on a terminal are indented."""
    if sys.stderr.isatty() and "\n" not in text:
        margin = " " * indent
        text = textwrap.fill(text, width(), subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def quiet_keys(*, on: bool = True) -> Generator[None]:
    """What is typed while an answer is written waits unseen for the next prompt instead of standing in the answer.
    With `on` False it is seen again, for a question in between."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[3] = changed[3] & ~termios.ECHO if on else changed[3] | termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def sentence(error: LoomError) -> str:
    """What happened, and the next step."""
    message = error.message.rstrip()
    hint = error.hint or (_SAVE_AGAIN if isinstance(error, Unreadable) else "")
    stop = "" if not hint or message.endswith((".", "!", "?", "…")) else "."
    return f"{message}{stop} {hint}".rstrip()


def money_label(usd: float | None) -> str:
    """`$?` where the price is not known, rather than a wrong nought."""
    if usd is None:
        return "$?"
    if usd == 0:
        return "$0"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3f}" if usd >= 0.001 else "<$0.001"
