"""Which session a command means, and where in it to go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from loom.cli.shared.options import LATEST, MessageTarget
from loom.errors import ConfigError, NotFound
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.store.session_rows import StoredSession

_PAGE: Final = 100
_SHORTEST_ID: Final = 6


async def all_sessions(runtime: Runtime) -> AsyncIterator[StoredSession]:
    """Newest first."""
    before: tuple[float, str] | None = None
    while True:
        page = await runtime.sessions.list(limit=_PAGE, before=before)
        for session in page:
            yield session
        if len(page) < _PAGE:
            return
        before = (page[-1].updated_at, page[-1].id)


async def last_session(runtime: Runtime, *, here: bool) -> StoredSession:
    """The newest one, of this folder or of all."""
    folder = str(Path.cwd())
    async for session in all_sessions(runtime):
        if not here or session.workspace == folder:
            return session
    where = "in this folder yet" if here else "yet"
    raise NotFound(f"No sessions {where}.", hint='Start one: loom "hello"')


async def find_session(runtime: Runtime, wanted: str) -> StoredSession:
    """`latest`, the number in `loom sessions`, an id or how it begins, or a title."""
    if wanted == LATEST:
        return await last_session(runtime, here=False)
    found: list[StoredSession] = []
    number = 0
    upper = wanted.upper()
    async for session in all_sessions(runtime):
        number += 1
        if (wanted.isdigit() and len(wanted) < _SHORTEST_ID and int(wanted) == number) or session.id == upper:
            return session
        by_id = len(wanted) >= _SHORTEST_ID and (session.id.startswith(upper) or session.id.endswith(upper))
        if by_id or session.title == wanted:
            found.append(session)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(
            f"{wanted!r} matches {len(found)} sessions.", hint="Use a longer id prefix; list them with `loom sessions`."
        )
    raise NotFound(f"Session {wanted!r} not found.", hint="List them: `loom sessions`.")


async def session_with(runtime: Runtime, node_id: str) -> StoredSession:
    """The newest session that keeps a message."""
    async for session in all_sessions(runtime):
        if await runtime.sessions.keeps(session.id, node_id):
            return session
    raise NotFound("No session contains this message.", hint="List messages: `loom tree`.")


async def stored_session(runtime: Runtime, place: MessageTarget) -> StoredSession:
    """The session that a place names; its head is not moved yet."""
    if place.resume:
        return await find_session(runtime, place.resume)
    if place.node and not place.last_here:
        return await session_with(runtime, (await runtime.forest.node(place.node)).id)
    return await last_session(runtime, here=True)


async def open_place(
    runtime: Runtime,
    place: MessageTarget,
    *,
    model: str,
    system: str,
    title: str,
    tools: Sequence[str] | None = None,
    agent: str = "",
) -> LocalSession:
    """The session to speak in, at the right node, with the right model. Nothing that was said is overwritten."""
    if place.is_new:
        return await runtime.session(title=title, model=model, system=system, tools=tools, agent=agent)
    if system:
        raise ConfigError(
            "A system prompt can only be set for a new session.", hint="Leave out -s, or start a new session."
        )
    stored = await stored_session(runtime, place)
    node = (await runtime.forest.node(place.node)).id if place.node else None
    if place.fork:
        stored = await runtime.sessions.fork(stored.id, node)
    session = await runtime.session(stored.id, tools=tools, agent=agent)
    if node is not None and node != stored.head_id:
        if not await runtime.sessions.keeps(stored.id, node):
            raise NotFound("The message is not part of this session.", hint="List its messages: `loom tree`.")
        await session.go(node)
    if model:
        await session.use(model)
    return session
