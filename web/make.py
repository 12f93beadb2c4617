"""Build the web client into src/loom/daemon/web, where the daemon finds it. Standard library only: packaging runs it.

python web/make.py             build if the sources have changed since the last build
LOOM_WEB=require pip wheel .   fail if it cannot be built (releases)
LOOM_WEB=skip pip install .    do not build it
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
BUILT = WEB.parent / "src/loom/daemon/web"
STAMP = BUILT / "built-from.txt"
SOURCES = ("src", "public", "index.html", "build.mjs", "package.json", "package-lock.json")


class NotBuilt(Exception):
    """The client could not be built; the message says why."""


def make() -> bool:
    """Build the client; return False if the existing build is up to date. Raises `NotBuilt`."""
    if not (WEB / "src").is_dir():
        return False
    with (WEB / ".make.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = digest()
        if STAMP.exists() and STAMP.read_text() == wanted:
            return False
        npm = shutil.which("npm")
        if npm is None:
            raise NotBuilt("The web client was not built: it needs Node.js and npm.")
        if not _is_installed():
            _run(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
        _run(npm, "run", "build")
        STAMP.write_text(wanted)
        return True


def digest() -> str:
    """Return a hash of the names and contents of all files that the build reads."""
    files = sorted(
        file
        for name in SOURCES
        for file in ((WEB / name).rglob("*") if (WEB / name).is_dir() else [WEB / name])
        if file.is_file()
    )
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(WEB).as_posix()}\0".encode())
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _is_installed() -> bool:
    """Return whether node_modules is up to date: npm writes a copy of the lock file there after it has installed."""
    installed = WEB / "node_modules/.package-lock.json"
    return installed.exists() and installed.stat().st_mtime >= (WEB / "package-lock.json").stat().st_mtime


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=WEB, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        failed_command = " ".join(("npm", *command[1:3]))
        raise NotBuilt(f"The web client was not built: `{failed_command}` failed.\n{done.stdout[-2000:]}")


def make_for_package() -> None:
    """Build the client for the package. If that fails, print why, or exit with LOOM_WEB=require."""
    mode = os.environ.get("LOOM_WEB", "")
    if mode == "skip":
        return
    try:
        make()
    except NotBuilt as error:
        if mode == "require":
            raise SystemExit(str(error)) from None
        print(f"{error}\nLoom works without it; the page of the daemon explains how to get it.", file=sys.stderr)


if __name__ == "__main__":
    make_for_package()
