"""Upload 200 hostile images to a daemon at once; measure its memory and its response time for other requests.

    python -m benchmarks.hostile_uploads [--count 200]

Half are WebP files of a few bytes that take a gigabyte to decode, half are JPEG files that take seconds. Each is sent
to `POST /v1/media` by a client of its own; a thread requests `/healthz` meanwhile. Target: the daemon grows by less
than 200 MB, and answers within 100 ms (median and 95th percentile). The second figure depends on
the load of the machine, so the load and the same figure without uploads are also printed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2

from benchmarks.formats.hostile import expanding_webp, slow_jpeg

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon.running import DaemonProcess
from daemon.running import daemon as running

QUIET_SECONDS = 5.0
PAUSE_SECONDS = 0.02


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class HealthWatch(threading.Thread):
    """A thread that requests `/healthz` repeatedly and reads the daemon's memory, until `done` is set."""

    def __init__(self, daemon: DaemonProcess) -> None:
        super().__init__()
        self.daemon_process = daemon
        self.done = threading.Event()
        self.seconds: list[float] = []
        self.most_bytes = 0

    def run(self) -> None:
        with httpx2.Client(base_url=self.daemon_process.url, timeout=60) as api:
            while not self.done.wait(PAUSE_SECONDS):
                began = time.perf_counter()
                api.get("/healthz").raise_for_status()
                self.seconds.append(time.perf_counter() - began)
                self.most_bytes = max(self.most_bytes, resident_bytes(self.daemon_process.pid))

    def figures(self) -> str:
        ordered = sorted(self.seconds)
        late = ordered[int(len(ordered) * 0.95)] * 1000
        median, slowest = statistics.median(ordered) * 1000, ordered[-1] * 1000
        return f"median {median:.1f} ms, 95 % within {late:.1f} ms, slowest {slowest:.0f} ms"


async def upload_all(daemon: DaemonProcess, images: list[bytes], count: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/octet-stream"}

    async def upload(number: int) -> None:
        async with httpx2.AsyncClient(base_url=daemon.url, headers=headers, timeout=1_200) as api:
            # bytes past the end make each a different file, which must be decoded
            data = images[number % 2] + number.to_bytes(2, "big")
            answer = await api.post(f"/v1/media?name={number}", content=data)
            kind = answer.json().get("code", "") if answer.status_code >= 400 else "accepted"
            outcomes[f"{answer.status_code} {kind}"] += 1

    await asyncio.gather(*(upload(number) for number in range(count)))
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    count = parser.parse_args().count
    images = [expanding_webp(), slow_jpeg()]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "home") as daemon:
        quiet = HealthWatch(daemon)
        quiet.start()
        time.sleep(QUIET_SECONDS)
        quiet.done.set()
        quiet.join()
        before, load = resident_bytes(daemon.pid), os.getloadavg()[0]
        busy = HealthWatch(daemon)
        busy.start()
        began = time.monotonic()
        outcomes = asyncio.run(upload_all(daemon, images, count))
        busy.done.set()
        busy.join()
        sizes = " and ".join(f"{len(data):,}" for data in images)
        print(f"{count} images of {sizes} bytes; load {load:.0f} on {os.cpu_count()} cores")
        print(f"  outcomes            {dict(outcomes)} in {time.monotonic() - began:.0f} s")
        print(f"  memory of daemon    +{(busy.most_bytes - before) / 1e6:.0f} MB (target: under 200)")
        print(f"  /healthz meanwhile  {busy.figures()} (target: 100 ms)")
        print(f"  /healthz before     {quiet.figures()}")


if __name__ == "__main__":
    main()
