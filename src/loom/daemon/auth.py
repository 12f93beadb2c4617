"""Who may come in: one token for programs, a cookie for browsers that came by a one-time link or with the password.

The token lies in a file that only its owner can read. The cookie is derived from it and is not the token itself, so
that a page never holds what opens the API from elsewhere. Every comparison takes the same time for every guess.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from loom.atomic_file import create_file_once, write_file_whole
from loom.daemon.problems import Forbidden, TooMany, Unauthorised
from loom.daemon.rate_limits import Rate, RateBuckets
from loom.errors import ConfigError

COOKIE: Final = "loom"
LINK_SECONDS: Final = 3_600.0
MAX_LINKS: Final = 100
ATTEMPTS: Final = Rate(per_second=0.1, burst=10)
"""Wrong passwords, for each address: ten at once, then one in ten seconds."""
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN_PAGES: Final = frozenset(("", "same-origin", "none"))
_COOKIE_SECONDS: Final = 30 * 86_400


class Auth:
    def __init__(self, token: str, *, password: str = "", file: Path | None = None) -> None:
        """`file` is where a new token is written; without one it lives as long as this object."""
        self._token = token
        self._password = password
        self._file = file
        self._links: dict[bytes, float] = {}
        self._attempts = RateBuckets(ATTEMPTS)
        self.on_rotate: list[Callable[[], Awaitable[None]]] = []
        """Called after the token changed, to close open connections."""

    @property
    def token(self) -> str:
        return self._token

    @property
    def has_password(self) -> bool:
        return bool(self._password)

    # What a request shows --------------------------------------------------------------------------------------------

    def is_allowed(self, headers: Mapping[str, str], *, token: str = "", client: str = "") -> bool:
        """Return whether these headers (names in lower case), or the separate token, authenticate a client."""
        given = token or _bearer(headers)
        if given:
            return self._is_token(given) or (self.has_password and self.is_password(given, client))
        return self._has_cookie(headers)

    def check(self, method: str, headers: Mapping[str, str], client: str = "") -> None:
        """Raise unless this request may go on. A cookie alone changes nothing: other pages of this machine could send
        it, but not the header that only our own pages add."""
        if not self.is_allowed(headers, client=client):
            raise Unauthorised(
                "This needs the daemon's token.",
                hint="Send `Authorization: Bearer TOKEN` (`loom token` prints it), or open the link of `loom web`.",
            )
        if not _bearer(headers) and method not in _SAFE and headers.get("x-loom", "") != "1":
            raise Forbidden(
                "A request that changes something needs the header `X-Loom: 1` beside the cookie.",
                hint="Send it, or use the token.",
            )

    def _is_token(self, given: str) -> bool:
        return _same(given, self._token)

    def is_password(self, given: str, client: str) -> bool:
        """TooMany after a few wrong ones from one address."""
        self._attempts.check(client, "Too many wrong passwords.")
        if _same(given, self._password):
            return True
        self._attempts.take(client)
        return False

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        """Cookies know no ports: one that another server on this machine made the browser send does not count."""
        if headers.get("sec-fetch-site", "") not in _OWN_PAGES:
            return False
        known = [_derive_key(self._token)] + ([_derive_key(self._password)] if self._password else [])
        return sum(_same(given, value) for given in _cookies(headers) for value in known) > 0

    # Ways to get a cookie --------------------------------------------------------------------------------------------

    def new_link(self) -> str:
        """A word for `/?t=…` that works once, within the hour."""
        now = time.monotonic()
        self._links = {mark: until for mark, until in self._links.items() if until > now}
        if len(self._links) >= MAX_LINKS:
            raise TooMany("Too many links are open.", retry_after=LINK_SECONDS)
        word = secrets.token_urlsafe(32)
        self._links[_mark(word)] = now + LINK_SECONDS
        return word

    def redeem(self, word: str) -> bool:
        """Whether a link is good; it is not any more."""
        return self._links.pop(_mark(word), 0.0) > time.monotonic()

    def cookie(self, *, secure: bool, by_password: bool = False) -> str:
        """The header that sets it."""
        value = _derive_key(self._password if by_password else self._token)
        parts = [f"{COOKIE}={value}", "HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={_COOKIE_SECONDS}"]
        return "; ".join([*parts, "Secure"] if secure else parts)

    async def rotate(self) -> str:
        """A new token; the old one, its cookies and all open links are refused from now on."""
        token = new_token()
        if self._file is not None:
            write_token(self._file, token)
        self._token = token
        self._links.clear()
        for drop in self.on_rotate:
            await drop()
        return token


def open_auth(file: Path, *, password: str = "") -> Auth:
    """Return the authentication with the token in this file, which is created the first time."""
    return Auth(ensure_token(file), password=password, file=file)


def ensure_token(file: Path) -> str:
    """Return the token in this file. Create it if there is none: a daemon and a client that do so at once agree."""
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
    """Return the token, empty if there is none yet."""
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
                hint=f"Delete it; the daemon makes a new one. Or run: chmod 600 {file}",
            )
        token = opened.read(1_000).decode("ascii", "replace").strip()
    if not 20 <= len(token) <= 500 or not token.isprintable():
        raise ConfigError(f"{file} holds no token.", hint="Delete it; the daemon makes a new one.")
    return token


def write_token(file: Path, token: str) -> None:
    """Write the token atomically, never readable by other users, not even for a moment."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.parent.chmod(0o700)
        write_file_whole(file, f"{token}\n", private=True)
    except OSError as error:
        raise ConfigError(f"The token file cannot be written: {os.strerror(error.errno or 0)}.") from None


def _bearer(headers: Mapping[str, str]) -> str:
    """Return the token of a program: as a bearer, or as clients of Anthropic's API send it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


def _cookies(headers: Mapping[str, str]) -> list[str]:
    """Read by hand: other servers of this machine put odd ones beside ours, and Python's parser stops at the first."""
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return [value for name, _, value in pairs if name == COOKIE][:10]


def _same(given: str, known: str) -> bool:
    """In the same time for every guess, whatever it is made of."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())


def _derive_key(secret: str) -> str:
    return hmac.new(secret.encode(), b"loom cookie", hashlib.sha256).hexdigest()


def _mark(word: str) -> bytes:
    """Links are kept as hashes: looking one up tells nothing about the others by the time it takes."""
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
