"""Run all benchmarks, or those given: `python -m benchmarks store formats.pdf`."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import benchmarks

NOT_RUN = {"benchmarks.__main__", "benchmarks.formats.interleaved", "benchmarks.request_ways"}


def names() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.") if not module.ispkg]
    return sorted(name for name in found if name not in NOT_RUN)


def main() -> None:
    selected = [f"benchmarks.{name}" for name in sys.argv[1:]] or names()
    failed = [name for name in selected if _run(name) != 0]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _run(name: str) -> int:
    print(f"\n── {name}", flush=True)
    return subprocess.run([sys.executable, "-m", name], check=False).returncode


if __name__ == "__main__":
    main()
