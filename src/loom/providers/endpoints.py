"""Read the facts that servers report about their models, each in its own format: Anthropic, Gemini, Ollama, llama.cpp,
LM Studio, vLLM, OpenRouter, Mistral; and find the servers on this machine. `discovery` sends requests and stores
facts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, cast
from urllib.parse import quote

import msgspec

from loom.models import Model
from loom.wire.framing import get_object


class EndpointFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a model; None if the endpoint does not report it."""

    vision: bool | None = None
    native_pdf: bool | None = None
    audio: bool | None = None
    video: bool | None = None
    tools: bool | None = None
    thinking: bool | None = None
    citations: bool | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None


class ProbeRequest(Protocol):
    async def __call__(
        self, path: str, body: dict[str, Any] | None = None, *, at_root: bool = False
    ) -> dict[str, Any] | None: ...


async def probe_endpoint(model: Model, ask: ProbeRequest) -> EndpointFacts:
    """Return the facts that a model's endpoint reports, with as few requests as its kind of server needs."""
    match model.provider:
        case "anthropic":
            return _anthropic(await ask(f"/v1/models/{quote(model.name, safe='')}") or {})
        case "gemini":
            return _gemini(await ask(f"/models/{quote(model.name.removeprefix('models/'), safe='')}") or {})
        case "ollama":
            return _ollama(await ask("/api/show", {"model": model.name}) or {}, model)
        case "openai-compatible" | "mistral" | "vllm" | "llama.cpp" | "lm-studio" | "openrouter" | "groq" | "xai":
            return await _probe_compatible(model, ask)
        case _:
            return EndpointFacts()


# Services -----------------------------------------------------------------------------------------------------------


def _anthropic(said: Mapping[str, Any]) -> EndpointFacts:
    takes = _object(said, "capabilities")
    return EndpointFacts(
        vision=_supports(takes, "image_input"),
        native_pdf=_supports(takes, "pdf_input"),
        citations=_supports(takes, "citations"),
        thinking=_supports(takes, "thinking"),
        context_tokens=_count(said, "max_input_tokens"),
        max_output_tokens=_count(said, "max_tokens"),
    )


def _supports(takes: Mapping[str, Any], name: str) -> bool | None:
    found = takes.get(name)
    if isinstance(found, dict):
        found = cast("dict[str, Any]", found).get("supported")
    return found if isinstance(found, bool) else None


def _gemini(said: Mapping[str, Any]) -> EndpointFacts:
    return EndpointFacts(
        thinking=_flag(said, "thinking"),
        context_tokens=_count(said, "inputTokenLimit"),
        max_output_tokens=_count(said, "outputTokenLimit"),
    )


# Servers on this machine --------------------------------------------------------------------------------------------


def _ollama(said: Mapping[str, Any], model: Model) -> EndpointFacts:
    """Read the response of Ollama. The context length is the server's setting (`num_ctx`) or the catalog's, limited
    by what the model was trained for, which alone may be more than the machine has memory for."""
    stated = said.get("capabilities")
    if not isinstance(stated, list):
        return EndpointFacts()
    can = cast("list[Any]", stated)
    lengths = [
        value
        for name, value in _object(said, "model_info").items()
        if name.endswith(".context_length") and isinstance(value, int) and value > 0
    ]
    longest = min(lengths) if lengths else None
    set_by_server = re.search(r"^num_ctx\s+(\d+)\s*$", str(said.get("parameters", "")), re.MULTILINE)
    wanted = int(set_by_server[1]) if set_by_server else model.limits.context_tokens
    return EndpointFacts(
        vision="vision" in can,
        audio="audio" in can,
        tools="tools" in can,
        thinking="thinking" in can,
        context_tokens=min(wanted, longest) if longest else None,
    )


async def _probe_compatible(model: Model, ask: ProbeRequest) -> EndpointFacts:
    """Read the list of models, which also identifies the server; llama.cpp and LM Studio report facts at other
    paths."""
    listed = await ask("/models")
    if listed is None:
        return EndpointFacts()
    entries = _objects(listed.get("data"))
    entry = _first(entry for entry in entries if entry.get("id") == model.name)
    owner = str((entry or _first(entries)).get("owned_by", ""))
    if owner == "llamacpp":
        return _llama_cpp(await ask("/props", at_root=True) or {})
    if not entry:
        return EndpointFacts()
    facts = _facts_from_entry(entry)
    if facts == EndpointFacts():
        models = _objects((await ask("/api/v1/models", at_root=True) or {}).get("models"))
        return _lm_studio(_first(found for found in models if model.name in (found.get("key"), found.get("id"))))
    return facts


