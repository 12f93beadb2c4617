"""DocumentScreen: a document page by page, as images or as text."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from loom.content.blocks import DocumentBlock, page_range
from loom.errors import LoomError
from loom.tui.chat_library import ChatLibrary
from loom.tui.image_protocol import ImageProtocol
from loom.tui.message_widgets import document_label
from loom.tui.pictures import Picture
from loom.tui.text_content import plain_text

_MARGIN_ROWS: Final = 4


class DocumentScreen(Screen[None]):
    """Arrow keys turn pages, `t` switches between image and text."""

    DEFAULT_CSS = """
    DocumentScreen { background: $background; layout: vertical; }
    DocumentScreen > .heading { height: 1; background: $panel; padding: 0 1; text-style: bold; }
    DocumentScreen > VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    DocumentScreen .page-text { height: auto; }
    DocumentScreen > .keys { height: 1; background: $panel; color: $dim; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Close", show=False),
        Binding("right,n,pagedown,space", "turn(1)", "Next page", show=False, priority=True),
        Binding("left,p,pageup", "turn(-1)", "Previous page", show=False, priority=True),
        Binding("home", "turn(-100000)", "First page", show=False, priority=True),
        Binding("end", "turn(100000)", "Last page", show=False, priority=True),
        Binding("t", "toggle_text", "Text or image", show=False),
    ]

    def __init__(self, block: DocumentBlock, library: ChatLibrary, protocol: ImageProtocol) -> None:
        super().__init__()
        self._block = block
        self._library = library
        self._protocol: ImageProtocol = protocol
        self.page = page_range(block.pages)[0] if block.pages else 1
        self.is_text = protocol == "off"

    @property
    def pages(self) -> int:
        return max(self._block.media.pages or 1, 1)

    def compose(self) -> ComposeResult:
        yield Static("", classes="heading")
        yield VerticalScroll()
        yield Static("Right/Left: page   t: text or image   Up/Down: scroll   Esc: close", classes="keys")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._show()

    def action_turn(self, step: int) -> None:
        page = max(1, min(self.page + step, self.pages))
        if page != self.page:
            self.page = page
            self._show()

    def action_toggle_text(self) -> None:
        self.is_text = not self.is_text or self._protocol == "off"
        self._show()

    def _show(self) -> None:
        form = "text" if self.is_text else "image"
        label = f"{document_label(self._block)}  page {self.page} of {self.pages} ({form})"
        self.query_one(".heading", Static).update(plain_text(label))
        self.run_worker(partial(self._render_page, self.page), exclusive=True)

    async def _render_page(self, page: int) -> None:
        box = self.query_one(VerticalScroll)
        media = self._block.media
        if self.is_text:
            text = await self._text(page)
            await box.remove_children()
            await box.mount(Static(plain_text(text), classes="page-text"))
        else:
            room = (max(self.size.width - 4, 10), max(self.size.height - _MARGIN_ROWS, 6))
            picture = Picture(
                media,
                self._library.media,
                self._protocol,
                caption=f"page {page}",
                page=page,
                max_columns=room[0],
                max_rows=room[1],
            )
            await box.remove_children()
            await box.mount(picture)
        box.scroll_home(animate=False)

    async def _text(self, page: int) -> str:
        media = self._block.media
        try:
            text = await self._library.media_text(media.digest, page if media.pages else 0)
        except LoomError as error:
            return f"This page cannot be shown as text: {error.message}"
        return text.strip() or "(no text on this page)"
