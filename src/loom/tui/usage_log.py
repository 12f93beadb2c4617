"""UsageLog: the tokens and cost of the turns of a conversation since it was opened."""

from __future__ import annotations

import msgspec

from loom.models import Usage


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    usage: Usage
    usd: float | None
    seconds: float


class UsageLog:
    def __init__(self) -> None:
        self.turns: list[TurnUsage] = []

    def add(self, model: str, usage: Usage, usd: float | None, seconds: float) -> None:
        self.turns.append(TurnUsage(model=model, usage=usage, usd=usd, seconds=seconds))
