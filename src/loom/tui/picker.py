"""Picker: a screen with a filter line and a table to select from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from loom.tui.text_content import plain_text


class Picker(ModalScreen[str | None]):
    """Dismissed with the key of the selected row; None on Escape."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 60%; }
    Picker > Vertical {
        width: 110; max-width: 96%; height: auto; max-height: 86%; border: round $primary; border-title-color: $primary;
        border-title-style: bold; background: $surface; padding: 0 1;
    }
    Picker Input { border: none; height: 1; padding: 0 1; margin: 0 0 1 0; background: $panel; }
    Picker OptionList {
        height: auto; max-height: 24; border: none; background: $surface; padding: 0; scrollbar-size-vertical: 1;
    }
    Picker .head, Picker .detail, Picker .keys { height: auto; color: $dim; }
    Picker .head { padding: 0 1; }
    Picker .detail { margin: 1 0 0 0; padding: 0 1; color: $foreground; }
    Picker .keys { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Close", show=False, priority=True)]

    def __init__(self, title: str, *, placeholder: str = "", query: str = "", keys: str = "") -> None:
        super().__init__()
        self._heading = title
        self._placeholder = placeholder
        self._first_query = query
        self._keys_text = keys
        self.row_keys: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._heading
            yield Input(self._first_query, placeholder=self._placeholder, compact=True)
            yield Static("", classes="head")
            yield OptionList()
            yield Static("", classes="detail")
            yield Static(plain_text(self._keys_text), classes="keys")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self.query_one(OptionList).can_focus = False

    @property
    def option_list(self) -> OptionList:
        return self.query_one(OptionList)

    def show_rows(self, rows: Sequence[tuple[str, Content]], *, head: str = "", highlight: str = "") -> None:
        """Show rows by their key; keep the highlighted one if it still exists."""
        before = highlight or self.highlighted_key
        self.query_one(".head", Static).update(plain_text(head))
        self.query_one(".head").display = bool(head)
        self.row_keys = [key for key, _ in rows]
        self.option_list.clear_options()
        self.option_list.add_options([Option(content) for _, content in rows])
        if rows:
            self.option_list.highlighted = self.row_keys.index(before) if before in self.row_keys else 0

    def replace_row(self, key: str, content: Content) -> None:
        if key in self.row_keys:
            self.option_list.replace_option_prompt_at_index(self.row_keys.index(key), content)

    def show_detail(self, content: Content) -> None:
        self.query_one(".detail", Static).update(content)

    @property
    def highlighted_key(self) -> str:
        at = self.option_list.highlighted
        return self.row_keys[at] if at is not None and at < len(self.row_keys) else ""

    def on_key(self, event: events.Key) -> None:
        moves = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
        if event.key in moves and self.row_keys:
            event.stop()
            at = (self.option_list.highlighted or 0) + moves[event.key]
            self.option_list.highlighted = max(0, min(at, len(self.row_keys) - 1))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        chosen = self.choose(event.value.strip())
        if chosen is not None:
            self._finish(chosen)

    def choose(self, typed: str) -> str | None:
        """Return the key that Enter selects: that of the highlighted row; None if there is none."""
        return self.highlighted_key if self.row_keys else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._finish(self.row_keys[event.option_index])

    def _finish(self, chosen: str | None) -> None:
        """Dismiss the screen. Work for it is cancelled first: it would not find its widgets, and end the program."""
        self.workers.cancel_node(self)  # pyright: ignore[reportUnknownMemberType]  declared so by Textual
        self.dismiss(chosen)

    def action_cancel(self) -> None:
        self._finish(None)
