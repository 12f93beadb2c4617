"""Sample files made by real programs, once per machine, in `.cache/made` (safe with several test processes)."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / ".cache" / "made"


def make_sample(name: str, build: Callable[[Path], None]) -> Path:
    """Return the file `name`. `build(path)` creates it at first use, and again when the code of `build` changes."""
    key = hashlib.sha256((name + inspect.getsource(build)).encode()).hexdigest()[:12]
    folder = ROOT / key
    target = folder / name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            scratch = folder / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            build(scratch / name)
            (scratch / name).rename(target)
            shutil.rmtree(scratch)
    return target


def run(*command: str | Path, cwd: Path | None = None, timeout: float = 120) -> bytes:
    """Run a program and return its output. Raises `RuntimeError` with the end of its error output."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, check=False, capture_output=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}): {done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout
