"""Usage and budgets: the cost of answers and the use of tools by day and session, and limits of the cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from loom.api_types import ToolUsageRow, UsageReport, UsageRow
from loom.compile.cost import text_tokens
from loom.config.schema import BudgetSettings
from loom.content.blocks import TextBlock
from loom.errors import BudgetSpent
from loom.models import TokenRule, Usage
from loom.store.database import Database
from loom.store.usage import AnswerRecord, ResultRecord, read_answers, read_results
from loom.struct_types import convert

DAY_SECONDS: Final = 86_400
AnswerPrice = Callable[[str, Usage], float | None]


async def usage_report(database: Database, price: AnswerPrice, days: int, *, tools: bool = False) -> UsageReport:
    """Return the usage of today and the days before it, `days` in total, in the time zone of this machine."""
    since = start_of_day() - (days - 1) * DAY_SECONDS
    answers = await read_answers(database, since)
    results = await read_results(database, since) if tools else ()
    # In a thread: prices are read from a file the first time.
    rows = await asyncio.to_thread(lambda: _rows(answers, price))
    return UsageReport(days=days, rows=rows, tools=await asyncio.to_thread(_tool_rows, results))


def start_of_day() -> float:
    """Return the beginning of today, in seconds since the epoch."""
    now = time.localtime()
    return time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1))


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _tool_rows(results: Iterable[ResultRecord]) -> tuple[ToolUsageRow, ...]:
    rows: dict[tuple[str, str, str], ToolUsageRow] = {}
    for record in results:
        result = record.result
        key = _day(record.created_at), result.name, record.session
        found = rows.get(key) or ToolUsageRow(day=key[0], tool=key[1], session=key[2], title=record.title)
        texts = [block.text for block in result.blocks if isinstance(block, TextBlock)]
        rows[key] = msgspec.structs.replace(
            found,
            calls=found.calls + 1,
            failed=found.failed + result.is_error,
            text_tokens=found.text_tokens + sum(text_tokens(text, TokenRule()) for text in texts),
            media=found.media + len(result.blocks) - len(texts),
        )
    return tuple(rows[key] for key in sorted(rows))


def _rows(answers: Iterable[AnswerRecord], price: AnswerPrice) -> tuple[UsageRow, ...]:
    rows: dict[tuple[str, str, str], UsageRow] = {}
    for answer in answers:
        provider, name = answer.meta.get("provider"), answer.meta.get("model")
        usage, model = _usage(answer), f"{provider}/{name}" if provider and name else ""
        if usage is None:
            continue
        day = _day(answer.created_at)
        usd = price(model, usage) if model else None
        written = answer.meta.get("estimated_tokens")
        estimated = written if isinstance(written, int) and usage.input_tokens else 0
        found = rows.get((day, model, answer.session))
        if found is None:
            found = UsageRow(day=day, model=model, session=answer.session, title=answer.title)
        rows[day, model, answer.session] = msgspec.structs.replace(
            found,
            answers=found.answers + 1,
            usage=found.usage + usage,
            estimated_tokens=found.estimated_tokens + estimated,
            estimated_input_tokens=found.estimated_input_tokens + (usage.input_tokens if estimated else 0),
            usd=found.usd + (usd or 0.0),
            unpriced=found.unpriced + (usd is None),
        )
    return tuple(rows[key] for key in sorted(rows))


def _usage(answer: AnswerRecord) -> Usage | None:
    try:
        return convert(answer.meta.get("usage"), Usage)
    except msgspec.ValidationError:  # an imported answer, or an interrupted one
        return None


async def check_budget(database: Database, price: AnswerPrice, budget: BudgetSettings, session: str) -> None:
    """Raise `BudgetSpent` if the session, all sessions today or all sessions have reached their budget."""
    limits = (
        (budget.session_usd, 0.0, session, "This session", "budget.session_usd"),
        (budget.day_usd, start_of_day(), "", "Today's answers", "budget.day_usd"),
        (budget.total_usd, 0.0, "", "All answers", "budget.total_usd"),
    )
    for most, since, of_session, words, setting in limits:
        if most is None:
            continue
        answers = await read_answers(database, since, of_session)
        spent = sum(row.usd for row in await asyncio.to_thread(_rows, answers, price))
        if spent >= most:
            raise BudgetSpent(f"Budget exceeded: {words} cost ${spent:.2f} of ${most:.2f}.", hint=f"Raise `{setting}`.")
