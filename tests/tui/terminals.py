"""Real terminals for the installed command: tmux, as a person uses it, and a pseudo-terminal whose bytes are read."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from tests.cli.loom_command import COMMAND, Loom

from loom.store.process_identity import has_ended

PATIENCE_SECONDS = 120.0


class Tmux:
    """One terminal."""

    def __init__(self, folder: Path, name: str) -> None:
        self._command = ["tmux", "-S", str(folder / f"{name}.sock"), "-u", "-f", "/dev/null"]
        self._environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}  # no COLUMNS and LINES of the test runner

    def _tmux(self, *arguments: str) -> str:
        run = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, check=True, env=self._environ
        )
        return run.stdout

    def start(
        self,
        loom: Loom,
        *arguments: str,
        size: tuple[int, int] = (100, 34),
        command: Sequence[str] = COMMAND,
        **environ: str,
    ) -> None:
        variables = {**loom.environ, "LANG": "C.UTF-8", "TERM": "tmux-256color", "COLORTERM": "truecolor", **environ}
        given = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
        shape = ["-x", str(size[0]), "-y", str(size[1]), "-c", str(loom.folder)]
        stays = (";", "set-option", "-g", "remain-on-exit", "on")  # so that an error can be read
        self._tmux("new-session", "-d", *shape, *given, *command, *arguments, *stays)

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    @property
    def colored_screen(self) -> str:
        """The screen with its escape sequences."""
        return self._tmux("capture-pane", "-p", "-e")

    @property
    def pid(self) -> int:
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def wait_until_ended(self) -> None:
        """Wait until the program has ended. tmux may not notice it for a long time, so its process is looked at."""
        pid = self.pid
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not has_ended(pid):
            assert time.monotonic() < deadline, f"the program still runs; the terminal shows:\n{self.screen}"
            time.sleep(0.05)

    def wait_for(self, words: str) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in (screen := self.screen):
            assert time.monotonic() < deadline, f"{words!r} never came; the terminal shows:\n{screen}"
            time.sleep(0.05)
        return screen

    def wait_until_gone(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words in (screen := self.screen):
            assert time.monotonic() < deadline, f"{words!r} stays:\n{screen}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """In brackets, as terminals paste."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def end(self) -> None:
        subprocess.run([*self._command, "kill-server"], capture_output=True, check=False, env=self._environ)


@contextmanager
def terminals(folder: Path, *names: str) -> Generator[Sequence[Tmux]]:
    found = [Tmux(folder, name) for name in names]
    try:
        yield found
    finally:
        for terminal in found:
            terminal.end()


class ByteTerminal:
    """A terminal of 100 by 34 characters of 10 by 20 pixels; `written` is all that the program wrote to it."""

    def __init__(self, loom: Loom, *arguments: str, **environ: str) -> None:
        self.written = b""
        self._master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 34, 100, 1000, 680))
        self._process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=loom.folder,
            env={**loom.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **environ},
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> ByteTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def wait_for(self, words: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in self.written:
            assert time.monotonic() < deadline, f"{words!r} never came: {self.written[-2000:]!r}"
            if select.select([self._master], [], [], 1.0)[0]:
                self.written += os.read(self._master, 65_536)

    def paste(self, text: str) -> None:
        os.write(self._master, f"\x1b[200~{text}\x1b[201~".encode())

    def press_enter(self) -> None:
        os.write(self._master, b"\r")
