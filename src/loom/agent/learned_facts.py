"""Facts that an answer or a refusal reveals about its model, stored with the session for the next request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from loom.agent.step import ModelAnswer
from loom.compile.cost import calibrate
from loom.compile.request import RequestInput, Snapshot
from loom.content.json_values import as_json
from loom.session import SessionChange


def next_input(answer: ModelAnswer) -> RequestInput:
    """Return the input for the request after this answer, with its watermark and what was billed, and with the token
    estimate calibrated by the reported usage."""
    request, prepared, folded = answer.request, answer.prepared, answer.result
    if prepared is None or folded is None:
        raise AssertionError("a refusal has no facts to learn")
    rows, counted, usage = prepared.receipt.rows, prepared.receipt.totals.tokens, folded.usage
    media = sum(row.tokens for row in rows if row.digest and row.rendition != "text")
    return msgspec.structs.replace(
        request,
        draft=(),
        is_placeholder=False,
        ends_with_assistant=False,
        watermark=msgspec.structs.replace(
            prepared.watermark,
            estimated_tokens=counted,
            billed_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens + usage.cache_write_tokens,
            billed_at=time.time(),
        ),
        calibration=calibrate(request.calibration, counted, usage.input_tokens, media=media),
    )


def learned_change(snapshot: Snapshot, request: RequestInput) -> SessionChange:
    """Return the change that stores what refusals and usage revealed about the model."""
    reference, provider = request.model.reference, request.model.provider
    settings = {"lessons": {**_builtins(snapshot.limits), reference: msgspec.to_builtins(request.limits)}}
    quarantine = {**_builtins(snapshot.quarantine), provider: sorted(request.quarantine)}
    return SessionChange(settings=settings, quarantine=quarantine)


def watermark_change(snapshot: Snapshot, request: RequestInput) -> SessionChange:
    """Return the `learned_change` together with the watermark of the request, for a session whose model has
    answered."""
    watermarks = {**_builtins(snapshot.watermarks), request.model.reference: as_json(request.watermark)}
    return msgspec.structs.replace(learned_change(snapshot, request), watermark=watermarks)


def _builtins(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: as_json(value) for key, value in values.items()}
