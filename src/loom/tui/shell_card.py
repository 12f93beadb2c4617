"""ShellCard: a command that the user ran with `!`, and its output."""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from loom.tui.fold import Foldable
from loom.tui.glyphs import Glyphs
from loom.tui.text_content import one_line, plain_text

_MAX_LINES: Final = 200


class ShellCard(Foldable):
    DEFAULT_CSS = "ShellCard .output { height: auto; color: $dim; border-left: wide $line; padding: 0 0 0 1; }"

    def __init__(self, glyphs: Glyphs, command: str) -> None:
        super().__init__(glyphs, is_open=True)
        self._command = command
        self._output: str | None = None
        self._code = 0

    def finish(self, output: str, code: int) -> None:
        self._output, self._code = output, code
        self.refresh_title()
        self.refresh_body()

    def title(self) -> Content:
        code = f"  exit {self._code}" if self._code else ""
        running = "  running" if self._output is None else ""
        return Content.styled("$ ", "bold $primary") + plain_text(one_line(self._command, 80) + code + running)

    def body(self) -> list[Widget]:
        lines = (self._output or "").rstrip().split("\n")
        cut = [f"… {len(lines) - _MAX_LINES} lines"] if len(lines) > _MAX_LINES else []
        return [Static(plain_text("\n".join([*lines[:_MAX_LINES], *cut])), classes="output")]
