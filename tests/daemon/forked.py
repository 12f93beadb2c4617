"""Daemons that start in a fraction of a second, to be killed many times: children of a process that has imported all.

forked.py      for each JSON line on stdin: {"home", "port", "environ", "skew"} forks a daemon and prints its pid;
               {"wait": PID} waits for its end and prints its exit code
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loom.client import Client
from patience import PATIENCE_SECONDS

_PR_SET_PDEATHSIG = 1
TESTS = Path(__file__).resolve().parents[1]


class Nursery:
    """The process that daemons are forked from. Use `nursery()`."""

    def __init__(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environ, "PYTHONPATH": str(TESTS)},
        )

    def ask(self, **words: Any) -> int:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()


@contextlib.contextmanager
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    try:
        yield found
    finally:
        found.close()


class ForkedDaemon:
    """The same as `DaemonProcess`, but quick to start. Its clock is `skew_seconds` ahead."""

    def __init__(self, nursery: Nursery, home: Path, settings: Mapping[str, str], *, skew_seconds: float = 0.0) -> None:
        self.home = home
        self.url = ""
        self.pid = 0
        self.starts = 0
        self._nursery = nursery
        self._settings = {"LOOM_OFFLINE": "1", "LOOM_MODEL": "loom/spark", **settings, "LOOM_HOME": str(home)}
        self._skew = skew_seconds

    def start(self) -> None:
        self.home.mkdir(exist_ok=True)
        out = self.home / "out"
        out.unlink(missing_ok=True)
        port = self.url.rpartition(":")[2] or "0"
        words = {"home": str(self.home), "port": port, "environ": self._settings, "skew": self._skew}
        self.pid = self._nursery.ask(**words)
        self.starts += 1
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE_SECONDS:
            if out.exists() and (found := re.search(r"http://\S+", out.read_text())):
                self.url = found[0]
                return
            time.sleep(0.01)
        raise AssertionError(f"the daemon did not start: {self.log()[-2000:]}")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if not self.pid:
            return 0
        pid, self.pid = self.pid, 0
        os.kill(pid, how)
        return self._nursery.ask(wait=pid)

    def log(self) -> str:
        return (self.home / "log").read_text()

    def client(self, **options: Any) -> Client:
        return Client(self.url, (self.home / "state" / "token").read_text().strip(), **options)


def _become_daemon(words: Mapping[str, Any]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a test run that is killed leaves nothing behind
    home = Path(words["home"])
    os.dup2(os.open(home / "out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.environ.update(words["environ"])
    if skew := float(words["skew"]):
        clock = time.time
        time.time = lambda: clock() + skew
    sys.argv = ["loom.daemon", "--port", words["port"]]
    from loom.daemon.serve import main

    main()


def _fork_daemons() -> None:
    from importlib import import_module

    for name in ("daemon.serve", "store.postgres", "store.sqlite", "providers.spark", "tools.builtin", "tools.egress"):
        import_module(f"loom.{name}")
    with contextlib.suppress(ImportError):
        import_module("dbos")
    for line in sys.stdin:
        words = json.loads(line)
        if "wait" in words:
            _, status = os.waitpid(words["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _become_daemon(words)
                code = 0
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                raise
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(child, flush=True)


if __name__ == "__main__":
    _fork_daemons()
