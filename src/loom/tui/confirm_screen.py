"""ConfirmScreen: what an action costs, before it happens."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from loom.tui.text_content import plain_text


class ConfirmScreen(ModalScreen[bool]):
    """Dismissed with whether the user wants the action."""

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; background: $background 60%; }
    ConfirmScreen > Vertical {
        width: 80; max-width: 96%; height: auto; border: round $primary; border-title-color: $primary;
        border-title-style: bold; background: $surface; padding: 0 1;
    }
    ConfirmScreen Static { height: auto; }
    ConfirmScreen .keys { color: $dim; margin: 1 0 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "decide(True)", "Confirm", show=False, priority=True),
        Binding("escape,n,q", "decide(False)", "Cancel", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str, action: str) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._action = action

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._title
            yield Static(plain_text(self._text))
            yield Static(plain_text(f"Enter: {self._action}   Esc: cancel"), classes="keys")

    def action_decide(self, is_wanted: bool) -> None:
        self.dismiss(is_wanted)
