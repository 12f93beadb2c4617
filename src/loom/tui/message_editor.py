"""MessageEditor: several lines of text with chips. Enter sends; a paste is never split into several messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message as WidgetMessage
from textual.widgets import TextArea

from loom.tui.approval_card import ApprovalCard
from loom.tui.chips import Chip, chips_in, span_at, span_ending_at, span_starting_at, unique_token
from loom.tui.dropped_paths import parse_dropped_paths
from loom.tui.input_history import InputHistory

_LONG_LINES: Final = 60
_LONG_CHARACTERS: Final = 8_000
_TRIGGERS: Final = "@/"


class MessageEditor(TextArea):
    """The text of the next message. Chips are tokens in it; the cursor skips and deletes each as one unit."""

    DEFAULT_CSS = """
    MessageEditor { height: auto; min-height: 1; max-height: 12; border: none; padding: 0; background: $surface; }
    MessageEditor:focus { border: none; }
    MessageEditor .text-area--cursor-line { background: transparent; }
    MessageEditor .text-area--placeholder { color: $dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+v", "paste", "Paste", show=False),
        Binding("ctrl+g", "edit_outside", "Editor", show=False),
    ]

    class Submitted(WidgetMessage):
        """The user sent a text that is not empty. It has left the editor: later keys begin the next message."""

        def __init__(self, text: str, chips: dict[str, Chip], *, is_queued: bool = False) -> None:
            super().__init__()
            self.text = text
            self.chips = chips
            self.is_queued = is_queued
            """Whether the message waits for a turn of its own instead of the next step of the running one."""

    class FilesDropped(WidgetMessage):
        """Paths were pasted, as terminals do for dropped files."""

        def __init__(self, paths: tuple[Path, ...]) -> None:
            super().__init__()
            self.paths = paths

    class ClipboardWanted(WidgetMessage):
        """Ctrl+V or Alt+V: attach the image or the files on the clipboard, or insert its text."""

    class QueuedWanted(WidgetMessage):
        """Up in an empty message while messages are queued: edit the last of them."""

    class PausedWanted(WidgetMessage):
        """Enter in an empty message while messages are paused: send them."""

    class EditorWanted(WidgetMessage):
        """Ctrl+G: edit the text in $EDITOR."""

    class KeysHandled(WidgetMessage):
        """All earlier keys and pastes are handled: call `then`."""

        def __init__(self, then: Callable[[], object]) -> None:
            super().__init__()
            self.then = then

    class WordChanged(WidgetMessage):
        """The word at the cursor begins with @ or /; an empty `trigger` means that it no longer does."""

        def __init__(self, trigger: str, word: str) -> None:
            super().__init__()
            self.trigger = trigger
            self.word = word

    def __init__(self, *, placeholder: str, on_completion_key: Callable[[str], None]) -> None:
        super().__init__(
            soft_wrap=True, show_line_numbers=False, tab_behavior="focus", compact=True, placeholder=placeholder
        )
        self.chips: dict[str, Chip] = {}
        self.is_completing = False
        """Whether a completion list is open, which then receives the arrow keys, Tab, Enter and Escape."""
        self._on_completion_key = on_completion_key
        """Handles such a key at once: a message would be handled after the letters that follow the key."""
        self.has_queued = False
        """Whether there are queued messages, which Up brings back."""
        self.has_paused = False
        """Whether some of them are paused; Enter in an empty message sends these."""
        self.is_answering = False
        """Whether a turn is running; then Tab queues the message."""
        self._history = InputHistory()
        self._last_trigger = ""

    def after_keys(self, then: Callable[[], object]) -> None:
        """Let the screen call `then` after all earlier keys and pastes, such as Enter, are handled."""
        self.call_later(self.post_message, self.KeysHandled(then))

    def use_history(self, history: InputHistory) -> None:
        """Let Up and Down show the messages of `history`, followed by those that were sent so far."""
        for text in self._history.entries:
            history.add(text)
        self._history = history

    # Chips -----------------------------------------------------------------------------------------------------------

    def add_chip(self, chip: Chip) -> Chip:
        """Insert a chip at the cursor, with spaces around it where there are none."""
        chip.token = unique_token(chip.token, self.chips)
        self.chips[chip.token] = chip
        row, column = self.cursor_location
        line = self.document.get_line(row)
        before = " " if column and not line[column - 1].isspace() else ""
        after = "" if line[column : column + 1].isspace() else " "
        self.insert(f"{before}{chip.token}{after}")
        return chip

    def rename_chip(self, chip: Chip, token: str) -> None:
        """Set the final token of a chip, once its file was read."""
        if token == chip.token:
            return
        token = unique_token(token, [other for other in self.chips if other != chip.token])
        start = self._find(chip.token)
        self.chips.pop(chip.token, None)
        if start is not None:
            end = (start[0], start[1] + len(chip.token))
            self.replace(token, start, end)
        chip.token = token
        self.chips[token] = chip

    def remove_chip(self, chip: Chip) -> None:
        start = self._find(chip.token)
        self.chips.pop(chip.token, None)
        if start is not None:
            self.delete(start, (start[0], start[1] + len(chip.token)))

    @property
    def placed_chips(self) -> list[Chip]:
        """The chips whose token is in the text, in the order of the text."""
        return chips_in(self.text, self.chips)

    def take(self) -> tuple[str, dict[str, Chip]]:
        """Return the text with its chips, add it to the history, and clear the editor."""
        text, chips = self.text, {chip.token: chip for chip in self.placed_chips}
        self._history.add(text)
        self.clear_all()
        return text, chips

    def clear_all(self) -> None:
        self.chips = {}
        self.load_text("")

    def put_back(self, text: str, chips: dict[str, Chip]) -> None:
        """Show a message for editing, such as one from the queue."""
        self.chips = dict(chips)
        self.load_text(text)
        self.move_cursor(self.document.end)

    def _find(self, token: str) -> tuple[int, int] | None:
        for row in range(self.document.line_count):
            column = self.document.get_line(row).find(token)
            if column >= 0:
                return row, column
        return None

    # Keys ------------------------------------------------------------------------------------------------------------

    def action_submit(self) -> None:
        if self.is_completing:
            self._on_completion_key("enter")
        elif self.text.strip():
            self.post_message(self.Submitted(*self.take()))
        elif self.has_paused:
            self.post_message(self.PausedWanted())

    def action_complete(self) -> None:
        if self.is_completing:
            self._on_completion_key("tab")
        elif self.screen.query(ApprovalCard):
            self.screen.focus_next(ApprovalCard)
        elif self.is_answering and self.text.strip():
            self.post_message(self.Submitted(*self.take(), is_queued=True))
        else:
            self.screen.focus_next()

    def action_paste(self) -> None:
        self.post_message(self.ClipboardWanted())

    def action_edit_outside(self) -> None:
        self.post_message(self.EditorWanted())

    def _go_up(self) -> None:
        if self.is_completing:
            self._on_completion_key("up")
        elif self.cursor_location[0] > 0 or self.wrapped_document.location_to_offset(self.cursor_location).y > 0:
            self.action_cursor_up()
        elif self.has_queued and not self.text:
            self.post_message(self.QueuedWanted())
        elif (text := self._history.older(self.text)) is not None:
            self._show_history(text)

    def _go_down(self) -> None:
        if self.is_completing:
            self._on_completion_key("down")
        elif self.cursor_location[0] < self.document.line_count - 1:
            self.action_cursor_down()
        elif (text := self._history.newer()) is not None:
            self._show_history(text)
        else:
            self.action_cursor_down()

    def _show_history(self, text: str) -> None:
        self.load_text(text)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        """Handle these keys here rather than as bindings, so that they take effect between the keys and pastes before
        and after them."""
        focused = self.app.focused  # pyright: ignore[reportUnknownMemberType]  declared so by Textual
        if focused is not None and focused is not self:  # the previous key moved the focus
            event.stop()
            event.prevent_default()
            focused._forward_event(events.Key(event.key, event.character))  # noqa: SLF001  as Textual's App does
            return
        match event.key:
            case "enter":
                self.action_submit()
            case "shift+enter" | "ctrl+j" | "alt+enter" | "newline":
                self.insert("\n")
            case "tab":
                self.action_complete()
            case "up":
                self._go_up()
            case "down":
                self._go_down()
            case "escape" if self.is_completing:
                self._on_completion_key("escape")
            case _:
                await super()._on_key(event)
                return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste: paths become attachments, a long text a chip, everything else text. A paste is never sent by
        itself."""
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        paths = parse_dropped_paths(text)
        if paths:
            self.post_message(self.FilesDropped(paths))
            return
        lines = text.count("\n") + 1
        if lines > _LONG_LINES or len(text) > _LONG_CHARACTERS:
            number = sum(bool(chip.text) for chip in self.chips.values()) + 1
            size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
            self.add_chip(Chip(token=f"[Pasted text #{number}, {size}]", text=text, label=size))
            return
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def action_delete_left(self) -> None:
        if not self._delete_span(span_ending_at):
            super().action_delete_left()

    def action_delete_right(self) -> None:
        if not self._delete_span(span_starting_at):
            super().action_delete_right()

    def action_delete_word_left(self) -> None:
        if not self._delete_span(span_ending_at):
            super().action_delete_word_left()

    def action_delete_word_right(self) -> None:
        if not self._delete_span(span_starting_at):
            super().action_delete_word_right()

    def _delete_span(self, find: Any) -> bool:
        if self.selection.start != self.selection.end:
            return False
        row, column = self.cursor_location
        span = find(self.document.get_line(row), column, self.chips)
        if span is None:
            return False
        line = self.document.get_line(row)
        token = line[span[0] : span[1]]
        end = span[1] + (line[span[1] : span[1] + 1] == " ")
        self.delete((row, span[0]), (row, end))
        self.chips.pop(token, None)
        return True

    def action_cursor_left(self, select: bool = False) -> None:
        super().action_cursor_left(select)
        self._leave_chip(to_start=True, select=select)

    def action_cursor_right(self, select: bool = False) -> None:
        super().action_cursor_right(select)
        self._leave_chip(to_start=False, select=select)

    def _leave_chip(self, *, to_start: bool, select: bool) -> None:
        """Move the cursor out of a chip: it is never inside one."""
        row, column = self.cursor_location
        span = span_at(self.document.get_line(row), column, self.chips)
        if span is not None:
            self.move_cursor((row, span[0] if to_start else span[1]), select=select)

    # Completion ------------------------------------------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        self._check_word()

    def on_text_area_selection_changed(self) -> None:
        self._check_word()

    def _check_word(self) -> None:
        trigger, word = self.word_at_cursor()
        if trigger or self._last_trigger:
            self.post_message(self.WordChanged(trigger, word))
        self._last_trigger = trigger

    def word_at_cursor(self) -> tuple[str, str]:
        """Return `("@", "src/ma")` or `("/", "mod")`; empty strings for other words. A command is only recognized at
        the beginning of the message."""
        row, column = self.cursor_location
        line = self.document.get_line(row)[:column]
        start = max(line.rfind(" "), line.rfind("\t")) + 1
        word = line[start:]
        if not word or word[0] not in _TRIGGERS:
            return "", ""
        if word[0] == "/" and (row > 0 or start > 0):
            return "", ""
        return word[0], word[1:]

    def complete_word(self, replacement: str) -> None:
        """Replace the word at the cursor."""
        row, column = self.cursor_location
        _, word = self.word_at_cursor()
        self.replace(replacement, (row, column - len(word) - 1), (row, column))
