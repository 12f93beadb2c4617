"""ChatScreen: the conversation, the composer, and everything that can be done from there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content as StyledText
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker

from loom.content.blocks import DocumentBlock
from loom.content.inputs import Attachment, Content
from loom.content.messages import media_blocks, title_of, user
from loom.errors import LoomError
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
from loom.tui.backend import Backend, OpenConversation, PathMessage
from loom.tui.chat_commands import NEWEST, ChatCommands
from loom.tui.chips import Chip, expand
from loom.tui.completion_list import CompletionList, FileIndex
from loom.tui.input_history import InputHistory
from loom.tui.labels import short_model
from loom.tui.message_editor import MessageEditor
from loom.tui.slash_commands import complete_command, find_command
from loom.tui.status_line import ActivityLine, StatusLine, StatusValues, TitleLine
from loom.tui.text_content import one_line, plain_text, sentence_of
from loom.tui.usage_log import UsageLog

if TYPE_CHECKING:
    from loom.tui.app import LoomApp

_TICK_SECONDS: Final = 1 / 8
_ESCAPE_SECONDS: Final = 0.8
_DENIED: Final = {
    "plan": "this run only plans: say what you would do, and do not try it again",
    "deny": "tools that need approval are not allowed here",
}
PERMISSIONS: Final = ("ask", "auto", "plan", "deny")


class QueueStrip(Static):
    """Messages that wait for their turn."""

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


class ChatScreen(ChatCommands, Screen[None]):
    """One conversation. It exists before there is a backend: what is typed meanwhile is kept."""

    DEFAULT_CSS = """
    ChatScreen { layout: vertical; background: $background; }
    ChatScreen #middle { height: 1fr; }
    ChatScreen #main { width: 1fr; }
    ChatScreen #approvals { height: auto; max-height: 60%; }
    ChatScreen #compose { height: auto; background: $surface; padding: 0 1; margin: 0; border-top: solid $line; }
    ChatScreen #compose > .prompt { width: 2; color: $primary; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Interrupt", show=False),
        Binding("ctrl+c", "copy_or_quit", "Copy / quit", show=False, priority=True),
        Binding("ctrl+d", "end_of_input", "Exit", show=False, priority=True),
        Binding("ctrl+o", "toggle_folds", "Foldable", show=False, priority=True),
        Binding("ctrl+t", "toggle_branches", "Branches", show=False, priority=True),
        Binding("ctrl+l", "choose_model", "Model", show=False, priority=True),
        Binding("ctrl+x", "show_context", "Context", show=False, priority=True),
        Binding("ctrl+s,ctrl+r", "show_sessions", "Sessions", show=False, priority=True),
        Binding("shift+tab", "cycle_permission", "Permission", show=False, priority=True),
        Binding("pageup", "scroll_transcript(-1)", show=False, priority=True),
        Binding("pagedown", "scroll_transcript(1)", show=False, priority=True),
        Binding("ctrl+home", "scroll_ends(-1)", show=False, priority=True),
        Binding("ctrl+end", "scroll_ends(1)", show=False, priority=True),
    ]

    def __init__(self, app: LoomApp) -> None:
        super().__init__()
        self.glyphs = app.glyphs
        self.protocol = app.protocol
        self.backend: Backend | None = None
        self.conversation: OpenConversation | None = None
        self.model = ""
        self.usage_log = UsageLog()
        self.files = FileIndex(Path.cwd())
        self.state = StatusValues()
        self._following: Worker[None] | None = None
        self._is_running = False
        self._activity = ""
        self._turn_began = 0.0
        self._turn_model = ""
        self._escape_at = 0.0
        self._quit_at = 0.0
        self._queued_chips: dict[str, tuple[str, dict[str, Chip]]] = {}
        self._unsent: list[tuple[str, dict[str, Chip]]] = []
        self._readers: set[asyncio.Task[None]] = set()
        self._images = 0
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
                InputHistory(self.app.history_file), placeholder="Message; paste or drop files, @ for files"
            )
        yield StatusLine(self.glyphs)
        yield KeyHints(self.glyphs.return_key)

    def on_mount(self) -> None:
        self.composer.focus()
        self.set_interval(_TICK_SECONDS, self._tick)
        self.show_state()

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self._is_running

    @property
    def composer(self) -> MessageEditor:
        return self.query_one(MessageEditor)

    # Opening ---------------------------------------------------------------------------------------------------------

    async def connect(self, backend: Backend, *, session: str, model: str, notices: tuple[str, ...]) -> None:
        """Show a conversation of the backend; `session` empty: a new one, stored with its first message."""
        self.backend = backend
        self._connected_event.set()
        self.model = model
        self.set_state(place=backend.place)
        if session:
            await self.open_session(session)
        else:
            await self.open_new()
        for notice in (*notices, *backend.warnings()):
            await self.transcript.notice(notice, kind="warning")
        unsent, self._unsent = self._unsent, []
        for text, chips in unsent:
            await self._send(text, chips)

    async def open_new(self) -> None:
        """Begin an empty conversation."""
        assert self.backend is not None
        await self._leave()
        self.model = self.model or await self.backend.default_model()
        self.usage_log = UsageLog()
        self._images = 0
        self.set_state(title="", model=self.model, receipt=None, usage=msgspec.UNSET, usd=0.0, branches=1)
        await self.show_transcript(())

    async def open_session(self, session_id: str) -> None:
        """Show a stored conversation from its end, and continue what it was doing."""
        assert self.backend is not None
        conversation = await self.backend.open(session_id)
        await self._leave()
        self.usage_log = UsageLog()
        await self._adopt(conversation)

    async def _adopt(self, conversation: OpenConversation) -> None:
        self.conversation = conversation
        info = await conversation.info()
        self.model = info.model
        path = await conversation.path(newest=NEWEST)
        self._images, self._has_messages = count_images(path), bool(path)
        self.set_state(title=info.title, model=info.model, receipt=None, usage=msgspec.UNSET, usd=0.0)
        await self.show_transcript(path)
        self._follow()
        for request in await conversation.approvals():
            await self._ask(request)
        await self.refresh_queue()
        self.refresh_plan()
        await self.refresh_branches()

    async def _leave(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None
        self.conversation = None
        self._is_running = False
        self._queued_chips.clear()
        await self.query_one("#approvals").remove_children()
        await self.refresh_queue()

    def _follow(self) -> None:
        assert self.conversation is not None
        self._following = self.run_worker(self._watch(self.conversation), group="events", exclusive=True)

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
        """Show the path anew, after the head moved."""
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
                self._is_running, self._turn_began = True, time.monotonic()
                self._turn_model, self._activity = event.model, f"waiting for {short_model(event.model)}"
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
                await self._close_approval(event.approval)
            case TurnFinished() | TurnFailed():
                await self._end_turn(event)
            case _:
                pass

    async def _end_turn(self, event: TurnFinished | TurnFailed) -> None:
        self._is_running = False
        await self.query_one("#approvals").remove_children()
        assert self.backend is not None
        if isinstance(event, TurnFinished):
            usd = self.backend.price(self._turn_model, event.usage) if self._turn_model else None
            self.usage_log.add(self._turn_model, event.usage, usd, time.monotonic() - self._turn_began)
            await self.transcript.show_footer(event.usage, usd)
            self.set_state(usage=event.usage, usd=self.usage_log.usd)
        self.refresh_plan()
        await self.refresh_branches()
        await self.refresh_queue()
        if self.conversation is not None and not self.state.title:
            self.set_state(title=(await self.conversation.info()).title)
        self.app.announce(f"{short_model(self._turn_model)} is done")

    async def _ask(self, request: ApprovalRequested) -> None:
        assert self.conversation is not None
        if self.state.permission == "auto":
            await self.conversation.answer(request.approval, "once")
            return
        if (reason := _DENIED.get(self.state.permission)) is not None:
            await self.conversation.answer(request.approval, "deny", reason)
            return
        place = self.query_one("#approvals")
        if any(card.request.approval == request.approval for card in place.query(ApprovalCard)):
            return
        card = ApprovalCard(request)
        await place.mount(card)
        self._activity = "waiting for your approval"
        self.app.announce(f"Approval needed: {request.call.name}")
        if not self.composer.text.strip() and isinstance(self.focused, MessageEditor | None):
            card.focus()

    async def _close_approval(self, approval: str) -> None:
        for card in self.query_one("#approvals").query(ApprovalCard):
            if card.request.approval == approval:
                await card.remove()
        following = next(iter(self.query_one("#approvals").query(ApprovalCard)), None)
        (following or self.composer).focus()

    async def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        event.stop()
        assert self.conversation is not None
        await self._close_approval(event.approval)
        try:
            await self.conversation.answer(event.approval, event.answer, event.reason)
        except LoomError as error:
            await self.report(error)

    # Sending ---------------------------------------------------------------------------------------------------------

    async def on_message_editor_submitted(self, event: MessageEditor.Submitted) -> None:
        text = event.text.strip()
        if text.startswith("/") and "\n" not in text and await self._run_command(text):
            return
        if text.startswith("!") and len(text) > 1 and "\n" not in text:
            self.composer.take()
            self.run_worker(self.run_shell(text[1:].strip()))
            return
        message, chips = self.composer.take()
        if self.backend is None:
            self._unsent.append((message, chips))
            return
        self.run_worker(self._send(message, chips))

    async def _run_command(self, text: str) -> bool:
        name, _, rest = text[1:].partition(" ")
        command = find_command(name)
        if command is None:
            if "/" in name:  # a path that begins a sentence
                return False
            self.notify(f"Unknown command /{one_line(name, 40)}. F1 lists the commands.", severity="warning")
            return True
        self.composer.take()
        run: Callable[[str], Awaitable[None]] = getattr(self, f"command_{command.action}")
        self.run_worker(self._guard(run(rest.strip())))
        return True

    async def _guard(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except LoomError as error:
            await self.report(error)

    async def _send(self, text: str, chips: dict[str, Chip]) -> None:
        assert self.backend is not None
        try:
            await asyncio.gather(*self._readers)
            blocks = [block for chip in chips.values() for block in chip.blocks]
            words = expand(text, chips)
            mentioned, notices = await self.mentioned_files(words)
            content: list[Content] = [*blocks, *mentioned, *([words] if words else [])]
            if not content:
                return
            for notice in notices:
                await self.transcript.notice(notice)
            if self.conversation is None:
                title = title_of(user(*([words] if words else []), *blocks))
                await self._adopt(await self.backend.new(title=title, model=self.model))
                assert self.conversation is not None
            queued = await self.conversation.post(*content)
            self._queued_chips[queued.id] = (text, chips)
            self._images += sum("[Image #" in token for token in chips)
            await self.refresh_queue()
        except LoomError as error:
            self.composer.put_back(text, chips)
            await self.report(error)

    async def refresh_queue(self) -> None:
        """Show the messages that wait, while a turn runs."""
        strip = self.query_one(QueueStrip)
        waiting = await self.conversation.queue() if self.conversation is not None and self._is_running else ()
        lines = [
            f"queued: {one_line(self._queued_chips.get(it.id, (it.message.text, {}))[0] or 'media', 70)}"
            for it in waiting
            if it.message is not None and not it.node
        ]
        strip.display = self.composer.has_queued = bool(lines)
        strip.update(plain_text("\n".join([*lines, "Up: edit the last one"]) if lines else ""))

    async def on_message_editor_queued_wanted(self) -> None:
        """Take the last message out of the queue, and edit it."""
        waiting = await self.conversation.queue() if self.conversation is not None else ()
        for queued in reversed(waiting):
            if queued.message is not None and not queued.node and await self._unqueue(queued.id):
                text, chips = self._queued_chips.get(queued.id, (queued.message.text, {}))
                self.composer.put_back(text, chips)
                break
        await self.refresh_queue()

    async def _unqueue(self, queued: str) -> bool:
        assert self.conversation is not None
        try:
            return await self.conversation.unqueue(queued)
        except LoomError as error:
            await self.report(error)
            return False

    # Attachments -----------------------------------------------------------------------------------------------------

    def on_message_editor_files_dropped(self, event: MessageEditor.FilesDropped) -> None:
        for path in event.paths:
            self.attach(Attachment(source=path))

    async def on_message_editor_clipboard_wanted(self, event: MessageEditor.ClipboardWanted) -> None:
        await self._guard(self.command_paste(""))

    def attach(self, item: Attachment) -> None:
        """Insert a chip, and read the file in the background."""
        name = item.name or (item.source.name if isinstance(item.source, Path) else "file")
        looks_like_image = name.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic"))
        token = f"[Image #{self._next_image()}]" if looks_like_image else f"[{name}]"
        chip = self.composer.add_chip(Chip(token=token, attachment=item, state="reading", label=name))
        task = asyncio.create_task(self._read_chip(chip, item, name))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _read_chip(self, chip: Chip, item: Attachment, name: str) -> None:
        from loom.tui.chips import token_for

        await self._connected_event.wait()
        assert self.backend is not None
        try:
            found = await self.backend.ingest(item)
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

    # Completion ------------------------------------------------------------------------------------------------------

    async def on_message_editor_word_changed(self, event: MessageEditor.WordChanged) -> None:
        shown = self.query_one(CompletionList)
        match event.trigger:
            case "/":
                shown.show(complete_command(event.word))
            case "@":
                shown.show(await self.files.find(event.word, self.glyphs, anew=not event.word))
            case _:
                shown.hide()
        self.composer.is_completing = shown.display

    def on_message_editor_completion_key(self, event: MessageEditor.CompletionKey) -> None:
        shown = self.query_one(CompletionList)
        match event.key:
            case "up":
                shown.move(-1)
            case "down":
                shown.move(1)
            case "escape":
                shown.hide()
                self.composer.is_completing = False
            case _:
                self._complete(shown, is_enter=event.key == "enter")

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
        """A medium becomes a chip; a text file stays a mention, and the agent is kept informed of it."""
        from loom.formats.sniff.kinds import type_of_name

        name = value[1:].strip('"')
        media_type = type_of_name(name) or "text/plain"
        if media_type.startswith("text/") or not media_type.startswith(("image/", "audio/", "video/", "application/")):
            self.composer.complete_word(f"{value} ")
            return
        self.composer.complete_word("")
        self.attach(Attachment(source=Path(name).expanduser()))

    # State -----------------------------------------------------------------------------------------------------------

    def set_state(self, **changes: object) -> None:
        from loom.models import Usage

        given = {name: Usage() if value is msgspec.UNSET else value for name, value in changes.items()}
        self.state = msgspec.structs.replace(self.state, **given)
        self.show_state()

    def show_state(self) -> None:
        self.query_one(TitleLine).state = self.state
        self.query_one(StatusLine).state = self.state

    def refresh_plan(self) -> None:
        """Find out what the next request would hold, in the background."""
        if self.conversation is not None and self._has_messages:
            self.run_worker(self._plan(self.conversation), group="plan", exclusive=True)

    async def _plan(self, conversation: OpenConversation) -> None:
        try:
            (receipt,) = await conversation.plan()
        except LoomError as error:
            await self.report(error)
            return
        self._images = max(self._images, sum(row.kind == "image" for row in receipt.rows))
        self.set_state(receipt=receipt)
        self.transcript.show_renditions(receipt)

    async def report(self, error: LoomError) -> None:
        """Say what went wrong, and the next step."""
        await self.transcript.notice(sentence_of(error.message, error.hint), kind="error")

    def _tick(self) -> None:
        line = self.query_one(ActivityLine)
        if self._is_running:
            line.show(self._activity, time.monotonic() - self._turn_began)
        elif line.display:
            line.hide()

    # Keys ------------------------------------------------------------------------------------------------------------

    async def action_escape(self) -> None:
        if self._is_running and self.conversation is not None:
            self._activity = "interrupting"
            await self._guard(self.conversation.cancel())
            return
        now = time.monotonic()
        if now - self._escape_at <= _ESCAPE_SECONDS:
            self._escape_at = 0.0
            self.run_worker(self._guard(self.command_rewind("")))
            return
        self._escape_at = now
        self.composer.focus()

    def action_copy_or_quit(self) -> None:
        selected = self.get_selected_text() or self.composer.selected_text
        if selected:
            self.app.copy_to_clipboard(selected)
            self.notify("Copied")
        elif self.composer.text:
            self.composer.clear_all()
        elif self._is_running:
            self.run_worker(self.action_escape())
        elif time.monotonic() - self._quit_at < 2:
            self.app.exit()
        else:
            self._quit_at = time.monotonic()
            self.notify("Press Ctrl+C again to exit. The conversation is saved.")

    def action_end_of_input(self) -> None:
        if not self.composer.text:
            self.app.exit()
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

    def action_toggle_branches(self) -> None:
        self.run_worker(self._guard(self.command_tree("")))

    def action_choose_model(self) -> None:
        self.run_worker(self._guard(self.command_model("")))

    def action_show_context(self) -> None:
        self.run_worker(self._guard(self.command_context("")))

    def action_show_sessions(self) -> None:
        self.run_worker(self._guard(self.command_sessions("")))

    def action_run_command(self, name: str) -> None:
        command = find_command(name)
        if command is not None:
            self.run_worker(self._guard(getattr(self, f"command_{command.action}")("")))

    async def action_send_sample(self, number: int) -> None:
        """Send one of the samples that come with Loom."""
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

    def view_document(self, block: DocumentBlock) -> None:
        from loom.tui.document_screen import DocumentScreen

        assert self.backend is not None
        self.app.push_screen(DocumentScreen(block, self.backend.media, self.protocol, self.glyphs))


def count_images(path: Sequence[PathMessage]) -> int:
    return sum(
        block.media.media_type.startswith("image/") for placed in path for block in media_blocks(placed.message.blocks)
    )
