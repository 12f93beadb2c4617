"""Run an external program on untrusted bytes, with limits of time, memory and environment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from loom.formats.worker import environment

_LIMITED: Final = 'ulimit -v "$1"; ulimit -t "$2"; ulimit -c 0; shift 2; exec "$@"'
"""A shell sets the limits before it becomes the program: code between fork and exec is not safe beside threads."""
_GONE_SECONDS: Final = 2.0


def run_program(
    command: list[str], *, folder: Path, memory_bytes: int, seconds: float, output: Path | None = None
) -> int:
    """Run a program and return its exit code; its output is written to `output`.

    Raise TimeoutError if it takes too long; no process that it started is left in either case.
    """
    limits = [str(memory_bytes // 1024), str(int(seconds) + 5)]
    printed = output.open("wb") if output is not None else subprocess.DEVNULL
    process = subprocess.Popen(
        ["/bin/sh", "-c", _LIMITED, "sh", *limits, *command],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.DEVNULL,
        env=environment() | {"HOME": str(folder), "TMPDIR": str(folder)},
        cwd=folder,
        start_new_session=True,
    )
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    finally:
        end_group(process)
        if not isinstance(printed, int):
            printed.close()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with everything in its group, and wait until all of it has ended."""
    with contextlib.suppress(ProcessLookupError):  # the usual case: everything has ended already
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        until = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.01)
