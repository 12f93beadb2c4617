"""UsageScreen: tokens and cost of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from loom.content.labels import money_label, tokens_label
from loom.tui.labels import short_model
from loom.tui.usage_log import UsageLog

if TYPE_CHECKING:
    from loom.api_types import SessionUsage, UsageTotals


class UsageScreen(ModalScreen[None]):
    DEFAULT_CSS = """
    UsageScreen { align: center middle; background: $background 60%; }
    UsageScreen > Vertical {
        width: 90; max-width: 96%; height: auto; max-height: 80%; border: round $primary; border-title-color: $primary;
        border-title-style: bold; background: $surface; padding: 0 1;
    }
    UsageScreen DataTable { height: auto; max-height: 20; background: $surface; }
    UsageScreen Static { height: auto; color: $dim; }
    UsageScreen .totals { margin: 1 0 0 0; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close", show=False, priority=True)]

    def __init__(self, log: UsageLog, usage: SessionUsage | None) -> None:
        super().__init__()
        self._usage = log
        self._totals = usage

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Usage (Esc closes)"
            yield Static("Turns since this conversation was opened")
            yield DataTable[str](cursor_type="row")
            if self._totals is not None:
                yield Static(
                    f"this path: {_totals(self._totals.path)}\nall branches: {_totals(self._totals.total)}",
                    classes="totals",
                )

    def on_mount(self) -> None:
        table = self.query_one(DataTable[str])
        table.add_columns("turn", "model", "in", "cached", "out", "cost", "time")
        for number, turn in enumerate(self._usage.turns, 1):
            usage = turn.usage
            counts = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens)
            cells = (*map(tokens_label, counts), money_label(turn.usd), f"{turn.seconds:.1f} s")
            table.add_row(str(number), short_model(turn.model), *cells)


def _totals(totals: UsageTotals) -> str:
    usage = totals.usage
    tokens = f"{tokens_label(usage.input_tokens)} in, {tokens_label(usage.output_tokens)} out"
    share = f", {usage.cache_read_tokens / usage.input_tokens:.0%} cached" if usage.input_tokens else ""
    answers = f"{totals.answers} answer{'s' if totals.answers != 1 else ''}"
    return f"{answers}, {tokens}{share}, {money_label(totals.usd)}"
