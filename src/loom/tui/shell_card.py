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
_MAX_LINE_CHARS: Final = 2_000


class ShellCard(Foldable):
    DEFAULT_CSS = "ShellCard .output { height: auto; color: $dim; border-left: wide $line; padding: 0 0 0 1; }"

    def __init__(self, glyphs: Glyphs, command: str) -> None:
        super().__init__(glyphs, is_open=True)
        self._command = command
        self._output: str | None = None
        self._code: int | None = 0

    def finish(self, output: str, code: int | None) -> None:
        """Show the output; `code` is None if the user stopped the command."""
        self._output, self._code = output, code
        self.refresh_title()
        self.refresh_body()

    def title(self) -> Content:
        code = "  stopped" if self._code is None else f"  exit {self._code}" if self._code else ""
        running = "  running" if self._output is None else ""
        return Content.styled("$ ", "bold $primary") + plain_text(one_line(self._command, 80) + code + running)

    def body(self) -> list[Widget]:
        lines = [line[:_MAX_LINE_CHARS] for line in (self._output or "").rstrip().split("\n")]
        if (left_out := len(lines) - _MAX_LINES) > 0:
            lines[_MAX_LINES // 2 : -_MAX_LINES // 2] = [f"… {left_out} lines …"]
        return [Static(plain_text("\n".join(lines)), classes="output")]
