"""Plans: what several models would be shown, side by side; and the exact body for one of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from loom.compile.policy import override_key, overrides_of
from loom.compile.request import NextRequest
from loom.compile.trim import UNLIMITED
from loom.content.messages import Message
from loom.daemon.dispatch import Call
from loom.daemon.problems import problem
from loom.daemon.request_content import blocks_of
from loom.daemon.services import Daemon
from loom.daemon.sessions_routes import without_auto
from loom.errors import ConfigError, ContentError, LoomError
from loom.message_types import (
    LastRow,
    PlanCell,
    PlanModel,
    PlanProblem,
    PlanRequest,
    PlanRow,
    PlanTokens,
    PlanView,
    WireQuery,
    WireView,
)
from loom.models import Model, Usage
from loom.prompt import Receipt
from loom.providers.http import WIRES
from loom.providers.media_body import elide_media


async def get_plan(call: Call[None, PlanRequest]) -> PlanView:
    daemon, body = call.daemon, call.body
    stored = await daemon.runtime.sessions.get(call.path("session"))
    blocks, _ = await blocks_of(daemon, stored, body.text, body.blocks)
    draft = (Message("user", blocks),) if blocks else ()
    overrides, _ = overrides_of(without_auto({**stored.overrides, **body.overrides}))
    session = await daemon.runtime.session(stored.id)
    models: dict[str, PlanModel] = {}
    rows: dict[tuple[int, int, int], PlanRow] = {}
    is_empty = not draft and stored.head_id == stored.root_id
    for reference in dict.fromkeys(body.models or (stored.model,)):
        try:
            if is_empty:
                models[reference] = _nothing(await daemon.runtime.resolve_live(reference))
                continue
            last = await session.last_request(reference, mode="estimate") if body.sent or body.last else None
            request = last if body.sent else None
            if request is None:
                request = await session.next_request(
                    reference, draft=draft, overrides=overrides, max_tokens=body.max_tokens, mode="estimate"
                )
        except LoomError as error:
            models[reference] = _failed_model(error)
            continue
        models[reference] = await asyncio.to_thread(_model, daemon, request.input.model, request.receipt)
        if body.last:
            models[reference] = msgspec.structs.replace(models[reference], last=_last_rows(last))
        _add(rows, request, reference)
    return PlanView(models=models, rows=tuple(rows[place] for place in sorted(rows)), rev=stored.rev)


def _add(rows: dict[tuple[int, int, int], PlanRow], request: NextRequest, reference: str) -> None:
    path = request.input.full_path
    for row in request.receipt.rows:
        place = (row.message, row.block, -1 if row.inner is None else row.inner)
        placed = path[row.message]
        known = rows.setdefault(
            place,
            PlanRow(
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
            ),
        )
        known.by_model[reference] = PlanCell(
            rendition=row.rendition, tokens=row.tokens, bytes=row.wire_bytes, reason=row.reason, detail=row.detail
        )


def _last_rows(last: NextRequest | None) -> tuple[LastRow, ...] | None:
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


def _model(daemon: Daemon, model: Model, receipt: Receipt) -> PlanModel:
    """In a thread: prices are read from a file the first time."""
    totals, budget = receipt.totals, receipt.budgets.tokens
    return PlanModel(
        tokens=PlanTokens(incoming=totals.tokens, budget=None if budget >= UNLIMITED else budget, exact=False),
        bytes=totals.wire_bytes,
        images=totals.images,
        pages=totals.pages,
        usd=daemon.runtime.cost(model, Usage(input_tokens=totals.tokens)),
        limit=model.limits.context_tokens,
        cached_rows=receipt.cached_rows,
        notices=receipt.notices,
        error=None,
    )


def _nothing(model: Model) -> PlanModel:
    return _empty(limit=model.limits.context_tokens, error=None)


def _failed_model(error: LoomError) -> PlanModel:
    said = problem(error)
    return _empty(limit=0, error=PlanProblem(said.code, said.message, said.hint))


def _empty(*, limit: int, error: PlanProblem | None) -> PlanModel:
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


async def wire(call: Call[WireQuery, None]) -> WireView:
    session = await call.daemon.runtime.session(call.path("session"))
    if not await session.path():
        raise ContentError("The session holds no message yet: there is no request.")
    request = await session.next_request(call.query.model)
    model = request.prompt.model
    if model.wire not in WIRES:
        raise ConfigError(f"{model.reference} has no wire: it answers inside Loom.", hint="Name another model.")
    body: dict[str, Any] = WIRES[model.wire].encode(request.prompt)
    return WireView(model.provider, model.name, elide_media(body))
