"""Rate limits: concurrent requests and requests per second, for each client."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

import msgspec

from loom.daemon.problems import TooMany

MAX_CLIENTS: Final = 10_000


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    per_second: float
    burst: int


class RateBuckets:
    """A bucket for each key that fills with time; the least recently used are forgotten."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key: str, message: str) -> None:
        """TooMany where nothing is left."""
        left = self._tokens_left(key)
        if left < 1:
            raise TooMany(message, retry_after=(1 - left) / self._rate.per_second)

    def take(self, key: str) -> None:
        self._buckets[key] = (self._tokens_left(key) - 1, time.monotonic())
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)

    def spend(self, key: str, message: str) -> None:
        self.check(key, message)
        self.take(key)

    def _tokens_left(self, key: str) -> float:
        left, since = self._buckets.get(key, (float(self._rate.burst), 0.0))
        return min(float(self._rate.burst), left + (time.monotonic() - since) * self._rate.per_second)
