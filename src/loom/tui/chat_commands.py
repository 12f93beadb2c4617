"""ChatCommands: what the `/` commands and their keys do."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loom.content.blocks import is_media_block
from loom.content.inputs import Attachment
from loom.errors import ContentError, LoomError
from loom.tui.branch_pane import BranchPane, branch_lines, count_leaves
from loom.tui.chips import Chip
from loom.tui.text_content import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.geometry import Size

    from loom.tui.app import LoomApp
    from loom.tui.backend import Backend, OpenConversation, PathMessage
    from loom.tui.glyphs import Glyphs
    from loom.tui.image_protocol import ImageProtocol
    from loom.tui.message_editor import MessageEditor
    from loom.tui.status_line import StatusValues
    from loom.tui.transcript import TranscriptView
    from loom.tui.usage_log import UsageLog

_MENTION: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"]+)"|(\S+))')
_PUNCTUATION: Final = ",.;:!?)"
NEWEST: Final = 100
"""Messages that are read when a conversation is opened."""
_SIDE_PANE_COLUMNS: Final = 100
_SHELL_BYTES: Final = 30_000
_EMPTY: Final = "The conversation is empty."


class ChatCommands:
    """Mixed into the chat screen."""

    if TYPE_CHECKING:
        backend: Backend | None
        conversation: OpenConversation | None
        model: str
        state: StatusValues
        usage_log: UsageLog
        glyphs: Glyphs
        protocol: ImageProtocol
        query_one: Any
        query: Any
        notify: Any
        mount: Any

        @property
        def app(self) -> LoomApp: ...
        @property
        def composer(self) -> MessageEditor: ...
        @property
        def size(self) -> Size: ...
        def attach(self, item: Attachment) -> None: ...
        def set_state(self, **changes: object) -> None: ...
        def refresh_plan(self) -> None: ...
        async def open_new(self) -> None: ...
        async def open_session(self, session_id: str) -> None: ...
        async def reload(self) -> None: ...
        async def report(self, error: LoomError) -> None: ...

    # The transcript --------------------------------------------------------------------------------------------------

    @property
    def transcript(self) -> TranscriptView:
        from loom.tui.transcript import TranscriptView

        return self.query_one(TranscriptView)

    async def show_transcript(self, path: Sequence[PathMessage]) -> None:
        """Show a path; without messages, what to begin with."""
        from loom.tui.transcript import TranscriptView
        from loom.tui.welcome import Welcome

        assert self.backend is not None
        main = self.query_one("#main")
        await main.remove_children()
        is_cut = self.conversation is not None and len(path) >= NEWEST
        load_path = self.conversation.path if is_cut and self.conversation is not None else None
        shown = TranscriptView(self.glyphs, self.protocol, self.backend.media, load_path)
        await main.mount(shown)
        if path:
            await shown.load(path)
        else:
            await shown.mount(Welcome(self.glyphs, self.protocol, self.model))

    # Conversations ---------------------------------------------------------------------------------------------------

    def _opened(self) -> OpenConversation:
        if self.conversation is None:
            raise LoomError(_EMPTY, hint="Say something first.")
        return self.conversation

    def _connected(self) -> Backend:
        if self.backend is None:
            raise LoomError("Still opening the store.", hint="Try again in a moment.")
        return self.backend

    async def command_new(self, _: str) -> None:
        await self.open_new()

    async def command_sessions(self, query: str) -> None:
        from loom.tui.session_screen import SessionScreen

        chosen = await self.app.push_screen_wait(SessionScreen(self._connected(), self.glyphs, query))
        if chosen == "":
            await self.open_new()
        elif chosen is not None:
            await self.open_session(chosen)

    async def command_rename(self, title: str) -> None:
        if not title:
            raise LoomError("No title given.", hint="Example: /rename Login page triage")
        await self._opened().rename(title)
        self.set_state(title=title)

    async def command_fork(self, _: str) -> None:
        forked = await self._opened().fork()
        await self.open_session(forked)
        self.notify("This is a new session; the old one is unchanged.")

    async def command_compact(self, _: str) -> None:
        conversation = self._opened()
        before = len(await conversation.path())
        await conversation.compact()
        await self.reload()
        self.notify(f"{before} messages summarised; all of them are still in the tree (Ctrl+T).")

    async def command_export(self, name: str) -> None:
        conversation = self._opened()
        info, path = await conversation.info(), await conversation.path()
        slug = re.sub(r"[^\w-]+", "-", info.title).strip("-")[:60]
        file = Path(name or f"{slug or info.id}.md")
        parts = [f"# {info.title or 'Conversation'}"]
        for placed in path:
            who = "you" if placed.message.role == "user" else placed.speaker or placed.message.role
            if placed.message.text.strip():
                parts.append(f"## {who}\n\n{placed.message.text.strip()}")
        await asyncio.to_thread(_write_new_file, file, "\n\n".join(parts) + "\n")
        self.notify(f"Written: {file}")

    # Branches --------------------------------------------------------------------------------------------------------

    async def refresh_branches(self) -> None:
        if self.conversation is None:
            self.set_state(branches=1)
            return
        tree = await self.conversation.tree()
        self.set_state(branches=max(count_leaves(tree), 1))
        for pane in self.query(BranchPane):
            pane.show(branch_lines(tree, (await self.conversation.info()).head))

    async def command_tree(self, _: str) -> None:
        if self.size.width < _SIDE_PANE_COLUMNS:
            await self._choose_branch()
            return
        pane = next(iter(self.query(BranchPane)), None)
        if pane is None:
            pane = BranchPane(self.glyphs)
            await self.query_one("#middle").mount(pane, before=0)
        pane.display = not pane.display
        await self.refresh_branches()
        (pane if pane.display else self.composer).focus()

    async def _choose_branch(self) -> None:
        from loom.tui.branch_screen import BranchScreen

        conversation = self._opened()
        lines = branch_lines(await conversation.tree(), (await conversation.info()).head)
        node = await self.app.push_screen_wait(BranchScreen(lines, self.glyphs, "Branches"))
        if node:
            await self.go(node)

    async def on_branch_pane_node_chosen(self, event: BranchPane.NodeChosen) -> None:
        event.stop()
        try:
            await self.go(event.node)
        except LoomError as error:
            await self.report(error)
        self.composer.focus()

    async def go(self, node: str) -> None:
        """Continue from a message; nothing is overwritten."""
        await self._opened().go(node)
        await self.reload()

    async def command_rewind(self, _: str) -> None:
        """Go back before one of the user's messages, and edit it: what is sent then is a sibling of it."""
        from loom.tui.branch_screen import BranchScreen

        conversation = self._opened()
        tree = {message.node: message for message in await conversation.tree()}
        path = {placed.node: placed.message for placed in await conversation.path()}
        head = (await conversation.info()).head
        lines = [line for line in branch_lines(tuple(tree.values()), head) if line.speaker == "you" and line.is_on_path]
        if not lines:
            raise LoomError(_EMPTY)
        title = "Edit an earlier message: the answers to it stay as a branch"
        node = await self.app.push_screen_wait(BranchScreen(lines, self.glyphs, title))
        if not node:
            return
        chosen, parent = path[node], tree[node].parent
        blocks = [block for block in chosen.blocks if is_media_block(block)]
        if parent is None:
            raise LoomError("This message has nothing before it.", hint="Use /new instead.")
        await conversation.go(parent)
        await self.reload()
        self.composer.put_back(chosen.text, {})
        for number, block in enumerate(blocks, 1):
            from loom.tui.chips import token_for

            token = token_for([block], number, "attachment")
            self.composer.chips[token] = Chip(token=token, blocks=(block,))
            if token not in self.composer.text:
                self.composer.insert(f"{token} ", (0, 0))

    async def command_undo(self, step: str) -> None:
        if step and not step.isdigit():
            raise LoomError("A step is a number.", hint="Example: /undo, or /undo 2 for that step and all later ones.")
        for line in await self._opened().undo(int(step) if step else None):
            await self.transcript.notice(line)

    async def command_retry(self, model: str) -> None:
        conversation = self._opened()
        path = await conversation.path()
        asked = next((at for at in range(len(path) - 1, -1, -1) if path[at].message.role == "user"), None)
        if asked is None:
            raise LoomError(_EMPTY)
        await conversation.regenerate(path[-1].node, model=model)
        await self.reload()

    # Model, context, usage -------------------------------------------------------------------------------------------

    async def command_model(self, name: str) -> None:
        if not name:
            from loom.tui.model_screen import ModelScreen

            screen = ModelScreen(self._connected(), self.conversation, self.glyphs, self.model)
            name = await self.app.push_screen_wait(screen) or ""
        if name:
            await self.use_model(name)

    async def use_model(self, name: str) -> None:
        if self.conversation is not None:
            await self.conversation.use(name)
        self.model = name
        self.set_state(model=name)
        self.refresh_plan()

    async def command_context(self, _: str) -> None:
        from loom.tui.context_screen import ContextScreen

        conversation = self._opened()
        await self.app.push_screen_wait(ContextScreen(self._connected(), conversation, self.glyphs, self.model))
        self.refresh_plan()

    async def command_usage(self, _: str) -> None:
        from loom.tui.usage_screen import UsageScreen

        self.app.push_screen(UsageScreen(self.usage_log, self.state))

    async def command_permission(self, mode: str) -> None:
        modes = ("ask", "auto", "plan", "deny")
        if mode and mode not in modes:
            raise LoomError(f"Permission is {', '.join(modes)}, not {one_line(mode, 20)}.")
        at = modes.index(self.state.permission)
        self.set_state(permission=mode or modes[(at + 1) % len(modes)])

    # Attachments -----------------------------------------------------------------------------------------------------

    async def command_attach(self, name: str) -> None:
        from loom.runtime.attachments import attachment

        if not name:
            raise LoomError("No file given.", hint="Example: /attach report.pdf#3-7")
        self.attach(attachment(name.strip("\"'")))

    async def command_paste(self, _: str) -> None:
        from loom.runtime.attachments import read_clipboard

        for item in await asyncio.to_thread(read_clipboard):
            self.attach(item)

    async def mentioned_files(self, words: str) -> tuple[list[Any], list[str]]:
        """Return blocks for the media that `@file` names in the text, and notices. Text files stay mentions: the agent
        is kept informed of them."""
        from loom.formats.sniff.kinds import type_of_name
        from loom.runtime.attachments import existing_file

        assert self.backend is not None
        found: list[Any] = []
        notices: list[str] = []
        for match in _MENTION.finditer(words):
            name = match[1] or match[2]
            item = existing_file(name) or existing_file(name.rstrip(_PUNCTUATION))
            if item is None:
                if "." in name.strip(_PUNCTUATION) or "/" in name:
                    notices.append(f"file not found: {name}; sent as text")
                continue
            media_type = type_of_name(str(item.source)) or "text/plain"
            if not media_type.startswith("text/"):
                made = await self.backend.ingest(item)
                found += made.blocks
                notices += made.notices
        return found, notices

    # The shell and the editor ----------------------------------------------------------------------------------------

    async def run_shell(self, command: str) -> None:
        """`!command`: run it here, show it, and offer its output to the next message as a chip."""
        from loom.tui.shell_card import ShellCard

        card = ShellCard(self.glyphs, command)
        await self.transcript.mount(card)
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        text = output.decode(errors="replace")
        card.finish(text, process.returncode or 0)
        shown = text if len(text) <= _SHELL_BYTES else f"{text[:_SHELL_BYTES]}\n[cut at {_SHELL_BYTES} characters]"
        self.composer.add_chip(Chip(token=f"[$ {one_line(command, 24)}]", text=f"$ {command}\n{shown.rstrip()}\n"))

    def on_message_editor_editor_wanted(self) -> None:
        text = self.edit_outside(self.composer.text)
        if text is not None:
            self.composer.load_text(text)
            self.composer.move_cursor(self.composer.document.end)

    def edit_outside(self, text: str) -> str | None:
        """Let the user edit a text in $VISUAL or $EDITOR; None if that failed."""
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

    # The rest --------------------------------------------------------------------------------------------------------

    async def command_copy(self, _: str) -> None:
        path = await self._opened().path()
        text = next(
            (it.message.text for it in reversed(path) if it.message.role == "assistant" and it.message.text), ""
        )
        if not text:
            raise ContentError("There is no answer yet.")
        self.app.copy_to_clipboard(text)
        self.notify("The last answer was copied.")

    async def command_theme(self, name: str) -> None:
        if not name:
            self.app.search_themes()
        elif name in self.app.available_themes:
            self.app.theme = name
        else:
            raise LoomError(f"No theme {one_line(name, 30)}.", hint="/theme lists them.")

    async def command_images(self, _: str) -> None:
        self.notify(f"Pictures: {self.protocol}. Change it with LOOM_IMAGES=off, halfcell, sixel, kitty or iterm2.")

    async def command_help(self, _: str) -> None:
        from loom.tui.help_screen import HelpScreen

        self.app.push_screen(HelpScreen())

    async def command_quit(self, _: str) -> None:
        self.app.exit()


def _write_new_file(file: Path, text: str) -> None:
    try:
        with file.expanduser().open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise LoomError(f"{file} exists.", hint="Give another name: /export FILE") from None
    except OSError as error:
        raise LoomError(
            f"{file} cannot be written: {error.strerror}.", hint="Give another name: /export FILE"
        ) from None
