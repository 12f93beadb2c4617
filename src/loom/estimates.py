"""Estimate: what a request will cost, before it is sent; and its wording in terminals."""

from __future__ import annotations

import msgspec

from loom.content.labels import money_label, tokens_label


class CheaperModel(msgspec.Struct, frozen=True, kw_only=True):
    """Another model that has a key, costs less for the same request, and receives every block in no lesser form."""

    model: str
    input_tokens: int
    usd: float


class DiscardedCache(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that the provider of the session's model has cached, and that will not be read if the request is sent as
    planned: with another model, another system prompt, other tools or renditions, or from an earlier message."""

    tokens: int
    usd: float | None
    """How much more the request costs than without the change; None if that is not known, or if it is not more."""


class BilledRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the last request to a model: tokens as estimated before it was sent, as billed, and how many of the
    latter the provider read from its cache or wrote to it."""

    estimated_tokens: int
    billed_tokens: int
    cached_tokens: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected cost of a request before it is sent. The length of the answer is not known, so only the input
    counts."""

    input_tokens: int
    cached_tokens: int
    """How many of them the provider is expected to read from its cache."""
    usd: float | None
    """US dollars for the input; None if the price is not known."""
    cheaper: CheaperModel | None = None
    """None if there is no such model, or if none was searched for."""
    discards: DiscardedCache | None = None
    last: BilledRequest | None = None
    """None if the model has not answered on this path."""

    @property
    def new_tokens(self) -> int:
        return self.input_tokens - self.cached_tokens


def estimate_label(found: Estimate) -> str:
    """Return `12k tokens (11k cached, 1.0k new), $0.012`."""
    parts = f" ({tokens_label(found.cached_tokens)} cached, {tokens_label(found.new_tokens)} new)"
    return f"{tokens_label(found.input_tokens)} tokens{parts if found.cached_tokens else ''}, {money_label(found.usd)}"


def cheaper_label(found: CheaperModel) -> str:
    tokens = tokens_label(found.input_tokens)
    return f"cheaper: {found.model} costs {money_label(found.usd)} ({tokens} tokens) and loses nothing"


def discard_label(found: DiscardedCache) -> str:
    """Return `This discards about 11k cached tokens (≈ $0.054 more).`"""
    more = f" (≈ {money_label(found.usd)} more)" if found.usd else ""
    return f"This discards about {tokens_label(found.tokens)} cached tokens{more}."


def compaction_label(found: Estimate) -> str:
    """Return what compaction costs, from the estimate of its request for a summary."""
    line = f"The request for a summary costs about {estimate_label(found)}."
    return f"{line} {discard_label(found.discards)}" if found.discards is not None else line


def continuation_label(found: Estimate) -> str:
    """Return what it costs to continue a turn that waits."""
    return f"Continuing costs about {estimate_label(found)}."


def billed_label(found: BilledRequest) -> str:
    estimated, billed = tokens_label(found.estimated_tokens), tokens_label(found.billed_tokens)
    cached = f", {tokens_label(found.cached_tokens)} of them cached" if found.cached_tokens else ""
    return f"last request: estimated {estimated} tokens, billed {billed}{cached}"
