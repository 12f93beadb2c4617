"""The parts of a conversation: the user's message, thinking, text, notices, and the line below an answer."""

from __future__ import annotations

import time
from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock, VideoBlock, page_range
from loom.content.messages import Message, text_of
from loom.tui.fold import Foldable
from loom.tui.glyphs import Glyphs
from loom.tui.text_content import one_line, plain_text

_MAX_USER_LINES: Final = 60


class UserMessage(Vertical):
    """A message of the user, with its images and documents."""

    DEFAULT_CSS = """
    UserMessage { height: auto; margin: 1 0 0 0; padding: 0 1; background: $surface; border-left: outer $user; }
    UserMessage > .words { height: auto; }
    UserMessage > .who { color: $user; text-style: bold; height: auto; }
    UserMessage.-queued { opacity: 70%; }
    """

    def __init__(self, message: Message, media: list[Widget], *, node: str = "") -> None:
        super().__init__()
        self.node = node
        self.message = message
        self._media = media
        self._who = Static(plain_text("you"), classes="who")

    def compose(self) -> ComposeResult:
        yield self._who
        words = "\n\n".join(block.text for block in self.message.blocks if isinstance(block, TextBlock))
        if words.strip():
            lines = words.strip().split("\n")
            cut = f"\n… {len(lines) - _MAX_USER_LINES} more lines" if len(lines) > _MAX_USER_LINES else ""
            yield Static(plain_text("\n".join(lines[:_MAX_USER_LINES]) + cut), classes="words")
        yield from self._media


class DocumentLine(Static, can_focus=True):
    """`[PDF: report.pdf, pages 1–20 of 47]`; Enter or a click opens the viewer."""

    DEFAULT_CSS = """
    DocumentLine { height: auto; color: $secondary; }
    DocumentLine:focus { background: $panel; }
    """

    def __init__(self, block: DocumentBlock, glyphs: Glyphs) -> None:
        super().__init__(plain_text(f"{glyphs.document} {document_label(block)}  (Enter: view)"))
        self.block = block

    async def _on_key(self, event: object) -> None:
        key = getattr(event, "key", "")
        if key in ("enter", "space"):
            await self.run_action(f"screen.view_document('{self.block.media.digest}')")

    async def on_click(self) -> None:
        await self.run_action(f"screen.view_document('{self.block.media.digest}')")


class ThinkingFold(Foldable):
    """Thinking, folded: its level and the elapsed seconds while it lasts, then its duration."""

    DEFAULT_CSS = """
    ThinkingFold .thoughts { color: $dim; text-style: italic; height: auto; border-left: wide $line; padding: 0 0 0 1; }
    """

    def __init__(
        self, glyphs: Glyphs, text: str = "", *, is_live: bool = False, redacted: bool = False, level: str = ""
    ) -> None:
        super().__init__(glyphs)
        self._level = f" ({level})" if level else ""
        self._pieces = [text] if text else []
        self._is_live = is_live
        self._redacted = redacted
        self._began = time.monotonic()
        self._seconds: float | None = None

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        self._pieces.append(text)
        if self.is_open:
            self.refresh_body()

    def end(self) -> None:
        if self._is_live:
            self._is_live, self._seconds = False, time.monotonic() - self._began
            self.refresh_title()

    def tick(self) -> None:
        if self._is_live:
            self.refresh_title()

    def title(self) -> Content:
        if self._is_live:
            last = next((line for line in reversed(self.text.split("\n")) if line.strip()), "")
            seconds = f"Thinking{self._level} {time.monotonic() - self._began:.0f} s"
            return Content(seconds) + plain_text(f"  {one_line(last, 60)}" if last else "", "italic")
        if self._redacted:
            return Content("Thought (hidden by the provider)")
        took = "" if self._seconds is None else f" for {self._seconds:.0f} s"
        return Content(f"Thought{took}{self._level}")

    def body(self) -> list[Widget]:
        return [Static(plain_text(self.text.strip() or "(no text)"), classes="thoughts")]


class NoticeLine(Static):
    """A notice from Loom to the user."""

    DEFAULT_CSS = """
    NoticeLine { height: auto; color: $dim; padding: 0 1; }
    NoticeLine.-error { color: $error; border-left: outer $error; margin: 1 0 0 0; }
    NoticeLine.-warning { color: $warning; }
    """

    def __init__(self, text: str, *, kind: str = "") -> None:
        super().__init__(plain_text(text), classes=f"-{kind}" if kind else None)


class SpeakerLine(Static):
    """The name of the model, above an answer."""

    DEFAULT_CSS = "SpeakerLine { height: auto; color: $primary; text-style: bold; margin: 1 0 0 0; padding: 0 1; }"


class AnswerFooter(Static):
    """The tokens, cost and duration of an answer."""

    DEFAULT_CSS = "AnswerFooter { height: auto; color: $dim; padding: 0 1; }"


def document_label(block: DocumentBlock) -> str:
    """Return `[PDF: report.pdf, pages 1–20 of 47]`."""
    media = block.media
    kind = "PDF" if media.media_type == "application/pdf" else "Document"
    name = media.name or block.title or media.media_type
    if media.pages is None:
        return f"[{kind}: {name}]"
    if not block.pages:
        return f"[{kind}: {name}, 1 page]" if media.pages == 1 else f"[{kind}: {name}, {media.pages} pages]"
    first, last = page_range(block.pages)
    pages = f"page {first}" if first == last else f"pages {first}–{last}"
    return f"[{kind}: {name}, {pages} of {media.pages}]"


def media_label(block: ContentBlock) -> str:
    """Return the caption of a medium before it is sent."""
    match block:
        case ImageBlock() | AudioBlock() | VideoBlock():
            return block.media.label
        case DocumentBlock():
            return document_label(block)
        case _:
            return text_of(block)
