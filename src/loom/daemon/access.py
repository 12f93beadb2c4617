"""SessionAccess: the sessions and media that a user may use. Administrators and the owner of the data folder may use
all of them.

A user has the sessions that they began and those that were shared with them. Everything else is "not found".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from loom.api_types import FolderList, SessionPage, SessionView
from loom.daemon.problems import Forbidden
from loom.daemon.sign_in import Identity
from loom.runtime import Runtime
from loom.runtime.library import session_cursor
from loom.runtime.media_forms import media_not_found
from loom.store.session_members import MemberAccess
from loom.store.session_rows import session_not_found

_BATCH: Final = 100

FetchPage = Callable[[int, str], Awaitable[SessionPage]]
"""Reads a page of sessions: called with its maximum length and the cursor to start before."""


T = TypeVar("T")


class SessionAccess:
    def __init__(self, runtime: Runtime) -> None:
        self._members = runtime.session_users.members
        self._library = runtime.library

    async def check(self, identity: Identity, session_id: str, needed: MemberAccess = "view") -> None:
        """Raise `NotFound` if the user may not read the session, `Forbidden` if the user may read it but has less than
        the `needed` access."""
        if identity.is_admin:
            return
        access = await self._members.access(session_id, identity.account)
        if access is None:
            raise session_not_found()
        if needed == "own" and access != "own":
            raise Forbidden("Only its owner may do this with a session.", hint="Ask its owner, or an administrator.")
        if needed == "edit" and access == "view":
            raise Forbidden("You may read this session, but not change it.", hint="Fork it, or ask its owner.")

    async def may_read(self, identity: Identity, session_id: str) -> bool:
        return identity.is_admin or await self._members.access(session_id, identity.account) is not None

    async def claim(self, identity: Identity, session_id: str) -> None:
        """Make the user the owner of a session that they have just begun."""
        if identity.account:
            await self._members.set(session_id, identity.account, "own")

    async def claim_import(self, identity: Identity, session_id: str, *, is_new: bool) -> tuple[str, bool]:
        """Return the session for an import by the user, and whether it is new.

        The import may have found an existing session with the same conversation. If the user may not read that one,
        return the user's own session with the same head, or else a fork.
        """
        if is_new:
            await self.claim(identity, session_id)
        if is_new or await self.may_read(identity, session_id):
            return session_id, is_new
        head = (await self._library.info(session_id)).head
        for own in await self._members.sessions(identity.account):
            if (await self._library.info(own)).head == head:
                return own, False
        made = (await (await self._library.open(session_id)).fork(title="")).id
        await self.claim(identity, made)
        return made, True

    # Lists -----------------------------------------------------------------------------------------------------------

    async def page(self, identity: Identity, fetch: FetchPage, limit: int, before: str) -> SessionPage:
        """Read a page of the sessions that the user may read."""
        if identity.is_admin:
            return await fetch(limit, before)
        allowed = frozenset(await self._members.sessions(identity.account))
        kept: list[SessionView] = []
        cursor: str | None = before
        while len(kept) < limit and cursor is not None:
            page = await fetch(_BATCH, cursor)
            kept += [session for session in page.sessions if session.id in allowed]
            cursor = page.next
        if len(kept) > limit:
            kept = kept[:limit]
            cursor = session_cursor(kept[-1])
        return SessionPage(tuple(kept), cursor)

    async def only_readable(
        self, identity: Identity, found: Iterable[T], session_of: Callable[[T], str]
    ) -> tuple[T, ...]:
        """Return the items of `found` whose session the user may read. `session_of` returns the session id of an
        item."""
        if identity.is_admin:
            return tuple(found)
        allowed = frozenset(await self._members.sessions(identity.account))
        return tuple(one for one in found if session_of(one) in allowed)

    async def folders(self, identity: Identity) -> FolderList:
        """Return the folders and tags of the sessions that the user may read."""
        if identity.is_admin:
            return await self._library.folders()
        views = [await self._library.info(session_id) for session_id in await self._members.sessions(identity.account)]
        kept = [view for view in views if not view.archived]
        folders = Counter(view.folder for view in kept if view.folder)
        return FolderList(folders=dict(folders), tags=dict(Counter(tag for view in kept for tag in view.tags)))

    # Media -----------------------------------------------------------------------------------------------------------

    async def note_media(self, identity: Identity, digest: str) -> None:
        """Store that the user has sent this medium, which permits using it."""
        if identity.account:
            await self._members.note_media(identity.account, digest)

    async def check_media(self, identity: Identity, digest: str) -> None:
        """Raise `NotFound` unless the user has sent this medium or may read a session that refers to it."""
        if identity.is_admin or await self._members.has_media(identity.account, digest):
            return
        for session_id in await self._members.sessions(identity.account):
            if await self._library.refers_to(session_id, digest):
                await self.note_media(identity, digest)
                return
        raise media_not_found()
