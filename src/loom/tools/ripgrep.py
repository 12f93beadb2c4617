"""ripgrep as a quick first look: which files can hold a match at all. What is shown comes from our own search."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from loom.tools.processes import environment

_FLAGS: Final = (
    *("--files-with-matches", "--null", "--no-messages", "--no-config", "--hidden", "--text", "--no-require-git"),
    *("--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot", "--max-filesize", "6M", "--glob", "!.git"),
)
_NOT_ASCII: Final = r"(?-u:[\x80-\xff])"
"""Files with other letters are always looked at: they may be in an encoding that ripgrep does not read."""


@cache
def ripgrep_program() -> str | None:
    return shutil.which("rg")


class Candidates:
    """A ripgrep that runs while the tree is walked; none for an empty pattern. `wait` gives the files, or None where it
    cannot tell."""

    def __init__(self, folder: Path, pattern: str, *, multiline: bool) -> None:
        program = ripgrep_program()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        # other letters may be kept in another encoding, which ripgrep does not read
        if program is not None and pattern and pattern.isascii() and "\0" not in pattern:
            self._process = subprocess.Popen(
                [program, *_FLAGS, *(["--multiline"] if multiline else []), "-e", pattern, "-e", _NOT_ASCII, "."],
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def wait(self, seconds: float) -> frozenset[str] | None:
        """Return paths relative to the folder. None: the pattern is not one of ripgrep's, or it took too long."""
        if self._process is None:
            return None
        try:
            output, _ = self._process.communicate(timeout=max(seconds, 0.01))
        except subprocess.TimeoutExpired:
            self.close()
            return None
        if self._process.returncode not in (0, 1):
            return None
        names = output.decode("utf-8", "surrogateescape").split("\0")
        return frozenset(name.removeprefix("./") for name in names if name)

    def close(self) -> None:
        """End it, also if it was never waited for."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
