"""Measure the startup time of `loom --version`, `loom --help` and a first answer, as ratios to `python -c pass`.

python -m benchmarks.cold_start

Budgets: --version at most 80 ms and --help at most 150 ms above Python's own start. `llm --help` is also
measured if it is installed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
BUDGETS_MS = {"loom --version": 80, "loom --help": 150}


def commands(loom: str) -> dict[str, list[str]]:
    found = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "loom --version": [loom, "--version"],
        "loom --help": [loom, "--help"],
        "import loom": [sys.executable, "-c", "import loom"],
        'loom "hello" (spark)': [loom, "-R", "hello"],
    }
    llm = shutil.which("llm")
    return {**found, "llm --help": [llm, "--help"]} if llm else found


def measure(found: dict[str, list[str]], home: str) -> dict[str, float]:
    """Return the medians of interleaved runs in milliseconds: other load slows all commands equally."""
    environ = {**os.environ, "LOOM_HOME": home, "LOOM_MODEL": "loom/spark"}
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(ROUNDS + 1):
        for name, command in found.items():
            began = time.perf_counter()
            subprocess.run(command, env=environ, check=True, capture_output=True, stdin=subprocess.DEVNULL)
            times[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    loom = str(Path(sys.executable).with_name("loom"))
    with tempfile.TemporaryDirectory() as home:
        found = measure(commands(loom), home)
    bare_ms = found["python -c pass"]
    print(f"{'':24}{'median ms':>10}{'above':>10}{'ratio':>8}{'budget':>10}")
    for name, median in found.items():
        budget = f"{BUDGETS_MS[name]} ms" if name in BUDGETS_MS else ""
        print(f"{name:24}{median:>10.0f}{median - bare_ms:>10.0f}{median / bare_ms:>8.1f}{budget:>10}")


if __name__ == "__main__":
    main()
