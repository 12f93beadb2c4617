"""TrustScreen: shows the instructions and settings in a folder, and asks whether to use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from loom.content.media import size_label
from loom.tui.text_content import plain_text

if TYPE_CHECKING:
    from loom.api_types import FolderTrustView

_LATER = ("settings", "MCP servers")


class TrustScreen(ModalScreen[bool | None]):
    """Dismissed with the decision; None leaves it open."""

    DEFAULT_CSS = """
    TrustScreen { align: center middle; background: $background 60%; }
    TrustScreen > Vertical {
        width: 100; max-width: 96%; height: auto; max-height: 90%; border: round $warning; border-title-color: $warning;
        border-title-style: bold; background: $surface; padding: 0 1;
    }
    TrustScreen VerticalScroll { height: auto; max-height: 24; margin: 1 0; scrollbar-size-vertical: 1; }
    TrustScreen Static { height: auto; }
    TrustScreen .dim { color: $dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide(True)", "Trust", show=False),
        Binding("n", "decide(False)", "Do not use", show=False),
        Binding("escape", "dismiss", "Later", show=False, priority=True),
    ]

    def __init__(self, found: FolderTrustView) -> None:
        super().__init__()
        self._found = found

    def compose(self) -> ComposeResult:
        found = self._found
        with Vertical() as box:
            box.border_title = "Do you trust this folder?"
            what = f"{found.folder} brings files that instruct the model or configure Loom: {', '.join(found.kinds)}."
            yield Static(plain_text(f"{what} Trust it only if you know who wrote them."))
            with VerticalScroll():
                for file in found.files:
                    owner = ", of another user" if file.is_foreign else ""
                    yield Static(Content.styled(f"{file.name} ({size_label(file.bytes)}{owner})", "bold"))
                    yield Static(plain_text(file.text or "(empty)"), classes="dim")
                if found.more:
                    yield Static(plain_text(f"and {found.more} more"))
            later = [kind for kind in found.kinds if kind in _LATER]
            if later:
                text = f"Its {' and '.join(later)} take effect the next time Loom starts in this folder."
                yield Static(plain_text(text), classes="dim")
            keys = "y: trust this folder   n: do not use its files   Esc: decide later"
            yield Static(plain_text(keys), classes="dim")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_decide(self, is_trusted: bool) -> None:
        self.dismiss(is_trusted)
