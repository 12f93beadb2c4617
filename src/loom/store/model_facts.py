"""ModelFacts: facts about a model beyond the catalog, with their origin and time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from loom.errors import Corrupt
from loom.store.database import Database, Row, row_as
from loom.store.forest import Clock
from loom.store.nodes import plain_json, plain_text
from loom.struct_types import decode_json


class ModelFact(msgspec.Struct, frozen=True, kw_only=True):
    """`origin` is `asked` (reported by the endpoint) or `learned` (from a refused request); `at` is the time."""

    origin: str
    facts: Mapping[str, Any]
    at: float


class _StoredFact(msgspec.Struct, frozen=True, array_like=True):
    origin: str
    facts: str
    at: float


_KEEP: Final = (
    "INSERT INTO learned (model, base_url, origin, facts, at) VALUES (:model, :base_url, :origin, :facts, :at)"
    " ON CONFLICT (model, base_url, origin) DO UPDATE SET facts = :facts, at = :at"
)


class ModelFacts:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def list_facts(self, model: str, base_url: str) -> tuple[ModelFact, ...]:
        """Return the facts of a model. `model` is a reference such as `ollama/llava`; the same reference at another
        `base_url` is another model."""
        sql = "SELECT origin, facts, at FROM learned WHERE model = :model AND base_url = :base_url ORDER BY origin"
        rows = await self._database.select(sql, {"model": model, "base_url": base_url})
        return tuple(_fact_from_row(row) for row in rows)

    async def list_by_origin(self, origin: str) -> dict[str, Mapping[str, Any]]:
        """Return the facts of one origin by model reference; of several base URLs, the newest facts."""
        sql = "SELECT model, facts FROM learned WHERE origin = :origin ORDER BY model, at"
        rows = await self._database.read(lambda tx: tx.execute(sql, {"origin": origin}))
        return {str(model): _fact_from_row((origin, facts, 0.0)).facts for model, facts in rows}

    async def keep(self, model: str, base_url: str, origin: str, facts: Mapping[str, Any]) -> None:
        """Store facts, replacing older ones of the same origin."""
        values = {
            "model": plain_text(model, "the name of a model"),
            "base_url": plain_text(base_url, "an address"),
            "origin": plain_text(origin, "an origin"),
            "facts": plain_json(dict(facts), "facts"),
            "at": self._clock(),
        }
        await self._database.write(lambda tx: tx.execute(_KEEP, values), repeatable=True)


def _fact_from_row(row: Row) -> ModelFact:
    what = "The record of a model's facts"
    stored = row_as(row, _StoredFact, what)
    try:
        return ModelFact(origin=stored.origin, facts=decode_json(stored.facts, dict[str, Any]), at=stored.at)
    except msgspec.DecodeError:
        raise Corrupt(f"{what} is damaged.", hint="Run `loom doctor`; the rest can still be read.") from None
