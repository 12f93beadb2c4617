"""Every screen as it looks, compared with SVG files that were reviewed by eye.

After an intended change run `LOOM_WRITE_GOLDEN=1 pytest tests/tui/test_snapshots.py`, and look at the difference:
`python -m tests.tui.gallery FOLDER` draws the same screens with images.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.tui.gallery import SNAPSHOTS, draw, normalize

GOLDEN = Path(__file__).parent / "golden"
_PATH_CHARACTERS = 180


@pytest.mark.parametrize("name", SNAPSHOTS)
async def test_the_screen_looks_as_it_did_when_it_was_reviewed(name: str, tmp_path: Path) -> None:
    # The workspace is part of the system prompt, whose tokens are shown: its path has the same length everywhere.
    folder = tmp_path / "w".ljust(_PATH_CHARACTERS - len(f"{tmp_path}/"), "-")
    folder.mkdir()
    seen = normalize(await draw(name, folder, protocol="off"))

    golden = GOLDEN / f"{name}.svg"
    if os.environ.get("LOOM_WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(seen, encoding="utf-8")
    assert seen == golden.read_text(encoding="utf-8"), f"look at {name}: python -m tests.tui.gallery FOLDER {name}"
