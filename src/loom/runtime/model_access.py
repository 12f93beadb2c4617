"""ModelAccess: resolves model names, collects what is known about a model, and returns its provider."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from loom.agent.observer import Observers
from loom.compile.cost import Calibration
from loom.compile.ports import Provider
from loom.compile.renditions import Renditions
from loom.config import Config
from loom.content.media_kinds import MEDIA_KINDS
from loom.errors import ConfigError, ProviderError
from loom.models import Model, Usage
from loom.prompt import Prompt
from loom.runtime.calibrations import ModelCalibrations
from loom.runtime.custom_provider import REGISTERED, CustomProviderAdapter
from loom.runtime.model_resolution import (
    BUILT_IN_MODEL,
    FIRST_CHOICES,
    key_for,
    lacks_key,
    price,
    reachable_servers,
    resolve_model,
    sampling_for,
)
from loom.sampling import Sampling
from loom.store.database import Database
from loom.store.derived import Derived
from loom.store.model_facts import ModelFacts
from loom.store.uploads import UploadRecords

if TYPE_CHECKING:
    from loom.providers.connections import Connections
    from loom.providers.discovery import Discovery
    from loom.providers.endpoints import LocalServer
    from loom.providers.files import ProviderUploads

MIN_UPLOAD_BYTES: Final = 1_000_000


class ModelAccess:
    """Access to models. `config` returns the current settings. `given` are providers for known platforms, `own` are new
    platforms; `renditions` returns the source of media for requests. The network client is loaded when it is needed."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        given: Mapping[str, Provider],
        own: dict[str, CustomProviderAdapter],
        database: Database,
        renditions: Callable[[], Renditions[Derived]],
        observers: Observers,
    ) -> None:
        self._config = config
        self._given = given
        self._own: ChainMap[str, CustomProviderAdapter] = ChainMap(own, REGISTERED)
        self._database = database
        self.calibrations: Final = ModelCalibrations(ModelFacts(database))
        """The corrections of the models' token estimates."""
        self._renditions = renditions
        self._observers = observers
        self._http: Provider | None = None
        self._discovery: Discovery | None = None
        self._connections: Connections | None = None
        self._uploads: ProviderUploads | None = None

    @property
    def given_providers(self) -> Mapping[str, Provider]:
        """The providers that the runtime was given, by platform."""
        return MappingProxyType(dict(self._given))

    # Names -----------------------------------------------------------------------------------------------------------

    def resolve(self, reference: str = "") -> Model:
        """Return the model of a configured name or of `platform/name`; without a name, the configured default or the
        built-in model."""
        return resolve_model(reference or self._config().model or BUILT_IN_MODEL, self._config(), self._own)

    def can_use(self, reference: str) -> bool:
        """Return whether there is a model of that name, with a key if its service needs one."""
        try:
            model = self.resolve(reference)
        except ConfigError:
            return False
        return self._is_given(model) or not lacks_key(model, self._config())

    async def resolve_live(self, reference: str = "") -> Model:
        """Return the model like `resolve`, with the facts that its endpoint reports and that refusals have revealed."""
        model = self.resolve(reference)
        return model if self._is_given(model) else await self._discover().resolve_live(model)

    async def default(self) -> str:
        """Return the default model: the configured one, that of a service with a key, one of a server on this machine,
        or the built-in model."""
        config = self._config()
        if config.model:
            return config.model
        for platform, name in FIRST_CHOICES.items():
            if key_for(platform, config):
                return f"{platform}/{name}"
        local = [name for server in await self.local_servers() for name in server.models]
        seeing = [name for name in local if self.resolve(name).capabilities.vision]
        return next(iter([*seeing, *local]), BUILT_IN_MODEL)

    async def local_servers(self) -> tuple[LocalServer, ...]:
        """Return the model servers on this machine; none if LOOM_OFFLINE is set."""
        return await reachable_servers()

    def sampling(self, model: Model) -> Sampling:
        return sampling_for(model, self._config())

    def cost(self, model: Model, usage: Usage) -> float | None:
        """Return the price in US dollars; None if it is not known."""
        return price(model, usage)

    def cost_by_name(self, reference: str, usage: Usage) -> float | None:
        """Return the price in US dollars for the name of a model; None if it is not known."""
        return price(self.resolve(reference), usage)

    async def load_prices(self) -> None:
        """Load the price list in a thread, so that the first price does not block the event loop. If its file cannot be
        opened now, the first price tries again, and reports the error."""
        from loom.providers import prices

        with suppress(OSError):
            await asyncio.to_thread(prices.load)

    async def calibration(self, reference: str) -> Calibration | None:
        """Return the correction of a model's token estimates; None if it has not reported usage yet."""
        return (await self.calibrations.load()).get(reference)

    async def learn(self, model: Model, kind: str) -> None:
        """Store that a model does not support a kind of media."""
        if not self._is_given(model) and kind in {row.accepted_prefix for row in MEDIA_KINDS.values()}:
            await self._discover().learn(model, without=kind)

    # The network -----------------------------------------------------------------------------------------------------

    def provider(self, model: Model) -> Provider:
        """Return the provider of a model: one given by the caller, the built-in one, or HTTP."""
        given = self._given.get(model.provider) or self._own.get(model.provider)
        if given is not None:
            return given
        renditions = self._renditions()
        if model.provider == "loom":
            from loom.providers.spark import SparkProvider

            return SparkProvider(renditions)
        if self._http is None:
            from loom.providers.http import HttpProvider

            self._http = HttpProvider(renditions, self.key, connections=self.network(), on_progress=renditions.report)
        return self._http

    def key(self, model: Model) -> str | None:
        """Return the model's own key, otherwise that of its service."""
        config = self._config()
        own = config.secret("models", model.alias, "api_key") if model.alias else ""
        return own or key_for(model.provider, config)

    def network(self) -> Connections:
        """Return the HTTP client that all requests share."""
        if self._connections is None:
            from loom.providers.connections import Connections

            self._connections = Connections(headers=self._headers)
        return self._connections

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()

    def _headers(self, model: Model) -> dict[str, str]:
        """Return the headers that the user adds to requests to a model's host."""
        config = self._config()
        return config.secrets("models", model.alias, "headers") if model.alias in config.models else {}

    def _is_given(self, model: Model) -> bool:
        """Return whether the model has no endpoint: the built-in model, or a provider given by the caller."""
        return model.provider in ("loom", *self._given, *self._own)

    def _discover(self) -> Discovery:
        if self._discovery is None:
            from loom.providers.discovery import Discovery

            self._discovery = Discovery(ModelFacts(self._database), self.key, connections=self.network())
        return self._discovery

    # Files at providers ----------------------------------------------------------------------------------------------

    async def apply(self, prompt: Prompt, *, upload: bool) -> Prompt:
        """Return the prompt with large media as files at its provider; with `upload`, upload them now."""
        if all(ref.size_bytes < MIN_UPLOAD_BYTES for ref in prompt.media()):
            return prompt
        return await self.files().apply(prompt, upload=upload)

    async def forget_files(self, model: Model, file_ids: Collection[str]) -> None:
        """Forget uploaded files that their provider no longer has."""
        await self.files().forget(model, file_ids)

    def files(self) -> ProviderUploads:
        """Return the client for the file services of providers."""
        if self._uploads is None:
            from loom.providers.files import ProviderUploads

            stored = UploadRecords(self._database)
            self._uploads = ProviderUploads(
                stored,
                self._renditions(),
                self.key,
                connections=self.network(),
                observe=self._observers.observe_upload,
            )
        return self._uploads


def lost_files(error: ProviderError, prompt: Prompt) -> tuple[str, ...]:
    """Return the uploaded files of a prompt that, according to a refusal, are gone."""
    from loom.providers.files import lost_files as find_lost_files

    return find_lost_files(error, prompt)
