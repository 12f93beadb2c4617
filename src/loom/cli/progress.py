"""What is being done while nothing can be shown yet: one line on stderr that is erased again.

On a terminal it appears after a moment and counts the seconds; with --plain it is a sentence now and then, which a
screen reader reads once; in a pipe there is nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import Final, Literal

from loom.cli.terminal import clip, has_colour, print_line, width

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PATIENCE_SECONDS: Final = 0.4
_FRAME_SECONDS: Final = 0.12
_SENTENCE_AFTER_SECONDS: Final = 3.0
_SENTENCE_EVERY_SECONDS: Final = 15.0
_ERASED: Final = "\r\x1b[K"


class ProgressLine:
    """`show` says what is being done now; `clear` before anything else is written. Use it in an `async with`."""

    def __init__(self, *, plain: bool = False) -> None:
        self._mode: Literal["line", "sentences", "off"] = "off"
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._mode = "sentences" if plain or not has_colour(sys.stderr) else "line"
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
        """The clock goes on while it is the same thing."""
        if what != self._what:
            self.step_aside()
            self._what = what
            self._since = self._told_at = time.monotonic()

    def clear(self) -> None:
        self.step_aside()
        self._what = ""

    def step_aside(self) -> None:
        """Make room for a line of somebody else's."""
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
            elif passed > _SENTENCE_AFTER_SECONDS and time.monotonic() - self._told_at > self._pause(passed):
                self._told_at = time.monotonic()
                print_line(f"still {self._what}, {passed:.0f} s")

    def _pause(self, passed: float) -> float:
        return _SENTENCE_AFTER_SECONDS if passed < _SENTENCE_EVERY_SECONDS / 3 else _SENTENCE_EVERY_SECONDS

    def _draw(self, frame: int, passed: float) -> None:
        seconds = f" {passed:.0f} s" if passed >= 1 else ""
        line = clip(f"{_FRAMES[frame % len(_FRAMES)]} {self._what}…{seconds}", width() - 1)
        sys.stderr.write(f"{_ERASED}\x1b[2m{line}\x1b[22m")
        sys.stderr.flush()
        self._is_drawn = True
