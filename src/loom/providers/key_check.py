"""Check an API key or a server by requesting its list of models."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final, Literal, cast

import msgspec

from loom.errors import LoomError
from loom.models import Model
from loom.providers import catalog
from loom.providers.connections import Connections, authorization, endpoint, is_local, transport_errors
from loom.providers.http_errors import read_beginning
from loom.struct_types import decode_json
from loom.wire import anthropic

_SECONDS: Final = 8.0
_MAX_LIST_BYTES: Final = 16 * 1024 * 1024
_REFUSALS: Final = (401, 403)
_GEMINI_VERSION: Final = "/v1beta"


class KeyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check; `text` is for the user. `refused`: the service rejected the key; `unknown`: it could not
    be reached."""

    state: Literal["works", "refused", "unknown"]
    text: str
    models: tuple[str, ...] = ()


async def check_key(service: str, key: str, *, base_url: str = "") -> KeyCheck:
    """Check a key by listing the models of a service, which is free; `base_url` replaces the service's own URL."""
    if os.environ.get("LOOM_OFFLINE", "0") not in ("", "0") and not (base_url and is_local(base_url)):
        return KeyCheck(state="unknown", text="LOOM_OFFLINE is set")
    connections = Connections()
    try:
        async with asyncio.timeout(_SECONDS):
            return await _request_models(connections, service, key, base_url)
    except TimeoutError:
        return KeyCheck(state="unknown", text=f"{service} did not answer within {_SECONDS:.0f} seconds")
    except transport_errors():
        return KeyCheck(state="unknown", text=f"{service} cannot be reached")
    except LoomError as error:
        return KeyCheck(state="unknown", text=error.message)
    finally:
        await connections.close()


async def _request_models(connections: Connections, service: str, key: str, base_url: str) -> KeyCheck:
    model = catalog.model(f"{service}/x", catalog.ModelOverrides(base_url=base_url))
    place = endpoint(model.base_url, _list_path(model))
    headers = {**place.headers, **(authorization(model, key) if key else {})}
    if model.wire == "anthropic":
        headers |= anthropic.HEADERS
    client = connections.client()
    response = await client.send(client.build_request("GET", place.url, headers=headers), stream=True)
    try:
        if response.status_code in _REFUSALS or (model.provider == "gemini" and response.status_code == 400):
            return KeyCheck(state="refused", text=f"{service} refused it (HTTP {response.status_code})")
        if response.status_code != 200:
            return KeyCheck(state="unknown", text=f"{service} answered with HTTP {response.status_code}")
        return _count_models(service, _names(await read_beginning(response, _MAX_LIST_BYTES)))
    finally:
        await response.aclose()


def _list_path(model: Model) -> str:
    match model.provider:
        case "anthropic":
            return "/v1/models?limit=1000"
        case "gemini":
            return f"{'' if model.base_url.endswith(_GEMINI_VERSION) else _GEMINI_VERSION}/models?pageSize=1000"
        case "ollama":
            return "/api/tags"
        case _:
            return "/models"


def _names(raw: bytes) -> list[str] | None:
    """Return the names in a list of models; None if it is not one, for example the sign-in page of a network."""
    try:
        listed = decode_json(raw, dict[str, Any])
    except msgspec.DecodeError:
        return None
    entries: Any = listed.get("data") or listed.get("models")
    if not isinstance(entries, list):
        return None
    objects = [cast("dict[str, Any]", entry) for entry in cast("list[Any]", entries) if isinstance(entry, dict)]
    names = [str(entry.get("id") or entry.get("name") or "") for entry in objects]
    return [name.removeprefix("models/") for name in names if name]


def _count_models(service: str, names: list[str] | None) -> KeyCheck:
    if names is None:
        return KeyCheck(state="unknown", text=f"the server at this URL is not {service}")
    seeing = 0
    for name in names:
        try:
            seeing += catalog.model(f"{service}/{name}").capabilities.vision
        except LoomError:  # a name that is not valid for a model
            continue
    models = "1 model" if len(names) == 1 else f"{len(names)} models"
    return KeyCheck(state="works", text=f"{models}, {seeing} with image support", models=tuple(names))
