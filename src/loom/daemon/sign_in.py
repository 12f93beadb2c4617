"""Sign-in: the identity of a request, by token, key, password or the cookie of a signed-in browser.

Each browser has a login of its own: random, stored as a hash, listed, and revoked one by one. Wrong credentials of
every kind are counted. A correct token, key, cookie or link is always accepted, even after many wrong ones: they cannot
be guessed, and so the owner cannot be locked out. Passwords can be guessed, so they are subject to backoff; on this
machine of a few seconds at most.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from loom.daemon.auth import Auth, hash_secret
from loom.daemon.problems import Forbidden, Unauthorised
from loom.daemon.rate_limits import FREE_GUESSES, Attempts
from loom.store.accounts import OWNER_NAME, Account, AccountRole, Accounts
from loom.store.logins import LOGIN_SECONDS, Logins

REMOTE_SECONDS: Final = 900.0
LOCAL_SECONDS: Final = 5.0
FREE_PASSWORDS: Final = 100
"""The number of wrong passwords from all clients together after which remote clients wait up to a minute."""
EVERYWHERE: Final = "password"
FREE_LOCAL: Final = 1_000
"""The number of free wrong tokens, keys and cookies from this machine: 256 bits cannot be guessed, but programs with
old ones exist."""
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN_PAGES: Final = frozenset(("", "same-origin", "none"))
_RANK: Final[dict[AccountRole, int]] = {"viewer": 0, "user": 1, "admin": 2}
_FORWARDED: Final = ("x-forwarded-for", "forwarded")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request. The owner of the data folder has no account: its id is empty."""

    account: str = ""
    name: str = OWNER_NAME
    role: AccountRole = "admin"
    login: str = ""
    """The id of the browser's login; empty for programs."""

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may(self, role: AccountRole) -> bool:
        """Return whether this identity has at least `role`."""
        return _RANK[self.role] >= _RANK[role]


OWNER: Final = Identity()


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a request that authenticate it. Header names are in lower case; `token` is one that was sent outside
    the headers."""

    headers: Mapping[str, str]
    client: str = ""
    is_secure: bool = False
    token: str = ""

    @property
    def bearer(self) -> str:
        """The token or key of a program: from `token`, a bearer header, or `x-api-key`, which clients of Anthropic's
        API send."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        named = token.strip() if scheme.lower() == "bearer" else self.headers.get("x-api-key", "").strip()
        return self.token or named

    @property
    def cookie_name(self) -> str:
        """The cookie's name. It contains the port, because cookies are shared between ports: two daemons on one host
        must not sign each other out."""
        port = self.headers.get("host", "").rpartition("]")[2].rpartition(":")[2]
        return f"loom-{port if port.isdecimal() else 443 if self.is_secure else 80}"

    @property
    def cookies(self) -> list[str]:
        """The login cookies; empty if another site made the browser send the request. They are parsed by hand: other
        servers of this machine set malformed cookies, and Python's parser stops at the first one."""
        if self.headers.get("sec-fetch-site", "") not in _OWN_PAGES:
            return []
        pairs = (part.strip().partition("=") for part in self.headers.get("cookie", "").split(";"))
        return [value for name, _, value in pairs if name == self.cookie_name][:10]

    @property
    def is_local(self) -> bool:
        """Whether the request comes from this machine, and not through a proxy."""
        if any(name in self.headers for name in _FORWARDED):
            return False
        try:
            return ipaddress.ip_address(self.client).is_loopback
        except ValueError:
            return not self.client

    def set_cookie(self, secret: str) -> str:
        """Return the header that sets the login cookie; with an empty `secret`, that deletes it."""
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
        """Called with the ids of logins and accounts that were removed, to drop their connections."""
        auth.on_rotate.append(lambda: logins.close_all(""))

    async def identify(self, visitor: Visitor) -> Identity | None:
        """Return the sender; None without a valid credential. Raise `TooMany` after too many wrong ones."""
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
        """Return the sender. Raise `Unauthorised`, `TooMany`, or `Forbidden` if a request that changes something has a
        cookie but not the header `X-Loom`: other pages of this machine could make a browser send the cookie, but not
        that header."""
        found = await self.identify(visitor)
        if found is None:
            raise Unauthorised(
                "The token is not valid." if visitor.bearer else "Sign in first.",
                hint="Send `Authorization: Bearer TOKEN` (`loom token` prints it), or open the link of `loom web`.",
            )
        if not visitor.bearer and method not in _SAFE and visitor.headers.get("x-loom", "") != "1":
            raise Forbidden(
                "A request that changes something needs the header `X-Loom: 1` in addition to the cookie.",
                hint="Send it, or use the token.",
            )
        return found

    async def has_form(self) -> bool:
        """Return whether a browser can sign in with a password or a key."""
        return bool(self._auth.password) or bool(await self._accounts.list())

    async def sign_in(self, given: str, visitor: Visitor) -> str | None:
        """Return the cookie header of a new login; None if `given` is neither the password nor a key."""
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
        """Return the cookie header of a new login for a one-time link; None if the link is not valid."""
        account = self._auth.redeem(word)
        if account is None:
            self._count_wrong(word, visitor)
            return None
        return await self._open(account, visitor)

    async def close(self, login: str) -> bool:
        """Sign a browser out and drop its connections. Return whether the login existed."""
        found = await self._logins.close(login)
        await self.drop(frozenset((login,)))
        return found

    async def drop_revoked(self) -> None:
        """Drop connections of logins and accounts that were removed by another process since the last call."""
        logins, accounts = await self._logins.list(), await self._accounts.list()
        now = frozenset([*(login.id for login in logins), *(account.id for account in accounts)])
        before, self._seen = self._seen, now
        if before is not None and before - now:
            await self.drop(before - now)

    async def drop(self, ids: frozenset[str]) -> None:
        """Drop the connections of these logins and accounts; clients that reconnect are checked again."""
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
        """Check a password; raise `TooMany` during a backoff."""
        key = f"password {visitor.client}"
        self._attempts.check(key)
        if not visitor.is_local:
            self._attempts.check(EVERYWHERE)
        if self._auth.is_password(given):
            self._attempts.forgive(key)
            return True
        guess = hash_secret(given)
        self._attempts.fail(key, guess, max_seconds=_wait(visitor))
        self._attempts.fail(EVERYWHERE, guess, free=FREE_PASSWORDS, max_seconds=60.0)
        return False

    def _count_wrong(self, given: str, visitor: Visitor) -> None:
        key = f"secret {visitor.client}"
        self._attempts.check(key)
        free = FREE_LOCAL if visitor.is_local else FREE_GUESSES
        self._attempts.fail(key, hash_secret(given), free=free, max_seconds=_wait(visitor))


def _identity(account: Account, login: str = "") -> Identity:
    return Identity(account=account.id, name=account.name, role=account.role, login=login)


def _wait(visitor: Visitor) -> float:
    return LOCAL_SECONDS if visitor.is_local else REMOTE_SECONDS
