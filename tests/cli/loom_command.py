"""The command as its users meet it: `Loom(folder)("sessions", "--json")`.

Called, it runs in this process, which spares half a second each time; `.process(…)` runs it in a process of its own,
and `Terminal` does so on a pseudo-terminal.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from loom.cli.main import main

COMMAND = [sys.executable, "-m", "loom.cli.main"]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\r")


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Loom:
    """Each has a home of its own, no key, and no server on this machine is asked unless a test says so."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder / "work"
        self.home = folder / "home"
        self.folder.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME", "PYTHONPATH") if name in os.environ}
        usual = {"LOOM_HOME": str(self.home), "LOOM_MODEL": "loom/spark", "LOOM_OFFLINE": "1", "PYTHONUTF8": "1"}
        usual["LOOM_PROMPT__DEFAULT"] = "false"  # it names the folder, the machine and the day
        self.environ = {**kept, **usual, **environ}

    def __call__(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None, **environ: str) -> Ran:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with (
            mock.patch.multiple(sys, stdin=io.TextIOWrapper(io.BytesIO(stdin), "utf-8"), stdout=out, stderr=err),
            mock.patch.dict(os.environ, {**self.environ, **environ}, clear=True),
            contextlib.chdir(cwd or self.folder),
        ):
            try:
                main(list(arguments))
                code: object = 0
            except SystemExit as ended:
                code = ended.code
            out.flush()
            err.flush()
        return _checked(Ran(int(str(code or 0)), _text(out), _text(err)), arguments)

    def process(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None, **environ: str) -> Ran:
        found = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd or self.folder,
            env={**self.environ, **environ},
            timeout=120,
            check=False,
        )
        return _checked(Ran(found.returncode, found.stdout.decode(), found.stderr.decode()), arguments)

    def file(self, name: str, data: bytes | str) -> Path:
        path = self.folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def _checked(ran: Ran, arguments: tuple[str, ...]) -> Ran:
    assert "--debug" in arguments or ("Traceback" not in ran.err and "went wrong inside Loom" not in ran.err), ran.err
    return ran


class Terminal:
    """A program on a pseudo-terminal: wait for words, type words."""

    def __init__(self, loom: Loom, *arguments: str, command: Sequence[str] = COMMAND, **environ: str) -> None:
        self.screen = ""
        self._seen = 0
        started = _started(loom, [*command, *arguments], {"TERM": "xterm-256color", **environ})
        self._process, self._master = started

    def wait_for(self, words: str, seconds: float = 60) -> str:
        """Everything up to and including these words, which come behind what was waited for before."""
        deadline = time.monotonic() + seconds
        while True:
            at = self.text.find(words, self._seen)
            if at >= 0:
                seen, self._seen = self.text[self._seen : at + len(words)], at + len(words)
                return seen
            if not self.read(deadline - time.monotonic()):
                raise AssertionError(f"{words!r} never came; the screen shows:\n{self.text}")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    @property
    def pid(self) -> int:
        return self._process.pid

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """As an out-of-memory killer would: without a last word."""
        self._process.kill()
        self._process.wait()

    def end(self, seconds: float = 60) -> int:
        """Its exit code, when it has ended by itself."""
        deadline = time.monotonic() + seconds
        while self.read(deadline - time.monotonic()):
            pass
        return self._process.wait(timeout=seconds)

    @property
    def text(self) -> str:
        """What a person reads: without escapes."""
        return _ESCAPES.sub("", self.screen)

    def read(self, seconds: float) -> bool:
        """What has come within so many seconds, if anything."""
        ready, _, _ = select.select([self._master], [], [], max(seconds, 0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # Linux says EIO where the other end is closed
            return False
        self.screen += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)


def _started(loom: Loom, command: list[str], environ: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=loom.folder,
        env={**loom.environ, "COLUMNS": "100", "LINES": "40", **environ},
        start_new_session=True,
    )
    os.close(slave)
    return process, master
