"""Metrics of the daemon, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from loom.models import Usage

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    def __init__(self) -> None:
        self._started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[float] = Counter()
        self._seconds_sum = 0.0
        self._gateway: dict[str, Counter[str]] = {}
        self.uploaded_bytes = 0
        self.served_bytes = 0

    def count_response(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a response. `path` is the route's pattern, so that arbitrary URLs of clients do not become series."""
        self._requests[method, path, status] += 1
        self._seconds_sum += seconds
        self._seconds[next((bound for bound in _BUCKETS if seconds <= bound), float("inf"))] += 1

    def count_gateway_answer(self, key: str, usage: Usage, usd: float) -> None:
        """Count a gateway answer. `client` is the configured name of the key; empty for the owner."""
        counted = self._gateway.setdefault(key, Counter())
        counted["answers"] += 1
        counted["input_tokens"] += usage.input_tokens
        counted["output_tokens"] += usage.output_tokens
        counted["microdollars"] += round(usd * 1_000_000)

    def text(self, gauges: Mapping[str, float]) -> str:
        return "\n".join(self._lines(gauges)) + "\n"

    def _lines(self, gauges: Mapping[str, float]) -> Iterator[str]:
        yield "# TYPE loom_requests_total counter"
        for (method, path, status), count in sorted(self._requests.items()):
            yield f'loom_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}'
        yield "# TYPE loom_request_seconds histogram"
        below = 0
        for bound in (*_BUCKETS, float("inf")):
            below += self._seconds[bound]
            yield f'loom_request_seconds_bucket{{le="{"+Inf" if bound == float("inf") else bound}"}} {below}'
        yield f"loom_request_seconds_sum {self._seconds_sum:.6f}"
        yield f"loom_request_seconds_count {below}"
        for kind in ("answers", "input_tokens", "output_tokens", "microdollars"):
            yield f"# TYPE loom_gateway_{kind}_total counter"
            for key, counted in sorted(self._gateway.items()):
                label = key.replace("\\", "\\\\").replace('"', '\\"')
                yield f'loom_gateway_{kind}_total{{key="{label}"}} {counted[kind]}'
        for name, value in (
            ("loom_uploaded_bytes_total", self.uploaded_bytes),
            ("loom_served_bytes_total", self.served_bytes),
        ):
            yield f"# TYPE {name} counter"
            yield f"{name} {value}"
        for name, value in {**gauges, "loom_start_time_seconds": self._started}.items():
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:g}" if name != "loom_start_time_seconds" else f"{name} {value:.3f}"
