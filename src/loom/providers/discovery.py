"""Discovery: request a model's capabilities from its endpoint if the catalog only guesses, and learn from refusals.

Precedence: the user's settings, facts learned from refusals (for a week), facts from the endpoint (for a day; an hour
on this machine, where models are swapped), the catalog, a guess. A probe has a short timeout and never fails a turn:
an unknown capability is tried once, and a refusal is learned.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from loom.content.json_values import get_list, get_object
from loom.content.media_kinds import MEDIA_KINDS, capability_of
from loom.errors import LoomError
from loom.models import FactOrigin, Model
from loom.providers import catalog
from loom.providers.connections import Connections, KeyLookup, endpoint, is_local, transport_errors
from loom.providers.endpoints import (
    USUAL_PLACES,
    EndpointFacts,
    LocalServer,
    ProbeRequest,
    ServerKind,
    probe_endpoint,
    running_servers,
)
from loom.providers.http_errors import read_beginning
from loom.struct_types import convert, decode_json
from loom.wire import anthropic

_TIMEOUT_SECONDS: Final = 3.0
_MAX_LIST_BYTES: Final = 16 * 1024 * 1024
_HOUR: Final = 3600.0
_ASKED_SECONDS: Final = 24 * _HOUR
_ASKED_HERE_SECONDS: Final = _HOUR
_UNANSWERED_SECONDS: Final = 60.0
_LEARNED_SECONDS: Final = 7 * 24 * _HOUR


class KnownFact(Protocol):
    @property
    def origin(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def at(self) -> float: ...


class ModelFactStore(Protocol):
    """The stored facts about models (`store.model_facts`)."""

    async def list_facts(self, model: str, base_url: str) -> Sequence[KnownFact]: ...

    async def keep(self, model: str, base_url: str, origin: str, facts: Mapping[str, Any]) -> None: ...


class Discovery:
    def __init__(
        self,
        store: ModelFactStore,
        key: KeyLookup,
        *,
        connections: Connections,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._key = store, key
        self._connections = connections
        self._clock = clock
        self._unanswered: dict[tuple[str, str], float] = {}

    async def resolve_live(self, model: Model) -> Model:
        """Return the model with all known facts applied; probe its endpoint if the catalog does not know it."""
        known = {fact.origin: fact for fact in await self._store.list_facts(model.reference, model.base_url)}
        asked = await self._probe(model, known.get("asked"))
        if asked is not None:
            model = apply_facts(model, asked, "asked")
        learned = known.get("learned")
        if learned is not None and self._clock() - learned.at < _LEARNED_SECONDS:
            model = apply_facts(model, _facts(learned) or EndpointFacts(), "learned")
        return model

    async def learn(self, model: Model, *, without: str) -> Model:
        """Store that the model refused the kind of media `without`; return the model without that capability."""
        facts: dict[str, Any] = {}
        for known in await self._store.list_facts(model.reference, model.base_url):
            if known.origin == "learned" and self._clock() - known.at < _LEARNED_SECONDS:
                facts.update(known.facts)
        await self._store.keep(model.reference, model.base_url, "learned", {**facts, capability_of(without): False})
        return model.without(without)

    async def _probe(self, model: Model, before: KnownFact | None) -> EndpointFacts | None:
        """Return the facts from the endpoint, or recent stored ones. If the endpoint does not answer, return the stored
        ones, however old."""
        facts = _facts(before) if before is not None else None
        fresh_seconds = _ASKED_HERE_SECONDS if is_local(model.base_url) else _ASKED_SECONDS
        if (
            facts is not None and before is not None and self._clock() - before.at < fresh_seconds
        ) or not is_worth_probing(model):
            return facts
        place = (model.reference, model.base_url)
        if self._clock() < self._unanswered.get(place, 0.0):
            return facts
        said = await probe_model(model, self._key(model), self._connections)
        if said is None:
            self._unanswered[place] = self._clock() + _UNANSWERED_SECONDS
            return facts
        await self._store.keep(*place, "asked", msgspec.to_builtins(said))
        return said


def _facts(known: KnownFact) -> EndpointFacts | None:
    """Decode stored facts; return None if another version of Loom wrote them in another format, so that the endpoint is
    probed again."""
    try:
        return convert(known.facts, EndpointFacts)
    except msgspec.ValidationError:
        return None


def is_worth_probing(model: Model) -> bool:
    """Return whether the catalog does not know this model, but its endpoint might."""
    guessed = "guessed" in model.capabilities.origins.values()
    unlisted = not model.family and model.provider in ("anthropic", "gemini", "mistral")
    return guessed or unlisted or model.provider in ("ollama", "openai-compatible", "openrouter")


async def probe_model(model: Model, key: str | None, connections: Connections) -> EndpointFacts | None:
    """Return the facts that the endpoint reports; None if it does not answer in time or reports nothing useful."""
    try:
        headers = connections.access(model, key) if key else connections.own_headers(model)
        if model.wire == "anthropic":
            headers |= anthropic.HEADERS
        ask = probe_request(connections, model.base_url, headers)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            facts = await probe_endpoint(model, ask)
    except (TimeoutError, LoomError):
        return None
    return facts if facts != EndpointFacts() else None


def probe_request(connections: Connections, base_url: str, headers: Mapping[str, str]) -> ProbeRequest:
    """Return a function that sends GET (or POST, with a body) to a path after the base URL, or at the root of its host.
    It returns the JSON object of the response; None for anything else."""
    client = connections.client()  # loaded here: that takes a while on a busy machine, and is not the server's time

    async def ask(path: str, body: dict[str, Any] | None = None, *, at_root: bool = False) -> dict[str, Any] | None:
        base = urlunsplit((*urlsplit(base_url)[:2], "", "", "")) if at_root else base_url
        to = endpoint(base, path)
        content = None if body is None else msgspec.json.encode(body)
        kind = {} if body is None else {"content-type": "application/json"}
        request = client.build_request(
            "GET" if body is None else "POST", to.url, content=content, headers={**to.headers, **kind, **headers}
        )
        try:
            response = await client.send(request, stream=True)
            try:
                raw = await read_beginning(response, _MAX_LIST_BYTES) if response.status_code == 200 else b""
            finally:
                await response.aclose()
            return decode_json(raw, dict[str, Any])
        except (*transport_errors(), msgspec.DecodeError):
            return None

    return ask


def apply_facts(model: Model, facts: EndpointFacts, origin: FactOrigin) -> Model:
    """Return the model with facts applied. They override guesses and the catalog, but not the user's settings."""
    origins = model.capabilities.origins
    configured = {field for field, source in origins.items() if source == "user"}
    values = {
        field: value
        for field, value in msgspec.structs.asdict(facts).items()
        if value is not None and field not in configured
    }
    accepts = model.capabilities.accepts
    for kind in MEDIA_KINDS.values():
        if kind.capability in values:
            accepts = catalog.with_kind(accepts, kind, on=values[kind.capability])
    flags = {field: values[field] for field in ("tools", "thinking", "citations") if field in values}
    limits = {field: values[field] for field in ("context_tokens", "max_output_tokens") if field in values}
    replace = msgspec.structs.replace
    capabilities = replace(
        model.capabilities,
        accepts=accepts,
        result_accepts=tuple(found for found in model.capabilities.result_accepts if found in accepts),
        origins={**origins, **dict.fromkeys(values, origin)},
        **flags,
    )
    return replace(model, capabilities=capabilities, limits=replace(model.limits, **limits))


