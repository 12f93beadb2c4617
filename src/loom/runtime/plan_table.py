"""Plan table: what several models would receive, side by side, with one row for each block."""

from __future__ import annotations

from collections import Counter

from loom.api_types import ProblemText
from loom.compile.policy import override_key
from loom.compile.request import NextRequest
from loom.compile.settle import PREPARING
from loom.compile.trim import UNLIMITED
from loom.config import redact
from loom.content.blocks import clean_text
from loom.errors import LoomError
from loom.estimates import Estimate
from loom.message_types import LastRow, PlanCalibration, PlanCell, PlanModel, PlanRow, PlanTokens
from loom.models import Model
from loom.prompt import Rendition

MAX_MESSAGE_CHARACTERS = 2_000
"""A longer message probably contains a whole bad value, so it is truncated."""


def problem_text(error: LoomError) -> ProblemText:
    """Return the texts of an error, with everything that looks like a key masked in its message; hints are Loom's own
    text."""
    message, hint = clean_text(redact(error.message)), clean_text(error.hint)
    return ProblemText(error.code, message[:MAX_MESSAGE_CHARACTERS], hint[:MAX_MESSAGE_CHARACTERS])


def add_rows(rows: dict[tuple[int, int, int], PlanRow], request: NextRequest, reference: str) -> None:
    path = request.input.full_path
    for row in request.receipt.rows:
        place = (row.message, row.block, -1 if row.inner is None else row.inner)
        known = rows.get(place)
        if known is None:
            placed = path[row.message]
            known = rows[place] = PlanRow(
                key=override_key(placed.id, row.block, row.inner),
                node=placed.id,
                message=row.message,
                block=row.block,
                inner=row.inner,
                role=placed.message.role,
                kind=row.kind,
                label=row.label,
                digest=row.digest,
                alt=request.input.alts.get(row.digest, ""),
                by_model={},
            )
        known.by_model[reference] = PlanCell(
            rendition=row.rendition, tokens=row.tokens, bytes=row.wire_bytes, reason=row.reason, detail=row.detail
        )


def last_rows(last: NextRequest | None) -> tuple[LastRow, ...] | None:
    if last is None:
        return None
    return tuple(
        LastRow(
            key=override_key(last.input.path[row.message].id, row.block, row.inner),
            kind=row.kind,
            label=row.label,
            digest=row.digest,
            rendition=row.rendition,
            tokens=row.tokens,
            bytes=row.wire_bytes,
        )
        for row in last.receipt.rows
    )


def plan_model(request: NextRequest, estimate: Estimate) -> PlanModel:
    receipt, model, measured = request.receipt, request.input.model, request.input.calibration
    totals, budget = receipt.totals, receipt.budgets.tokens
    by_rendition: Counter[Rendition] = Counter()
    for row in receipt.rows:
        by_rendition[row.rendition] += row.tokens
    return PlanModel(
        tokens=PlanTokens(incoming=totals.tokens, budget=None if budget >= UNLIMITED else budget, exact=False),
        bytes=totals.wire_bytes,
        images=totals.images,
        pages=totals.pages,
        usd=estimate.usd,
        estimate=estimate,
        limit=model.limits.context_tokens,
        cached_rows=receipt.cached_rows,
        notices=receipt.notices,
        error=None,
        rendition_tokens=dict(by_rendition),
        calibration=PlanCalibration(ratio=round(measured.ratio, 3), answers=measured.samples)
        if measured.samples
        else None,
        is_preparing=PREPARING in receipt.notices,
    )


def no_request(model: Model) -> PlanModel:
    return _empty_plan(limit=model.limits.context_tokens, error=None)


def failed_model(error: LoomError) -> PlanModel:
    return _empty_plan(limit=0, error=problem_text(error))


def _empty_plan(*, limit: int, error: ProblemText | None) -> PlanModel:
    return PlanModel(
        tokens=PlanTokens(incoming=0, budget=None, exact=False),
        bytes=0,
        images=0,
        pages=0,
        usd=None,
        limit=limit,
        cached_rows=0,
        notices=(),
        error=error,
    )
