"""Members of a session: the users that its owner shares it with."""

from __future__ import annotations

from typing import Any

from loom.api_types import MemberChange, MemberList, MemberView
from loom.daemon.dispatch import Call


async def list_members(call: Call[None, Any]) -> MemberList:
    found = await call.daemon.runtime.session_users.list(call.path("session"))
    return MemberList(tuple(MemberView(user, access) for user, access in found.items()))


async def set_member(call: Call[None, MemberChange]) -> MemberList:
    """Share a session with a user, or with `everyone`, or change their access."""
    session_id = call.path("session")
    await call.daemon.access.check(call.identity, session_id, "own")
    await call.daemon.runtime.session_users.share(session_id, call.path("user"), call.body.access)
    await call.daemon.turns.announce_change(session_id)
    return await list_members(call)


async def remove_member(call: Call[None, None]) -> None:
    """End sharing with a user. Their connections are closed, and checked again when they reconnect."""
    session_id = call.path("session")
    await call.daemon.access.check(call.identity, session_id, "own")
    gone = await call.daemon.runtime.session_users.unshare(session_id, call.path("user"))
    await call.daemon.sign_in.drop(gone)
