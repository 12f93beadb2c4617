"""A store whose opening is cancelled is closed again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loom.store.database import open_database


async def test_a_cancelled_opening_leaves_no_file_of_the_store_open(tmp_path: Path) -> None:
    first = await open_database(str(tmp_path / "loom.db"))
    await first.close()
    for turns in range(5):
        opening = asyncio.create_task(open_database(str(tmp_path / "loom.db")))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
    await asyncio.get_running_loop().shutdown_default_executor()
    assert [path for path in _open_files() if path.is_relative_to(tmp_path)] == []


def _open_files() -> list[Path]:
    found: list[Path] = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(link.readlink())
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found
