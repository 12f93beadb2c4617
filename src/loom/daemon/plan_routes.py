"""Plans: the next request for several models, side by side; and the exact body for one of them."""

from __future__ import annotations

import msgspec

from loom.api_types import sampling_of_body
from loom.daemon.dispatch import Call
from loom.daemon.request_content import blocks_of
from loom.message_types import PlanRequest, PlanView, WireQuery, WireView


async def get_plan(call: Call[None, PlanRequest]) -> PlanView:
    body = call.body
    session = await call.daemon.library.open(call.path("session"))
    blocks, _ = await blocks_of(call.daemon, call.identity, session.workspace, body.text, body.blocks)
    view = await session.plan_table(
        body.models,
        content=blocks,
        overrides=body.overrides,
        max_tokens=body.max_tokens,
        last=body.last,
        sent=body.sent,
        options=sampling_of_body(body.thinking, body.options),
        cheaper=body.cheaper,
        compact=body.compact,
        at=body.at,
        system=body.system,
        tools=body.tools,
    )
    return page_of(view, body.limit, body.before)


def page_of(view: PlanView, limit: int, before: str) -> PlanView:
    """Return the plan with only the last `limit` rows before the row `before`; 0 means all of them."""
    end = next((at for at, row in enumerate(view.rows) if row.key == before), len(view.rows))
    start = max(end - limit, 0) if limit else 0
    above = view.rows[start].key if start else None
    return msgspec.structs.replace(view, rows=view.rows[start:end], next=above, above=start)


async def wire(call: Call[WireQuery, None]) -> WireView:
    return await (await call.daemon.library.open(call.path("session"))).wire(
        call.query.model, thinking=call.query.thinking
    )
