"""Plans: what several models would be sent, side by side; and the exact body for one of them."""

from __future__ import annotations

from loom.api_types import choices_of
from loom.daemon.dispatch import Call
from loom.daemon.request_content import blocks_of
from loom.message_types import PlanRequest, PlanView, WireQuery, WireView


async def get_plan(call: Call[None, PlanRequest]) -> PlanView:
    body = call.body
    session = await call.daemon.library.open(call.path("session"))
    workspace = (await session.info()).workspace
    blocks, _ = await blocks_of(call.daemon, workspace, body.text, body.blocks)
    return await session.plan_table(
        body.models,
        content=blocks,
        overrides=body.overrides,
        max_tokens=body.max_tokens,
        last=body.last,
        sent=body.sent,
        options=choices_of(body.thinking, body.options),
    )


async def wire(call: Call[WireQuery, None]) -> WireView:
    return await (await call.daemon.library.open(call.path("session"))).wire(
        call.query.model, thinking=call.query.thinking
    )
