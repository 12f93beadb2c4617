"""ModelScreen: models to select from, with the renditions and the price that this conversation would have with each."""

from __future__ import annotations

from collections import Counter
from typing import Final

from textual.content import Content
from textual.widgets import Input, OptionList

from loom.api_types import ModelView
from loom.content.labels import money_label, tokens_label
from loom.errors import LoomError
from loom.estimates import discard_label, estimate_label
from loom.prompt import Receipt
from loom.tui.chat_library import ChatLibrary
from loom.tui.completion_list import rank
from loom.tui.conversation import OpenConversation
from loom.tui.glyphs import Glyphs
from loom.tui.picker import Picker
from loom.tui.text_content import one_line, plain_text

_NAME_WIDTH: Final = 34
_NARROW: Final = 90


class ModelScreen(Picker):
    def __init__(
        self, library: ChatLibrary, conversation: OpenConversation | None, glyphs: Glyphs, current: str
    ) -> None:
        super().__init__(
            "Choose a model",
            placeholder="Type to filter, or any platform/name",
            keys="Enter: use it   Esc: close   would send: renditions of this conversation's media",
        )
        self._library = library
        self._conversation = conversation
        self._glyphs = glyphs
        self._current = current
        self._models: list[ModelView] = []
        self._receipts: dict[str, Receipt | LoomError] = {}

    def on_mount(self) -> None:
        self.run_worker(self._load())

    async def _load(self) -> None:
        """List the models, then compile the next request for each; nothing is sent."""
        self._models = list(await self._library.models())
        self._show(self.query_one(Input).value.strip())
        conversation = self._conversation
        for model in self._models if conversation is not None else ():
            assert conversation is not None
            try:
                (self._receipts[model.reference],) = await conversation.session.plan([model.reference])
            except LoomError as error:
                self._receipts[model.reference] = error
            self.replace_row(model.reference, self._row(model))
            if self.highlighted_key == model.reference:
                self._show_detail(model)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show(event.value.strip())

    def choose(self, typed: str) -> str | None:
        """Return the highlighted model; without one, the typed text as a name."""
        return super().choose(typed) or typed or None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        model = next((it for it in self._models if it.reference == self.highlighted_key), None)
        if model is not None:
            self._show_detail(model)

    def _show(self, query: str) -> None:
        by_name = {model.reference: model for model in self._models}
        names = rank(query, by_name) if query else list(by_name)
        head = f"  {'model':<{_NAME_WIDTH}} {'ctx':>5}  img pdf thk tool  {'$/M in':>7}  would send"
        if self.size.width < _NARROW:
            head = f"  {'model':<{_NAME_WIDTH}} {'ctx':>5}  {'$/M in':>7}"
        current = next((it.reference for it in self._models if it.reference == self._current), "")
        self.show_rows([(name, self._row(by_name[name])) for name in names], head=head, highlight=current)

    def _row(self, model: ModelView) -> Content:
        mark = self._glyphs.folded if self._current == model.reference else " "
        name = one_line(model.reference, _NAME_WIDTH)
        start = f"{mark} {name:<{_NAME_WIDTH}} {tokens_label(model.context_tokens):>5}  "
        usd = model.input_usd_per_million
        cost = "free" if usd == 0 else money_label(usd)
        style = "$dim" if model.needs else "$foreground"
        if self.size.width < _NARROW:
            return plain_text(f"{start}{cost:>7}", style)
        flags = "".join(f"{self._sign(model, flag):<4}" for flag in ("vision", "native_pdf", "thinking", "tools"))
        return plain_text(f"{start}{flags}  {cost:>7}  ", style) + self._would_send(model)

    def _sign(self, model: ModelView, flag: str) -> str:
        if model.origins.get(flag) == "guessed":
            return "?"
        return self._glyphs.succeeded if getattr(model.capabilities, flag) else "-"

    def _would_send(self, model: ModelView) -> Content:
        receipt = self._receipts.get(model.reference)
        match receipt:
            case None:
                return Content("")
            case LoomError():
                return plain_text("does not fit", "$error")
            case _:
                usd = receipt.estimate.usd if receipt.estimate is not None else None
                share = receipt.totals.tokens / receipt.budgets.tokens if receipt.budgets.tokens else 0
                size = f"{tokens_label(receipt.totals.tokens)} {self._glyphs.approx} {money_label(usd)}"
                full = f" {share:.0%} full" if share > 0.5 else ""
                return plain_text(f"{size}{full}  {renditions_label(receipt, self._glyphs)}")

    def _show_detail(self, model: ModelView) -> None:
        lines: list[Content] = []
        if model.needs:
            lines.append(plain_text(f"no key: {model.needs}", "$warning"))
        receipt = self._receipts.get(model.reference)
        if isinstance(receipt, LoomError):
            lines.append(plain_text(f"{receipt.message} {receipt.hint}".strip(), "$error"))
        elif receipt is not None:
            found = receipt.estimate
            if found is not None:
                lines.append(plain_text(f"next request: {estimate_label(found)}"))
            if found is not None and found.discards is not None:
                lines.append(plain_text(discard_label(found.discards), "$warning"))
            lines += [plain_text(text) for text in losses(receipt)]
        self.show_detail(Content("\n").join(lines))


def renditions_label(receipt: Receipt, glyphs: Glyphs) -> str:
    """Return `2● 1◐`: the renditions of the media."""
    counts = Counter(row.rendition for row in receipt.rows if row.digest)
    return " ".join(f"{counts[name]}{sign}" for name, sign in glyphs.renditions.items() if counts[name])


def losses(receipt: Receipt) -> list[str]:
    """Return sentences about the media that this model would not receive unchanged."""
    as_text = [row for row in receipt.rows if row.digest and row.rendition == "text"]
    omitted = [row for row in receipt.rows if row.rendition == "omitted"]
    thoughts = sum(row.kind == "thinking" for row in omitted)
    rest = len(omitted) - thoughts
    found: list[str] = []
    if as_text:
        names = ", ".join(row.label.split(",")[0] for row in as_text[:3])
        found.append(f"{len(as_text)} attachment{'s' if len(as_text) > 1 else ''} sent as text: {names}")
    if thoughts:
        found.append(f"{thoughts} of another model's thoughts left out")
    if rest:
        found.append(f"{rest} block{'s' if rest > 1 else ''} left out")
    return [*found, *receipt.notices[:2]]
