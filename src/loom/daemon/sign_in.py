"""Sign-in: who sends a request, by token, key, password or the cookie of a browser that is signed in.

Each browser has a login of its own: random, stored as a hash, listed, and revoked one by one. Wrong credentials of
every kind are counted. A right token, key, cookie or link is always accepted, however many wrong ones came before: they
cannot be guessed, and so the owner cannot be locked out. Passwords can be guessed, so they wait; on this machine a few
seconds at most.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from loom.daemon.auth import Auth
from loom.daemon.problems import Forbidden, Unauthorised
from loom.daemon.rate_limits import FREE_GUESSES, Attempts
from loom.store.accounts import OWNER_NAME, Account, AccountRole, Accounts
from loom.store.logins import LOGIN_SECONDS, Logins

REMOTE_SECONDS: Final = 900.0
LOCAL_SECONDS: Final = 5.0
FREE_PASSWORDS: Final = 100
"""Wrong passwords from everywhere together, before all that come from elsewhere wait a minute."""
EVERYWHERE: Final = "password"
FREE_LOCAL: Final = 1_000
"""Wrong tokens, keys and cookies from this machine: 256 bits cannot be guessed, but programs with old ones exist."""
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN_PAGES: Final = frozenset(("", "same-origin", "none"))
_RANK: Final[dict[AccountRole, int]] = {"viewer": 0, "user": 1, "admin": 2}
_FORWARDED: Final = ("x-forwarded-for", "forwarded")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request. The owner of the data folder has no account: its id is empty."""

    account: str = ""
    name: str = OWNER_NAME
    role: AccountRole = "admin"
    login: str = ""
    """The login of the browser; empty for programs."""

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may(self, role: AccountRole) -> bool:
        """Return whether this role is enough for what needs `role`."""
        return _RANK[self.role] >= _RANK[role]


