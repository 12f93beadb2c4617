"""The cost of a request before it is sent: the only code that computes it. Interfaces render the `Estimate`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from loom.compile.policy import Placed, Watermark
from loom.compile.request import NextRequest, Snapshot
from loom.config import Config
from loom.errors import LoomError
from loom.estimates import BilledRequest, CheaperModel, DiscardedCache, Estimate
from loom.models import Model, Usage
from loom.prompt import Rendition
from loom.runtime.model_resolution import FIRST_CHOICES, lacks_key, resolve_model
from loom.sampling import Sampling, keep_supported
from loom.struct_types import decode_json

RequestPrice = Callable[[Model, Usage], float | None]

_LONG_SECONDS: Final = 3_600
"""The life of a cache that was requested with the option `cache = "1h"`."""
_RANKS: Final[tuple[Rendition, ...]] = ("omitted", "text", "low", "pages", "full")
"""Renditions, the least first."""


def estimate_request(request: NextRequest, price: RequestPrice, *, now: float | None = None) -> Estimate:
    """Return what `request` will cost at the time `now` (default: at once), without comparing it with others. Prices
    are read from a file the first time."""
    tokens = request.receipt.totals.tokens
    cached = _cached_tokens(request, time.time() if now is None else now)
    mark = request.input.watermark
    return Estimate(
        input_tokens=tokens,
        cached_tokens=cached,
        usd=_price_of_input(request, tokens, cached, price),
        last=BilledRequest(
            estimated_tokens=mark.estimated_tokens,
            billed_tokens=mark.billed_tokens,
            cached_tokens=mark.cached_tokens,
        )
        if mark.billed_tokens and _is_continuation(mark, request.input.path)
        else None,
    )


async def estimate_requests(
    requests: Sequence[NextRequest],
    price: RequestPrice,
    *,
    unchanged: NextRequest | None,
    is_compact: bool = False,
    candidates: Callable[[], Iterable[Model]] | None = None,
    compile_for: Callable[[Model], Awaitable[NextRequest]],
) -> list[Estimate]:
    """Return the estimates of `requests`, in their order.

    `unchanged` is the request that the session would send otherwise; what is cached of it and not read is discarded. If
    `candidates` are given, a cheaper model is searched for the first request.
    """

    def estimate_all() -> list[Estimate]:
        estimates = [estimate_request(request, price) for request in requests]
        if unchanged is None:
            return estimates
        kept = estimate_request(unchanged, price)
        if is_compact:
            return [_after_compaction(found, kept) for found in estimates]
        return [_with_discarded(*found, kept, unchanged) for found in zip(estimates, requests, strict=True)]

    found = await asyncio.to_thread(estimate_all)  # prices are read from a file the first time
    if candidates is not None and found:
        offered = await asyncio.to_thread(lambda: list(candidates()))
        cheaper = await _find_cheaper(requests[0], found[0], offered, compile_for, price)
        found[0] = msgspec.structs.replace(found[0], cheaper=cheaper)
    return found


def is_warm(snapshot: Snapshot, model: Model) -> bool:
    """Return whether the provider of `model` has the beginning of the session cached, as far as its bills tell."""
    mark = snapshot.watermarks.get(model.reference, Watermark())
    return _warm_tokens(mark, snapshot.path, model, time.time()) > 0


def _with_discarded(found: Estimate, request: NextRequest, kept: Estimate, unchanged: NextRequest) -> Estimate:
    """Return the estimate `found` of `request` with the cache that it discards: cached tokens that the request
    `unchanged`, whose estimate is `kept`, would read."""
    is_same_model = request.input.model.reference == unchanged.input.model.reference
    tokens = kept.cached_tokens - (found.cached_tokens if is_same_model else 0)
    if tokens <= 0:
        return found
    more = found.usd - kept.usd if found.usd is not None and kept.usd is not None else 0.0
    return msgspec.structs.replace(found, discards=DiscardedCache(tokens=tokens, usd=more if more > 0 else None))


def _after_compaction(found: Estimate, kept: Estimate) -> Estimate:
    """Return the estimate of a summary: everything that is cached now is discarded, because the conversation continues
    from the summary. What follows is shorter, so no price is named."""
    if not kept.cached_tokens:
        return found
    return msgspec.structs.replace(found, discards=DiscardedCache(tokens=kept.cached_tokens, usd=None))


async def _find_cheaper(
    request: NextRequest,
    found: Estimate,
    candidates: Iterable[Model],
    compile_for: Callable[[Model], Awaitable[NextRequest]],
    price: RequestPrice,
) -> CheaperModel | None:
    """Return the cheapest of the `candidates` that costs less than `found`, the estimate of `request`, and loses
    nothing; None if there is none. Each request that may be cheaper is compiled."""
    if not found.usd:
        return None
    offers: list[tuple[float, Model]] = []
    for model in candidates:
        with suppress(LoomError):  # a model without a price list entry is no alternative
            usd = price(model, Usage(input_tokens=found.input_tokens))
            if usd is not None and usd < found.usd and model != request.input.model:
                offers.append((usd, model))
    for _, model in sorted(offers, key=lambda offer: offer[0]):
        with suppress(LoomError):  # a model that cannot take the request is no alternative
            other = await compile_for(model)
            expected = estimate_request(other, price)
            is_cheaper = expected.usd is not None and expected.usd < found.usd
            if expected.usd is not None and is_cheaper and not _loses_more(request, other):
                name = model.alias or model.reference
                return CheaperModel(model=name, input_tokens=expected.input_tokens, usd=expected.usd)
    return None


def with_estimate(request: NextRequest, found: Estimate) -> NextRequest:
    """Return the request with an estimate in its receipt."""
    receipt = msgspec.structs.replace(request.receipt, estimate=found)
    return msgspec.structs.replace(request, prepared=msgspec.structs.replace(request.prepared, receipt=receipt))


def usable_models(config: Config, resolve: Callable[[str], Model] | None = None) -> Iterator[Model]:
    """Yield the configured models and the default models of services, if they have a key. `resolve` returns the model
    of a name."""
    resolve = resolve or partial(resolve_model, config=config)
    for name in (*config.models, *(f"{platform}/{name}" for platform, name in FIRST_CHOICES.items())):
        with suppress(LoomError):  # a model that cannot be used is no alternative
            model = resolve(name)
            if not lacks_key(model, config):
                yield model


def _cached_tokens(request: NextRequest, now: float) -> int:
    """Return how many tokens of the request its provider will probably read from its cache: those of the last request
    to the model, if this one extends it and the cache is still alive."""
    given, receipt = request.input, request.receipt
    warm = _warm_tokens(given.watermark, given.path, given.model, now) if receipt.cached_rows else 0
    if not warm:
        return 0
    rest = receipt.rows[receipt.cached_rows :]
    is_extended = all(row.message >= given.watermark.sent_messages for row in rest)
    if given.model.cache.mode == "explicit":
        sent, options = _sent_options(given.watermark), given.sampling
        is_same = (sent.thinking, sent.tool_choice) == (options.thinking, options.tool_choice)
        if not is_extended or not is_same or options.cache == "off":
            return 0  # such a cache is read whole or not at all
    elif not is_extended:
        warm = min(warm, receipt.totals.tokens - sum(row.tokens for row in rest))
    return min(warm, receipt.totals.tokens) if warm >= given.model.cache.min_tokens else 0


def _warm_tokens(mark: Watermark, path: Sequence[Placed], model: Model, now: float) -> int:
    """Return how many tokens of the last request to `model` its provider still has cached; 0 if that request was for
    another path."""
    rule = model.cache
    if rule.mode == "none" or not _is_continuation(mark, path):
        return 0
    is_long = keep_supported(model, _sent_options(mark)).cache == "1h"
    if now - mark.billed_at > (_LONG_SECONDS if is_long else rule.seconds):
        return 0
    # With explicit marks a provider reports reads and writes. Others cache the whole prompt and report only reads.
    tokens = mark.cached_tokens if rule.mode == "explicit" else mark.billed_tokens
    return tokens if tokens >= rule.min_tokens else 0


def _sent_options(mark: Watermark) -> Sampling:
    return decode_json(mark.sent_options or "{}", Sampling)


def _is_continuation(mark: Watermark, path: Sequence[Placed]) -> bool:
    """Return whether `path` continues that of the last request to the model."""
    return 0 < mark.sent_messages <= len(path) and path[mark.sent_messages - 1].id == mark.sent_node


def _price_of_input(request: NextRequest, tokens: int, cached: int, price: RequestPrice) -> float | None:
    rule = request.input.model.cache
    is_written = rule.write > 1 and tokens >= rule.min_tokens and request.prompt.sampling.cache != "off"
    read = Usage(input_tokens=tokens, cache_read_tokens=cached)
    written = msgspec.structs.replace(read, cache_write_tokens=tokens - cached) if is_written else read
    usd = price(request.input.model, written)
    # A price list may lack the price of a write.
    return price(request.input.model, read) if usd is None and is_written else usd


def _loses_more(one: NextRequest, other: NextRequest) -> bool:
    """Return whether `other` has a block in a lesser form than `one`, or lacks its tools. Thinking is not compared: it
    belongs to the model that wrote it."""
    if one.prompt.tools and not other.prompt.tools:
        return True
    ranks = {(row.message, row.block, row.inner): _RANKS.index(row.rendition) for row in one.receipt.rows}
    return any(
        _RANKS.index(row.rendition) < ranks.get((row.message, row.block, row.inner), 0)
        for row in other.receipt.rows
        if row.kind != "thinking"
    )
