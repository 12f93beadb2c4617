"""From a reference such as `anthropic/claude-opus-5` to a Model: catalogue facts, then what the user says.

Where each capability comes from is kept in `origins`: declared here, asked of the endpoint, learned from a refusal,
said by the user, or guessed.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import Detail
from loom.errors import ConfigError
from loom.models import PDF, PLAIN_IMAGES, Model, Origin

PLAIN_AUDIO: Final = ("audio/wav", "audio/mpeg")
SECTIONS: Final = ("capabilities", "limits", "tokens", "thinking", "cache", "ids")
_FIELDS: Final = ("provider", "wire", "profile", "base_url", "sampling", "user_after_tool", "calls_need_tools")
ALIASES: Final = {"bedrock-anthropic": "bedrock", "openai-responses": "openai", "openai-compatible": "compatible"}


KINDS: Final = (("vision", "image/", PLAIN_IMAGES[:2]), ("native_pdf", PDF, (PDF,)), ("audio", "audio/", PLAIN_AUDIO))
"""What a capability is called, the media types that it means, and those it usually comes with."""


class ModelOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says about a model; None leaves it to the facts."""

    vision: bool | None = None
    native_pdf: bool | None = None
    thinking: bool | None = None
    citations: bool | None = None
    tools: bool | None = None
    audio: bool | None = None
    accepts: tuple[str, ...] | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    base_url: str = ""
    profile: str = ""
    detail: Detail = "auto"


def model(reference: str, overrides: ModelOverrides | None = None) -> Model:
    """`platform/name`; the platform is one of the catalogue's, the name whatever the service calls its model."""
    platform, slash, name = reference.partition("/")
    platform = ALIASES.get(platform, platform)
    if not slash or not name:
        raise ConfigError(f"a model is written as platform/name, such as anthropic/claude-opus-5, not {reference!r}")
    if platform not in platforms():
        from loom.providers.endpoints import USUAL_PLACES

        known = ", ".join(dict.fromkeys([*platforms(), *(kind for kind, _ in USUAL_PLACES)]))
        raise ConfigError(f"{platform!r} is no platform that Loom knows.", hint=f"Known: {known}.")
    names = platforms()[platform].get("names", [name])
    if name not in names:
        known = ", ".join(f"{platform}/{each}" for each in names)
        raise ConfigError(f"there is no model {reference!r}.", hint=f"Known: {known}.")
    found = _model(platform, name)
    return _overridden(found, overrides) if overrides else found


@cache
def platforms() -> dict[str, dict[str, Any]]:
    text = resources.files("loom.providers").joinpath("catalog.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["platforms"]


def first_choices() -> dict[str, str]:
    """The model to begin with at each service that has a key, by platform, in the order of the file."""
    return {name: facts["first_choice"] for name, facts in platforms().items() if "first_choice" in facts}


def key_env(platform: str) -> str:
    """The environment variable that usually holds the key of a platform."""
    return str(_flat(ALIASES.get(platform, platform)).get("key_env", ""))


def _flat(platform: str) -> dict[str, Any]:
    """A platform's tables with those that it extends; its own families come first."""
    own = platforms()[platform]
    base: dict[str, Any] = _flat(own["extends"]) if "extends" in own else {}
    merged = {**base, **own, "families": [*own.get("families", []), *base.get("families", [])]}
    for section in SECTIONS:
        merged[section] = {**base.get(section, {}), **own.get(section, {})}
    return merged


@cache
def _model(platform: str, name: str) -> Model:
    facts = _flat(platform)
    plain = re.sub(r".*\banthropic\.", "", name)  # on Bedrock: eu.anthropic.claude-…, or an ARN that ends so
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
    origin: Origin = "declared" if declared else "guessed"
    values["capabilities"]["origins"] = dict.fromkeys(("vision", "native_pdf", "thinking", "citations"), origin)
    return msgspec.convert({**values, "name": name, "family": family.get("name", "")}, Model)


def _overridden(found: Model, overrides: ModelOverrides) -> Model:
    capabilities = found.capabilities
    origins: dict[str, Origin] = dict(capabilities.origins)
    accepts = capabilities.accepts if overrides.accepts is None else overrides.accepts
    inside = capabilities.result_accepts
    if overrides.accepts is not None:
        origins |= dict.fromkeys(("vision", "native_pdf", "audio"), "user")
    for field, prefix, usual in KINDS:
        wanted: bool | None = getattr(overrides, field)
        if wanted is not None:
            accepts, inside = switched(accepts, inside, prefix, usual, on=wanted)
            origins[field] = "user"
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
            result_accepts=tuple(kind for kind in inside if kind in accepts),
            origins=origins,
            **flags,
        ),
        limits=replace(found.limits, **limits),
        base_url=overrides.base_url or found.base_url,
        profile=overrides.profile or found.profile,
        detail=overrides.detail,
    )


def switched(
    accepts: tuple[str, ...], inside: tuple[str, ...], prefix: str, default: tuple[str, ...], *, on: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Turn a kind of media on (its usual types, if none is there yet) or off."""
    if not on:
        return tuple(kind for kind in accepts if not kind.startswith(prefix)), inside
    if any(kind.startswith(prefix) for kind in accepts):
        return accepts, inside
    return (*accepts, *default), inside
