"""Resolve a reference such as `anthropic/claude-opus-5` to a Model, from the catalog and the user's settings.

`origins` records where each capability comes from: declared in the catalog, reported by the endpoint (`asked`),
learned from a refused request, set by the user, or guessed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import Detail
from loom.content.media_kinds import MEDIA_CAPABILITIES, MEDIA_KINDS, MediaKind
from loom.errors import ConfigError
from loom.models import FactOrigin, Model, Price
from loom.struct_types import convert

SECTIONS: Final = ("capabilities", "limits", "tokens", "thinking", "cache", "ids", "dialect")
_FIELDS: Final = (
    "provider",
    "wire",
    "base_url",
    "auth",
    "sampling",
    "user_after_tool",
    "system_messages",
    "max_tool_name",
    "tool_name_start",
    "property_names",
    "calls_need_tools",
    "options",
    "schema_with_tools",
    "own_blocks",
    "server_tools",
)
ALIASES: Final = {"bedrock-anthropic": "bedrock", "openai-responses": "openai", "openai-compatible": "compatible"}


class ModelOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings for a model; None keeps the fact from the catalog or the endpoint."""

    vision: bool | None = None
    native_pdf: bool | None = None
    thinking: bool | None = None
    citations: bool | None = None
    tools: bool | None = None
    audio: bool | None = None
    video: bool | None = None
    accepts: tuple[str, ...] | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    base_url: str = ""
    price: Price | None = None
    dialect: str = ""
    """A platform whose dialect of Chat Completions applies, such as `mistral` for a gateway in front of it."""
    detail: Detail = "auto"


def model(reference: str, overrides: ModelOverrides | None = None) -> Model:
    """Return the model for `platform/name`: a platform of the catalog, and the service's name for the model. Raise
    `ConfigError` if there is no such platform or model."""
    platform, slash, name = reference.partition("/")
    platform = ALIASES.get(platform, platform)
    if not slash or not name:
        near = ", ".join(found for found in near_names(reference) if not found.endswith("/"))
        raise ConfigError(
            f"A model is written as platform/name, such as anthropic/claude-opus-5, not {reference!r}.",
            hint=f"Did you mean {near}?" if near else "",
        )
    if platform not in platforms():
        near = ", ".join(near_names(reference))
        known = f"Known: {', '.join(platforms())}."
        raise ConfigError(
            f"{platform!r} is not a known platform.", hint=f"Did you mean {near}? {known}" if near else known
        )
    own = platforms()[platform]
    if "only" in own and not re.fullmatch(own["only"], name, re.IGNORECASE):
        platform = own["others"]
    names = platforms()[platform].get("names", [name])
    if name not in names:
        known = ", ".join(f"{platform}/{each}" for each in names)
        raise ConfigError(f"Model {reference!r} not found.", hint=f"Known: {known}.")
    found = _model(platform, name)
    if (not overrides or not overrides.base_url) and (stated := env_base_url(platform, os.environ)):
        found = msgspec.structs.replace(found, base_url=stated)
    return _apply_overrides(found, overrides) if overrides else found


