"""Memory of a process that prepares and deletes documents is flat. `python -m benchmarks.document_memory` does it with
a thousand."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from flow.prepared_documents import prepare_and_delete
from loom.config import load_config
from loom.runtime import Runtime
from loom.testing import ScriptedProvider

DOCUMENTS, EVERY = 45, 15
DOCUMENT_BYTES = 14_000
SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "loom" / "*")


def held_bytes() -> int:
    """What was allocated by Loom and still lives; what the test runner keeps does not count."""
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=SOURCE)])
    return sum(trace.size for trace in ours.traces)


async def test_documents_that_were_prepared_and_deleted_leave_nothing_in_memory(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    async with Runtime.open(config, providers={"deepseek": ScriptedProvider([])}) as runtime:
        tracemalloc.start()
        try:
            found = [held async for _, held in prepare_and_delete(runtime, DOCUMENTS, held_bytes, every=EVERY)]
        finally:
            tracemalloc.stop()
    kept = (found[-1] - found[0]) / (DOCUMENTS - EVERY)
    # The store remembers a few hundred bytes of each file, of a bounded number of files.
    assert kept < DOCUMENT_BYTES / 2, f"every document leaves {kept:.0f} bytes"
