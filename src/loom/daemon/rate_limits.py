"""Rate limits for requests, and backoff for wrong credentials."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

import msgspec

from loom.daemon.problems import TooMany

MAX_CLIENTS: Final = 10_000
FREE_GUESSES: Final = 10
FIRST_WAIT_SECONDS: Final = 5.0
FORGIVEN_SECONDS: Final = 3_600.0


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    per_second: float
    burst: int


class RateBuckets:
    """A token bucket for each key; the least recently used ones are dropped."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key: str, message: str) -> None:
        """Raise `TooMany` if the bucket is empty."""
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


class _Guesses(msgspec.Struct):
    count: int = 0
    last: bytes = b""
    until: float = 0.0
    at: float = 0.0


class Attempts:
    """Wrong credentials, by key. After a few, each further one doubles the wait until the next is checked. A repetition
    of the last wrong one is not counted: a program with an old token does not lock others out."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Guesses] = OrderedDict()

    def check(self, key: str) -> None:
        """Raise `TooMany` during the wait."""
        left = self._known[key].until - time.monotonic() if key in self._known else 0.0
        if left > 0:
            raise TooMany("Too many wrong attempts to sign in.", retry_after=left)

    def fail(self, key: str, guess: bytes, *, free: int = FREE_GUESSES, max_seconds: float) -> None:
        """Count a wrong credential; `guess` is a hash of it."""
        now = time.monotonic()
        found = self._known.setdefault(key, _Guesses())
        self._known.move_to_end(key)
        if len(self._known) > MAX_CLIENTS:
            self._known.popitem(last=False)
        if found.last == guess:
            return
        if now - found.at > FORGIVEN_SECONDS:
            found.count = 0
        found.count += 1
        found.last, found.at = guess, now
        if found.count >= free:
            found.until = now + min(max_seconds, FIRST_WAIT_SECONDS * 2.0 ** min(found.count - free, 20))

    def forgive(self, key: str) -> None:
        self._known.pop(key, None)
