"""Send 30 hostile conversations in 3 protocols to 12 models: `python -m benchmarks.gateway.matrix`.

Every request goes over a socket to a server that enforces its platform's rules. Prints a line per conversation and
fails if an answer is not 200 or a block has no row in its receipt.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from daemon.hostile import HOSTILE, MODELS, body_of, enforcing, model_settings, spell
from daemon.running import TOKEN, serving
from daemon.test_gateway_matrix import PATHS, rows_missing
from loom.testing import memory_runtime


async def run() -> int:
    failed: list[Any] = []
    started = time.monotonic()
    async with (
        enforcing() as (server, rules),
        memory_runtime(model_settings(server.url)) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": TOKEN}, timeout=120) as http,
    ):
        for title, conversation in HOSTILE.items():
            good = 0
            for protocol, path in PATHS.items():
                for name in MODELS:
                    answer = await http.post(path, content=body_of(spell(protocol, conversation, name)))
                    if answer.status_code != 200:
                        failed.append((title, protocol, name, answer.text[:300]))
                        continue
                    receipt = (await http.get(f"/v1/receipts/{answer.headers['x-loom-receipt']}")).json()
                    if missing := await rows_missing(runtime, receipt):
                        failed.append((title, protocol, name, f"no row for {missing}"))
                    else:
                        good += 1
            print(f"{title:44} {good:2} of {len(PATHS) * len(MODELS)}", flush=True)
        sent, refused = len(rules.requests), len(rules.broken)
    count = len(HOSTILE) * len(PATHS) * len(MODELS)
    print(f"{count - len(failed)} of {count} answered, in {time.monotonic() - started:.0f} s;", end=" ")
    print(f"{sent} requests were sent, {refused} were refused first and repaired")
    for problem in failed:
        print("FAILED", *problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
