"""ChatCommands: the actions of the `/` commands and their keys."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from loom.content.blocks import DocumentBlock, TextBlock, is_media_block
from loom.errors import ContentError, LoomError
from loom.models import THINKING_LEVELS
from loom.sampling import sampling_of
from loom.tui.branch_pane import BranchPane, branch_lines
from loom.tui.chat_composing import ChatComposing
from loom.tui.chat_state import EMPTY
from loom.tui.chips import Chip
from loom.tui.message_widgets import DocumentLine
from loom.tui.text_content import one_line
from loom.tui.work_pane import WorkPane, WorkScreen

if TYPE_CHECKING:
    from loom.message_types import PlanView

_SIDE_PANE_COLUMNS: Final = 100


class ChatCommands(ChatComposing):
    """Commands `/NAME`: each is a method `command_ACTION` and an entry of `slash_commands`."""

    # Conversations ---------------------------------------------------------------------------------------------------

    async def command_new(self, _: str) -> None:
        await self.open_new()

    async def command_sessions(self, query: str) -> None:
        from loom.tui.session_screen import SessionScreen

        chosen = await self.app.push_screen_wait(SessionScreen(self.require_library(), query))
        if chosen == "":
            await self.open_new()
        elif chosen is not None:
            await self.open_session(chosen)

    async def command_rename(self, title: str) -> None:
        if not title:
            raise LoomError("No title given.", hint="Example: /rename Login page triage")
        await self.require_conversation().session.rename(title)
        self.set_state(title=title)

    async def command_fork(self, _: str) -> None:
        forked = await self.require_conversation().session.fork()
        await self.open_session(forked.id)
        self.notify("This is a new session; the old one is unchanged.")

    async def command_compact(self, _: str) -> None:
        from loom.estimates import compaction_label
        from loom.tui.confirm_screen import ConfirmScreen

        conversation = self.require_conversation()
        (planned,) = (await conversation.session.plan_table([self.model], compact=True)).models.values()
        if planned.estimate is not None:
            text = compaction_label(planned.estimate)
            screen = ConfirmScreen("Summarize the conversation?", text, "summarize; all messages stay in the tree")
            if not await self.app.push_screen_wait(screen):
                return
        await conversation.session.post_compact()
        conversation.work()
        self.notify("Summarizing; all messages stay in the tree (Ctrl+T).")

    async def command_export(self, name: str) -> None:
        conversation = self.require_conversation()
        info, path = await conversation.session.info(), await conversation.path()
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

        conversation = self.require_conversation()
        lines = branch_lines(await conversation.tree(), (await conversation.session.info()).head)
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
        """Continue from a message; no message is overwritten."""
        await self.require_conversation().session.go(node)
        await self.reload()

    async def command_rewind(self, _: str) -> None:
        """Move the head before one of the user's messages, and edit a copy of it, which is sent as its sibling."""
        from loom.tui.branch_screen import BranchScreen

        conversation = self.require_conversation()
        tree = {message.node: message for message in await conversation.tree()}
        path = {placed.node: placed.message for placed in await conversation.path()}
        head = (await conversation.session.info()).head
        lines = [line for line in branch_lines(tuple(tree.values()), head) if line.speaker == "you" and line.is_on_path]
        if not lines:
            raise LoomError(EMPTY)
        title = "Edit an earlier message: the answers to it stay as a branch"
        node = await self.app.push_screen_wait(BranchScreen(lines, self.glyphs, title))
        if not node:
            return
        chosen, parent = path[node], tree[node].parent
        if parent and chosen.text.strip():
            session = conversation.session
            await self._warn(await session.plan_table([self.model], at=parent, content=[TextBlock(chosen.text)]))
        blocks = [block for block in chosen.blocks if is_media_block(block)]
        if parent is None:
            raise LoomError("This is the first message.", hint="Use /new instead.")
        await conversation.session.go(parent)
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
            raise LoomError("Not a step number.", hint="Example: /undo, or /undo 2 for that step and all later ones.")
        report = await self.require_conversation().session.undo(int(step) if step else None)
        for line in report.files:
            await self.transcript.notice(line)

    async def command_retry(self, model: str) -> None:
        conversation = self.require_conversation()
        path = await conversation.path()
        asked = next((at for at in range(len(path) - 1, -1, -1) if path[at].message.role == "user"), None)
        if asked is None:
            raise LoomError(EMPTY)
        await conversation.session.post_again(path[-1].node, model=model)
        conversation.work()

    # Model, context, usage -------------------------------------------------------------------------------------------

    async def command_model(self, name: str) -> None:
        if not name:
            from loom.tui.model_screen import ModelScreen

            screen = ModelScreen(self.require_library(), self.conversation, self.glyphs, self.model)
            name = await self.app.push_screen_wait(screen) or ""
        elif self.conversation is not None:
            await self._warn(await self.conversation.session.plan_table([name]))
        if name:
            await self.use_model(name)

    async def _warn(self, planned: PlanView) -> None:
        """Show the cached tokens that an action discards, if any. `planned` is the plan of the action for one model."""
        from loom.estimates import discard_label

        (model,) = planned.models.values()
        if model.estimate is not None and model.estimate.discards is not None:
            self.notify(discard_label(model.estimate.discards), severity="warning")

    async def use_model(self, name: str) -> None:
        if self.conversation is not None:
            await self.conversation.session.use(name)
        self.model = name
        self.set_state(model=name)
        self.refresh_plan()

    async def command_context(self, _: str) -> None:
        from loom.tui.context_screen import ContextScreen

        conversation = self.require_conversation()
        await self.app.push_screen_wait(ContextScreen(self.require_library(), conversation, self.glyphs, self.model))
        self.refresh_plan()

    async def command_usage(self, _: str) -> None:
        from loom.tui.usage_screen import UsageScreen

        usage = await self.conversation.session.usage() if self.conversation is not None else None
        self.app.push_screen(UsageScreen(self.usage_log, usage))

    async def command_think(self, level: str) -> None:
        """Set the thinking level of this conversation, if one is given; show the level."""
        levels = [it for it in THINKING_LEVELS if it]
        if level and level != "auto" and level not in levels:
            raise LoomError(f"Unknown level {one_line(level, 20)}.", hint=f"Levels: auto, {', '.join(levels)}.")
        if level:
            await self.set_thinking("" if level == "auto" else level)
        self.notify(f"Thinking: {self.state.thinking or 'auto'}. Levels: auto, {', '.join(levels)}.")

    async def set_thinking(self, level: str) -> None:
        """Set the thinking level of this conversation; an empty `level` leaves it to the model."""
        self.sampling = msgspec.structs.replace(self.sampling, thinking="")
        if self.conversation is None:
            self.sampling = sampling_of(self.sampling, thinking=level)
        else:
            session = self.conversation.session
            options = msgspec.structs.replace((await session.info()).options, thinking="")
            await session.set_options(sampling_of(options, thinking=level))
        self.set_state(thinking=level)
        self.refresh_plan()

    async def command_agent(self, name: str) -> None:
        """Use an agent for this conversation, or list the agents."""
        from loom.runtime.agents import STAYS, agent_list, chosen_agent

        library = self.require_library()
        agents = await library.agents()
        session = self.conversation.session if self.conversation is not None else None
        if not name:
            current = (await session.info()).agent if session is not None else library.agent
            self.notify(agent_list(agents, current), timeout=15)
            return
        chosen = chosen_agent(agents, name)
        chosen_name = chosen.name if chosen is not None else ""
        text = f"Agent: {chosen_name or 'none'}."
        if session is not None:
            await session.change(agent=chosen_name)
        else:
            library.agent = chosen_name
            if chosen is not None and chosen.model:
                await self.use_model(chosen.model)
        self.notify(f"{text} {STAYS}" if chosen is not None and session is not None else text)
        for notice in chosen.notices if chosen is not None else ():
            self.notify(notice, severity="warning")
        self.refresh_plan()

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

    async def command_view(self, _: str) -> None:
        lines = list(self.query(DocumentLine))
        if not lines:
            raise LoomError("No document in this conversation.", hint="Attach one: /attach report.pdf")
        self.view_document(lines[-1].block)

    def view_document(self, block: DocumentBlock) -> None:
        from loom.tui.document_screen import DocumentScreen

        self.app.push_screen(DocumentScreen(block, self.require_library(), self.protocol))

    async def command_paste(self, _: str) -> None:
        await self.paste_clipboard()

    # Work of the agent -----------------------------------------------------------------------------------------------

    async def command_work(self, _: str) -> None:
        """Show or hide the todo list and the background processes."""
        if self.size.width < _SIDE_PANE_COLUMNS:
            self.app.push_screen(WorkScreen(self.glyphs, self.stop_process))
        elif panes := self.query(WorkPane):
            await panes.remove()
            self.composer.focus()
        else:
            await self.query_one("#middle").mount(WorkPane(self.glyphs))
        self.refresh_work()

    async def on_work_pane_stop_wanted(self, event: WorkPane.StopWanted) -> None:
        event.stop()
        await self.stop_process(event.process)

    async def stop_process(self, process: str) -> None:
        await self.guard(self.require_conversation().session.stop_process(process))
        self.refresh_work()

    # Others ----------------------------------------------------------------------------------------------------------

    async def command_copy(self, _: str) -> None:
        path = await self.require_conversation().path()
        text = next(
            (it.message.text for it in reversed(path) if it.message.role == "assistant" and it.message.text), ""
        )
        if not text:
            raise ContentError("No answer yet.")
        await self.copy_text(text)

    async def command_theme(self, name: str) -> None:
        if not name:
            self.app.search_themes()
        elif name in self.app.available_themes:
            self.app.theme = name
        else:
            raise LoomError(f"Unknown theme {one_line(name, 30)}.", hint="/theme lists them.")

    async def command_images(self, _: str) -> None:
        self.notify(f"Images: {self.protocol}. Change it with LOOM_IMAGES=off, halfcell, sixel, kitty or iterm2.")

    async def command_help(self, _: str) -> None:
        from loom.tui.help_screen import HelpScreen

        self.app.push_screen(HelpScreen())

    async def command_quit(self, _: str) -> None:
        self.leave()


def _write_new_file(file: Path, text: str) -> None:
    try:
        with file.expanduser().open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise LoomError(f"{file} exists.", hint="Use another name: /export FILE") from None
    except OSError as error:
        raise LoomError(f"{file} cannot be written: {error.strerror}.", hint="Use another name: /export FILE") from None
