"""Which session a command means, and where in it to continue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loom.api_types import SessionView
from loom.cli.shared.options import MessageTarget
from loom.errors import ConfigError, NotFound
from loom.library import Library
from loom.runtime import Runtime
from loom.runtime.session import LocalSession


async def find_or_last(library: Library, text: str) -> SessionView:
    """Return the session that `text` names; empty means the last one of this folder."""
    return await (library.find(text) if text else library.find(workspace=str(Path.cwd())))


async def target_session(library: Library, target: MessageTarget) -> SessionView:
    """Return the session that a command continues; its head is not moved yet."""
    if target.node and not target.resume and not target.last_here:
        return (await library.find_message(target.node)).session
    return await find_or_last(library, target.resume)


async def attached_session(library: Library, session: str, *, last: bool) -> str:
    """Return the id of the session of a daemon to continue; empty for a new one."""
    if session or not last:
        return session.upper()
    newest = (await library.sessions(limit=1)).sessions
    if not newest:
        raise NotFound("The daemon has no sessions yet.", hint="Start one: loom attach")
    return newest[0].id


async def open_target(
    runtime: Runtime,
    target: MessageTarget,
    *,
    model: str,
    system: str,
    title: str,
    tools: Sequence[str] | None = None,
    agent: str = "",
) -> LocalSession:
    """Return the session to send in: new, continued, forked, or moved to a message. No message is overwritten."""
    if target.is_new:
        return await runtime.session(title=title, model=model, system=system, tools=tools, agent=agent)
    if system:
        raise ConfigError(
            "A system prompt can only be set for a new session.", hint="Leave out -s, or start a new session."
        )
    found = await target_session(runtime.library, target)
    if target.fork:
        found = await (await (await runtime.library.open(found.id)).fork(target.node or None)).info()
    session = await runtime.session(found.id, tools=tools, agent=agent)
    if target.node and (await runtime.library.find_message(target.node)).node != found.head:
        await session.go(target.node)
    if model:
        await session.use(model)
    return session
