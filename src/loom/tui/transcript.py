"""TranscriptView: the stored conversation, and the running turn as it grows.

Only the last messages are mounted; earlier ones follow when the user scrolls to the top, so that a conversation of
thousands of messages opens at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final, TypeAlias

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from loom.content.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    VideoBlock,
)
from loom.content.labels import money_label, tokens_label
from loom.content.messages import Message, sources_of, text_of
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallStarted,
    Event,
    ImageAdded,
    MessageStored,
    ModelEvent,
    NoticeRaised,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    is_model_event,
)
from loom.models import Usage
from loom.prompt import Receipt, ReceiptRow
from loom.tui.answer_text import AnswerText
from loom.tui.conversation import PathMessage
from loom.tui.fold import Foldable
from loom.tui.glyphs import Glyphs
from loom.tui.image_protocol import ImageProtocol
from loom.tui.labels import short_model
from loom.tui.message_widgets import (
    AnswerFooter,
    DocumentLine,
    NoticeLine,
    SpeakerLine,
    ThinkingFold,
    UserMessage,
    media_label,
)
from loom.tui.pictures import LoadMedia, Picture
from loom.tui.text_content import plain_text, sentence_of
from loom.tui.tool_card import ToolCard

LoadPath: TypeAlias = Callable[[], Awaitable[Sequence[PathMessage]]]
"""Reads the whole path."""

_WINDOW: Final = 30
"""The number of messages that are mounted at once when the user scrolls up."""
_ROWS_PER_MESSAGE: Final = 3
_FLUSH_SECONDS: Final = 1 / 20
_TICK_SECONDS: Final = 1 / 8
_HIDDEN_NOTICES: Final = ("receipt",)


class EarlierLine(Static):
    """Shows the number of earlier messages; a click shows the next ones."""

    DEFAULT_CSS = "EarlierLine { height: 1; color: $dim; text-align: center; width: 100%; }"

    async def on_click(self) -> None:
        await self.screen.query_one(TranscriptView).show_earlier()


class TranscriptView(VerticalScroll, can_focus=False):
    """The transcript. Call `load` with the path once, then `apply` with every event."""

    DEFAULT_CSS = """
    TranscriptView { padding: 0 1; scrollbar-size-vertical: 1; scrollbar-color: $line; background: $background; }
    TranscriptView > AnswerText { padding: 0 1; margin: 0; background: transparent; }
    TranscriptView > Foldable, TranscriptView > Picture { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(
        self, glyphs: Glyphs, protocol: ImageProtocol, load: LoadMedia, load_path: LoadPath | None = None
    ) -> None:
        super().__init__()
        self._load_path = load_path
        self.glyphs = glyphs
        self._protocol: ImageProtocol = protocol
        self._load = load
        self._earlier: list[PathMessage] = []
        self._cards: dict[str, ToolCard] = {}
        self._parts: dict[int, Widget] = {}
        self._known: set[str] = set()
        self._renditions: dict[str, ReceiptRow] = {}
        self.thinking = ""
        """The thinking level of this turn; empty leaves it to the model."""
        self._speaker = ""
        self._has_step = False
        self._is_loading_earlier = False

    def on_mount(self) -> None:
        self.anchor()
        self.set_interval(_FLUSH_SECONDS, self._flush)
        self.set_interval(_TICK_SECONDS, self._tick)

    # Stored messages -------------------------------------------------------------------------------------------------

    async def load(self, path: Sequence[PathMessage]) -> None:
        """Show a path from its end. It may contain only the newest messages: the others are read when needed."""
        await self.remove_children()
        self._cards.clear()
        self._parts.clear()
        self._known = {message.node for message in path}
        self._speaker = ""
        start = self._window_start(path, self.screen.size.height // _ROWS_PER_MESSAGE)
        self._earlier = list(path[:start])
        earlier = [EarlierLine(self._earlier_text())] if self._earlier else []
        await self.mount_all([*earlier, *self._widgets(path[start:])])
        self.anchor()
        self.call_after_refresh(self._fill_screen)

    async def _fill_screen(self) -> None:
        """Mount more messages if there are too few to fill the screen."""
        if self.is_attached and self.virtual_size.height <= self.size.height and (self._earlier or self._load_path):
            await self.show_earlier()
            self.call_after_refresh(self._fill_screen)

    async def show_earlier(self) -> None:
        """Mount the messages before those that are shown, and keep the scroll position."""
        if self._is_loading_earlier:
            return
        self._is_loading_earlier = True
        if self._load_path is not None:
            load_path, self._load_path = self._load_path, None
            path = await load_path()
            self._earlier = [*path[: len(path) - len(self._known)], *self._earlier]
        if not self._earlier:
            self._is_loading_earlier = False
            return
        start = self._window_start(self._earlier, _WINDOW)
        shown, self._earlier = self._earlier[start:], self._earlier[:start]
        height = self.virtual_size.height
        first = next(iter(self.query(EarlierLine)), None)
        await self.mount_all(self._widgets(shown), after=first)
        if first is not None and not self._earlier:
            await first.remove()
        elif first is not None:
            first.update(self._earlier_text())

        def keep_place() -> None:
            self.scroll_to(y=self.scroll_y + self.virtual_size.height - height, animate=False)
            self._is_loading_earlier = False

        self.call_after_refresh(keep_place)

    def _window_start(self, path: Sequence[PathMessage], count: int) -> int:
        """Return the index where the last `count` messages begin. They begin with a user message, so that calls and
        results stay together."""
        start = max(len(path) - count, 0)
        while start > 0 and path[start].message.role != "user":
            start -= 1
        return start

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value and (self._earlier or self._load_path is not None):
            self.run_worker(self.show_earlier())

    def _earlier_text(self) -> str:
        count = len(self._earlier)
        return f"{count} earlier message{'s' if count > 1 else ''}: scroll up"

    def _widgets(self, path: Sequence[PathMessage]) -> list[Widget]:
        found: list[Widget] = []
        for placed in path:
            match placed.message.role:
                case "user":
                    self._speaker = ""
                    found.append(self._user_message(placed.message, placed.node))
                case "assistant":
                    if not self._speaker:
                        self._speaker = placed.speaker or "model"
                        found.append(SpeakerLine(plain_text(short_model(self._speaker))))
                    found += self._answer(placed.message)
                case "tool":
                    found += self._fill_cards(placed.message)
        return found

    def _user_message(self, message: Message, node: str) -> UserMessage:
        media = [widget for block in message.blocks for widget in self._media(block)]
        return UserMessage(message, media, node=node)

    def _answer(self, message: Message) -> list[Widget]:
        found: list[Widget] = []
        for block in message.blocks:
            match block:
                case TextBlock():
                    if found and isinstance(found[-1], AnswerText):
                        found[-1].text += block.text
                    else:
                        found.append(AnswerText(block.text))
                case ThinkingBlock():
                    found.append(ThinkingFold(self.glyphs, block.text, redacted=block.redacted))
                case ToolCall():
                    card = self._cards[block.id] = ToolCard(self.glyphs, block.name, block)
                    found.append(card)
                case _:
                    found += self._media(block) or [Static(plain_text(text_of(block)))]
        sources = sources_of(message)
        if sources:
            found.append(AnswerFooter(plain_text(f"sources: {', '.join(sources)}")))
        return found

    def _fill_cards(self, message: Message) -> list[Widget]:
        found: list[Widget] = []
        for result in message.results:
            card = self._cards.get(result.call_id)
            if card is not None:
                card.finish(result)
            found += self._result_media(result)
        return found

    def _result_media(self, result: ToolResult) -> list[Widget]:
        return [widget for block in result.blocks for widget in self._media(block)]

    def _media(self, block: Block) -> list[Widget]:
        match block:
            case ImageBlock():
                row = self._renditions.get(block.media.digest)
                caption = self._caption(block, row)
                return [Picture(block.media, self._load, self._protocol, caption=caption)]
            case DocumentBlock():
                return [DocumentLine(block, self.glyphs)]
            case AudioBlock():
                return [Static(plain_text(f"{self.glyphs.audio} {media_label(block)}"))]
            case VideoBlock():
                return [Static(plain_text(f"{self.glyphs.video} {media_label(block)}"))]
            case _:
                return []

    def _caption(self, block: ImageBlock, row: ReceiptRow | None) -> str:
        if row is None:
            return f"{self.glyphs.image} {media_label(block)}"
        sign = self.glyphs.renditions[row.rendition]
        return f"{sign} {media_label(block)} {self.glyphs.separator} {row.rendition} {tokens_label(row.tokens)} tokens"

    def show_renditions(self, receipt: Receipt) -> None:
        """Show below each image which rendition the next request uses."""
        self._renditions = {row.digest: row for row in receipt.rows if row.digest}
        for picture in self.query(Picture):
            row = self._renditions.get(picture.media.digest)
            if row is not None:
                picture.set_caption(self._caption(ImageBlock(picture.media), row))

    # Running turn ----------------------------------------------------------------------------------------------------

    async def apply(self, event: Event) -> None:
        """Show an event."""
        if is_model_event(event):
            self._apply_model_event(event)
        else:
            await self._apply_turn_event(event)

    def _apply_model_event(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                self._text(event.index).add(event.text)
            case ThinkingDelta():
                self._thinking(event.index).add(event.text)
            case CallStarted():
                self._end_thinking()
                card = self._cards[event.id] = ToolCard(self.glyphs, event.name)
                self._add(event.index, card)
            case ImageAdded():
                for widget in self._media(event.image):
                    self._add(event.index, widget)
            case _:
                pass

    async def _apply_turn_event(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._has_step = False
            case StepStarted():
                await self._start_step(event.model)
            case ToolStarted():
                await self._flush()
                self._card(event.call).start(event.call)
            case ToolProgressed():
                if (found := self._cards.get(event.call_id)) is not None:
                    found.show_progress(event)
            case ToolFinished():
                await self._finish_call(event)
            case ApprovalRequested():
                self._card(event.call).wait_for_approval(event.approval)
            case ApprovalAnswered():
                for card in self._cards.values():
                    card.end_approval(event.approval)
            case MessageStored():
                await self._store(event)
            case NoticeRaised() if event.code not in _HIDDEN_NOTICES:
                await self.mount(NoticeLine(event.text))
            case TurnFailed():
                await self._end_turn()
                await self.show_failure(event)
            case TurnFinished():
                await self._end_turn()
            case _:
                pass

    async def show_failure(self, failure: TurnFailed) -> None:
        """Show how the last turn ended."""
        if failure.code == "turn.cancelled":
            await self.mount(NoticeLine("Interrupted. The text so far is kept."))
        else:
            await self.mount(NoticeLine(sentence_of(failure.text, failure.hint), kind="error"))

    async def _start_step(self, model: str) -> None:
        await self._flush()
        self._end_thinking()
        self._parts = {}
        self._has_step = True
        if not self._speaker:
            self._speaker = model
            await self.mount(SpeakerLine(plain_text(short_model(model))))

    def _add(self, index: int, widget: Widget) -> None:
        self._parts[index] = widget
        self.mount(widget)

    def _text(self, index: int) -> AnswerText:
        found = self._parts.get(index)
        if isinstance(found, AnswerText):
            return found
        self._end_thinking()
        last = self.children[-1] if self.children else None
        if index > 0 and isinstance(last, AnswerText) and last in self._parts.values():
            self._parts[index] = last  # the texts of one answer are split at citations
            return last
        made = AnswerText("")
        self._add(index, made)
        return made

    def _thinking(self, index: int) -> ThinkingFold:
        found = self._parts.get(index)
        if isinstance(found, ThinkingFold):
            return found
        made = ThinkingFold(self.glyphs, is_live=True, level=self.thinking)
        self._add(index, made)
        return made

    def _card(self, call: ToolCall) -> ToolCard:
        if call.id not in self._cards:
            card = self._cards[call.id] = ToolCard(self.glyphs, call.name, call)
            self.mount(card)
        return self._cards[call.id]

    async def _finish_call(self, event: ToolFinished) -> None:
        card = self._cards.get(event.result.call_id)
        if card is None:
            return
        card.finish(event.result, event.seconds)
        media = self._result_media(event.result)
        if media:
            await self.mount_all(media, after=card)

    async def _store(self, event: MessageStored) -> None:
        if event.node in self._known:
            return
        self._known.add(event.node)
        match event.message.role:
            case "user":
                self._speaker = ""
                await self.query("Welcome").remove()
                await self.mount(self._user_message(event.message, event.node))
            case "assistant":
                await self._flush()
                self._end_thinking()
                for call in event.message.calls:
                    if call.id in self._cards:
                        self._cards[call.id].wait(call)
                if not self._has_step:  # this client joined in the middle of the answer
                    for part in self._parts.values():
                        await part.remove()
                    await self.mount_all(self._answer(event.message))
                elif sources := sources_of(event.message):
                    await self.mount(AnswerFooter(plain_text(f"sources: {', '.join(sources)}")))
                self._parts = {}
            case "tool":
                for result in event.message.results:
                    card = self._cards.get(result.call_id)
                    if card is not None and card.result is None:
                        card.finish(result)

    async def _end_turn(self) -> None:
        await self._flush()
        self._end_thinking()
        for card in self._cards.values():
            card.interrupt()
        self._parts = {}

    async def show_footer(self, usage: Usage, usd: float | None, seconds: float) -> None:
        """Show tokens, cost and duration below an answer."""
        parts = [short_model(self._speaker or "model")]
        if usage.input_tokens or usage.output_tokens:
            cached = f" ({tokens_label(usage.cache_read_tokens)} cached)" if usage.cache_read_tokens else ""
            parts.append(f"{tokens_label(usage.input_tokens)} in{cached}")
            parts.append(f"{tokens_label(usage.output_tokens)} out")
        parts += [money_label(usd), f"{seconds:.1f} s"]
        await self.mount(AnswerFooter(plain_text(f" {self.glyphs.separator} ".join(parts))))

    async def notice(self, text: str, *, kind: str = "") -> None:
        """Show a notice below the conversation."""
        await self.mount(NoticeLine(text, kind=kind))

    def toggle_folds(self) -> None:
        """Open all folds; close them if the last one is open."""
        folds = list(self.query(Foldable))
        if folds:
            opened = not folds[-1].is_open
            for fold in folds:
                fold.is_open = opened

    def _end_thinking(self) -> None:
        for part in self._parts.values():
            if isinstance(part, ThinkingFold):
                part.end()

    async def _flush(self) -> None:
        for part in tuple(self._parts.values()):
            if isinstance(part, AnswerText):
                await part.flush()

    def _tick(self) -> None:
        for part in self._parts.values():
            if isinstance(part, ThinkingFold):
                part.tick()
        for card in self._cards.values():
            card.tick()
