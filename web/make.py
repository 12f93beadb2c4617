"""Builds the web client into src/loom/daemon/web, where the daemon finds it. Standard library only: packaging runs it.

python web/make.py             build, where the built files are not of these sources
LOOM_WEB=require pip wheel .   fail where it cannot be built (releases)
LOOM_WEB=skip pip install .    leave it out
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
    """Why there is no client, in a sentence."""


def make() -> bool:
    """True where something was built; false where the built files are those of these sources already."""
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
    """Of the names and contents of everything that the build reads."""
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
    """npm leaves a copy of the lock file in node_modules, newer than the one that it read."""
    inside = WEB / "node_modules/.package-lock.json"
    return inside.exists() and inside.stat().st_mtime >= (WEB / "package-lock.json").stat().st_mtime


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=WEB, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        tried = " ".join(("npm", *command[1:3]))
        raise NotBuilt(f"The web client was not built: `{tried}` failed.\n{done.stdout[-2000:]}")


def make_for_package() -> None:
    """As the package wants it: a client that cannot be built is left out, unless LOOM_WEB says otherwise."""
    wish = os.environ.get("LOOM_WEB", "")
    if wish == "skip":
        return
    try:
        make()
    except NotBuilt as error:
        if wish == "require":
            raise SystemExit(str(error)) from None
        print(f"{error}\nLoom works without it; the daemon's page says how to get it.", file=sys.stderr)


if __name__ == "__main__":
    make_for_package()
