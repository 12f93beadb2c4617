"""24: whatever lies on a machine is shown, described or refused in a sentence; nothing crashes and nothing hangs.

The files are those that any machine with these tests has, a few of every ending, so the sweep is bounded and yet meets
what nobody thought of: fonts, catalogs, archives, byte code, test files of other projects, half a dozen encodings.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from loom.content.blocks import TextBlock
from loom.content.messages import text_of
from loom.errors import LoomError
from loom.formats.intake import accept
from loom.tools.file_read import read_file
from tools.world import Context

PLACES = ("/usr/share", "/usr/lib", "/etc", "/var/lib/dpkg", sys.prefix, sysconfig.get_path("stdlib"))
OF_EACH_KIND = 3
AT_MOST = 500
MAX_BYTES = 3_000_000
LONGEST_SECONDS = 30.0
"""What a client waits for on a machine that does a great deal besides; a hang takes minutes."""


def some_files() -> list[Path]:
    """A few of every ending, in an order that has nothing to do with their names, the same on every run."""
    by_ending: dict[str, list[Path]] = defaultdict(list)
    for place in PLACES:
        for path in files_below(Path(place)):
            ending = re.sub(r"\d+", "0", path.suffix.lower())[:8]
            by_ending[ending].append(path)
    chosen = [path for paths in by_ending.values() for path in sorted(paths, key=shuffled)[:OF_EACH_KIND]]
    return sorted(chosen, key=shuffled)[:AT_MOST]


def shuffled(path: Path) -> bytes:
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).digest()


def files_below(place: Path, most: int = 6_000) -> Iterator[Path]:
    for number, path in enumerate(place.rglob("*")):
        if number >= most:
            return
        with suppress(OSError):  # what is gone by now or closed to us is no file for a sweep
            if path.is_symlink() or not path.is_file() or not os.access(path, os.R_OK):
                continue
            if 0 < path.stat().st_size <= MAX_BYTES:
                yield path


def complaint(error: LoomError, path: Path) -> str:
    """What is wrong with an error: it gives away where things lie, or is somebody else's."""
    text = f"{error} {error.hint}"
    told = [word for word in (str(path.parent), "0x7f", "Traceback", "<class", "Errno") if word in text]
    return f"{path}: {text}" if told or not error.message.strip() else ""


async def test_24_a_sweep_over_this_machine_ends_in_blocks_or_in_sentences(tmp_path: Path) -> None:
    files = some_files()
    assert len(files) > 150
    wrong: list[str] = []
    slow: list[str] = []
    kinds: dict[str, int] = defaultdict(int)
    context = Context(tmp_path, allow=True)
    for path in files:
        data = path.read_bytes()
        began = time.monotonic()
        try:
            admitted = accept(data, path.name)
            kinds[type(admitted.block).__name__] += 1
        except LoomError as error:
            kinds[error.code] += 1
            wrong += filter(None, [complaint(error, path)])
        try:
            blocks = await read_file(context, str(path))
            assert all(text_of(block).strip() for block in blocks)
            texts = [block.text for block in blocks if isinstance(block, TextBlock)]
            wrong += [f"{path}: {text[:80]!r}" for text in texts if "\0" in text]
        except LoomError as error:
            wrong += filter(None, [complaint(error, path)])
        if time.monotonic() - began > LONGEST_SECONDS:
            slow.append(str(path))
    assert wrong == []
    assert slow == []
    assert kinds["TextBlock"] > 50
    assert kinds["ImageBlock"] > 3
    assert sum(kinds.values()) == len(files)
