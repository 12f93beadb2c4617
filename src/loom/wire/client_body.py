"""Requests that a gateway's client wrote for the same provider: sent as they are, or with the conversation repaired.

Of a body that needs a repair everything but the conversation stays the client's: tools, options, betas, fields that
this version does not know. In the conversation, messages before the first repaired one stay the client's too, so that
a repair costs no more of the provider's cache than it must.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from loom.models import WireName
from loom.prompt import Embedded, Prompt
from loom.wire.protocol import Wire

_CONVERSATION: Final[Mapping[WireName, tuple[str, ...]]] = {
    "anthropic": ("messages",),
    "openai_chat": ("messages",),
    "openai_responses": ("input", "instructions"),
}
"""The fields of a request that hold the conversation. Anthropic's `system` is the client's own in any case."""


def encode_request(prompt: Prompt, wire: Wire) -> dict[str, Any]:
    """Return the JSON of a request: compiled, unless the client's own body can be used."""
    body = prompt.client_body
    if body is None:
        return wire.encode(prompt)
    if body.is_whole:
        return body.fields
    encoded = wire.encode(prompt)
    names = _CONVERSATION[prompt.model.wire]
    merged = {name: value for name, value in body.fields.items() if name not in names}
    merged |= {name: encoded[name] for name in names if name in encoded}
    first = names[0]
    merged[first] = _keep_untouched(body.fields.get(first), encoded[first])
    return merged


def _keep_untouched(own: Any, encoded: list[Any]) -> list[Any]:
    """Return the compiled messages, with the client's own in place of those that say the same; all of them where both
    are as many, else those up to the first difference."""
    if not isinstance(own, list):
        return encoded
    written = cast("list[Any]", own)
    is_aligned = len(written) == len(encoded)
    found: list[Any] = []
    for mine, compiled in zip(written, encoded, strict=False):
        is_same = _plain(mine) == _plain(compiled)
        if not is_same and not is_aligned:
            break
        found.append(mine if is_same else compiled)
    return [*found, *encoded[len(found) :]]


def _plain(value: Any, key: str = "") -> Any:
    """Return a message without what only differs in spelling: a text for a list of one, cache marks, empty fields."""
    match value:
        case Embedded():
            ref = value.ref
            return (value.prefix, ref.digest if ref.recipe is None else ref)
        case str() if key in ("content", "output"):
            return [{"type": "text", "text": value}]
        case dict():
            fields = cast("dict[str, Any]", value)
            kind = fields.get("type")
            if kind in ("input_text", "output_text", "text"):
                cited = {"citations": fields["citations"]} if fields.get("citations") else {}
                return {"type": "text", "text": fields.get("text"), **cited}
            plain = {name: _plain(item, name) for name, item in fields.items() if name != "cache_control"}
            return {
                name: item
                for name, item in plain.items()
                if item is not None and item is not False and item not in ("", [], {})
            }
        case list():
            return [_plain(item) for item in cast("list[Any]", value)]
        case _:
            return value
