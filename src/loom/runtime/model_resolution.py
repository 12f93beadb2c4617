"""Model resolution: which model a name refers to, the default model, its key and its price."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from loom.config import Config
from loom.config.schema import ModelEntry
from loom.errors import ConfigError
from loom.models import Model, Price, Usage
from loom.providers import catalog
from loom.runtime.custom_provider import REGISTERED, CustomProviderAdapter, custom_model
from loom.sampling import OPTION_NAMES, Sampling

if TYPE_CHECKING:
    from loom.providers.endpoints import LocalServer

BUILT_IN_MODEL: Final = "loom/spark"
"""The model that answers without a key and without a network."""
FIRST_CHOICES: Final = catalog.first_choices()
"""The default models of services, in this order, for users who have a key and configured nothing else."""
LOCAL_KINDS: Final = ("lm-studio", "llama.cpp")
"""Compatible servers with a usual port, and therefore a name of their own: `lm-studio/qwen3-vl`."""
_PROBE_SECONDS: Final = 2.5
_CONFIGURED: Final = tuple(name for name in OPTION_NAMES if name in ModelEntry.__struct_fields__)
"""The options that a model's settings may set."""


def resolve_model(reference: str, config: Config, own: Mapping[str, CustomProviderAdapter] = REGISTERED) -> Model:
    """Return the model of a name: configured names first, then custom providers, then platforms. `spark` is the
    built-in model. Raise `ConfigError` if there is none."""
    if reference == "spark":
        reference = BUILT_IN_MODEL
    entry = config.models.get(reference)
    if entry is None:
        platform, _, name = reference.partition("/")
        made = custom_model(reference, own)
        if made is None and platform not in catalog.platforms() and _has_plugins():
            made = custom_model(reference, own)
        if made is not None:
            return made
        if platform in LOCAL_KINDS and name:
            from loom.providers.endpoints import USUAL_PLACES

            base_url = next(url for kind, url in USUAL_PLACES if kind == platform)
            return catalog.model(f"compatible/{name}", catalog.ModelOverrides(base_url=base_url))
        return catalog.model(reference if "/" in reference else f"{_platform_of(reference, config)}/{reference}")
    configured = entry.capabilities
    overrides = catalog.ModelOverrides(
        **{
            field: getattr(configured, field)
            for field in catalog.ModelOverrides.__struct_fields__
            if getattr(configured, field, None) is not None
        }
    )
    overrides = msgspec.structs.replace(
        overrides,
        base_url=config.secret("models", reference, "base_url"),
        detail=entry.detail,
        price=_price_of(entry),
    )
    written = f"{entry.provider}/{entry.model or reference}" if entry.provider else entry.model or reference
    return msgspec.structs.replace(catalog.model(written, overrides), alias=reference)


def _has_plugins() -> bool:
    """Register the providers of installed packages, which are searched only if a name is not known otherwise; return
    whether there are any."""
    from loom.runtime.plugins import register_plugin_providers

    return register_plugin_providers()


def _price_of(entry: ModelEntry) -> Price | None:
    stated = entry.price
    if stated.input is None and stated.output is None:
        return None
    return Price(
        input=stated.input or 0.0,
        output=stated.output or 0.0,
        cache_read=stated.cache_read,
        cache_write=stated.cache_write,
    )


def _platform_of(name: str, config: Config) -> str:
    """Return the platform of a bare model name by the families of the catalog: `gpt-5.5` is OpenAI's. Raise
    `ConfigError` if there is none."""
    for platform in FIRST_CHOICES:
        families = catalog.platforms()[platform].get("families", [])
        if any(re.fullmatch(family["match"], name, re.IGNORECASE) for family in families):
            return platform
    known = ", ".join([*config.models, "spark"])
    near = [*get_close_matches(name, config.models, 2, 0.6), *catalog.near_names(name)]
    meant = f"Did you mean {', '.join(near)}? " if near else ""
    raise ConfigError(
        f"Model {name!r} not found.",
        hint=f"{meant}Configured: {known}. Or write platform/name, such as ollama/llava.",
    )


def sampling_for(model: Model, config: Config) -> Sampling:
    """Return the configured sampling options of a model."""
    entry = config.models.get(model.alias) if model.alias else None
    if entry is None:
        return Sampling()
    return Sampling(**{name: getattr(entry, name) for name in _CONFIGURED})


def price(model: Model, usage: Usage) -> float | None:
    """Return the price of this usage in US dollars; None if it is not known."""
    from loom.providers import prices

    found = prices.cost(model, usage)
    return None if found is None else float(found)


def key_for(provider: str, config: Config, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the key of a service: the configured one, otherwise that of its environment variable."""
    environ = os.environ if environ is None else environ
    keys = config.secrets("keys")
    own = next((keys[name] for name in key_names(provider) if keys.get(name)), None)
    return own or catalog.env_key(provider, environ) or None


def lacks_key(model: Model, config: Config) -> bool:
    """Return whether the service of a model needs a key, and neither it nor the model has one."""
    has_own = bool(model.alias) and bool(config.models[model.alias].api_key)
    return bool(catalog.key_env(model.provider)) and not has_own and not key_for(model.provider, config)


def key_names(provider: str) -> tuple[str, ...]:
    """Return the names under which the key of a service may be stored: platforms of one vendor share a key."""
    platform = catalog.ALIASES.get(provider, provider)
    facts = catalog.platforms().get(platform, {})
    extended = "" if "key_env" in facts else facts.get("extends", "")
    return tuple(dict.fromkeys(name for name in (platform, provider, extended) if name))


async def reachable_servers() -> tuple[LocalServer, ...]:
    """Return the model servers on this machine. Without an open port nothing is requested, so this is fast; with
    LOOM_OFFLINE not even ports are checked."""
    if os.environ.get("LOOM_OFFLINE", "0") not in ("", "0"):
        return ()
    from loom.providers.endpoints import USUAL_PLACES

    opened = await asyncio.gather(*(_is_open(base_url) for _, base_url in USUAL_PLACES))
    places = [place for place, is_open in zip(USUAL_PLACES, opened, strict=True) if is_open]
    if not places:
        return ()
    from loom.providers.discovery import local_servers

    return tuple(
        msgspec.structs.replace(
            server, models=tuple(f"{server.kind}/{name.partition('/')[2]}" for name in server.models)
        )
        for server in await local_servers(places)
    )


async def _is_open(base_url: str) -> bool:
    """Return whether something listens on the port. On this machine that is known at once."""
    place = urlsplit(base_url)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError:  # includes TimeoutError
        return False
    writer.close()
    return True
