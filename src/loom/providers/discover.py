"""Ask the endpoint what a model takes, where the catalogue only guesses; remember what refusals teach.

Order of trust: what the user says, what a refusal taught (for a week), what the endpoint says (for a day, an hour on
this machine, where models are swapped), what the catalogue declares, a guess. Asking is short and never fails a turn:
what cannot be found out stays guessed, is tried once, and is learned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from loom.errors import LoomError
from loom.models import PDF, Model, Origin
from loom.providers import catalog
from loom.providers.answers import beginning
from loom.providers.connections import Connections, Keys, endpoint, is_local, transport_errors
from loom.providers.endpoints import USUAL_PLACES, Ask, Facts, Kind, LocalServer, interview, running
from loom.wire import anthropic

_TIMEOUT_SECONDS: Final = 3.0
_MAX_LIST_BYTES: Final = 16 * 1024 * 1024
_HOUR: Final = 3600.0
_ASKED_SECONDS: Final = 24 * _HOUR
_ASKED_HERE_SECONDS: Final = _HOUR
_UNANSWERED_SECONDS: Final = 60.0
_LEARNED_SECONDS: Final = 7 * 24 * _HOUR

Taught: TypeAlias = Literal["image/", "application/pdf", "audio/"]


class Lesson(Protocol):
    @property
    def origin(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def at(self) -> float: ...


class LessonShelf(Protocol):
    """What is remembered of models (`store.learned`)."""

    async def lessons(self, model: str, base_url: str) -> Sequence[Lesson]: ...

    async def keep(self, model: str, base_url: str, origin: str, facts: Mapping[str, Any]) -> None: ...


class Discovery:
    def __init__(
        self,
        shelf: LessonShelf,
        key: Keys,
        *,
        connections: Connections,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shelf, self._key = shelf, key
        self._connections = connections
        self._clock = clock
        self._unanswered: dict[tuple[str, str], float] = {}

    async def informed(self, model: Model) -> Model:
        """The same model with everything that is known of it; its endpoint is asked where that is worth it."""
        known = {lesson.origin: lesson for lesson in await self._shelf.lessons(model.reference, model.base_url)}
        asked = await self._asked(model, known.get("asked"))
        if asked is not None:
            model = applied(model, asked, "asked")
        learned = known.get("learned")
        if learned is not None and self._clock() - learned.at < _LEARNED_SECONDS:
            model = applied(model, _facts(learned) or Facts(), "learned")
        return model

    async def learn(self, model: Model, *, without: Taught) -> Model:
        """A refusal taught that it does not take this kind of media: remembered, and not sent again."""
        flag = {"image/": "vision", PDF: "native_pdf", "audio/": "audio"}[without]
        lessons = await self._shelf.lessons(model.reference, model.base_url)
        facts: dict[str, Any] = {}
        for lesson in lessons:
            if lesson.origin == "learned" and self._clock() - lesson.at < _LEARNED_SECONDS:
                facts.update(lesson.facts)
        await self._shelf.keep(model.reference, model.base_url, "learned", {**facts, flag: False})
        return model.without(without)

    async def _asked(self, model: Model, before: Lesson | None) -> Facts | None:
        """What the endpoint says now, or said a short while ago. An old answer is better than none."""
        facts = _facts(before) if before is not None else None
        fresh_seconds = _ASKED_HERE_SECONDS if is_local(model.base_url) else _ASKED_SECONDS
        if (facts is not None and before is not None and self._clock() - before.at < fresh_seconds) or not worth_asking(
            model
        ):
            return facts
        place = (model.reference, model.base_url)
        if self._clock() < self._unanswered.get(place, 0.0):
            return facts
        said = await asked(model, self._key(model), self._connections)
        if said is None:
            self._unanswered[place] = self._clock() + _UNANSWERED_SECONDS
            return facts
        await self._shelf.keep(*place, "asked", msgspec.to_builtins(said))
        return said


def _facts(lesson: Lesson) -> Facts | None:
    """What another version of Loom wrote may have another shape; then the endpoint is asked anew."""
    try:
        return msgspec.convert(lesson.facts, Facts)
    except msgspec.ValidationError:
        return None


def worth_asking(model: Model) -> bool:
    """Whether the catalogue does not know this model, and its endpoint might."""
    guessed = "guessed" in model.capabilities.origins.values()
    unlisted = not model.family and model.provider in ("anthropic", "gemini", "mistral")
    return guessed or unlisted or model.provider in ("ollama", "openai-compatible")


async def asked(model: Model, key: str | None, connections: Connections) -> Facts | None:
    """What the endpoint says of this model; None where it does not answer in time, or knows nothing of use."""
    try:
        headers = connections.access(model, key) if key else connections.own_headers(model)
        if model.wire == "anthropic":
            headers |= anthropic.HEADERS
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            facts = await interview(model, asker(connections, model.base_url, headers))
    except (TimeoutError, LoomError):
        return None
    return facts if facts != Facts() else None


def asker(connections: Connections, base_url: str, headers: Mapping[str, str]) -> Ask:
    """GET (or POST, with a body) behind the base URL, or at the root of its host; None for anything but JSON."""

    async def ask(path: str, body: dict[str, Any] | None = None, *, at_root: bool = False) -> dict[str, Any] | None:
        base = urlunsplit((*urlsplit(base_url)[:2], "", "", "")) if at_root else base_url
        to = endpoint(base, path)
        client = connections.client()
        content = None if body is None else msgspec.json.encode(body)
        kind = {} if body is None else {"content-type": "application/json"}
        request = client.build_request(
            "GET" if body is None else "POST", to.url, content=content, headers={**to.headers, **kind, **headers}
        )
        try:
            response = await client.send(request, stream=True)
            try:
                raw = await beginning(response, _MAX_LIST_BYTES) if response.status_code == 200 else b""
            finally:
                await response.aclose()
            return msgspec.json.decode(raw, type=dict[str, Any])
        except (*transport_errors(), msgspec.DecodeError):
            return None

    return ask


def applied(model: Model, facts: Facts, origin: Origin) -> Model:
    """Facts take the place of guesses and of the catalogue, never of what the user says."""
    origins = model.capabilities.origins
    told = {field for field, source in origins.items() if source == "user"}
    values = {
        field: value
        for field, value in msgspec.structs.asdict(facts).items()
        if value is not None and field not in told
    }
    accepts, inside = model.capabilities.accepts, model.capabilities.result_accepts
    for field, prefix, usual in catalog.KINDS:
        if field in values:
            accepts, inside = catalog.switched(accepts, inside, prefix, usual, on=values[field])
    flags = {field: values[field] for field in ("tools", "thinking", "citations") if field in values}
    limits = {field: values[field] for field in ("context_tokens", "max_output_tokens") if field in values}
    replace = msgspec.structs.replace
    capabilities = replace(
        model.capabilities,
        accepts=accepts,
        result_accepts=tuple(kind for kind in inside if kind in accepts),
        origins={**origins, **dict.fromkeys(values, origin)},
        **flags,
    )
    return replace(model, capabilities=capabilities, limits=replace(model.limits, **limits))


async def local_servers(places: Sequence[tuple[Kind, str]] = USUAL_PLACES) -> tuple[LocalServer, ...]:
    """The model servers that run on this machine, for somebody who has no key."""
    connections = Connections()
    try:
        return await running(lambda base_url: asker(connections, base_url, {}), places)
    finally:
        await connections.close()
