"""TrustScreen: shows the instructions and settings in a folder, and asks whether to use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
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

_LATER: Final = ("settings", "MCP servers")
_PAUSE_SECONDS: Final = 0.4
"""The pause before a key can decide. The question may appear while the user types a message."""


class TrustScreen(ModalScreen[bool | None]):
    """Dismissed with the decision; None leaves it open. `are_settings_in_use` says that settings were read before the
    question, so that a decision about them takes effect at the next start."""

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

    def __init__(self, found: FolderTrustView, *, are_settings_in_use: bool) -> None:
        super().__init__()
        self._found = found
        self._are_settings_in_use = are_settings_in_use
        self._is_typing = True

    def compose(self) -> ComposeResult:
        found = self._found
        with Vertical() as box:
            box.border_title = "Do you trust this folder?"
            what = f"{found.folder} contains files that instruct the model or configure Loom: {', '.join(found.kinds)}."
            yield Static(plain_text(f"{what} Trust it only if you know who wrote them."))
            with VerticalScroll():
                for file in found.files:
                    owner = ", of another user" if file.is_foreign else ""
                    yield Static(Content.styled(f"{file.name} ({size_label(file.bytes)}{owner})", "bold"))
                    yield Static(plain_text(file.text or "(empty)"), classes="dim")
                if found.more:
                    yield Static(plain_text(f"and {found.more} more"))
            later = [kind for kind in found.kinds if kind in _LATER]
            if later and self._are_settings_in_use:
                text = f"Its {' and '.join(later)} take effect the next time Loom starts in this folder."
                yield Static(plain_text(text), classes="dim")
            self._keys = Static(plain_text("y: trust this folder   n: do not use its files   Esc: decide later"))
            self._keys.add_class("dim")
            self._keys.visible = False
            yield self._keys

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._pause = self.set_timer(_PAUSE_SECONDS, self._show_keys)

    def _show_keys(self) -> None:
        self._keys.visible = True

    def on_key(self, event: events.Key) -> None:
        """Note whether the key belongs to a message: only the first one after a pause can decide."""
        if event.is_printable:
            self._is_typing, self._keys.visible = not self._keys.visible, False
            self._pause.stop()
            self._pause = self.set_timer(_PAUSE_SECONDS, self._show_keys)

    def action_decide(self, is_trusted: bool) -> None:
        if not self._is_typing:
            self.dismiss(is_trusted)
