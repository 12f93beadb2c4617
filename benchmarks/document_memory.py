"""Memory of a process that prepares documents for a text-only model and deletes them: is it flat?

python -m benchmarks.document_memory [--documents 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from flow.prepared_documents import prepare_and_delete
from loom.config import load_config
from loom.runtime import Runtime
from loom.testing import ScriptedProvider


def resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def measure(documents: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(cwd=Path(folder), environ={"LOOM_HOME": folder})
        async with Runtime.open(config, providers={"deepseek": ScriptedProvider([])}) as runtime:
            every = max(1, documents // 10)
            async for number, kb in prepare_and_delete(runtime, documents, resident_kb, every=every):
                print(f"after {number} documents: {kb / 1024:.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000)
    asyncio.run(measure(parser.parse_args().documents))


if __name__ == "__main__":
    main()
