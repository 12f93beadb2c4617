"""HelpScreen: keys and commands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from loom.tui.slash_commands import COMMANDS
from loom.tui.text_content import plain_text

KEYS: Final = (
    ("Enter", "send; while an answer runs, for its next step"),
    ("Tab", "while an answer runs: queue as a separate turn"),
    ("Tab", "go to a pending approval, and back to the message"),
    ("Shift+Enter, Ctrl+J", "new line"),
    ("Esc", "interrupt the answer"),
    ("Esc Esc", "edit an earlier message, as a new branch"),
    ("Up, Down", "earlier messages; edit a queued one"),
    ("Enter", "in an empty message: send paused messages"),
    ("Ctrl+V, Alt+V", "attach the image on the clipboard, or paste text"),
    ("@", "files; images and PDFs are attached, text files are tracked"),
    ("!", "run a shell command; its output can go with the next message"),
    ("Ctrl+G", "write the message in $EDITOR"),
    ("Ctrl+O", "open or close thinking and tool calls"),
    ("Ctrl+T", "branches"),
    ("Ctrl+L", "model, with what it would receive and cost"),
    ("Ctrl+X", "context: what the next request contains"),
    ("Ctrl+S, Ctrl+R", "conversations, with search"),
    ("Alt+T", "how much the model thinks"),
    ("F2", "todo list and background processes; x stops one"),
    ("Shift+Tab", "permission: ask, auto, plan, deny"),
    ("PgUp, PgDn", "scroll; Ctrl+End goes to the end"),
    ("Ctrl+P", "command palette"),
    ("Ctrl+C", "copy the selection; clear the message; twice: exit"),
    ("Ctrl+D, Ctrl+Q", "exit; continue later with `loom -c`"),
)
_KEY_COLUMNS: Final = 24


class HelpScreen(ModalScreen[None]):
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > VerticalScroll {
        width: 84; max-width: 100%; height: 90%; border: round $primary; border-title-color: $primary;
        background: $surface; padding: 1 2; scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1", "dismiss", "Close", show=False)]

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Help (Esc closes)"
            yield HelpTable("Keys", KEYS)
            yield HelpTable("Commands", [(f"/{it.name} {it.arguments}".strip(), it.help) for it in COMMANDS])


class HelpTable(Static):
    """A heading, and keys with their actions: next to each other, or below in a narrow terminal."""

    DEFAULT_CSS = "HelpTable { height: auto; margin: 0 0 1 0; }"

    def __init__(self, heading: str, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._heading = heading
        self._rows = rows

    def render(self) -> Content:
        indent = min(_KEY_COLUMNS, self.size.width // 3)
        lines = [Content.styled(self._heading, "bold")]
        for key, what in self._rows:
            wrapped = textwrap.wrap(what, max(self.size.width - indent, 12))
            if len(key) + 3 > indent:  # the key has a line of its own
                lines.append(Content.styled(f"  {key}", "$primary"))
            else:
                first = wrapped.pop(0)
                lines.append(Content.styled(f"  {key:<{indent - 2}}", "$primary") + plain_text(first))
            lines += [plain_text(f"{'':<{indent}}{line}") for line in wrapped]
        return Content("\n").join(lines)
