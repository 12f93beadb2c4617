"""ChatTurns: opens and follows a conversation; shows its events, approvals and queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from loom.content.messages import media_blocks
from loom.errors import ApprovalGone, LoomError
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    MessageQueued,
    MessageStored,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from loom.tui.approval_card import ApprovalCard
from loom.tui.branch_pane import BranchPane, branch_lines, count_leaves
from loom.tui.chat_library import ChatLibrary
from loom.tui.chat_state import NEWEST, ChatState, QueueStrip
from loom.tui.conversation import OpenConversation, PathMessage
from loom.tui.labels import short_model
from loom.tui.message_editor import MessageEditor
from loom.tui.status_line import ActivityLine
from loom.tui.text_content import one_line, plain_text
from loom.tui.usage_log import UsageLog
from loom.tui.work_pane import WorkPane

if TYPE_CHECKING:  # not imported before the first paint
    from loom.api_types import FolderTrustView

_TICK_SECONDS: Final = 1 / 8
_WORK_SECONDS: Final = 2
_DENIED: Final = {
    "plan": "this run only plans: say what you would do, and do not try it again",
    "deny": "tools that need approval are not allowed here",
}
_APPROVAL_PENDING: Final = "waiting for your approval"
PERMISSIONS: Final = ("ask", "auto", "plan", "deny")


class ChatTurns(ChatState):
    """The part of the chat screen that follows a conversation and its turns."""

    def on_mount(self) -> None:
        self.set_interval(_TICK_SECONDS, self._tick)
        self.set_interval(_WORK_SECONDS, self._watch_work)

    # Opening ---------------------------------------------------------------------------------------------------------

    async def connect(self, library: ChatLibrary, *, session: str, model: str, notices: tuple[str, ...]) -> None:
        """Show a conversation of the library. An empty `session` means a new one, stored with its first message."""
        self.library = library
        library.on_error = self._on_error
        self._connected_event.set()
        self.model = model
        self.set_state(place=library.place)
        if session:
            await self.open_session(session)
        else:
            await self.open_new()
            await self._ask_about_folder(library, "")
        for notice in notices:
            await self.transcript.notice(notice, kind="warning")

    def _on_error(self, error: LoomError) -> None:
        self.run_worker(self.report(error))

    async def open_new(self) -> None:
        """Show an empty conversation."""
        assert self.library is not None
        await self._stop_following()
        self.model = self.model or await self.library.default_model()
        self.usage_log = UsageLog()
        self._images = 0
        self._plans = False
        self.use_workspace("")
        self.set_state(
            title="",
            model=self.model,
            thinking=self.sampling.thinking,
            receipt=None,
            usage=msgspec.UNSET,
            usd=0.0,
            branches=1,
            todo="",
            processes=0,
        )
        await self.show_transcript(())

    async def open_session(self, session_id: str) -> None:
        """Show a stored conversation from its end, and continue its unfinished turn."""
        library = self.library
        assert library is not None
        conversation = await library.open(session_id)
        await self._stop_following()
        self.usage_log = UsageLog()
        await self._adopt(conversation)
        await self._ask_about_folder(library, (await conversation.session.info()).workspace)

    async def _ask_about_folder(self, library: ChatLibrary, workspace: str) -> None:
        """Ask once whether the instructions and settings in a folder may be used. An empty `workspace` means that of
        new sessions."""
        try:
            found = await library.folder_trust(workspace)
        except LoomError:  # the folder is gone, or the daemon's key does not permit trust decisions
            return
        is_trusted = await self._ask_once(found, are_settings_in_use=True)
        if is_trusted is not None:
            await library.library.decide_trust(found.folder, found.digest, is_trusted=is_trusted)

    async def ask_at_start(self, found: FolderTrustView) -> bool | None:
        """Ask whether the instructions and settings in a folder may be used, before any of them is. Return None if the
        user does not need to decide, or decides later."""
        return await self._ask_once(found, are_settings_in_use=False)

    async def _ask_once(self, found: FolderTrustView, *, are_settings_in_use: bool) -> bool | None:
        if not found.needs_decision or found.folder in self._asked_folders:
            return None
        self._asked_folders.add(found.folder)
        from loom.tui.trust_screen import TrustScreen

        return await self.app.push_screen_wait(TrustScreen(found, are_settings_in_use=are_settings_in_use))

    async def _adopt(self, conversation: OpenConversation) -> None:
        self.conversation = conversation
        info = await conversation.session.info()
        self.model = info.model
        self.use_workspace(info.workspace)
        path = await conversation.path(newest=NEWEST)
        self._images, self._has_messages = count_images(path), bool(path)
        self.set_state(
            title=info.title,
            model=info.model,
            thinking=self.sampling.thinking or info.options.thinking,
            receipt=None,
            usage=msgspec.UNSET,
            usd=0.0,
        )
        self._show_plan_mode(is_planning=info.plan_mode)
        await self.show_transcript(path)
        if conversation.running_model:
            self._begin_turn(conversation.running_model)
        from loom.tools.workspace import workspace_notice

        is_remote = self.library is not None and bool(self.library.place)
        if notice := workspace_notice(info.workspace, is_remote=is_remote):
            await self.transcript.notice(notice)
        if conversation.failure is not None:
            await self.transcript.show_failure(conversation.failure)
        self._follow()
        for request in await conversation.session.approvals():
            await self._ask(request)
        await self.refresh_queue()
        self.refresh_plan()
        self.refresh_work()
        await self.refresh_branches()

    def _show_plan_mode(self, *, is_planning: bool) -> None:
        """Show that plan mode began or ended elsewhere. What the user chose here is applied with the next message."""
        if is_planning == self._plans:
            return
        self._plans = is_planning
        if is_planning and self.state.permission == "ask":
            self.set_state(permission="plan")
        elif not is_planning and self.state.permission == "plan":
            self.set_state(permission="ask")

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None
        if self._is_running:
            title = one_line(self.state.title, 40) or "The other conversation"
            self.notify(f"{title} continues in the background. Ctrl+S opens it again.")
        self.conversation = None
        self._is_running = False
        self._queued_chips.clear()
        await self.query_one("#approvals").remove_children()
        await self.refresh_queue()

    def _follow(self) -> None:
        assert self.conversation is not None
        self._following = self.run_worker(partial(self._watch, self.conversation), group="events", exclusive=True)

    async def _watch(self, conversation: OpenConversation) -> None:
        events = conversation.events()
        try:
            async for event in events:
                await self._apply(event)
        except LoomError as error:
            await self.report(error)
        finally:
            await events.aclose()

    async def reload(self) -> None:
        """Show the path again, after the head has moved."""
        if self.conversation is not None:
            path = await self.conversation.path(newest=NEWEST)
            self._images, self._has_messages = count_images(path), bool(path)
            await self.show_transcript(path)
            self.refresh_plan()
            await self.refresh_branches()

    # Events ----------------------------------------------------------------------------------------------------------

    async def _apply(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._begin_turn(event.model)
                self.transcript.thinking = self.state.thinking
            case StepStarted():
                self._is_running, self._turn_model = True, event.model
                self._activity = f"waiting for {short_model(event.model)}"
            case TextDelta():
                self._activity = f"{short_model(self._turn_model)} is answering"
            case ThinkingDelta():
                self._activity = f"{short_model(self._turn_model)} is thinking"
            case ToolStarted():
                self._activity = f"running {one_line(event.call.name, 40)}"
            case ToolFinished():
                self._activity = f"waiting for {short_model(self._turn_model)}"
                self.refresh_work()
            case _:
                pass
        await self.transcript.apply(event)
        match event:
            case MessageStored() if event.message.role == "user":
                self._has_messages = True
                await self.refresh_queue()
            case MessageQueued():
                await self.refresh_queue()
            case ApprovalRequested():
                await self._ask(event)
            case ApprovalAnswered():
                await self._close_approval(event.approval, event.answer)
            case TurnFinished() | TurnFailed():
                await self._end_turn(event)
            case _:
                pass

    def _begin_turn(self, model: str) -> None:
        self._is_running, self._turn_began = True, time.monotonic()
        self._turn_model, self._activity = model, f"waiting for {short_model(model)}"

    async def _end_turn(self, event: TurnFinished | TurnFailed) -> None:
        self._is_running = False
        await self.query_one("#approvals").remove_children()
        assert self.library is not None
        if isinstance(event, TurnFinished):
            usd = self.library.price(self._turn_model, event.usage) if self._turn_model else None
            seconds = time.monotonic() - self._turn_began
            self.usage_log.add(self._turn_model, event.usage, usd, seconds)
            await self.transcript.show_footer(event.usage, usd, seconds)
            self.set_state(usage=event.usage)
        self.refresh_plan()
        self.refresh_work()
        await self.refresh_branches()
        await self.refresh_queue()
        if self.conversation is not None:
            info = await self.conversation.session.info()
            self.set_state(title=info.title)
            self._show_plan_mode(is_planning=info.plan_mode)
        self.app.announce(f"{short_model(self._turn_model)} is done")

    async def _ask(self, request: ApprovalRequested) -> None:
        from loom.agent.plan_mode import PRESENT_PLAN

        assert self.conversation is not None
        if self.state.permission == "auto":
            with suppress(ApprovalGone):  # it was answered already, here or in another interface
                await self.conversation.session.answer(request.approval, "once")
            return
        reason = _DENIED.get(self.state.permission)
        if reason is not None and request.call.name != PRESENT_PLAN:
            with suppress(ApprovalGone):
                await self.conversation.session.answer(request.approval, "deny", reason)
            return
        place = self.query_one("#approvals")
        if any(card.request.approval == request.approval for card in place.query(ApprovalCard)):
            return
        card = ApprovalCard(request)
        await place.mount(card)
        self.app.announce(f"Approval needed: {request.call.name}")
        if not self.composer.text.strip() and isinstance(self.focused, MessageEditor | None):
            card.focus()

    async def _close_approval(self, approval: str, answer: str) -> None:
        """Remove an approval that was answered, here or in another interface."""
        from loom.agent.plan_mode import PRESENT_PLAN

        for card in self.query_one("#approvals").query(ApprovalCard):
            if card.request.approval == approval:
                if card.request.call.name == PRESENT_PLAN and answer != "deny":  # its calls need approval from now on
                    self._plans = False
                    self.set_state(permission="ask")
                self._activity = f"running {one_line(card.request.call.name, 40)}"
                await card.remove()
        following = next(iter(self.query_one("#approvals").query(ApprovalCard)), None)
        (following or self.composer).focus()

    async def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        event.stop()
        assert self.conversation is not None
        await self._close_approval(event.approval, event.answer)
        try:
            await self.conversation.session.answer(event.approval, event.answer, event.reason)
        except LoomError as error:
            await self.report(error)

    async def refresh_queue(self) -> None:
        """Show the queued messages: those that wait for the running turn, and paused ones."""
        strip = self.query_one(QueueStrip)
        waiting = await self.conversation.session.queue() if self.conversation is not None else ()
        shown = [it for it in waiting if it.message is not None and not it.node and (self._is_running or it.is_paused)]
        lines = [
            f"{'paused' if it.is_paused else 'next step' if it.options.steers else 'queued'}: "
            f"{one_line(self._queued_chips.get(it.id, (it.message.text if it.message else '', {}))[0] or 'media', 70)}"
            for it in shown
        ]
        strip.display = self.composer.has_queued = bool(lines)
        self.composer.has_paused = any(it.is_paused for it in shown)
        keys = "Up: edit the last one" + (" · Enter: send the paused" if self.composer.has_paused else "")
        strip.update(plain_text("\n".join([*lines, keys]) if lines else ""))

    async def refresh_branches(self) -> None:
        if self.conversation is None:
            self.set_state(branches=1)
            return
        tree = await self.conversation.tree()
        self.set_state(branches=max(count_leaves(tree), 1))
        for pane in self.query(BranchPane):
            pane.show(branch_lines(tree, (await self.conversation.session.info()).head))

    def refresh_work(self) -> None:
        """Refresh the todo list and the background processes, in the background."""
        if self.conversation is not None:
            self.run_worker(partial(self._show_work, self.conversation), group="work", exclusive=True)

    async def _show_work(self, conversation: OpenConversation) -> None:
        try:
            todos, processes = await conversation.session.todos(), await conversation.session.processes()
        except LoomError as error:
            await self.report(error)
            return
        done = sum(it.state == "done" for it in todos)
        current = next((it.text for it in todos if it.state == "in_progress"), "")
        is_open = done < len(todos)
        self.set_state(
            todo=f"todo {done}/{len(todos)} {current}".strip() if is_open else "",
            processes=sum(it.is_running for it in processes),
        )
        for pane in {*self.query(WorkPane), *self.app.screen.query(WorkPane)}:
            pane.show(todos, processes)

    def _watch_work(self) -> None:
        """Refresh periodically: processes end and open ports without an event."""
        if self.state.processes or self.query(WorkPane) or self.app.screen.query(WorkPane):
            self.refresh_work()

    def refresh_plan(self) -> None:
        """Refresh the plan of the next request and the cost of the path, in the background."""
        if self.conversation is not None and self._has_messages:
            self.run_worker(partial(self._plan, self.conversation), group="plan", exclusive=True)

    async def _plan(self, conversation: OpenConversation) -> None:
        try:
            (receipt,) = await conversation.session.plan()
            usage = await conversation.session.usage()
        except LoomError as error:
            await self.report(error)
            return
        self._images = max(self._images, sum(row.kind == "image" for row in receipt.rows))
        self.set_state(receipt=receipt, usd=usage.path.usd)
        self.transcript.show_renditions(receipt)

    def _tick(self) -> None:
        line = self.query_one(ActivityLine)
        self.composer.is_answering = self._is_running
        if self._is_running:
            is_waiting = bool(self.query_one("#approvals").children)
            activity = _APPROVAL_PENDING if is_waiting else self._activity
            line.show(activity, time.monotonic() - self._turn_began, is_waiting=is_waiting)
        elif line.display:
            line.hide()


def count_images(path: Sequence[PathMessage]) -> int:
    return sum(
        block.media.media_type.startswith("image/") for placed in path for block in media_blocks(placed.message.blocks)
    )
