"""Describers: the models that describe images, one object for each model."""

from __future__ import annotations

from collections.abc import Callable

from loom.compile.descriptions import Describer
from loom.compile.media_facts import FactCache
from loom.compile.settle import Settler
from loom.config import Config
from loom.runtime.model_access import ModelAccess
from loom.runtime.stores import Stores


class Describers:
    def __init__(self, config: Callable[[], Config], models: ModelAccess, stores: Stores) -> None:
        self._config = config
        self._models = models
        self._stores = stores
        self._made: dict[str, Describer] = {}

    @property
    def default(self) -> str:
        """The model that describes images for text-only models; empty if images are not described."""
        return self._config().context.describer

    def current(self) -> Describer | None:
        """Return the configured describer; None if images are not described."""
        return self.by(self.default) if self.default else None

    def by(self, model: str) -> Describer:
        if model not in self._made:
            self._made[model] = Describer(
                model,
                self._stores.derived,
                resolve=self._models.resolve,
                resolve_live=self._models.resolve_live,
                provider=self._models.provider,
                settle=Settler(self._stores.renditions, facts=FactCache(max_digests=64)).settle,
            )
        return self._made[model]
