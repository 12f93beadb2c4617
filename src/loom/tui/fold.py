"""Foldable: a line that expands to show more."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as WidgetMessage
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from loom.tui.glyphs import Glyphs


class FoldTitle(Static, can_focus=True):
    """The title line. Enter, Space or a click toggles the fold."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "activate", "Open or fold", show=False)]

    class Toggled(WidgetMessage):
        """The title was activated."""

    def action_activate(self) -> None:
        self.post_message(self.Toggled())

    def on_click(self) -> None:
        self.post_message(self.Toggled())


class Foldable(Vertical):
    """A title and a body that is created when it is first opened."""

    DEFAULT_CSS = """
    Foldable { height: auto; }
    Foldable > FoldTitle { height: auto; color: $dim; }
    Foldable > FoldTitle:focus { background: $panel; color: $foreground; }
    Foldable > FoldTitle:hover { color: $foreground; }
    Foldable > .fold-body { height: auto; margin: 0 0 0 2; }
    """
    is_open: reactive[bool] = reactive(default=False)

    def __init__(self, glyphs: Glyphs, *, is_open: bool = False) -> None:
        super().__init__()
        self.glyphs = glyphs
        self._title = FoldTitle()
        self._body: Vertical | None = None
        self.set_reactive(Foldable.is_open, is_open)

    def compose(self) -> ComposeResult:
        yield self._title

    def on_mount(self) -> None:
        self.refresh_title()
        if self.is_open:
            self._show_body()

    def title(self) -> Content:
        """Return the text of the title, after the sign."""
        return Content()

    def body(self) -> list[Widget]:
        return []

    def refresh_title(self) -> None:
        sign = self.glyphs.opened if self.is_open else self.glyphs.folded
        self._title.update(Content(f"{sign} ") + self.title())

    def refresh_body(self) -> None:
        """Create the body again, if it is shown."""
        if not self.is_mounted:  # `on_mount` creates it
            return
        if self._body is not None:
            self._body.remove()
            self._body = None
        if self.is_open:
            self._show_body()

    def watch_is_open(self) -> None:
        if not self.is_mounted:
            return
        self.refresh_title()
        if self.is_open:
            self._show_body()
        elif self._body is not None:
            self._body.display = False

    def on_fold_title_toggled(self, event: FoldTitle.Toggled) -> None:
        event.stop()
        self.is_open = not self.is_open

    def _show_body(self) -> None:
        if self._body is None:
            self._body = Vertical(*self.body(), classes="fold-body")
            self.mount(self._body)
        self._body.display = True
