"""AnswerText: Markdown that grows. Deltas are collected and drawn a few times a second."""

from __future__ import annotations

import asyncio

from textual.widgets import Markdown

from loom.content.terminal_safe import safe_text


class AnswerText(Markdown):
    DEFAULT_CSS = """
    AnswerText { height: auto; }
    AnswerText MarkdownH1 { content-align: left middle; text-style: bold underline; color: $primary; margin: 1 0 0 0; }
    AnswerText MarkdownH2 { text-style: bold; color: $primary; margin: 1 0 0 0; }
    AnswerText MarkdownH3 { text-style: bold; color: $foreground; margin: 1 0 0 0; }
    AnswerText MarkdownParagraph { margin: 0 0 1 0; }
    AnswerText MarkdownParagraph:last-child { margin: 0; }
    AnswerText MarkdownFence { margin: 0 0 1 0; max-height: 100; background: $surface; }
    AnswerText MarkdownBlockQuote { margin: 0 0 1 0; background: $surface; border-left: outer $line; }
    """

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(None, open_links=False)
        self._pending: list[str] = [text] if text else []
        self._drawing = asyncio.Lock()

    def on_mount(self) -> None:
        """Hand over what arrived until now: `Markdown` draws it next."""
        self._initial_markdown = safe_text(self.text)
        self._pending = []

    def add(self, text: str) -> None:
        self.text += text
        self._pending.append(text)

    async def flush(self) -> None:
        """Draw what was added since the last time."""
        async with self._drawing:  # pieces that are drawn side by side could change places
            if self._pending and self.is_mounted:
                text, self._pending = "".join(self._pending), []
                await self.append(safe_text(text))