@cache
def platforms() -> dict[str, dict[str, Any]]:
    text = resources.files("loom.providers").joinpath("catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["platforms"]


def provider_name(platform: str) -> str:
    """Return `Model.provider` for a platform: `openai-responses` for `openai`; most are the platform's own name."""
    return next((provider for provider, name in ALIASES.items() if name == platform), platform)


def near_names(text: str) -> list[str]:
    """Return references similar to a mistyped or shortened one, by the model's or the platform's name."""
    from difflib import get_close_matches

    platform, _, name = text.rpartition("/")
    choices = {choice: f"{owner}/{choice}" for owner, choice in first_choices().items()}
    parts = [choice for choice in choices if len(name) > 2 and name.lower() in choice]
    by_name = [choices[found] for found in (*parts, *get_close_matches(name, choices, 3, 0.6))]
    by_platform = [f"{found}/{name}" for found in get_close_matches(platform, platforms(), 2, 0.7)]
    return list(dict.fromkeys((*by_platform, *by_name)))


def first_choices() -> dict[str, str]:
    """Return the default model of each platform that needs a key, in the order of the file."""
    return {name: facts["first_choice"] for name, facts in platforms().items() if "first_choice" in facts}


def key_env(platform: str) -> str:
    """Return the usual environment variable for the key of a platform; empty if it needs none."""
    return str(_flatten(ALIASES.get(platform, platform)).get("key_env", ""))


def key_envs(platform: str) -> tuple[str, ...]:
    """Return every environment variable that may contain the key of a platform, the usual one first."""
    facts = _flatten(ALIASES.get(platform, platform))
    return tuple(name for name in (facts.get("key_env", ""), *facts.get("other_key_envs", ())) if name)


def env_key(platform: str, environ: Mapping[str, str]) -> str:
    """Return the key of a platform from the environment; empty if there is none."""
    return next((key for name in key_envs(platform) if (key := environ.get(name, "").strip())), "")


def env_base_url(platform: str, environ: Mapping[str, str]) -> str:
    """Return the base URL of a platform from the environment (OPENAI_BASE_URL …); empty if it has none.

    OLLAMA_HOST has the format of the server's own setting: `host`, `host:port`, `:port`, or `0.0.0.0` for any host.
    """
    facts = _flatten(ALIASES.get(platform, platform))
    stated = environ.get(str(facts.get("base_url_env") or ""), "").strip().rstrip("/")
    if not stated:
        return ""
    if "://" not in stated:
        host, _, port = stated.rpartition(":") if re.search(r":[0-9]+$", stated) else (stated, "", "11434")
        stated = f"http://{'127.0.0.1' if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104 - compared, not bound
    suffix = str(facts.get("base_url_suffix", ""))
    return stated if not suffix or stated.endswith(suffix) else stated + suffix


def _flatten(platform: str) -> dict[str, Any]:
    """Return a platform's tables merged with those that it extends; its own families come first."""
    own = platforms()[platform]
    base: dict[str, Any] = _flatten(own["extends"]) if "extends" in own else {}
    merged = {**base, **own, "families": [*own.get("families", []), *base.get("families", [])]}
    for section in SECTIONS:
        merged[section] = {**base.get(section, {}), **own.get(section, {})}
    return merged


@cache
def _model(platform: str, name: str) -> Model:
    facts = _flatten(platform)
    plain = re.sub(r".*\banthropic\.", "", name)  # on Bedrock: eu.anthropic.claude-…, or an ARN with that at its end
    family = next(
        (found for found in facts.get("families", []) if re.fullmatch(found["match"], plain, re.IGNORECASE)),
        cast("dict[str, Any]", {}),
    )
    always = facts.get("always", {})
    values: dict[str, Any] = {key: facts[key] for key in _FIELDS if key in facts} | {
        key: family[key] for key in _FIELDS if key in family
    }
    for section in SECTIONS:
        values[section] = {**facts.get(section, {}), **family.get(section, {}), **always.get(section, {})}
    declared = bool(family) or not facts.get("unknown_vision", False)
    origin: FactOrigin = "declared" if declared else "guessed"
    values["capabilities"]["origins"] = dict.fromkeys(("vision", "native_pdf", "thinking", "citations"), origin)
    return convert({**values, "name": name, "family": family.get("name", "")}, Model)


def _apply_overrides(found: Model, overrides: ModelOverrides) -> Model:
    capabilities = found.capabilities
    origins: dict[str, FactOrigin] = dict(capabilities.origins)
    accepts = capabilities.accepts if overrides.accepts is None else overrides.accepts
    if overrides.accepts is not None:
        origins |= dict.fromkeys(MEDIA_CAPABILITIES, "user")
    for kind in MEDIA_KINDS.values():
        wanted: bool | None = getattr(overrides, kind.capability)
        if wanted is not None:
            accepts = with_kind(accepts, kind, on=wanted)
            origins[kind.capability] = "user"
    flags = {
        flag: value for flag in ("thinking", "citations", "tools") if (value := getattr(overrides, flag)) is not None
    }
    origins |= dict.fromkeys(flags, "user")
    limits = {
        field: value
        for field in ("context_tokens", "max_output_tokens")
        if (value := getattr(overrides, field)) is not None
    }
    origins |= dict.fromkeys(limits, "user")
    replace = msgspec.structs.replace
    return replace(
        found,
        capabilities=replace(
            capabilities,
            accepts=accepts,
            result_accepts=tuple(found for found in capabilities.result_accepts if found in accepts),
            origins=origins,
            **flags,
        ),
        limits=replace(found.limits, **limits),
        base_url=overrides.base_url or found.base_url,
        dialect=_model(overrides.dialect, found.name).dialect if overrides.dialect else found.dialect,
        detail=overrides.detail,
        price=overrides.price or found.price,
    )


def with_kind(accepts: tuple[str, ...], kind: MediaKind, *, on: bool) -> tuple[str, ...]:
    """Return `accepts` with a kind of media enabled (its usual types, if it has none yet) or disabled."""
    others = tuple(found for found in accepts if not found.startswith(kind.accepted_prefix))
    if not on:
        return others
    return accepts if others != accepts else (*accepts, *kind.usual_types)
