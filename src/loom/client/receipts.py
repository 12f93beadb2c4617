"""Receipts from a daemon, whose rows cover all models at once."""

from __future__ import annotations

import msgspec

from loom.agent.failures import error_of
from loom.prompt import Reason, Receipt, ReceiptRow, Rendition, Totals


class _Tokens(msgspec.Struct, rename={"incoming": "in"}):
    incoming: int
    budget: int | None = None


class _Model(msgspec.Struct):
    tokens: _Tokens
    bytes: int
    images: int
    pages: int
    cached_rows: int = 0
    notices: tuple[str, ...] = ()
    error: dict[str, str] | None = None


class _Cell(msgspec.Struct):
    rendition: Rendition
    tokens: int
    bytes: int
    reason: Reason
    detail: str


class _Row(msgspec.Struct):
    message: int
    block: int
    inner: int | None
    kind: str
    label: str
    digest: str
    by_model: dict[str, _Cell]


class RemotePlan(msgspec.Struct):
    models: dict[str, _Model]
    rows: tuple[_Row, ...]


def receipt_of(plan: RemotePlan, model: str) -> Receipt:
    """Return the receipt of a model; raise the daemon's error if the model cannot take the request."""
    found = plan.models[model]
    if found.error is not None:
        raise error_of(found.error["code"], found.error["message"], found.error.get("hint", ""))
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
    )


def _row(row: _Row, cell: _Cell) -> ReceiptRow:
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
