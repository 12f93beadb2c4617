"""ChatScreen: the key bindings of the chat and their actions."""

from __future__ import annotations

import time
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType

from loom.content.inputs import Attachment
from loom.tui.chat_commands import ChatCommands
from loom.tui.chat_turns import PERMISSIONS
from loom.tui.message_editor import MessageEditor
from loom.tui.slash_commands import find_command

_ESCAPE_SECONDS: Final = 0.8
_THINKING: Final = ("", "off", "low", "medium", "high", "max")
"""The levels that Alt+T cycles through."""


class ChatScreen(ChatCommands):
    """The screen of one conversation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Interrupt", show=False),
        Binding("ctrl+c", "copy_or_quit", "Copy / quit", show=False, priority=True),
        Binding("ctrl+d", "end_of_input", "Exit", show=False, priority=True),
        Binding("ctrl+o", "toggle_folds", "Foldable", show=False, priority=True),
        Binding("ctrl+t", "toggle_branches", "Branches", show=False, priority=True),
        Binding("ctrl+l", "choose_model", "Model", show=False, priority=True),
        Binding("ctrl+x", "show_context", "Context", show=False, priority=True),
        Binding("ctrl+s,ctrl+r", "show_sessions", "Sessions", show=False, priority=True),
        Binding("f2", "show_work", "Todos and processes", show=False, priority=True),
        Binding("alt+t", "cycle_thinking", "Thinking", show=False, priority=True),
        Binding("shift+tab", "cycle_permission", "Permission", show=False, priority=True),
        Binding("pageup", "scroll_transcript(-1)", show=False, priority=True),
        Binding("pagedown", "scroll_transcript(1)", show=False, priority=True),
        Binding("ctrl+home", "scroll_ends(-1)", show=False, priority=True),
        Binding("ctrl+end", "scroll_ends(1)", show=False, priority=True),
    ]

    # Keys ------------------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Insert characters that are typed while another widget has the focus, such as a fold, into the message, unless
        they are keys of that widget."""
        if event.is_printable and event.key not in self.active_bindings:
            self._hand_to_composer(event, events.Key(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        self._hand_to_composer(event, events.Paste(event.text))

    def _hand_to_composer(self, event: events.Event, copy: events.Event) -> None:
        event.stop()
        self.set_focus(self.composer)
        self.composer._forward_event(copy)  # noqa: SLF001  a posted event would be handled by the app again

    async def action_escape(self) -> None:
        if self._shell is not None and not self._shell.is_finished:
            self._shell.cancel()
            return
        if self._is_running and self.conversation is not None:
            self._activity = "interrupting"
            await self.guard(self.conversation.session.cancel())
            return
        now = time.monotonic()
        if now - self._escape_at <= _ESCAPE_SECONDS:
            self._escape_at = 0.0
            self.run_worker(self.guard(self.command_rewind("")))
            return
        self._escape_at = now
        self.composer.focus()

    def on_message_editor_keys_handled(self, event: MessageEditor.KeysHandled) -> None:
        event.stop()
        event.then()

    def action_copy_or_quit(self) -> None:
        self.composer.after_keys(self._copy_or_quit)

    def _copy_or_quit(self) -> None:
        selected = self.get_selected_text() or self.composer.selected_text
        if selected:
            self.run_worker(self.copy_text(selected))
        elif self.composer.text:
            self.composer.clear_all()
        elif self._is_running or (self._shell is not None and not self._shell.is_finished):
            self.run_worker(self.action_escape())
        elif time.monotonic() - self._quit_at < 2:
            self.leave()
        else:
            self._quit_at = time.monotonic()
            self.notify("Press Ctrl+C again to exit. The conversation is saved.")

    def action_end_of_input(self) -> None:
        self.composer.after_keys(self._end_of_input)

    def _end_of_input(self) -> None:
        if not self.composer.text:
            self.leave()
        else:
            self.composer.action_delete_right()

    def action_toggle_folds(self) -> None:
        self.transcript.toggle_folds()

    def action_scroll_transcript(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_scroll_ends(self, direction: int) -> None:
        if direction < 0:
            self.transcript.scroll_home(animate=False)
        else:
            self.transcript.anchor()
            self.transcript.scroll_end(animate=False)

    def action_cycle_permission(self) -> None:
        at = PERMISSIONS.index(self.state.permission)
        self.set_state(permission=PERMISSIONS[(at + 1) % len(PERMISSIONS)])

    def action_cycle_thinking(self) -> None:
        at = _THINKING.index(self.state.thinking) if self.state.thinking in _THINKING else 0
        self.run_worker(self.guard(self.set_thinking(_THINKING[(at + 1) % len(_THINKING)])))

    def action_show_work(self) -> None:
        self.run_worker(self.guard(self.command_work("")))

    def action_toggle_branches(self) -> None:
        self.run_worker(self.guard(self.command_tree("")))

    def action_choose_model(self) -> None:
        self.run_worker(self.guard(self.command_model("")))

    def action_show_context(self) -> None:
        self.run_worker(self.guard(self.command_context("")))

    def action_show_sessions(self) -> None:
        self.run_worker(self.guard(self.command_sessions("")))

    def action_run_command(self, name: str) -> None:
        """Run a `/` command; one that needs an argument is inserted into the message instead."""
        command = find_command(name)
        if command is None:
            return
        if command.arguments and not command.arguments.startswith("["):
            self.composer.put_back(f"/{command.name} ", {})
            self.composer.focus()
        else:
            self.run_worker(self.guard(getattr(self, f"command_{command.action}")("")))

    async def action_send_sample(self, number: int) -> None:
        """Send one of the samples that are part of Loom."""
        from loom.providers.samples import samples

        sample = samples()[number]
        self.composer.clear_all()
        self.composer.insert(sample.question + " ")
        self.attach(Attachment(source=sample.data, name=sample.name))
        self.composer.focus()
        self.composer.action_submit()

    def action_view_document(self, digest: str) -> None:
        from loom.tui.message_widgets import DocumentLine

        for line in self.query(DocumentLine):
            if line.block.media.digest == digest:
                self.view_document(line.block)
                return
