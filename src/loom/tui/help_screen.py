"""HelpScreen: keys and commands."""

from __future__ import annotations

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
    ("Tab", "while an answer runs: queue for a turn of its own"),
    ("Shift+Enter, Ctrl+J", "new line"),
    ("Esc", "interrupt the answer"),
    ("Esc Esc", "edit an earlier message, as a new branch"),
    ("Up, Down", "earlier messages; edit a queued one"),
    ("Ctrl+V, Alt+V", "attach the image on the clipboard, or paste text"),
    ("@", "files; images and PDFs are attached, text files are followed"),
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


class HelpScreen(ModalScreen[None]):
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > VerticalScroll {
        width: 84; max-width: 100%; height: 90%; border: round $primary; border-title-color: $primary;
        background: $surface; padding: 1 2; scrollbar-size-vertical: 1;
    }
    HelpScreen Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1", "dismiss", "Close", show=False)]

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Help (Esc closes)"
            yield Static(Content.styled("Keys", "bold"))
            yield Static(Content("\n").join(_line(key, what) for key, what in KEYS))
            yield Static(Content.styled("\nCommands", "bold"))
            yield Static(Content("\n").join(_line(f"/{it.name} {it.arguments}".strip(), it.help) for it in COMMANDS))


def _line(key: str, what: str) -> Content:
    return Content.styled(f"  {key:<34} "[:37], "$primary") + plain_text(what)
