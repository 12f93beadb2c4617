"""Clients of the gateway: the owner of the daemon, and keys with their own models, budgets and rates."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from loom.config import Config
from loom.config.schema import GatewayKey
from loom.daemon.problems import TooMany
from loom.daemon.rate_limits import Rate, RateBuckets
from loom.errors import BudgetSpent
from loom.store.gateway import GatewayRecords
from loom.store.user_costs import UserCosts
from loom.wire.answer_errors import AnswerFault, make_fault

_DAY_SECONDS: Final = 86_400.0
_MINUTE_SECONDS: Final = 60.0


class GatewayClient(msgspec.Struct, frozen=True):
    """`name` is empty for the owner, who has no limits; `account` is set for users, whose `name` begins with @."""

    name: str = ""
    key: GatewayKey = GatewayKey()
    account: str = ""


class GatewayClients:
    def __init__(self, config: Config, records: GatewayRecords, user_costs: UserCosts) -> None:
        self._config = config
        self._records = records
        self._user_costs = user_costs
        self._rates: dict[str, RateBuckets] = {}
        self._reserved: defaultdict[str, dict[asyncio.Task[None], float]] = defaultdict(dict)
        """The expected cost of requests that are not answered yet, by client."""

    def find(self, token: str) -> GatewayClient | None:
        """Return the client with this key; None if there is none. Comparisons take constant time."""
        found: GatewayClient | None = None
        for name, key in self._config.gateway.keys.items():
            known = self._config.secret("gateway", "keys", name, "token")
            if known and hmac.compare_digest(token.encode("utf-8", "surrogatepass"), known.encode()):
                found = GatewayClient(name, key)
        return found

    async def check(self, client: GatewayClient, model: str) -> AnswerFault | None:
        """Return why a client may not use this model now; None if it may. Finished answers count at their cost,
        unfinished requests at the price of their input."""
        key = client.key
        if client.account:
            try:
                await self._user_costs.check_account(client.account)
            except BudgetSpent as error:
                return make_fault(429, str(error))
        if key.models and not any(fnmatchcase(model, pattern) for pattern in key.models):
            return make_fault(
                403, f"The key {client.name!r} is not allowed to use {model!r}. Allowed: {', '.join(key.models)}."
            )
        if key.max_requests_per_minute is not None:
            rate = Rate(per_second=key.max_requests_per_minute / _MINUTE_SECONDS, burst=key.max_requests_per_minute)
            try:
                buckets = self._rates.setdefault(client.name, RateBuckets(rate))
                buckets.spend(client.name, "Too many requests.")
            except TooMany as error:
                return make_fault(
                    429, f"The key {client.name!r} made too many requests.", retry_after=error.retry_after
                )
        return await self._check_budget(client, key.max_usd_per_day) if key.max_usd_per_day is not None else None

    async def _check_budget(self, client: GatewayClient, max_usd: float) -> AnswerFault | None:
        now = time.time()
        midnight = now - now % _DAY_SECONDS
        spent = await self._records.spent_usd(client.name, midnight) + sum(self._reserved[client.name].values())
        if spent < max_usd:
            return None
        left = midnight + _DAY_SECONDS - now
        return make_fault(
            429, f"The key {client.name!r} has used its budget of ${max_usd:g} for today.", retry_after=left
        )

    def reserve(self, client: GatewayClient, usd: float, asking: asyncio.Task[None]) -> None:
        """Count an expected price against the budget of a client until `asking` ends; by then its answer is stored."""
        self._reserved[client.name][asking] = usd
        asking.add_done_callback(lambda done: self._reserved[client.name].pop(done, None))
