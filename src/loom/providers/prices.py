"""The cost of a step in US dollars, from the price list in the package genai-prices. Nothing is downloaded.

None means unknown; a model on this machine is free.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any, Final

from loom.errors import ExtraMissing
from loom.models import Model, Price, Usage
from loom.providers.connections import is_local

FREE: Final = Decimal(0)

_LISTS: Final = {
    "anthropic": "anthropic",
    "bedrock-anthropic": "aws",
    "bedrock-converse": "aws",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "gemini": "google",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "openrouter": "openrouter",
    "groq": "groq",
    "xai": "x-ai",
    "azure": "azure",
    "vertex": "google",
}
"""The names of providers in the price list."""

_SERVERS: Final = ("ollama", "openai-compatible", "vllm", "llama.cpp", "lm-studio")
"""Programs that run a model themselves."""


def cost(model: Model, usage: Usage) -> Decimal | None:
    """Return the cost of usage now, with cached tokens at their own prices; None if it is unknown."""
    if is_free(model):
        return FREE
    if model.price is not None:
        return _own_cost(model.price, usage)
    prices = _prices()
    counts = prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    where: dict[str, Any] = (
        {"provider_id": _LISTS[model.provider]} if model.provider in _LISTS else {"provider_api_url": model.base_url}
    )
    try:
        found = prices.calc_price(counts, model.name, genai_request_timestamp=datetime.now(UTC), **where)
    except (LookupError, ValueError):
        return None  # a model or unit without a price, or inconsistent counts
    return found.total_price


def load() -> None:
    """Load the price list, which takes tenths of a second: call it in a thread where an event loop runs. The first
    price loads it otherwise."""
    _prices()


def _own_cost(price: Price, usage: Usage) -> Decimal:
    """Return the cost by the configured prices, which are per million tokens."""
    cached = usage.cache_read_tokens, usage.cache_write_tokens
    fresh = max(usage.input_tokens - sum(cached), 0)
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    rates = ((fresh, price.input), (cached[0], read), (cached[1], write), (usage.output_tokens, price.output))
    return sum((count * Decimal(str(rate)) for count, rate in rates), Decimal(0)) / 1_000_000


def is_free(model: Model) -> bool:
    """Return whether the model runs on this machine and is therefore free; Ollama's cloud models do not."""
    if model.provider == "loom":
        return True
    if model.price is not None or model.provider not in _SERVERS:
        return False  # a paid service at a local URL is a gateway, and is billed
    return is_local(model.base_url) and not (model.provider == "ollama" and model.name.endswith("-cloud"))


@cache
def _prices() -> Any:
    try:
        return import_module("genai_prices")
    except ModuleNotFoundError:
        raise ExtraMissing(
            "Prices need genai-prices, which is not installed", hint="Run: pip install genai-prices."
        ) from None
