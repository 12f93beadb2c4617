"""UsageScreen: tokens and cost of a conversation."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from loom.content.labels import tokens_label
from loom.models import Usage
from loom.tui.labels import money_label, short_model
from loom.tui.status_line import StatusValues
from loom.tui.usage_log import UsageLog


class UsageScreen(ModalScreen[None]):
    DEFAULT_CSS = """
    UsageScreen { align: center middle; background: $background 60%; }
    UsageScreen > Vertical {
        width: 90; max-width: 96%; height: auto; max-height: 80%; border: round $primary; border-title-color: $primary;
        border-title-style: bold; background: $surface; padding: 0 1;
    }
    UsageScreen DataTable { height: auto; max-height: 20; background: $surface; }
    UsageScreen Static { height: auto; margin: 1 0 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close", show=False, priority=True)]

    def __init__(self, log: UsageLog, state: StatusValues) -> None:
        super().__init__()
        self._usage = log
        self._info = state

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Usage since this conversation was opened (Esc closes)"
            yield DataTable[str](cursor_type="row")
            yield Static(self._summary())

    def on_mount(self) -> None:
        table = self.query_one(DataTable[str])
        table.add_columns("turn", "model", "in", "cached", "out", "cost", "time")
        for number, turn in enumerate(self._usage.turns, 1):
            table.add_row(str(number), short_model(turn.model), *_cells(turn.usage, turn.usd), f"{turn.seconds:.1f} s")

    def _summary(self) -> str:
        turns = self._usage.turns
        usage = Usage(
            input_tokens=sum(it.usage.input_tokens for it in turns),
            output_tokens=sum(it.usage.output_tokens for it in turns),
            cache_read_tokens=sum(it.usage.cache_read_tokens for it in turns),
        )
        tokens = f"{tokens_label(usage.input_tokens)} in, {tokens_label(usage.output_tokens)} out"
        share = f", {usage.cache_read_tokens / usage.input_tokens:.0%} cached" if usage.input_tokens else ""
        return f"{len(turns)} turn{'s' if len(turns) != 1 else ''}: {tokens}{share}, {money_label(self._usage.usd)}"


def _cells(usage: Usage, usd: float | None) -> tuple[str, str, str, str]:
    return (
        tokens_label(usage.input_tokens),
        tokens_label(usage.cache_read_tokens),
        tokens_label(usage.output_tokens),
        money_label(usd),
    )
