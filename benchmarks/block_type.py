"""List the files that must change for a new kind of block: `python -m benchmarks.block_type`.

Adds a block class to the unions of `content/blocks.py`, and its row to `MediaKindName`, in a copy of `src`, runs the
type checker there and lists the files with errors. Everything else follows from the unions and from `MEDIA_KINDS`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEW = '''class HologramBlock(msgspec.Struct, frozen=True, tag="hologram", omit_defaults=True, gc=False):
    """A kind of block that exists only in this copy."""

    media: Media


class ThinkingBlock('''


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "web"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        blocks = copy / "src" / "loom" / "content" / "blocks.py"
        text = blocks.read_text("utf-8").replace("class ThinkingBlock(", NEW, 1)
        blocks.write_text(
            text.replace("AudioBlock | VideoBlock\n", "AudioBlock | VideoBlock | HologramBlock\n", 1), "utf-8"
        )
        kinds = copy / "src" / "loom" / "content" / "media_kinds.py"
        kinds.write_text(kinds.read_text("utf-8").replace('"video"]', '"video", "hologram"]', 1), "utf-8")
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "src"]
        ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        found = Counter(
            str(Path(one["file"]).resolve().relative_to((copy / "src" / "loom").resolve()))
            for one in json.loads(ran.stdout)["generalDiagnostics"]
        )
    for file, count in sorted(found.items()):
        print(f"{count:>3}  {file}")
    print(f"{len(found)} files, {sum(found.values())} places")


if __name__ == "__main__":
    main()