OWNER: Final = Identity()


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """What a request shows of itself. `token` is one that was given outside the headers (names in lower case)."""

    headers: Mapping[str, str]
    client: str = ""
    is_secure: bool = False
    token: str = ""

    @property
    def bearer(self) -> str:
        """The token or key of a program: as a bearer, or as clients of Anthropic's API send it."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        named = token.strip() if scheme.lower() == "bearer" else self.headers.get("x-api-key", "").strip()
        return self.token or named

    @property
    def cookie_name(self) -> str:
        """Cookies know no ports, so the name has it: two daemons on one host do not sign each other out."""
        port = self.headers.get("host", "").rpartition("]")[2].rpartition(":")[2]
        return f"loom-{port if port.isdecimal() else 443 if self.is_secure else 80}"

    @property
    def cookies(self) -> list[str]:
        """Read by hand: other servers of this machine put odd cookies beside ours, and Python's parser stops at the
        first. One that another site made the browser send does not count."""
        if self.headers.get("sec-fetch-site", "") not in _OWN_PAGES:
            return []
        pairs = (part.strip().partition("=") for part in self.headers.get("cookie", "").split(";"))
        return [value for name, _, value in pairs if name == self.cookie_name][:10]

    @property
    def is_local(self) -> bool:
        """Whether it comes from this machine, and through no proxy."""
        if any(name in self.headers for name in _FORWARDED):
            return False
        try:
            return ipaddress.ip_address(self.client).is_loopback
        except ValueError:
            return not self.client

    def set_cookie(self, secret: str) -> str:
        """Return the header that gives the browser its login; with an empty `secret`, that takes it away."""
        age = int(LOGIN_SECONDS) if secret else 0
        parts = [f"{self.cookie_name}={secret}", "HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={age}"]
        return "; ".join([*parts, "Secure"] if self.is_secure else parts)


class SignIn:
    def __init__(self, auth: Auth, accounts: Accounts, logins: Logins) -> None:
        self._auth = auth
        self._accounts = accounts
        self._logins = logins
        self._attempts = Attempts()
        self._seen: frozenset[str] | None = None
        self.on_close: list[Callable[[frozenset[str]], Awaitable[None]]] = []
        """Called with the ids of logins and accounts that are gone: their connections are dropped."""
        auth.on_rotate.append(lambda: logins.close_all(""))

    async def identify(self, visitor: Visitor) -> Identity | None:
        """Return who it is; None without a valid credential. Raises TooMany after too many wrong ones."""
        if given := visitor.bearer:
            found = await self._by_secret(given)
            if found is None and self._auth.password:
                found = OWNER if self._try_password(given, visitor) else None
            elif found is None:
                self._count_wrong(given, visitor)
            return found
        for cookie in visitor.cookies:
            login = await self._logins.find(cookie, password=self._auth.password)
            found = await self._of_account(login.account, login.id) if login is not None else None
            if found is not None:
                return found
            self._count_wrong(cookie, visitor)
        return None

    async def check(self, method: str, visitor: Visitor) -> Identity:
        """Return who it is. Raises Unauthorised, TooMany, or Forbidden where a cookie alone would change something:
        other pages of this machine could make a browser send it, but not the header that only our own pages add."""
        found = await self.identify(visitor)
        if found is None:
            raise Unauthorised(
                "Sign in first.",
                hint="Send `Authorization: Bearer TOKEN` (`loom token` prints it), or open the link of `loom web`.",
            )
        if not visitor.bearer and method not in _SAFE and visitor.headers.get("x-loom", "") != "1":
            raise Forbidden(
                "A request that changes something needs the header `X-Loom: 1` beside the cookie.",
                hint="Send it, or use the token.",
            )
        return found

    async def has_form(self) -> bool:
        """Return whether there is a password or key to sign in with in a browser."""
        return bool(self._auth.password) or bool(await self._accounts.list())

    async def sign_in(self, given: str, visitor: Visitor) -> str | None:
        """Return the cookie header of a new login for a password or key; None where it is neither."""
        account = await self._accounts.by_key(given)
        if account is not None:
            return await self._open(account.id, visitor)
        if not self._auth.password:
            self._count_wrong(given, visitor)
            return None
        if not self._try_password(given, visitor):
            return None
        return await self._open("", visitor, self._auth.password)

    async def redeem(self, word: str, visitor: Visitor) -> str | None:
        """The same for a one-time link."""
        account = self._auth.redeem(word)
        if account is None:
            self._count_wrong(word, visitor)
            return None
        return await self._open(account, visitor)

    async def close(self, login: str) -> bool:
        """Sign a browser out; its connections are dropped. Return whether there was such a login."""
        found = await self._logins.close(login)
        await self.drop(frozenset((login,)))
        return found

    async def drop_revoked(self) -> None:
        """Drop connections of logins and accounts that were removed elsewhere since the last call."""
        logins, accounts = await self._logins.list(), await self._accounts.list()
        now = frozenset([*(login.id for login in logins), *(account.id for account in accounts)])
        before, self._seen = self._seen, now
        if before is not None and before - now:
            await self.drop(before - now)

    async def drop(self, ids: frozenset[str]) -> None:
        """Drop the connections of these logins and accounts; clients come back and are checked again."""
        for drop in self.on_close:
            await drop(ids)

    async def _open(self, account: str, visitor: Visitor, password: str = "") -> str:
        agent = visitor.headers.get("user-agent", "")
        _, secret = await self._logins.open(account, address=visitor.client, agent=agent, password=password)
        return visitor.set_cookie(secret)

    async def _by_secret(self, given: str) -> Identity | None:
        if self._auth.is_token(given):
            return OWNER
        account = await self._accounts.by_key(given)
        return _identity(account) if account is not None else None

    async def _of_account(self, account_id: str, login: str) -> Identity | None:
        if not account_id:
            return msgspec.structs.replace(OWNER, login=login)
        account = await self._accounts.by_id(account_id)
        return _identity(account, login) if account is not None else None

    def _try_password(self, given: str, visitor: Visitor) -> bool:
        """A password is looked at only when its turn has come."""
        key = f"password {visitor.client}"
        self._attempts.check(key)
        if not visitor.is_local:
            self._attempts.check(EVERYWHERE)
        if self._auth.is_password(given):
            self._attempts.forgive(key)
            return True
        guess = _guess(given)
        self._attempts.fail(key, guess, max_seconds=_wait(visitor))
        self._attempts.fail(EVERYWHERE, guess, free=FREE_PASSWORDS, max_seconds=60.0)
        return False

    def _count_wrong(self, given: str, visitor: Visitor) -> None:
        key = f"secret {visitor.client}"
        self._attempts.check(key)
        free = FREE_LOCAL if visitor.is_local else FREE_GUESSES
        self._attempts.fail(key, _guess(given), free=free, max_seconds=_wait(visitor))


def _identity(account: Account, login: str = "") -> Identity:
    return Identity(account=account.id, name=account.name, role=account.role, login=login)


def _wait(visitor: Visitor) -> float:
    return LOCAL_SECONDS if visitor.is_local else REMOTE_SECONDS


def _guess(given: str) -> bytes:
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest()
