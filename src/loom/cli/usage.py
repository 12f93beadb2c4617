"""`loom usage`: the tokens and the cost of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from loom.api_types import ToolUsageRow, UsageReport, UsageRow
from loom.cli.shared.exit_codes import OK
from loom.cli.shared.terminal import money_label, one_line, tokens_label
from loom.models import Usage
from loom.runtime import Runtime

_NAME_WIDTH: Final = 40


class UsageSum(msgspec.Struct, kw_only=True):
    answers: int = 0
    usage: Usage = Usage()
    usd: float = 0.0
    unpriced: int = 0
    estimated_tokens: int = 0
    estimated_input_tokens: int = 0

    def add(self, row: UsageRow) -> None:
        self.answers += row.answers
        self.usage = self.usage + row.usage
        self.usd += row.usd
        self.unpriced += row.unpriced
        self.estimated_tokens += row.estimated_tokens
        self.estimated_input_tokens += row.estimated_input_tokens

    @property
    def estimate_label(self) -> str:
        """The error of the estimates: `+4 %` if more was estimated than billed."""
        if not self.estimated_input_tokens:
            return "-"
        return f"{round(100 * (self.estimated_tokens / self.estimated_input_tokens - 1)):+d} %"


@click.command("usage")
@click.option(
    "--days", type=click.IntRange(1, 366), default=30, show_default=True, help="How many days, today included."
)
@click.option(
    "--by",
    type=click.Choice(("day", "model", "session", "key", "tool")),
    default="day",
    show_default=True,
    help="How to group the totals; key: a client of the gateway.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines: one for each day, model (or tool) and session."
)
def usage_command(days: int, by: str, as_json: bool) -> int:
    """Show the tokens and the cost of answers, by day, model, session or key of the gateway, or the use of tools.

    Answers without a known price are counted, and marked with +. `estimate` is how much more (+) or less (-) was
    estimated for the requests than was billed.
    """
    report, clients = asyncio.run(_read(days, tools=by == "tool"))
    rows = report.rows
    if as_json:
        for row in report.tools if by == "tool" else rows:
            click.echo(msgspec.json.encode(row))
        return OK
    if by == "tool":
        return _print_tools(report.tools, days)
    sums: dict[str, UsageSum] = {}
    for row in rows:
        names = {
            "day": row.day,
            "model": row.model or "unknown",
            "session": row.title or row.session,
            "key": clients.get(row.session, "(own)"),
        }
        name = names[by]
        sums.setdefault(name, UsageSum()).add(row)
    if not sums:
        click.echo(f"No answers in the last {days} days.", err=True)
        return OK
    total = UsageSum()
    for row in rows:
        total.add(row)
    click.echo(f"{by:<{_NAME_WIDTH}}{'answers':>8}{'in':>9}{'out':>9}{'estimate':>10}{'cost':>12}")
    for name, found in sums.items():
        click.echo(_line(one_line(name, _NAME_WIDTH - 2), found))
    click.echo(_line("total", total))
    return OK


async def _read(days: int, *, tools: bool) -> tuple[UsageReport, dict[str, str]]:
    """Return the usage, and the gateway key of each session that has one."""
    async with Runtime.open() as runtime:
        report = await runtime.library.usage(days, tools=tools)
        return report, await runtime.conversations.records.session_clients()


def _print_tools(rows: Sequence[ToolUsageRow], days: int) -> int:
    """Print the calls of each tool, most used first, and what their results add to requests."""
    if not rows:
        click.echo(f"No tool calls in the last {days} days.", err=True)
        return OK
    used: dict[str, list[ToolUsageRow]] = {}
    for row in rows:
        used.setdefault(row.tool or "unknown", []).append(row)
    click.echo(f"{'tool':<{_NAME_WIDTH}}{'calls':>8}{'failed':>9}{'media':>9}{'tokens':>10}")
    for name, found in sorted(used.items(), key=lambda item: -sum(row.calls for row in item[1])):
        calls, failed, media, tokens = (
            sum(values) for values in zip(*((r.calls, r.failed, r.media, r.text_tokens) for r in found), strict=True)
        )
        words = f"{one_line(name, _NAME_WIDTH - 2):<{_NAME_WIDTH}}"
        click.echo(f"{words}{calls:>8}{failed:>9}{media:>9}{tokens_label(tokens):>10}")
    return OK


def _line(name: str, found: UsageSum) -> str:
    cost = money_label(found.usd) + ("+" if found.unpriced else "")
    tokens = f"{tokens_label(found.usage.input_tokens):>9}{tokens_label(found.usage.output_tokens):>9}"
    return f"{name:<{_NAME_WIDTH}}{found.answers:>8}{tokens}{found.estimate_label:>10}{cost:>12}"
