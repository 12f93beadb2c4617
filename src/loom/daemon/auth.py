"""The owner's credentials: the token for programs, the password for browsers, and one-time links.

The token is in a file that only its owner can read. A browser never holds the token: it gets a login of its own
(`sign_in.py`). Comparisons take constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from loom.atomic_file import create_file_once, write_file_whole
from loom.daemon.problems import TooMany
from loom.errors import ConfigError

LINK_SECONDS: Final = 3_600.0
MAX_LINKS: Final = 100


class Auth:
    def __init__(self, token: str, *, password: str = "", file: Path | None = None) -> None:
        """`file` is the file that a new token is written to; without one, the token is valid for the lifetime of this
        object."""
        self._token = token
        self.password = password
        self._file = file
        self._links: dict[bytes, tuple[float, str]] = {}
        self.on_rotate: list[Callable[[], Awaitable[None]]] = []
        """Called after the token changed, to close open connections."""

    def is_token(self, given: str) -> bool:
        return _is_same_secret(given, self._token)

    def is_password(self, given: str) -> bool:
        return bool(self.password) and _is_same_secret(given, self.password)

    def new_link(self, account: str = "") -> str:
        """Return a one-time code for `/?t=…` that signs a browser in within the hour. `account` is empty for the
        owner."""
        now = time.monotonic()
        self._links = {mark: found for mark, found in self._links.items() if found[0] > now}
        if len(self._links) >= MAX_LINKS:
            raise TooMany("Too many unused sign-in links.", retry_after=LINK_SECONDS)
        word = secrets.token_urlsafe(32)
        self._links[hash_secret(word)] = (now + LINK_SECONDS, account)
        return word

    def redeem(self, word: str) -> str | None:
        """Return the account of a one-time link and invalidate the link; None if it is used, expired or unknown."""
        until, account = self._links.pop(hash_secret(word), (0.0, ""))
        return account if until > time.monotonic() else None

    async def rotate(self) -> str:
        """Create and return a new token. The old one, its logins and all open links are refused from now on."""
        token = new_token()
        if self._file is not None:
            write_token(self._file, token)
        self._token = token
        self._links.clear()
        for drop in self.on_rotate:
            await drop()
        return token


def open_auth(file: Path, *, password: str = "") -> Auth:
    """Return the credentials with the token in `file`, which is created if it does not exist."""
    return Auth(ensure_token(file), password=password, file=file)


def ensure_token(file: Path) -> str:
    """Return the token in `file`. Create it if there is none; a daemon and a client that do so concurrently get the
    same token."""
    token = read_token(file)
    if token:
        return token
    try:
        create_file_once(file, f"{new_token()}\n")
    except OSError as error:
        raise ConfigError(f"The token file cannot be written: {os.strerror(error.errno or 0)}.") from None
    return read_token(file)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def read_token(file: Path) -> str:
    """Return the token; empty if there is none yet."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"The token file cannot be read: {os.strerror(error.errno or 0)}.") from None
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if found.st_mode & 0o077:
            raise ConfigError(
                f"Other users of this machine can read the daemon's token ({file}).",
                hint=f"Delete it; the daemon creates a new one. Or run: chmod 600 {file}",
            )
        token = opened.read(1_000).decode("ascii", "replace").strip()
    if not 20 <= len(token) <= 500 or not token.isprintable():
        raise ConfigError(f"{file} contains no token.", hint="Delete it; the daemon creates a new one.")
    return token


def write_token(file: Path, token: str) -> None:
    """Write the token atomically; other users can read it at no time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.parent.chmod(0o700)
        write_file_whole(file, f"{token}\n", private=True)
    except OSError as error:
        raise ConfigError(f"The token file cannot be written: {os.strerror(error.errno or 0)}.") from None


def _is_same_secret(given: str, known: str) -> bool:
    """Compare in constant time; `given` may contain any characters."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())


def hash_secret(word: str) -> bytes:
    """Return the hash under which a link or a guess is stored, so that the timing of a lookup reveals nothing about
    others."""
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
