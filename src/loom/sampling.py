"""How a model should answer: thinking, sampling and the other options of a request. Plain values.

A later layer takes precedence over an earlier one, field by field: the model's settings, the session's, the message's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Meta

from loom.errors import ContentError
from loom.models import THINKING_LEVELS, Model, ThinkingLevel
from loom.struct_types import convert

CacheMode: TypeAlias = Literal["", "off", "1h"]
ShortText: TypeAlias = Annotated[str, Meta(max_length=1_000)]


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The format of the answer: a JSON Schema object, and a name for the services that require one."""

    schema: dict[str, Any]
    name: Annotated[str, Meta(max_length=200)] = "answer"


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of an answer. Those that a platform does not support are not sent; `unsupported_options` names
    them."""

    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """None: as many as the platform allows."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=1_000)], ...], Meta(max_length=16)] = ()
    thinking: ThinkingLevel = ""
    """Empty uses the model's default. A level that a family does not support becomes the nearest one that it
    supports."""
    tool_choice: Literal["auto", "none", "any"] = "auto"
    tool_name: ShortText = ""
    """The only tool that may be called, and must be; with `tool_choice` "any"."""
    parallel_calls: bool | None = None
    output_schema: OutputSchema | None = None
    service_tier: ShortText = ""
    user: ShortText = ""
    """An id of the end user, for the platform's abuse reports."""
    server_tools: Annotated[tuple[ShortText, ...], Meta(max_length=8)] = ()
    """Tools that the platform runs itself: `web_search`, `web_fetch`, `code_execution`, `image_generation`."""
    cache_key: ShortText = ""
    """Requests with the same key are routed to the same cache."""
    cache: CacheMode = ""
    """`1h` keeps the prefix cached for an hour if the platform supports it, at a higher price; `off` disables caching
    if the platform allows it."""
    extra_body: dict[str, Any] = {}
    """Fields that are merged deeply into the request; they cannot replace the conversation."""
    extra_headers: dict[str, str] = {}

    def override(self, other: Sampling) -> Sampling:
        """Return these options overridden by those that `other` sets; objects are merged."""
        changes: dict[str, Any] = {
            name: value for name in OPTION_NAMES if (value := getattr(other, name)) != getattr(_DEFAULT, name)
        }
        for name in ("extra_body", "extra_headers"):
            if name in changes:
                changes[name] = merge_objects(getattr(self, name), changes[name])
        return msgspec.structs.replace(self, **changes) if changes else self


_DEFAULT: Final = Sampling()
OPTION_NAMES: Final = Sampling.__struct_fields__
Choices: TypeAlias = Sampling | Mapping[str, Any] | None
"""Options as callers write them: `{"top_p": 0.9}`."""


