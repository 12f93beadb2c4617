"""ChatState: the widgets and the state of the chat screen; the base class of its other parts."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content as StyledText
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker

from loom.errors import LoomError
from loom.sampling import Sampling
from loom.tui.chat_library import ChatLibrary
from loom.tui.chips import Chip
from loom.tui.completion_list import CompletionList, FileIndex
from loom.tui.conversation import OpenConversation, PathMessage
from loom.tui.image_protocol import ImageProtocol
from loom.tui.message_editor import MessageEditor
from loom.tui.status_line import ActivityLine, StatusLine, StatusValues, TitleLine
from loom.tui.text_content import sentence_of
from loom.tui.usage_log import UsageLog

if TYPE_CHECKING:
    from loom.api_types import CommandView
    from loom.tui.app import LoomApp
    from loom.tui.transcript import TranscriptView

NEWEST: Final = 100
"""The number of messages that are read when a conversation is opened."""
_TERMINAL_COPY_BYTES: Final = 74_994
"""The length that every terminal with OSC 52 accepts: 100,000 characters of the sequence, in base64."""
EMPTY: Final = "The conversation is empty."


class QueueStrip(Static):
    """The queued messages."""

    DEFAULT_CSS = "QueueStrip { height: auto; color: $dim; padding: 0 1; display: none; }"


class KeyHints(Static):
    DEFAULT_CSS = "KeyHints { height: 1; color: $dim; padding: 0 1; background: $panel; }"
    HINTS: ClassVar = (
        ("{return_key}", "send"),
        ("^J", "line"),
        ("@", "file"),
        ("/", "command"),
        ("F1", "help"),
        ("^V", "paste"),
        ("^L", "model"),
        ("^X", "context"),
        ("^T", "branches"),
        ("^S", "sessions"),
        ("^O", "fold"),
        ("Esc Esc", "edit"),
    )

    def __init__(self, return_key: str) -> None:
        super().__init__()
        self._return_key = return_key

    def render(self) -> StyledText:
        shown: list[StyledText] = []
        room = self.size.width - 2
        for key, what in self.HINTS:
            part = StyledText.styled(key.format(return_key=self._return_key), "$primary") + StyledText(f" {what}")
            if sum(len(it) + 2 for it in shown) + len(part) > room:
                break
            shown.append(part)
        return StyledText("  ").join(shown)


class ChatState(Screen[None]):
    """One conversation. The screen exists before the library is open, and keeps what is typed until then."""

    DEFAULT_CSS = """
    ChatState { layout: vertical; background: $background; }
    ChatState #middle { height: 1fr; }
    ChatState #main { width: 1fr; }
    ChatState #approvals { height: auto; max-height: 60%; }
    ChatState #compose { height: auto; background: $surface; padding: 0 1; margin: 0; border-top: solid $line; }
    ChatState #compose > .prompt { width: 2; color: $primary; text-style: bold; }
    """

    if TYPE_CHECKING:

        @property
        def app(self) -> LoomApp: ...

    def __init__(self, app: LoomApp) -> None:
        super().__init__()
        self.glyphs = app.glyphs
        self.protocol: ImageProtocol = app.protocol
        self.library: ChatLibrary | None = None
        self.conversation: OpenConversation | None = None
        self.model = ""
        self.usage_log = UsageLog()
        self.workspace = Path.cwd()
        """The folder in which names of files and shell commands are meant: that of the conversation, if it is on this
        machine."""
        self.files = FileIndex(self.workspace)
        self.state = StatusValues()
        self.sampling = Sampling()
        """Options for the messages of this screen, in addition to those of the session."""
        self.apply_template: Callable[[str], tuple[str, str]] | None = None
        """Returns the text of a conversation's first message with a template applied, and the system prompt."""
        self._warned_about = ""
        """The message that was held back because it mentions a file that does not exist."""
        self._plans = False
        """Whether the session is in plan mode, as far as this screen knows."""
        self._shell: Worker[None] | None = None
        """The shell command of the user that runs."""
        self._more_commands: tuple[CommandView, ...] | None = None
        self._following: Worker[None] | None = None
        self._is_running = False
        self._activity = ""
        self._turn_began = 0.0
        self._turn_model = ""
        self._escape_at = 0.0
        self._asked_folders: set[str] = set()
        """Folders that the user was prompted about in this run."""
        self._quit_at = 0.0
        self._queued_chips: dict[str, tuple[str, dict[str, Chip]]] = {}
        self._unsent: list[tuple[str, dict[str, Chip]]] = []
        self._readers: set[asyncio.Task[None]] = set()
        self._images: int = 0
        self._has_messages = False
        self._connected_event = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield TitleLine(self.glyphs)
        with Horizontal(id="middle"):
            yield Vertical(id="main")
        yield Vertical(id="approvals")
        yield ActivityLine(self.glyphs)
        yield QueueStrip()
        yield CompletionList()
        with Horizontal(id="compose"):
            yield Static(self.glyphs.prompt, classes="prompt")
            yield MessageEditor(
                placeholder="Message; paste or drop files, @ for files", on_completion_key=self.handle_completion_key
            )
        yield StatusLine(self.glyphs)
        yield KeyHints(self.glyphs.return_key)

    def on_mount(self) -> None:
        self.composer.focus()
        self.show_state()

    @abstractmethod
    def handle_completion_key(self, key: str) -> None:
        """Let the open completion list handle a key of the message."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""
        return self._is_running

    @property
    def composer(self) -> MessageEditor:
        return self.query_one(MessageEditor)

    # State -----------------------------------------------------------------------------------------------------------

    def set_state(self, **changes: object) -> None:
        from loom.models import Usage

        given = {name: Usage() if value is msgspec.UNSET else value for name, value in changes.items()}
        self.state = msgspec.structs.replace(self.state, **given)
        self.show_state()

    def show_state(self) -> None:
        for line in (*self.query(TitleLine), *self.query(StatusLine)):  # there are none once the screen is closed
            line.state = self.state

    async def report(self, error: LoomError) -> None:
        """Show an error and its hint."""
        text = sentence_of(error.message, error.hint)
        if self._connected_event.is_set() and self.query("TranscriptView"):
            await self.transcript.notice(text, kind="error")
        else:  # before the first conversation is shown, and while the screen closes
            self.notify(text, severity="error")

    async def guard(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except LoomError as error:
            await self.report(error)

    async def copy_text(self, text: str) -> None:
        """Copy a text to the clipboard of the desktop. If there is none, send it to the terminal (OSC 52), which does
        not report whether it was copied."""
        from loom.runtime.clipboard import write_clipboard

        if await asyncio.to_thread(write_clipboard, text):
            self.notify("Copied")
            return
        self.app.copy_to_clipboard(text)
        if len(text.encode()) > _TERMINAL_COPY_BYTES:
            self.notify("Copied through the terminal, which may truncate long text. Use /export to write a file.")
        else:
            self.notify("Copied through the terminal. If nothing arrives, allow OSC 52 in its settings.")

    def use_workspace(self, written: str) -> None:
        """Use the folder of a conversation; the current one if it has none on this machine."""
        from loom.tools.workspace import local_workspace

        self.workspace = local_workspace(written)
        self.files = FileIndex(self.workspace)

    # The transcript --------------------------------------------------------------------------------------------------

    @property
    def transcript(self) -> TranscriptView:
        from loom.tui.transcript import TranscriptView

        return self.query(TranscriptView).last()

    async def show_transcript(self, path: Sequence[PathMessage]) -> None:
        """Show a path; without messages, show the welcome page."""
        from loom.tui.transcript import TranscriptView
        from loom.tui.welcome import Welcome

        assert self.library is not None
        main = self.query_one("#main")
        is_cut = self.conversation is not None and len(path) >= NEWEST
        load_path = self.conversation.path if is_cut and self.conversation is not None else None
        shown = TranscriptView(self.glyphs, self.protocol, self.library.media, load_path)
        previous = list(main.children)
        for child in previous:
            child.display = False
        await main.mount(shown)  # mount it first: new events need a transcript
        await main.remove_children(previous)
        if path:
            await shown.load(path)
        else:
            await shown.mount(Welcome(self.glyphs, self.protocol, self.model))

    def require_conversation(self) -> OpenConversation:
        if self.conversation is None:
            raise LoomError(EMPTY, hint="Send a message first.")
        return self.conversation

    def require_library(self) -> ChatLibrary:
        if self.library is None:
            raise LoomError("Still opening the store.", hint="Try again in a moment.")
        return self.library
