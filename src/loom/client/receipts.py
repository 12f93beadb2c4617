"""Receipts from a daemon, whose rows cover all models at once."""

from __future__ import annotations

from loom.agent.failures import error_of
from loom.message_types import PlanCell, PlanRow, PlanView
from loom.prompt import Receipt, ReceiptRow, Totals


def receipt_of(plan: PlanView, model: str) -> Receipt:
    """Return the receipt of a model; raise the daemon's error if the model cannot take the request."""
    found = plan.models[model]
    if found.error is not None:
        raise error_of(found.error.code, found.error.message, found.error.hint)
    rows = [_row(row, row.by_model[model]) for row in plan.rows if model in row.by_model]
    totals = Totals(tokens=found.tokens.incoming, wire_bytes=found.bytes, images=found.images, pages=found.pages)
    budgets = Totals(tokens=found.tokens.budget or 0)
    return Receipt(
        model=model,
        rows=tuple(rows),
        totals=totals,
        budgets=budgets,
        notices=found.notices,
        cached_rows=found.cached_rows,
        estimate=found.estimate,
    )


def _row(row: PlanRow, cell: PlanCell) -> ReceiptRow:
    return ReceiptRow(
        message=row.message,
        block=row.block,
        inner=row.inner,
        kind=row.kind,
        label=row.label,
        digest=row.digest,
        rendition=cell.rendition,
        reason=cell.reason,
        detail=cell.detail,
        tokens=cell.tokens,
        wire_bytes=cell.bytes,
    )
