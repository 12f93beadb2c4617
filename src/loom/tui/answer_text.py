"""AnswerText: Markdown that grows. Deltas are collected and rendered a few times a second."""

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
        """Pass on the text that has arrived so far; `Markdown` renders it next."""
        self._initial_markdown = safe_text(self.text)
        self._pending = []

    def add(self, text: str) -> None:
        self.text += text
        self._pending.append(text)

    async def flush(self) -> None:
        """Render the text that was added since the last call."""
        async with self._drawing:  # concurrent updates could render in the wrong order
            if self._pending and self.is_mounted:
                text, self._pending = "".join(self._pending), []
                await self.append(safe_text(text))
