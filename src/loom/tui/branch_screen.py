"""BranchScreen: an overlay to select the message to continue from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from loom.tui.branch_pane import BranchLine, BranchPane
from loom.tui.glyphs import Glyphs


class BranchScreen(ModalScreen[str | None]):
    """Dismissed with the selected node."""

    DEFAULT_CSS = """
    BranchScreen { align: center middle; background: $background 60%; }
    BranchScreen > Vertical {
        width: 100; max-width: 96%; height: auto; max-height: 80%; border: round $primary;
        border-title-color: $primary; border-title-style: bold; background: $surface; padding: 0 1;
    }
    BranchScreen BranchPane { display: block; width: 100%; height: auto; max-height: 30; border: none; }
    BranchScreen .keys { height: 1; color: $dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close", show=False, priority=True)]

    def __init__(self, lines: Sequence[BranchLine], glyphs: Glyphs, title: str) -> None:
        super().__init__()
        self._lines = list(lines)
        self._glyphs = glyphs
        self._heading = title

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._heading
            yield BranchPane(self._glyphs)
            yield Static("Enter: continue from here   Esc: close   nothing is deleted", classes="keys")

    def on_mount(self) -> None:
        pane = self.query_one(BranchPane)
        pane.show(self._lines)
        if pane.highlighted is None and self._lines:
            pane.highlighted = len(self._lines) - 1
        pane.focus()

    def on_branch_pane_node_chosen(self, event: BranchPane.NodeChosen) -> None:
        event.stop()
        self.dismiss(event.node)
