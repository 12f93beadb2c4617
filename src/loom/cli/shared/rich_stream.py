"""RichStream: text that Rich renders while it arrives. Finished blocks stay; the last one is rendered again until it is
finished."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live_render import LiveRender
from rich.markdown import Heading, Markdown
from rich.text import Text

from loom.cli.shared.terminal import safe_text

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class RichStream:
    """`feed` and `finish` return the output for the terminal. `draw` renders one block; without `is_live` a block is
    written once, when it is finished."""

    def __init__(self, draw: Callable[[str], RenderableType], width: int, *, is_live: bool = True) -> None:
        self._draw = draw
        self._is_live = is_live
        self._file = io.StringIO()
        size = shutil.get_terminal_size()
        self._console = Console(
            file=self._file, width=width or size.columns, height=size.lines, force_terminal=True, highlight=False
        )
        self._shown: LiveRender | None = None
        self._text = ""
        self._has_blocks = False

    def feed(self, text: str) -> str:
        self._text += safe_text(text)
        end = _finished_blocks(self._text)
        if end:
            self._keep(self._text[:end])
            self._text = self._text[end:]
        if self._is_live and self._text.strip():
            self._show()
        return self._take()

    def finish(self) -> str:
        if self._text.strip():
            self._keep(self._text)
        self._text, self._has_blocks = "", False
        return self._take()

    def _show(self) -> None:
        """Render the unfinished block over its previous state."""
        if self._shown is None:
            self._separate()
            self._shown = LiveRender(self._draw(self._text))
        else:
            self._console.print(self._shown.position_cursor(), end="")
            self._shown.set_renderable(self._draw(self._text))
        self._console.print(self._shown, end="")

    def _keep(self, text: str) -> None:
        """Render finished blocks, which are not changed any more."""
        if self._shown is None:
            self._separate()
        else:
            self._console.print(self._shown.position_cursor(), end="")
            self._shown = None
        with self._console.capture() as drawn:
            self._console.print(self._draw(text))
        lines = [line.rstrip(" ") for line in drawn.get().split("\n")]
        while lines and not _ESCAPE.sub("", lines[-1]).strip():
            lines.pop()
        while lines and not _ESCAPE.sub("", lines[0]).strip():
            lines.pop(0)
        self._file.write("\n".join(lines) + "\n")
        self._has_blocks = True

    def _separate(self) -> None:
        """Write an empty line between two blocks."""
        if self._has_blocks:
            self._file.write("\n")

    def _take(self) -> str:
        written = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return written


class _PlainHeading(Heading):
    """A heading at the left margin; Rich draws a box around headings of the first level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold")
        yield self.text


class _LineMarkdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _PlainHeading}  # noqa: RUF012  as in the base class


def draw_markdown(text: str) -> RenderableType:
    return _LineMarkdown(text, hyperlinks=False, code_theme="ansi_dark")


def draw_dim(text: str) -> RenderableType:
    return Text(text.strip("\n"), style="dim")


def _finished_blocks(text: str) -> int:
    """Return the offset of the last block, which may still grow; 0 if there is only one. A block begins after an empty
    line, outside of code, and without an indent that would make it part of a list item."""
    fence, end, at, was_empty = "", 0, 0, False
    for line in text.splitlines(keepends=True):
        is_whole = line.endswith("\n")
        if was_empty and not fence and line[:1].strip():
            end = at
        if found := _FENCE.match(line):
            mark = found[1]
            if not fence:
                fence = mark
            elif mark.startswith(fence) and is_whole and not line[found.end() :].strip():
                fence = ""
        was_empty = is_whole and not line.strip()
        at += len(line)
    return end
