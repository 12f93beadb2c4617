"""Measure the memory of a daemon that prepares documents for a text-only model and deletes them: it must stay flat.

python -m benchmarks.document_memory [--documents 1000]

Each document has its own text and session, and is deleted with the session. The resident memory of the
daemon and of its reader processes, which cache the last few documents, is printed ten times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from daemon.forked import ForkedDaemon, nursery
from flow.far_models import is_question, speak
from flow.prepared_documents import numbered_document
from providers.far_side import Reply, Request, far_side, refusal


def answer(request: Request) -> Reply:
    return speak("openai_chat", "I have read it.") if is_question(request) else refusal(404, {"error": "not found"})


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def children(pid: int) -> list[int]:
    """Return the processes that any thread of `pid` has started."""
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]


async def measure(documents: int) -> None:
    every = max(1, documents // 10)
    with tempfile.TemporaryDirectory() as folder, nursery() as nest:
        async with far_side(answer) as far:
            home = Path(folder) / "home"
            home.mkdir()
            model = {"provider": "deepseek", "model": "deepseek-v4-pro", "base_url": far.url}
            lines = ["[keys]", 'deepseek = "sk-far-away-0123"', "[models.far]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in model.items()]
            (home / "loom.toml").write_text("\n".join(lines))
            daemon = ForkedDaemon(nest, home, {"LOOM_MODEL": "far"})
            daemon.start()
            try:
                async with daemon.client() as client:
                    for number in range(1, documents + 1):
                        session = await client.session()
                        await session.send("read this", numbered_document(number))
                        (request,) = [found for found in far.requests if is_question(found)]
                        assert f"Document {number}, line 7" in json.dumps(request.json)
                        far.requests.clear()
                        await session.delete()
                        if number % every == 0:
                            readers = ", ".join(f"{resident_mb(child):.0f}" for child in children(daemon.pid))
                            own = resident_mb(daemon.pid)
                            print(f"after {number} documents: {own:.1f} MB; readers {readers} MB", flush=True)
            finally:
                daemon.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000)
    asyncio.run(measure(parser.parse_args().documents))


if __name__ == "__main__":
    main()
