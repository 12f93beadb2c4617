"""LoomApp: the terminal UI. It draws its first screen, then opens the store."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, Monochrome, NoColor
from textual.worker import WorkerError

from loom.content.inputs import Attachment
from loom.content.terminal_safe import safe_text
from loom.errors import LoomError
from loom.sampling import Sampling
from loom.tui.chat_screen import ChatScreen
from loom.tui.glyphs import ASCII, Glyphs, choose_glyphs
from loom.tui.image_protocol import ImageProtocol, choose_screen_protocol
from loom.tui.input_history import InputHistory
from loom.tui.line_filters import AsciiFilter
from loom.tui.themes import DEFAULT, THEMES, VARIABLES

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.notifications import SeverityLevel

    from loom.api_types import FolderTrustView
    from loom.tui.chat_library import ChatLibrary


class OpenedLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """The initial state of the UI. An empty `session` means a new conversation."""

    library: Any
    session: str = ""
    model: str = ""
    permission: str = "ask"
    sampling: Sampling = Sampling()
    """Options for the messages of this run; they override those of a session."""
    notices: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    """The attachments of the first message."""
    apply_template: Callable[[str], tuple[str, str]] | None = None
    """Returns the text of the first message with a template applied, and the system prompt of the session."""
    history_file: Path | None = None
    """The file with the messages that were sent on this machine; None keeps only those of this run."""


AskTrust: TypeAlias = Callable[["FolderTrustView"], Awaitable[bool | None]]
"""Asks whether the files of a folder may be used, if that needs a decision, and returns it."""
Connect: TypeAlias = Callable[[AskTrust], Awaitable[OpenedLibrary]]


def _slash_commands() -> type[Provider]:
    from loom.tui.palette import TuiCommandProvider

    return TuiCommandProvider


class LoomApp(App[int]):
    """The application. `connect` opens the store or connects to the daemon; it runs after the first paint, and asks
    about the folder before it uses anything in it."""

    TITLE = "Loom"
    COMMANDS: ClassVar = {_slash_commands}
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    CSS = """
    Toast { background: $panel; }
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
    OptionList:nocolor > .option-list--option-highlighted { text-style: bold underline; }
    DataTable:nocolor > .datatable--cursor { text-style: bold underline; }
    FoldTitle:nocolor:focus, DocumentLine:nocolor:focus, SampleLine:nocolor:focus { text-style: bold underline; }
    ApprovalCard:nocolor:focus { border: heavy; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Exit", show=False, priority=True),
        Binding("f1", "help", "Help", show=False, priority=True),
    ]

    def __init__(
        self,
        connect: Connect,
        *,
        glyphs: Glyphs | None = None,
        protocol: ImageProtocol | None = None,
    ) -> None:
        super().__init__()
        self.connect = connect
        self.glyphs = glyphs or choose_glyphs()
        self.protocol: ImageProtocol = protocol or choose_screen_protocol()
        self.library: ChatLibrary | None = None
        self.failure: LoomError | None = None
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = os.environ.get("LOOM_THEME") or DEFAULT
        self._no_color = NoColor()
        self._ascii = AsciiFilter(enabled=self.glyphs is ASCII)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Remove all color if NO_COLOR is set; Textual's own filter draws in gray."""
        found = [self._no_color if isinstance(it, Monochrome) else it for it in super().get_line_filters()]
        return [*found, self._ascii] if self._ascii.enabled else found

    def get_default_screen(self) -> ChatScreen:
        """Return the chat as the first screen: an empty one below it would be laid out and drawn before it."""
        return ChatScreen(self)

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        (screen,) = (it for it in self.screen_stack if isinstance(it, ChatScreen))
        self.run_worker(self._connect(screen), name="connect")

    async def _connect(self, screen: ChatScreen) -> None:
        try:
            opened = await self.connect(screen.ask_at_start)
            self.library = opened.library
            screen.sampling = opened.sampling
            screen.set_state(permission=opened.permission, thinking=opened.sampling.thinking)
            screen.composer.use_history(InputHistory(opened.history_file))
            screen.apply_template = opened.apply_template
            await screen.connect(opened.library, session=opened.session, model=opened.model, notices=opened.notices)
            for item in opened.attachments:
                screen.attach(item)
        except LoomError as error:
            self.failure = error
            self.exit(1)

    async def action_quit(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ChatScreen):
                screen.leave()

    async def _shutdown(self) -> None:
        """Cancel background work before Textual removes the screens: it would not find its widgets any more, and the
        program would end with that error."""
        self.workers.cancel_all()
        await super()._shutdown()

    async def on_unmount(self) -> None:
        for worker in tuple(self.workers):  # one that still runs would use a closed store
            with contextlib.suppress(WorkerError):
                await worker.wait()
        if self.library is not None:
            try:
                await self.library.close()
            except LoomError as error:
                self.failure = error

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a notification as plain text: it may contain names of files and agents, which are not markup, and hold
        no escapes for the terminal."""
        super().notify(safe_text(message), title=title, severity=severity, timeout=timeout, markup=False)

    def action_help(self) -> None:
        from loom.tui.help_screen import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def announce(self, text: str) -> None:
        """Ring the bell and notify the desktop if the window is not focused and LOOM_NOTIFY is set."""
        if os.environ.get("LOOM_NOTIFY", "") in ("", "0") or self.app_focus:
            return
        driver = self._driver
        if driver is not None:
            driver.write(f"\x1b]9;{text}\x07\x07")


def run_app(app: LoomApp) -> int:
    """Run the UI until it ends, and return the exit code; raise the error that prevented its start or its end."""
    code = app.run(mouse=os.environ.get("LOOM_MOUSE", "1") != "0")
    if app.failure is not None:
        raise app.failure
    sys.stdout.flush()
    return code or 0