def merge_objects(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the fields of `over`; nested objects are merged the same way."""
    merged = dict(base)
    for key, value in over.items():
        inside: Any = merged.get(key)
        both = isinstance(inside, dict) and isinstance(value, dict)
        merged[key] = merge_objects(cast("dict[str, Any]", inside), cast("dict[str, Any]", value)) if both else value
    return merged


# Options from callers ------------------------------------------------------------------------------------------------


def sampling_of(options: Choices = None, *, thinking: str = "") -> Sampling:
    """Return the options of a mapping; raise `ContentError` with the name of an invalid one."""
    found = options if isinstance(options, Sampling) else _convert(dict(options or {}))
    if not thinking:
        return found
    return found.override(_convert({"thinking": thinking}))


def stored_sampling(stored: Any) -> Sampling:
    """Return stored options; if they cannot be read, return none."""
    try:
        return convert(stored or {}, Sampling)
    except msgspec.ValidationError:
        return _DEFAULT


def read_options(written: Iterable[str]) -> Sampling:
    """Return the options of `KEY=VALUE` texts: `top_p=0.9`, `stop=END`, `extra_body.top_k=40`,
    `extra_headers.X-Team=a`. A value is JSON if the option is not text. Raise `ContentError` for an unknown option or
    an invalid value."""
    values: dict[str, Any] = {}
    for text in written:
        key, equals, value = text.partition("=")
        name, dot, inner = key.strip().partition(".")
        if not equals or not name:
            raise ContentError(f"Not an option: {text!r}", hint="Write KEY=VALUE, such as -o top_p=0.9.")
        if dot:
            read: Any = value if name == "extra_headers" else _json_or_text(value)
            for part in reversed(inner.split(".") if name == "extra_body" else [inner]):
                read = {part: read}
            values[name] = merge_objects(values.get(name, {}), read)
        elif name == "stop" and not value.lstrip().startswith("["):
            values["stop"] = [*values.get("stop", ()), value]
        else:
            values[name] = value if name in _TEXTS else _json_or_text(value)
    return _convert(values)


_TEXTS: Final = ("thinking", "tool_choice", "tool_name", "service_tier", "user", "cache_key", "cache")


def _json_or_text(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


_TYPE: Final = re.compile(r"`(\w+)(?: \| null)?`")
_TYPE_NAMES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}
"""The types in errors of msgspec, in common words."""

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "cache": tuple(filter(None, get_args(CacheMode))),
    "thinking": tuple(filter(None, THINKING_LEVELS)),
    "tool_choice": ("auto", "none", "any"),
}
"""The values of options that are one of a few words."""


def _convert(values: dict[str, Any]) -> Sampling:
    unknown = next((name for name in values if name not in OPTION_NAMES), None)
    if unknown is not None:
        from difflib import get_close_matches

        near = get_close_matches(unknown, OPTION_NAMES, 1)
        meant = f"Did you mean {near[0]}? " if near else ""
        hint = f"{meant}Options: {', '.join(OPTION_NAMES)}. Other fields of a request go into extra_body."
        raise ContentError(f"Unknown option {unknown!r}", hint=hint)
    for name, value in values.items():
        try:
            convert({name: value}, Sampling)
        except msgspec.ValidationError as error:
            problem = _TYPE.sub(lambda found: _TYPE_NAMES.get(found[1], found[1]), str(error).split(" - at ")[0])
            if (choices := _CHOICES.get(name)) and isinstance(value, str):
                problem = f"expected {', '.join(choices[:-1])} or {choices[-1]}"
            raise ContentError(f"The option {name} cannot be {value!r}: {problem[:1].lower()}{problem[1:]}.") from None
    return convert(values, Sampling)


# Options that a platform supports ------------------------------------------------------------------------------------

COMMON: Final = ("max_tokens", "temperature", "extra_body", "extra_headers")
"""Supported by all platforms (a temperature if `Model.sampling` is true); the catalog lists the others."""
_WARMTH: Final = ("temperature", "top_p", "seed")


def unsupported_options(model: Model, sampling: Sampling) -> tuple[str, ...]:
    """Return the names of the fields of `sampling` that are set and that the model's platform does not support."""
    return tuple(
        name
        for name in OPTION_NAMES
        if getattr(sampling, name) != getattr(_DEFAULT, name) and not _supports(model, sampling, name)
    )


def keep_supported(model: Model, sampling: Sampling) -> Sampling:
    """Return the options without those that the platform does not support."""
    lacking = unsupported_options(model, sampling)
    if not lacking:
        return sampling
    kept = {name: getattr(_DEFAULT, name) for name in lacking}
    if "server_tools" in lacking:
        kept["server_tools"] = tuple(tool for tool in sampling.server_tools if tool in model.server_tools)
    return msgspec.structs.replace(sampling, **kept)


def _supports(model: Model, sampling: Sampling, name: str) -> bool:
    if model.wire == "spark":
        return name in ("max_tokens", "tool_choice", "thinking", "output_schema")
    if name in _WARMTH and not model.sampling:
        return False
    if name == "thinking":
        return model.thinking.request != "none"
    thinks = model.thinking.request == "always" or sampling.thinking not in ("", "off")
    is_forced = name in ("tool_choice", "tool_name") and sampling.tool_choice == "any"
    if is_forced and thinks and model.thinking.refuses_forced_calls:
        return False
    if name == "tool_name":
        return sampling.tool_choice == "any" and name in model.options
    if name == "server_tools":
        return all(tool in model.server_tools for tool in sampling.server_tools)
    if name == "output_schema":
        return True  # without a field for it, the prompt asks for the JSON
    if name == "tool_choice" and sampling.tool_choice == "none":
        return True  # without a value for it, the tools are left out
    if name == "cache" and sampling.cache == "off":
        return model.cache.mode == "explicit"  # other platforms decide themselves
    return name in COMMON or name in model.options or (f"{name}:sampling" in model.options and model.sampling)
