"""Compression of JSON responses: bytes and time for a session of 2,000 messages, over a socket.

    python -m benchmarks.compression

`ms` is the median time from the request to the last byte; `healthz ms` is the longest response time of another route
meanwhile: it shows whether the event loop was held up. Levels of gzip are compared on the same body.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Final

from benchmarks.web import Daemon, fill
from loom.daemon.compression import gzip_bytes

ROUNDS: Final = 9
LEVELS: Final = (1, 6)


def _get(daemon: Daemon, path: str, encoding: str = "identity") -> bytes:
    headers = {"Authorization": f"Bearer {daemon.token}", "Accept-Encoding": encoding}
    with urllib.request.urlopen(urllib.request.Request(daemon.url + path, headers=headers), timeout=60) as answer:
        return answer.read()


def _timed_ms(daemon: Daemon, path: str, encoding: str) -> tuple[bytes, float]:
    began = time.perf_counter()
    body = _get(daemon, path, encoding)
    return body, (time.perf_counter() - began) * 1000


def _longest_health_ms(daemon: Daemon, stop: threading.Event, found: list[float]) -> None:
    while not stop.is_set():
        found.append(_timed_ms(daemon, "/healthz", "identity")[1])


def measure(daemon: Daemon, path: str) -> None:
    for encoding in ("identity", "gzip"):
        stop, health = threading.Event(), [0.0]
        watcher = threading.Thread(target=_longest_health_ms, args=(daemon, stop, health))
        times = [_timed_ms(daemon, path, encoding) for _ in range(ROUNDS)]
        watcher.start()
        for _ in range(ROUNDS):
            _get(daemon, path, encoding)
        stop.set()
        watcher.join()
        median = statistics.median(ms for _, ms in times)
        print(f"{encoding:9} {len(times[0][0]):>10,} bytes {median:8.1f} ms   healthz {max(health):6.1f} ms")
    body = _get(daemon, path)
    for level in LEVELS:
        began = time.perf_counter()
        packed = gzip_bytes(body, level)
        print(f"level {level}   {len(packed):>10,} bytes {(time.perf_counter() - began) * 1000:8.1f} ms")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = asyncio.run(fill(Path(folder)))
        daemon = Daemon(Path(folder))
        try:
            for path in (f"/v1/sessions/{session}/messages?limit=1000", f"/v1/sessions/{session}/tree"):
                print(path.rpartition("/")[2])
                measure(daemon, path)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
