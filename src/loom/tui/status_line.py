"""The lines around a conversation: title and model above, the contents of the next request below."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from loom.content.labels import money_label, tokens_label
from loom.models import Usage
from loom.tui.glyphs import Glyphs
from loom.tui.labels import short_model
from loom.tui.text_content import one_line, plain_text

if TYPE_CHECKING:  # not imported before the first paint
    from loom.prompt import Receipt

_METER_CELLS = 12
_NARROW = 80


class StatusValues(msgspec.Struct, frozen=True, kw_only=True):
    """The values that both lines show."""

    title: str = ""
    model: str = ""
    permission: str = "ask"
    place: str = ""
    receipt: Receipt | None = None
    usage: Usage = Usage()
    usd: float | None = 0.0
    branches: int = 1
    thinking: str = ""
    """The thinking level; empty leaves it to the model."""
    todo: str = ""
    processes: int = 0
    """The number of running background processes."""

    @property
    def context_share(self) -> float | None:
        if self.receipt is None or not self.receipt.budgets.tokens:
            return None
        return self.receipt.totals.tokens / self.receipt.budgets.tokens


class TitleLine(Static):
    """` loom ─ Login page triage ───── opus · ask · ctx 16 % · $0.04`"""

    DEFAULT_CSS = "TitleLine { height: 1; background: $panel; color: $foreground; padding: 0 1; }"
    state: reactive[StatusValues] = reactive(StatusValues())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def render(self) -> Content:
        state, glyphs = self.state, self._glyphs
        share = state.context_share
        parts = [short_model(state.model) or "no model", state.permission]
        if state.thinking:
            parts.insert(1, f"thinking {state.thinking}")
        if share is not None:
            parts.append(f"ctx {share:.0%}")
        parts.append(money_label(state.usd))
        if state.branches > 1:
            parts.insert(0, f"{glyphs.branch} {state.branches}")
        right = f" {glyphs.separator} ".join(parts)
        where = f" {glyphs.separator} {state.place}" if state.place else ""
        room = self.size.width - len(right) - 8
        title = one_line(f"{state.title or 'new conversation'}{where}", max(room - 3, 8))
        rule = glyphs.dash * max(self.size.width - len(title) - len(right) - 11, 1)
        return Content("").join(
            [
                Content.styled("loom ", "bold $primary"),
                Content.styled(f"{glyphs.dash} ", "$line"),
                Content.styled(title, "bold"),
                Content.styled(f" {rule} ", "$line"),
                plain_text(right),
            ]
        )


class StatusLine(Static):
    """`img 1● 2◐ · ▕███░░░▏ 31k/200k · 75 % cached · $0.04`"""

    DEFAULT_CSS = "StatusLine { height: 1; color: $dim; padding: 0 1; }"
    state: reactive[StatusValues] = reactive(StatusValues())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def render(self) -> Content:
        glyphs, state = self._glyphs, self.state
        parts: list[Content] = []
        if state.receipt is not None:
            parts += self._media(state.receipt)
            parts.append(self._meter(state.receipt))
            estimate = state.receipt.estimate
            if estimate is not None and estimate.usd:
                parts.append(Content(f"next {self._glyphs.approx}{money_label(estimate.usd)}"))
        usage = state.usage
        if usage.input_tokens:
            parts.append(Content(f"{tokens_label(usage.input_tokens)} in"))
            if usage.cache_read_tokens:
                parts.append(Content(f"{usage.cache_read_tokens / usage.input_tokens:.0%} cached"))
            parts.append(Content(f"{tokens_label(usage.output_tokens)} out"))
        parts.append(Content(money_label(state.usd)))
        if state.processes:
            parts.append(Content(f"{state.processes} process{'es' if state.processes > 1 else ''}"))
        if state.todo:
            parts.append(plain_text(one_line(state.todo, 40)))
        while sum(len(part) + 3 for part in parts) > self.size.width and len(parts) > 1:
            parts.pop(-2)
        return Content(f" {glyphs.separator} ").join(parts)

    def _media(self, receipt: Receipt) -> list[Content]:
        """Return the renditions of the media, as numbers and signs."""
        counts = Counter(row.rendition for row in receipt.rows if row.digest)
        signs = " ".join(f"{counts[name]}{sign}" for name, sign in self._glyphs.renditions.items() if counts[name])
        return [Content(f"media {signs}")] if signs else []

    def _meter(self, receipt: Receipt) -> Content:
        used, limit = receipt.totals.tokens, receipt.budgets.tokens
        share = min(used / limit, 1.0) if limit else 0.0
        filled = min(max(round(share * _METER_CELLS), int(used > 0)), _METER_CELLS)
        bar = self._glyphs.full_cell * filled + self._glyphs.empty_cell * (_METER_CELLS - filled)
        style = "$error" if share > 0.9 else "$warning" if share > 0.75 else "$primary"
        text = f" {self._glyphs.approx}{tokens_label(used)}/{tokens_label(limit)}"
        return (Content.styled(bar, style) if self.size.width >= _NARROW else Content("")) + Content(text)


class ActivityLine(Static):
    """The current activity: an animated sign, what the turn waits for, the elapsed seconds, and how to stop it. Hidden
    when idle."""

    DEFAULT_CSS = "ActivityLine { height: 1; color: $primary; padding: 0 1; display: none; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._frame = 0
        self._shown = ("", "", 0)

    def show(self, what: str, seconds: float, *, is_waiting: bool = False) -> None:
        """Show an activity. The sign stands still while Loom waits for the user: a terminal that is left open then
        repaints once a second."""
        self._frame += 1
        sign = self._glyphs.tool if is_waiting else self._glyphs.running[self._frame % len(self._glyphs.running)]
        shown = (sign, what, round(seconds))
        if shown != self._shown:
            self._shown = shown
            rest = Content.styled(f"  {shown[2]} s  (Esc to interrupt)", "$dim")
            self.update(Content(f"{sign} ") + plain_text(what) + rest)
        self.display = True

    def hide(self) -> None:
        self.display = False
