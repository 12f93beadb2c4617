"""The terminal: safe text, colors, widths, labels and the progress line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, TextIO

from loom.content.labels import money_label, tokens_label
from loom.content.terminal_safe import safe_text
from loom.errors import LoomError, Unreadable

__all__ = [
    "GLYPHS",
    "PLAIN",
    "Colors",
    "clip",
    "has_color",
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
"""The signs of the five renditions, the same in every interface."""

_SAVE_AGAIN: Final = "Save or export it again, and attach the new file."
_INVISIBLE: Final = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]")


def one_line(text: str, width: int = 72) -> str:
    """Return the beginning of a text for a list: terminal-safe, on one line, without invisible characters."""
    return clip(" ".join(text.split()), width)


def clip(line: str, width: int) -> str:
    """Return a line, terminal-safe and truncated to `width`."""
    line = _INVISIBLE.sub("", safe_text(line))
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def is_plain(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether `LOOM_PLAIN=1` is set: no colors, boxes or images, for screen readers."""
    environ = os.environ if environ is None else environ
    return environ.get(PLAIN, "") not in ("", "0")


def has_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR") or is_plain(environ) or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 120))


class Colors:
    """Colors for one stream, or none. No meaning is expressed by color alone."""

    def __init__(self, stream: TextIO) -> None:
        self._on = has_color(stream)

    def dim(self, text: str) -> str:
        return self._wrap(text, "2", "22")

    def bold(self, text: str) -> str:
        return self._wrap(text, "1", "22")

    def red(self, text: str) -> str:
        return self._wrap(text, "31", "39")

    def _wrap(self, text: str, on: str, off: str) -> str:
        return f"\x1b[{on}m{text}\x1b[{off}m" if self._on and text else text


def print_line(text: str) -> None:
    """Print a sentence to stderr; on a terminal, lines are broken between words."""
    print_notice(f"loom: {safe_text(text)}", indent=6)


def print_notice(text: str, *, indent: int = 1) -> None:
    """Print a terminal-safe line to stderr; on a terminal, continuation lines are indented."""
    if sys.stderr.isatty() and "\n" not in text:
        margin = " " * indent
        text = textwrap.fill(text, width(), subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def quiet_keys(*, on: bool = True) -> Generator[None]:
    """Turn echo off while an answer is written, so that typed keys do not appear in it; the next prompt reads them.
    With `on` False, turn echo on again for a prompt in between."""
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
    """Return the message and the hint of an error."""
    message = error.message.rstrip()
    hint = error.hint or (_SAVE_AGAIN if isinstance(error, Unreadable) else "")
    stop = "" if not hint or message.endswith((".", "!", "?", "…")) else "."
    return f"{message}{stop} {hint}".rstrip()


_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PATIENCE_SECONDS: Final = 0.4
_FRAME_SECONDS: Final = 0.12
_SENTENCE_AFTER_SECONDS: Final = 3.0
_SENTENCE_EVERY_SECONDS: Final = 15.0
_ERASED: Final = "\r\x1b[K"


class ProgressLine:
    """A line that shows the current activity. Call `clear` before anything else is written. An async context
    manager."""

    def __init__(self, *, plain: bool = False) -> None:
        self._mode: Literal["line", "sentences", "off"] = "off"
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._mode = "sentences" if plain or not has_color(sys.stderr) else "line"
        self._what = ""
        self._since = 0.0
        self._told_at = 0.0
        self._is_drawn = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ProgressLine:
        if self._mode != "off":
            self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.clear()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def show(self, what: str) -> None:
        """Show an activity. Repeating the same one does not restart its clock."""
        if what != self._what:
            self.step_aside()
            self._what = what
            self._since = self._told_at = time.monotonic()

    def clear(self) -> None:
        self.step_aside()
        self._what = ""

    def step_aside(self) -> None:
        """Erase the line, so that another one can be written."""
        if self._is_drawn:
            sys.stderr.write(_ERASED)
            sys.stderr.flush()
            self._is_drawn = False

    async def _tick(self) -> None:
        frame = 0
        while True:
            await asyncio.sleep(_FRAME_SECONDS)
            frame += 1
            passed = time.monotonic() - self._since
            if not self._what or passed < _PATIENCE_SECONDS:
                continue
            if self._mode == "line":
                self._draw(frame, passed)
                continue
            pause = _SENTENCE_AFTER_SECONDS if passed < _SENTENCE_EVERY_SECONDS / 3 else _SENTENCE_EVERY_SECONDS
            if passed > _SENTENCE_AFTER_SECONDS and time.monotonic() - self._told_at > pause:
                self._told_at = time.monotonic()
                print_line(f"still {self._what}, {passed:.0f} s")

    def _draw(self, frame: int, passed: float) -> None:
        seconds = f" {passed:.0f} s" if passed >= 1 else ""
        line = clip(f"{_FRAMES[frame % len(_FRAMES)]} {self._what}…{seconds}", width() - 1)
        sys.stderr.write(f"{_ERASED}\x1b[2m{line}\x1b[22m")
        sys.stderr.flush()
        self._is_drawn = True
