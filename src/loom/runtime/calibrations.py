"""Calibrations: the correction of each model's token estimates, learned from all sessions and kept in the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from loom.compile.cost import Calibration
from loom.store.model_facts import ModelFacts
from loom.struct_types import convert

MEASURED: Final = "measured"
_SMALL_CHANGE: Final = 0.02
_FIRST_SAMPLES: Final = 4


class ModelCalibrations:
    """The calibrations of all models. They are read once per runtime, and written when an answer changes a ratio by
    more than 2 %."""

    def __init__(self, facts: ModelFacts) -> None:
        self._facts = facts
        self._known: dict[str, Calibration] | None = None
        self._written: dict[str, Calibration] = {}

    async def load(self) -> Mapping[str, Calibration]:
        """Return the calibration of each model that has answered, by reference."""
        if self._known is None:
            found: dict[str, Calibration] = {}
            for model, facts in (await self._facts.list_by_origin(MEASURED)).items():
                try:
                    found[model] = convert(facts, Calibration)
                except msgspec.ValidationError:  # written by another version: it is learned again
                    continue
            self._known = self._known or found
            self._written = dict(self._known)
        return self._known

    async def keep(self, reference: str, calibration: Calibration) -> None:
        known = dict(await self.load())
        before = self._written.get(reference)
        self._known = {**known, reference: calibration}
        is_small = before is not None and abs(calibration.ratio / before.ratio - 1) < _SMALL_CHANGE
        if not is_small or calibration.samples <= _FIRST_SAMPLES:
            self._written[reference] = calibration
            await self._facts.keep(reference, "", MEASURED, msgspec.to_builtins(calibration))
