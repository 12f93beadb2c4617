"""ContextScreen: the contents of the next request, block by block, for one model or several side by side."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Static

from loom.compile.policy import Override
from loom.content.labels import money_label, tokens_label
from loom.content.media import size_label
from loom.content.media_kinds import MEDIA_KIND_NAMES
from loom.errors import LoomError
from loom.estimates import billed_label, cheaper_label, discard_label
from loom.prompt import Receipt, ReceiptRow
from loom.tui.chat_library import ChatLibrary
from loom.tui.conversation import OpenConversation
from loom.tui.glyphs import Glyphs
from loom.tui.labels import short_model
from loom.tui.text_content import one_line, plain_text

_CHOOSABLE: Final = ("text", *MEDIA_KIND_NAMES)
_LABEL_WIDTH: Final = 48
_STYLES: Final = {"full": "$success", "low": "$warning", "pages": "$secondary", "text": "$dim", "omitted": "$error"}


class ContextScreen(Screen[None]):
    """The keys `f l t o` select a rendition, `a` leaves it to the policy, `m` adds a model. Nothing is sent."""

    DEFAULT_CSS = """
    ContextScreen { background: $background; layout: vertical; }
    ContextScreen > .heading { height: 1; background: $panel; padding: 0 1; text-style: bold; }
    ContextScreen > DataTable { height: 1fr; background: $background; scrollbar-size-vertical: 1; }
    ContextScreen > .totals { height: auto; padding: 0 1; color: $foreground; border-top: solid $line; }
    ContextScreen > .reason { height: auto; padding: 0 1; color: $dim; }
    ContextScreen > .keys { height: 1; background: $panel; color: $dim; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+x", "dismiss", "Close", show=False, priority=True),
        Binding("f", "choose('full')", "Full"),
        Binding("l", "choose('low')", "Low"),
        Binding("t", "choose('text')", "Text"),
        Binding("o", "choose('omitted')", "Omit"),
        Binding("a", "choose('')", "Automatic"),
        Binding("m", "add_model", "Add a model"),
    ]

    def __init__(self, library: ChatLibrary, conversation: OpenConversation, glyphs: Glyphs, model: str) -> None:
        super().__init__()
        self._library = library
        self._conversation = conversation
        self._glyphs = glyphs
        self._model_names = [model]
        self._receipts: list[Receipt] = []
        self._roles: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static("Context: what the next request contains. Nothing is sent yet.", classes="heading")
        yield DataTable[Content](cursor_type="row", zebra_stripes=True)
        yield Static("", classes="totals")
        yield Static("", classes="reason")
        signs = "  ".join(f"{sign} {name}" for name, sign in self._glyphs.renditions.items())
        keys = f"f full  l low  t text  o omit  a automatic  m add a model  Esc close   {signs}"
        yield Static(plain_text(keys), classes="keys")

    async def on_mount(self) -> None:
        self.query_one(DataTable[Content]).focus()
        self._roles = [placed.message.role for placed in await self._conversation.path()]
        await self._load()

    async def _load(self) -> None:
        table = self.query_one(DataTable[Content])
        at = table.cursor_row
        try:
            self._receipts = list(await self._conversation.session.plan(self._model_names, cheaper=True))
        except LoomError as error:
            self.notify(str(error), severity="error")
            return
        table.clear(columns=True)
        table.add_column("block", width=_LABEL_WIDTH)
        for name in self._model_names:
            table.add_column(short_model(name), width=18)
        pictures = 0
        for rows in zip(*(receipt.rows for receipt in self._receipts), strict=True):
            pictures += rows[0].kind == "image"
            table.add_row(self._label(rows[0], pictures), *(self._cell(row) for row in rows))
        if not self.is_attached:  # the screen was closed in the meantime
            return
        self.query_one(".totals", Static).update(self._totals())
        table.move_cursor(row=min(at, max(len(table.rows) - 1, 0)))
        self._show_reason(table.cursor_row)

    def _label(self, row: ReceiptRow, pictures: int) -> Content:
        role = self._roles[row.message] if row.message < len(self._roles) else ""
        who = {"user": "you", "assistant": "model", "tool": "tool"}.get(role, "")
        chip = f"[Image #{pictures}] " if row.kind == "image" else "(thinking) " if row.kind == "thinking" else ""
        return plain_text(one_line(f"{row.message + 1:>3} {who:<5} {chip}{row.label}", _LABEL_WIDTH))

    def _cell(self, row: ReceiptRow) -> Content:
        sign = self._glyphs.renditions[row.rendition]
        return plain_text(f"{sign} {row.rendition:<8}", _STYLES[row.rendition]) + plain_text(
            f"{tokens_label(row.tokens):>6}"
        )

    def _totals(self) -> Content:
        lines: list[Content] = []
        for name, receipt in zip(self._model_names, self._receipts, strict=True):
            totals, budgets, found = receipt.totals, receipt.budgets, receipt.estimate
            size = f"{self._glyphs.approx}{tokens_label(totals.tokens)} of {tokens_label(budgets.tokens)} tokens"
            cached = found.cached_tokens if found is not None else 0
            if found is not None and cached:
                size += f" ({tokens_label(cached)} cached, {tokens_label(found.new_tokens)} new)"
            text = f"{size}, {size_label(totals.wire_bytes)} on the wire, {money_label(found.usd if found else None)}"
            if receipt.cached_rows and not cached:
                text += f", first {receipt.cached_rows} rows may be cached"
            lines.append(plain_text(f"{short_model(name)}: ", "bold") + plain_text(text))
            if found is not None and found.discards is not None:
                lines.append(plain_text(f"  {discard_label(found.discards)}", "$warning"))
            if found is not None and found.cheaper is not None:
                lines.append(plain_text(f"  {cheaper_label(found.cheaper)}"))
            if found is not None and found.last is not None:
                lines.append(plain_text(f"  {billed_label(found.last)}", "$dim"))
            lines += [plain_text(f"  {notice}", "$warning") for notice in receipt.notices[:2]]
        return Content("\n").join(lines)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self._show_reason(event.cursor_row)

    def _show_reason(self, at: int) -> None:
        found = [
            f"{short_model(name)}: {row.rendition} because of {row.reason}{f' ({row.detail})' if row.detail else ''}"
            for name, receipt in zip(self._model_names, self._receipts, strict=True)
            if at < len(receipt.rows) and (row := receipt.rows[at]).reason
        ]
        self.query_one(".reason", Static).update(plain_text("\n".join(found)))

    async def action_choose(self, rendition: Override | str) -> None:
        at = self.query_one(DataTable[Content]).cursor_row
        if not self._receipts or at >= len(self._receipts[0].rows):
            return
        row = self._receipts[0].rows[at]
        if row.kind not in _CHOOSABLE:
            self.notify(f"{row.kind.replace('_', ' ')}: its rendition cannot be changed.", severity="warning")
            return
        chosen: Override | None = rendition or None  # type: ignore[assignment]
        try:
            discards = await self._conversation.discarded_by(row, chosen)
        except LoomError as error:
            self.notify(str(error), severity="error")
            return
        if discards is None:
            await self._override(row, chosen)
        else:
            self.run_worker(self._confirm(row, chosen, discard_label(discards)))

    async def _confirm(self, row: ReceiptRow, chosen: Override | None, warning: str) -> None:
        from loom.tui.confirm_screen import ConfirmScreen

        screen = ConfirmScreen("Change this block?", warning, "change it")
        if await self.app.push_screen_wait(screen):  # pyright: ignore[reportUnknownMemberType]  as Textual declares it
            await self._override(row, chosen)

    async def _override(self, row: ReceiptRow, chosen: Override | None) -> None:
        try:
            await self._conversation.override(row, chosen)
        except LoomError as error:
            self.notify(str(error), severity="error")
        await self._load()

    def action_add_model(self) -> None:
        self.run_worker(self._add_model())

    async def _add_model(self) -> None:
        from loom.tui.model_screen import ModelScreen

        current = self._model_names[0]
        screen = ModelScreen(self._library, self._conversation, self._glyphs, current)
        name = await self.app.push_screen_wait(screen)  # pyright: ignore[reportUnknownMemberType]  as Textual declares it
        if name and name not in self._model_names:
            self._model_names.append(name)
            await self._load()
