"""The list of models for clients of Anthropic's and OpenAI's APIs: one object that is valid for both."""

from __future__ import annotations

from loom.api_types import GatewayModel

_CREATED_AT = 1_767_225_600
"""Both protocols require a time. Loom has no release dates, so it is the same for every model."""


def gateway_model(name: str) -> GatewayModel:
    return GatewayModel(
        id=name,
        display_name=name,
        created=_CREATED_AT,
        created_at="2026-01-01T00:00:00Z",
        owned_by=name.partition("/")[0] if "/" in name else "loom",
    )
