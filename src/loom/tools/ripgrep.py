"""ripgrep as a fast filter: the files that can contain a match at all. Our own search finds the matches.

With a text that every match contains, ripgrep searches for that alone, which is fastest. It then recognizes UTF-16 only
by its byte order mark.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from loom.tools.processes import environment
from loom.tools.workspace import SENSITIVE_FOLDERS, SENSITIVE_NAMES

_FLAGS: Final = (
    *("--null", "--no-messages", "--no-config", "--hidden", "--no-require-git", "--crlf"),
    *("--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot", "--glob", "!.git"),
)
_SECRETS: Final = tuple(
    part for glob in (*SENSITIVE_NAMES, *(f"**/{name}/**" for name in SENSITIVE_FOLDERS)) for part in ("--iglob", glob)
)
_NOT_ASCII: Final = r"(?-u:[\x80-\xff])"
"""Files with non-ASCII characters are always searched: they may be in an encoding that ripgrep does not read."""
_CLASS_RULES: Final = re.compile(r"\[[^\]]*(?:\[|&&|--|~~)")
"""Syntax that ripgrep reads as sets within a character class, and Python as characters."""
_SEARCHED: Final = re.compile(r"^(\d+) files searched$", re.MULTILINE)


@cache
def ripgrep_program() -> str | None:
    return shutil.which("rg")


class FoundFiles(msgspec.Struct, frozen=True):
    """Files relative to the folder, sorted as in a walk: those that can contain a match, and those that by their names
    may contain secrets, in every folder that is not ignored. `searched` is the number of searched files."""

    possible: list[tuple[str, ...]]
    secret: list[tuple[str, ...]]
    searched: int


class Candidates:
    """Two parallel runs of ripgrep. None is started for a pattern that ripgrep does not support.

    `literal` is a text that every match contains. Only files whose names end in one of `suffixes`, in any case, are
    searched; all files if there are none.
    """

    def __init__(
        self, folder: Path, pattern: str, literal: bytes | None, *, multiline: bool, suffixes: Sequence[str], glob: str
    ) -> None:
        self._folder = folder
        self._running: tuple[subprocess.Popen[bytes], ...] = ()
        program = ripgrep_program()
        # non-ASCII characters may be in another encoding, which ripgrep does not read
        if program is None or not pattern.isascii() or "\0" in pattern:
            return
        if literal is not None:
            wanted = ["--fixed-strings", "-e", literal.decode("ascii")]
        elif _CLASS_RULES.search(pattern):
            return
        else:
            wanted = [*(["--multiline"] if multiline else []), "-e", pattern, "-e", _NOT_ASCII]
        if suffixes:
            wanted += [part for suffix in suffixes for part in ("--type-add", f"loom:{_any_case(suffix)}")]
            wanted += ["--type", "loom"]
        elif glob and not glob.startswith("!"):
            wanted += ["--glob", glob]
        self._running = (
            self._start(program, "--files-with-matches", "--stats", *_FLAGS, *wanted),
            self._start(program, "--files", *_FLAGS, *_SECRETS),
        )

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, "."],
            cwd=self._folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def wait(self, seconds: float) -> FoundFiles | None:
        """Return the files, or None if ripgrep was not started, does not support the pattern, or took too long."""
        outputs: list[str] = []
        try:
            for process in self._running:
                output, _ = process.communicate(timeout=max(seconds, 0.01))
                if process.returncode not in (0, 1):
                    return None
                outputs.append(output.decode("utf-8", "surrogateescape"))
        except subprocess.TimeoutExpired:
            return None
        finally:
            self._close()
        if not outputs:
            return None
        *possible, statistics = outputs[0].split("\0")
        counted = _SEARCHED.search(statistics)
        secret = outputs[1].split("\0")[:-1]
        return FoundFiles(_parts(possible), _parts(secret), int(counted[1]) if counted else 0)

    def _close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _parts(names: Sequence[str]) -> list[tuple[str, ...]]:
    return sorted(tuple(name.removeprefix("./").split("/")) for name in names)


def _any_case(suffix: str) -> str:
    return "*" + "".join(f"[{it}{it.upper()}]" if it.isalpha() else f"[{it}]" for it in suffix)