def _llama_cpp(props: Mapping[str, Any]) -> EndpointFacts:
    """Read `/props` of llama.cpp. It reports nothing about tools: the server supports them for every model."""
    sees = _object(props, "modalities")
    return EndpointFacts(
        vision=_flag(sees, "vision"),
        audio=_flag(sees, "audio"),
        video=_flag(sees, "video"),
        context_tokens=_count(_object(props, "default_generation_settings"), "n_ctx") or _count(props, "n_ctx"),
    )


def _lm_studio(said: Mapping[str, Any]) -> EndpointFacts:
    can = _object(said, "capabilities")
    loaded = _first(_objects(said.get("loaded_instances")))
    reasoning = can.get("reasoning")
    return EndpointFacts(
        vision=_flag(can, "vision"),
        tools=_flag(can, "trained_for_tool_use"),
        thinking=bool(reasoning) if "reasoning" in can else None,
        context_tokens=_count(_object(loaded, "config"), "context_length") or _count(said, "max_context_length"),
    )


def _facts_from_entry(entry: Mapping[str, Any]) -> EndpointFacts:
    """Read an entry of `/models`: OpenRouter and llama.cpp report modalities, vLLM a length, Mistral capabilities."""
    kinds = _object(entry, "architecture").get("input_modalities")
    takes: list[Any] | None = cast("list[Any]", kinds) if isinstance(kinds, list) else None
    can = _object(entry, "capabilities")
    parameters = entry.get("supported_parameters")
    options: list[Any] | None = cast("list[Any]", parameters) if isinstance(parameters, list) else None
    return EndpointFacts(
        vision=_flag(can, "vision") if takes is None else "image" in takes,
        native_pdf=None if takes is None else "file" in takes,
        audio=None if takes is None else "audio" in takes,
        video=None if takes is None else "video" in takes,
        tools=_flag(can, "function_calling") if options is None else "tools" in options,
        thinking=None if options is None else "reasoning" in options,
        context_tokens=_count(entry, "context_length")
        or _count(entry, "max_model_len")
        or _count(entry, "max_context_length"),
        max_output_tokens=_count(_object(entry, "top_provider"), "max_completion_tokens"),
    )


# Which are running --------------------------------------------------------------------------------------------------

ServerKind: TypeAlias = Literal["ollama", "lm-studio", "llama.cpp"]

_LOOK_SECONDS: Final = 5.0
USUAL_PLACES: Final[tuple[tuple[ServerKind, str], ...]] = (
    ("ollama", "http://127.0.0.1:11434"),
    ("lm-studio", "http://127.0.0.1:1234/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
)


class LocalServer(msgspec.Struct, frozen=True):
    """A server on this machine; `models` are references that can be used at once."""

    kind: ServerKind
    base_url: str
    models: tuple[str, ...]


class ProbeAt(Protocol):
    def __call__(self, base_url: str, /) -> ProbeRequest: ...


async def running_servers(ask_at: ProbeAt, places: Iterable[tuple[ServerKind, str]]) -> tuple[LocalServer, ...]:
    """Return the servers that answer in the expected format at `places`; other programs on such a port are ignored."""

    async def look(kind: ServerKind, base_url: str) -> LocalServer | None:
        path, field, name, platform = (
            ("/api/tags", "models", "name", "ollama") if kind == "ollama" else ("/models", "data", "id", "compatible")
        )
        ask = ask_at(base_url)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                listed = await ask(path)
        except TimeoutError:
            return None
        if listed is None or not isinstance(listed.get(field), list):
            return None
        names = [entry.get(name) for entry in _objects(listed[field])]
        return LocalServer(kind, base_url, tuple(f"{platform}/{found}" for found in names if isinstance(found, str)))

    found = await asyncio.gather(*(look(kind, base_url) for kind, base_url in places))
    return tuple(server for server in found if server is not None)


# Lenient reading of JSON --------------------------------------------------------------------------------------------


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    return get_object(dict(value), key)


def _objects(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _first(items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    for item in items:
        return item
    return {}


def _flag(value: Mapping[str, Any], key: str) -> bool | None:
    found = value.get(key)
    return found if isinstance(found, bool) else None


def _count(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
