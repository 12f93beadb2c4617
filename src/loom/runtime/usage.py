"""Usage and budgets: the cost of answers by day, model and session, and its limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from loom.api_types import UsageReport, UsageRow
from loom.config.schema import BudgetSettings
from loom.errors import BudgetSpent
from loom.models import Usage
from loom.store.database import Database
from loom.store.usage import AnswerRecord, read_answers

DAY_SECONDS: Final = 86_400
AnswerPrice = Callable[[str, Usage], float | None]


async def usage_report(database: Database, price: AnswerPrice, days: int) -> UsageReport:
    """Return the usage of today and the days before it, `days` in total, in the time zone of this machine."""
    since = start_of_day() - (days - 1) * DAY_SECONDS
    answers = await read_answers(database, since)
    # In a thread: prices are read from a file the first time.
    return UsageReport(days=days, rows=await asyncio.to_thread(lambda: _rows(answers, price)))


def start_of_day() -> float:
    """Return the beginning of today, in seconds since the epoch."""
    now = time.localtime()
    return time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1))


def _rows(answers: Iterable[AnswerRecord], price: AnswerPrice) -> tuple[UsageRow, ...]:
    rows: dict[tuple[str, str, str], UsageRow] = {}
    for answer in answers:
        provider, name = answer.meta.get("provider"), answer.meta.get("model")
        usage, model = _usage(answer), f"{provider}/{name}" if provider and name else ""
        if usage is None:
            continue
        day = time.strftime("%Y-%m-%d", time.localtime(answer.created_at))
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
        return msgspec.convert(answer.meta.get("usage"), Usage)
    except msgspec.ValidationError:  # an imported answer, or an interrupted one
        return None


async def check_budget(database: Database, price: AnswerPrice, budget: BudgetSettings, session: str) -> None:
    """Raise `BudgetSpent` if the session, or all sessions today, have reached their budget."""
    limits = (
        (budget.session_usd, 0.0, session, "This session", "budget.session_usd"),
        (budget.day_usd, start_of_day(), "", "Today's answers", "budget.day_usd"),
    )
    for most, since, of_session, words, setting in limits:
        if most is None:
            continue
        answers = await read_answers(database, since, of_session)
        spent = sum(row.usd for row in await asyncio.to_thread(_rows, answers, price))
        if spent >= most:
            raise BudgetSpent(
                f"The budget is spent: {words} cost ${spent:.2f} of ${most:.2f}.", hint=f"Raise `{setting}`."
            )