async def local_servers(places: Sequence[tuple[ServerKind, str]] = USUAL_PLACES) -> tuple[LocalServer, ...]:
    """Return the model servers that run on this machine, for users without an API key."""
    connections = Connections()
    try:
        return await running_servers(lambda base_url: probe_request(connections, base_url, {}), places)
    finally:
        await connections.close()


class FoundServer(msgspec.Struct, frozen=True):
    """A model server: its platform in the catalog, its base URL, and the names of its models."""

    platform: str
    base_url: str
    models: tuple[str, ...]


async def find_server(url: str, key: str = "") -> FoundServer | None:
    """Detect the kind of server at a URL, with or without a version in it; return None if none answers."""
    connections = Connections()
    base = url.rstrip("/")
    headers = {"authorization": f"Bearer {key}", "x-api-key": key, "x-goog-api-key": key} if key else {}
    try:
        async with asyncio.timeout(_FIND_SECONDS):
            root = base.removesuffix("/v1")
            tags = await probe_request(connections, root, headers)("/api/tags")
            if tags is not None and (names := _names(tags.get("models"), "name")):
                return FoundServer("ollama", root, names)
            for place in (base,) if _VERSIONED.search(base) else (f"{base}/v1", base):
                listed = await probe_request(connections, place, headers)("/models")
                if listed is None:
                    continue
                if names := tuple(name.removeprefix("models/") for name in _names(listed.get("models"), "name")):
                    return FoundServer("gemini", place, names)
                if names := _names(listed.get("data"), "id"):
                    return FoundServer(_platform_at(place, listed), place, names)
    except (TimeoutError, LoomError):
        return None
    finally:
        await connections.close()
    return None


def _platform_at(base_url: str, listed: Mapping[str, Any]) -> str:
    """Return the platform of a server: by its host, else by the owner in its list of models, else `compatible`."""
    host = urlsplit(base_url).hostname
    for name, facts in catalog.platforms().items():
        stated = urlsplit(str(facts.get("base_url", ""))).hostname
        if stated == host and not is_local(base_url):
            return name
    owners = {str(get_object(entry).get("owned_by", "")) for entry in get_list(listed.get("data"))}
    return next((name for owner, name in _OWNERS.items() if owner in owners), "compatible")


_FIND_SECONDS: Final = 15.0
_VERSIONED: Final = re.compile(r"/v\d\w*$")
_OWNERS: Final = {"llamacpp": "llama.cpp", "vllm": "vllm", "organization_owner": "lm-studio"}
"""The `owned_by` value in the list of models of each server."""


def _names(entries: Any, key: str) -> tuple[str, ...]:
    found = (get_object(entry).get(key) for entry in get_list(entries))
    return tuple(name for name in found if isinstance(name, str) and name)
