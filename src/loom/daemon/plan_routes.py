"""Plans: what several models would be shown, side by side; and the exact body for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from loom.agent.mend import Asking
from loom.content.messages import Message
from loom.context.policy import Said, override_key, wishes_of
from loom.context.trim import UNLIMITED
from loom.daemon.calls import Call
from loom.daemon.core import Daemon
from loom.daemon.gather import blocks_of
from loom.daemon.message_shapes import (
    LastRow,
    Plan,
    PlanCell,
    PlanModel,
    PlanProblem,
    PlanRequest,
    PlanRow,
    PlanTokens,
    WireQuery,
    WireView,
)
from loom.daemon.planning import asking_of, last_asking
from loom.daemon.problems import problem
from loom.daemon.sessions_routes import without_auto
from loom.errors import ConfigError, ContentError, LoomError
from loom.models import Model, Usage
from loom.prompt import Receipt, ReceiptRow
from loom.providers.http import WIRES
from loom.providers.media_body import elided
from loom.store.session_rows import StoredSession

DRAFT: Final = "draft"
"""The node of a message that is not said yet."""


async def planned(call: Call[None, PlanRequest]) -> Plan:
    daemon, body = call.daemon, call.body
    stored = await daemon.runtime.sessions.get(call.path("session"))
    blocks, _ = await blocks_of(daemon, stored, body.text, body.blocks)
    draft = (Said(DRAFT, Message("user", blocks)),) if blocks else ()
    wished, _ = wishes_of(without_auto({**stored.overrides, **body.overrides}))
    models: dict[str, PlanModel] = {}
    rows: dict[tuple[int, int, int], PlanRow] = {}
    for reference in dict.fromkeys(body.models or (stored.model,)):
        try:
            asking = await asking_of(
                daemon, stored, reference, more=draft, overrides=wished, max_tokens=body.max_tokens
            )
            if body.sent:
                asking = await last_asking(daemon, asking) or asking
            if not asking.path:
                models[reference] = _nothing(asking.model)
                continue
            prepared = await daemon.looks.prepared(asking)
        except LoomError as error:
            models[reference] = _failed(error)
            continue
        models[reference] = await asyncio.to_thread(_model, daemon, asking.model, prepared.receipt)
        if body.last:
            last = await _last(daemon, asking)
            models[reference] = msgspec.structs.replace(models[reference], last=last)
        _add(rows, asking, reference, prepared.receipt.rows)
    return Plan(models=models, rows=tuple(rows[place] for place in sorted(rows)), rev=stored.rev)


def _add(
    rows: dict[tuple[int, int, int], PlanRow], asking: Asking, reference: str, found: Sequence[ReceiptRow]
) -> None:
    for row in found:
        place = (row.message, row.block, -1 if row.inner is None else row.inner)
        placed = asking.path[row.message]
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
                alt=asking.alts.get(row.digest, ""),
                by_model={},
            ),
        )
        known.by_model[reference] = PlanCell(
            rendition=row.rendition, tokens=row.tokens, bytes=row.wire_bytes, reason=row.reason, detail=row.detail
        )


async def _last(daemon: Daemon, asking: Asking) -> tuple[LastRow, ...] | None:
    last = await last_asking(daemon, asking)
    if last is None:
        return None
    prepared = await daemon.looks.prepared(last)
    return tuple(
        LastRow(
            key=override_key(last.path[row.message].id, row.block, row.inner),
            kind=row.kind,
            label=row.label,
            digest=row.digest,
            rendition=row.rendition,
            tokens=row.tokens,
            bytes=row.wire_bytes,
        )
        for row in prepared.receipt.rows
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


def _failed(error: LoomError) -> PlanModel:
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
    daemon = call.daemon
    stored: StoredSession = await daemon.runtime.sessions.get(call.path("session"))
    asking = await asking_of(daemon, stored, call.query.model)
    if not asking.path:
        raise ContentError("The session holds no message yet: there is no request.")
    if asking.model.wire not in WIRES:
        raise ConfigError(f"{asking.model.reference} has no wire: it answers inside Loom.", hint="Name another model.")
    prepared = await daemon.runtime.look(asking.prepared)
    request: dict[str, Any] = WIRES[asking.model.wire].encode(prepared.prompt)
    return WireView(asking.model.provider, asking.model.name, elided(request))
