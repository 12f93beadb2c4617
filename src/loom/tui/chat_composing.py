"""ChatComposing: turns the input into messages, commands and shell commands, files into chips, and completes words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from textual import events
from textual.worker import WorkerError

from loom.content.inputs import Attachment, Content
from loom.content.messages import title_of, user
from loom.errors import LoomError, NotFound
from loom.tui.chat_library import ChatLibrary
from loom.tui.chat_turns import ChatTurns
from loom.tui.chips import Chip, expand
from loom.tui.completion_list import CompletionList
from loom.tui.conversation import OpenConversation
from loom.tui.message_editor import MessageEditor
from loom.tui.slash_commands import COMMANDS, TuiCommand, complete_command, find_command, similar_command
from loom.tui.text_content import one_line

if TYPE_CHECKING:
    from loom.api_types import CommandView

_SENDING: Final = "sending"
"""The group of workers that store messages; the application waits for them before it exits."""
_SHELL_CHARS: Final = 30_000


class ChatComposing(ChatTurns):
    """The part of the chat screen that sends, queues and attaches."""

    async def connect(self, library: ChatLibrary, *, session: str, model: str, notices: tuple[str, ...]) -> None:
        await super().connect(library, session=session, model=model, notices=notices)
        unsent, self._unsent = self._unsent, []
        for text, chips in unsent:
            await self.run_worker(self._send(text, chips), group=_SENDING).wait()

    def leave(self) -> None:
        """Exit once every sent message is stored."""
        self.composer.after_keys(lambda: self.run_worker(self._exit_when_sent()))

    async def _exit_when_sent(self) -> None:
        if self._unsent:  # sent before the store was open
            await self._connected_event.wait()
        while sending := [it for it in self.workers if it.group == _SENDING and not it.is_finished]:
            with contextlib.suppress(WorkerError):
                await sending[0].wait()
        self.app.exit()

    # Sending ---------------------------------------------------------------------------------------------------------

    async def on_message_editor_submitted(self, event: MessageEditor.Submitted) -> None:
        text = event.text.strip()
        if text.startswith("/") and "\n" not in text and await self._run_command(event):
            return
        if text.startswith("!") and len(text) > 1 and "\n" not in text:
            if self._shell is not None and not self._shell.is_finished:
                self.notify("A command is still running. Esc stops it.", severity="warning")
                self.composer.put_back(event.text + self.composer.text, {**event.chips, **self.composer.chips})
                return
            self._shell = self.run_worker(self.run_shell(text[1:].strip()))
            return
        if self.library is None:
            self._unsent.append((event.text, event.chips))
            return
        self.run_worker(self._send(event.text, event.chips, is_queued=event.is_queued), group=_SENDING)

    async def _run_command(self, event: MessageEditor.Submitted) -> bool:
        name, _, rest = event.text.strip()[1:].partition(" ")
        command = find_command(name)
        if command is None:
            if "/" in name or name in [it.name for it in await self.message_commands()]:
                return False  # a path that begins a sentence, or a command that the session expands
            meant = f" Did you mean /{close}?" if (close := similar_command(name)) else ""
            self.notify(f"Unknown command /{one_line(name, 40)}.{meant} F1 lists the commands.", severity="warning")
            self.composer.put_back(event.text + self.composer.text, {**event.chips, **self.composer.chips})
            return True
        run: Callable[[str], Awaitable[None]] = getattr(self, f"command_{command.action}")
        self.run_worker(self.guard(run(rest.strip())))
        return True

    async def _send(self, text: str, chips: dict[str, Chip], *, is_queued: bool = False) -> None:
        assert self.library is not None
        try:
            await asyncio.gather(*self._readers)
            blocks = [block for chip in chips.values() for block in chip.blocks]
            words = expand(text, chips)
            if self._warn_of_missing_mentions(text):
                self.composer.put_back(text, chips)
                return
            mentioned, notices = await self.mentioned_files(words)
            content: list[Content] = [*blocks, *mentioned, *([words] if words else [])]
            if not content:
                return
            for notice in notices:
                await self.transcript.notice(notice)
            if self.conversation is None:
                title, system = title_of(user(*([words] if words else []), *blocks)), ""
                if self.apply_template is not None:
                    words, system = self.apply_template(words or ", ".join(chip.label for chip in chips.values()))
                    content = [*blocks, *mentioned, words]
                await self._adopt(await self.library.create(title=title, model=self.model, system=system))
                assert self.conversation is not None
            if self._is_running and not is_queued:
                queued = await self.conversation.session.steer(*content)
            else:
                await self._apply_plan_mode(self.conversation)
                queued = await self.conversation.session.post(*content, options=self.sampling)
            self.conversation.work()
        except LoomError as error:
            self.composer.put_back(text, chips)
            await self.report(error)
            return
        # The message is stored from here on: an error below must not put it back into the composer.
        self._queued_chips[queued.id] = (text, chips)
        self._images += sum("[Image #" in token for token in chips)
        await self.guard(self.refresh_queue())

    def _warn_of_missing_mentions(self, typed: str) -> bool:
        """Warn the user if a message mentions files that do not exist; return whether to hold it back.
        Sending it again sends the mentions as text. What a pasted chip contains was not typed as a mention."""
        from loom.runtime.workspace_files import missing_files_notice, missing_mentions

        missing = missing_mentions(self.workspace, typed)
        if not missing or self._warned_about == typed:
            self._warned_about = ""
            return False
        self._warned_about = typed
        self.notify(f"{missing_files_notice(missing)} Enter sends it as text.", severity="warning")
        return True

    async def _apply_plan_mode(self, conversation: OpenConversation) -> None:
        """Turn plan mode of the session on or off, as the permission requires."""
        plans = self.state.permission == "plan"
        if plans != self._plans:
            await conversation.session.change(plan_mode=plans)
            self._plans = plans

    async def message_commands(self) -> tuple[CommandView, ...]:
        """Return the user's own commands and the prompts of MCP servers, read once per screen."""
        if self._more_commands is None and self.library is not None:
            self._more_commands = await self.library.commands()
        return self._more_commands or ()

    async def on_message_editor_queued_wanted(self) -> None:
        """Take the last message out of the queue, and edit it."""
        waiting = await self.conversation.session.queue() if self.conversation is not None else ()
        for queued in reversed(waiting):
            if queued.message is not None and not queued.node and await self._unqueue(queued.id):
                text, chips = self._queued_chips.get(queued.id, (queued.message.text, {}))
                self.composer.put_back(text, chips)
                break
        await self.refresh_queue()

    async def on_message_editor_paused_wanted(self) -> None:
        """Resume the paused messages."""
        if self.conversation is not None:
            await self.guard(self.conversation.session.resume_queue())
            self.conversation.work()
            await self.refresh_queue()

    async def _unqueue(self, queued: str) -> bool:
        assert self.conversation is not None
        try:
            await self.conversation.session.remove_queued(queued)
        except NotFound:  # its turn has started
            return False
        except LoomError as error:
            await self.report(error)
            return False
        return True

    # Attachments -----------------------------------------------------------------------------------------------------

    def on_message_editor_files_dropped(self, event: MessageEditor.FilesDropped) -> None:
        for path in event.paths:
            self.attach(Attachment(source=path))

    async def on_message_editor_clipboard_wanted(self, event: MessageEditor.ClipboardWanted) -> None:
        await self.guard(self.paste_clipboard())

    async def paste_clipboard(self) -> None:
        """Attach the image or the files on the clipboard, or insert its text."""
        from loom.runtime.clipboard import read_clipboard

        found = await asyncio.to_thread(read_clipboard)
        for item in found.attachments:
            self.attach(item)
        if found.text:
            self.composer.post_message(events.Paste(found.text))

    def attach(self, item: Attachment) -> None:
        """Insert a chip, and read the file in the background."""
        name = item.name or (item.source.name if isinstance(item.source, Path) else "file")
        looks_like_image = name.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic"))
        token = f"[Image #{self._next_image()}]" if looks_like_image else f"[{name}]"
        chip = self.composer.add_chip(Chip(token=token, state="reading", label=name))
        task = asyncio.create_task(self._read_chip(chip, item, name))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _read_chip(self, chip: Chip, item: Attachment, name: str) -> None:
        from loom.tui.chips import token_for

        await self._connected_event.wait()
        assert self.library is not None
        try:
            found = await self.library.ingest(item)
        except LoomError as error:
            self.composer.remove_chip(chip)
            await self.report(error)
            return
        chip.blocks, chip.state = found.blocks, "ready"
        if not chip.token.startswith("[Image #") or not token_for(found.blocks, 0, name).startswith("[Image #"):
            self.composer.rename_chip(chip, token_for(found.blocks, self._next_image(), name))
        for notice in found.notices:
            self.notify(notice)

    def _next_image(self) -> int:
        return self._images + sum(token.startswith("[Image #") for token in self.composer.chips) + 1

    async def mentioned_files(self, words: str) -> tuple[list[Any], list[str]]:
        """Return blocks for the media that `@file` mentions in the text, and notices. Mentions of text files stay text:
        the session informs the agent of these files."""
        from loom.agent.tracked_files import PUNCTUATION, mentions
        from loom.formats.sniff.kinds import type_of_name
        from loom.runtime.attachments import existing_file

        assert self.library is not None
        found: list[Any] = []
        notices: list[str] = []
        for name in mentions(words):
            files = (existing_file(str(self.workspace / it)) for it in (name, name.rstrip(PUNCTUATION)))
            item = next((it for it in files if it is not None), None)
            if item is None:
                continue
            media_type = type_of_name(str(item.source)) or "text/plain"
            if not media_type.startswith("text/"):
                made = await self.library.ingest(item)
                found += made.blocks
                notices += made.notices
        return found, notices

    # The shell and the editor ----------------------------------------------------------------------------------------

    async def run_shell(self, command: str) -> None:
        """Run `!command`, show it, and add its output to the message as a chip. Esc cancels it."""
        from loom.compile.measure import elide_middle
        from loom.tools.commands import SHELL, Output
        from loom.tools.processes import run_typed_command
        from loom.tui.shell_card import ShellCard

        card = ShellCard(self.glyphs, command)
        await self.transcript.mount(card)
        output = Output()
        try:
            code = await run_typed_command((SHELL, "-c", command), self.workspace, output.add)
        except LoomError as error:
            await self.report(error)
            return
        except asyncio.CancelledError:
            if self.is_attached:  # otherwise the program is exiting
                card.finish(output.text(), None)
            raise
        text = output.text()
        card.finish(text, code)
        shown = elide_middle(text.rstrip(), _SHELL_CHARS)
        self.composer.add_chip(Chip(token=f"[$ {one_line(command, 24)}]", text=f"$ {command}\n{shown}\n"))

    def on_message_editor_editor_wanted(self) -> None:
        text = self.edit_outside(self.composer.text)
        if text is not None:
            self.composer.load_text(text)
            self.composer.move_cursor(self.composer.document.end)

    def edit_outside(self, text: str) -> str | None:
        """Let the user edit a text in $VISUAL or $EDITOR. Return None if that failed."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        with tempfile.TemporaryDirectory(prefix="loom-") as folder:
            file = Path(folder) / "message.md"
            file.write_text(text, encoding="utf-8")
            try:
                with self.app.suspend():
                    code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
            except OSError:
                self.notify(f"{editor} cannot be started. Set EDITOR.", severity="error")
                return None
            if code != 0:
                self.notify(f"{editor} failed; the message is unchanged.", severity="warning")
                return None
            return file.read_text(encoding="utf-8", errors="replace").rstrip("\n")

    # Completion ------------------------------------------------------------------------------------------------------

    async def on_message_editor_word_changed(self, event: MessageEditor.WordChanged) -> None:
        shown = self.query_one(CompletionList)
        match event.trigger:
            case "/":
                more = [
                    TuiCommand(name=it.name, help=it.description, action="", arguments="[TEXT]")
                    for it in await self.message_commands()
                ]
                shown.show(complete_command(event.word, (*COMMANDS, *more)))
            case "@":
                shown.show(await self.files.find(event.word, self.glyphs, anew=not event.word))
            case _:
                shown.hide()
        self.composer.is_completing = shown.display

    def handle_completion_key(self, key: str) -> None:
        shown = self.query_one(CompletionList)
        match key:
            case "up":
                shown.move(-1)
            case "down":
                shown.move(1)
            case "escape":
                shown.hide()
                self.composer.is_completing = False
            case _:
                self._complete(shown, is_enter=key == "enter")

    def _complete(self, shown: CompletionList, *, is_enter: bool) -> None:
        chosen = shown.choice
        shown.hide()
        self.composer.is_completing = False
        if chosen is None:
            return
        is_command = chosen.value.startswith("/")
        _, word = self.composer.word_at_cursor()
        if is_command and is_enter and chosen.value == f"/{word}":
            self.composer.action_submit()
        elif is_command:
            self.composer.complete_word(chosen.value)
            if is_enter and not chosen.value.endswith(" "):
                self.composer.is_completing = False
                self.composer.action_submit()
        elif chosen.value.rstrip('"').endswith("/"):
            self.composer.complete_word(chosen.value)
        else:
            self._complete_file(chosen.value)

    def _complete_file(self, value: str) -> None:
        """Complete the name of a file: a medium becomes a chip; a text file stays a mention, of which the session
        informs the agent."""
        from loom.formats.sniff.kinds import type_of_name

        name = value[1:].strip('"')
        media_type = type_of_name(name) or "text/plain"
        if media_type.startswith("text/") or not media_type.startswith(("image/", "audio/", "video/", "application/")):
            self.composer.complete_word(f"{value} ")
            return
        self.composer.complete_word("")
        self.attach(Attachment(source=self.workspace / Path(name).expanduser()))
