"""Sessions: begin, list, change, fork, walk and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from loom.api_types import (
    ExportQuery,
    FileList,
    FileQuery,
    NewFork,
    NewHead,
    NewSession,
    NodeChange,
    OverrideChoice,
    SearchQuery,
    SearchResult,
    SearchResults,
    SessionChangeBody,
    SessionPage,
    SessionQuery,
    SessionView,
    TreeView,
)
from loom.compile.policy import overrides_of
from loom.config import redact
from loom.daemon.dispatch import Call, json_response
from loom.daemon.problems import UnreadableRequest
from loom.daemon.services import Daemon
from loom.daemon.turns import state_of
from loom.daemon.views import siblings_of, tree_node
from loom.errors import Conflict, ContentError, Corrupt, NotFound, Stale, Unreadable
from loom.message_types import Children
from loom.runtime.agents import AGENT, find_agent
from loom.store.session_rows import StoredSession
from loom.tools.file_walk import Walk
from loom.tools.workspace import open_folder

MAX_FILES: Final = 50
_TRIES: Final = 5


async def create(call: Call[None, NewSession]) -> Response:
    daemon, body = call.daemon, call.body
    if body.model:
        daemon.runtime.model(body.model)
    session = await daemon.runtime.session(
        title=body.title,
        model=body.model or ("" if body.agent else await daemon.runtime.default_model()),
        system=body.system,
        workspace=await folder_of(body.workspace),
        agent=body.agent,
    )
    await daemon.turns.announce_change(session.id)
    return await session_response(daemon, await daemon.runtime.sessions.get(session.id), status=201)


async def folder_of(workspace: str) -> str:
    """A folder that exists; the daemon's own where none is named."""
    if not workspace:
        return ""
    found = await asyncio.to_thread(_folder, workspace)
    if found is None:
        raise ContentError("A workspace is the whole path of a folder that exists.")
    return str(found)


def _folder(written: str) -> Path | None:
    try:
        folder = Path(written).expanduser()
        return folder if folder.is_absolute() and folder.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


async def list_(call: Call[SessionQuery, None]) -> SessionPage:
    daemon, query = call.daemon, call.query
    before = _cursor(query.before) if query.before else None
    found: list[StoredSession] = []
    queued = await daemon.turns.queued_sessions()
    if query.q:
        ids = dict.fromkeys(hit.session for hit in await _hits(daemon, query.q, query.limit * 4))
        for session_id in list(ids)[: query.limit]:
            with suppress(NotFound, Corrupt):  # deleted since it was found, or damaged, which the whole list tells
                found.append(await daemon.runtime.sessions.get(session_id))
        found = [stored for stored in found if stored.archived == query.archived]
    else:
        page = await daemon.runtime.sessions.list(archived=query.archived, limit=query.limit, before=before)
        found = list(page)
    last = found[-1] if found and len(found) == query.limit and not query.q else None
    views = [await daemon.views.session(stored, state_of(stored, queued)) for stored in found]
    return SessionPage(tuple(views), f"{last.updated_at!r}.{last.id}" if last else None)


def _cursor(written: str) -> tuple[float, str]:
    moment, _, session_id = written.rpartition(".")
    try:
        return float(moment), session_id
    except ValueError:
        raise UnreadableRequest("That is not a place in the list.", hint="Give `next` of the page before.") from None


async def get(call: Call[None, None]) -> Response:
    return await session_response(call.daemon, await call.daemon.runtime.sessions.get(call.path("session")))


async def change(call: Call[None, SessionChangeBody]) -> Response:
    daemon, body = call.daemon, call.body
    if body.model:
        daemon.runtime.model(body.model)
    if body.agent:
        find_agent(daemon.runtime.config, body.agent)
    settings = None if body.agent is None else {AGENT: body.agent or None}
    stored = await _update(
        daemon, call, title=body.title, model=body.model or None, archived=body.archived, settings=settings
    )
    return await session_response(daemon, stored)


async def delete(call: Call[None, None]) -> None:
    daemon, session_id = call.daemon, call.path("session")
    stored = await daemon.runtime.sessions.get(session_id)
    check_rev(call.request, stored)
    await daemon.turns.cancel(session_id)
    await daemon.runtime.delete_session(session_id)
    await daemon.turns.announce_change(session_id, deleted=True)


async def fork(call: Call[None, NewFork]) -> Response:
    daemon = call.daemon
    session = await (await daemon.runtime.session(call.path("session"))).fork(call.body.node)
    if call.body.title is not None:
        await daemon.runtime.sessions.update(session.id, title=call.body.title)
    await daemon.turns.announce_change(session.id)
    return await session_response(daemon, await daemon.runtime.sessions.get(session.id), status=201)


async def move_head(call: Call[None, NewHead]) -> Response:
    """Only to a node that the session keeps, and only while no turn runs."""
    daemon, session_id = call.daemon, call.path("session")
    sessions = daemon.runtime.sessions
    stored = await sessions.get(session_id)
    check_rev(call.request, stored)
    if await daemon.turns.state(session_id) in ("running", "waiting"):
        raise Conflict("A turn of this session is running.", hint="Wait until it is over, or cancel it.")
    node = (await daemon.runtime.forest.node(call.body.node)).id
    if not await sessions.keeps(session_id, node):
        raise NotFound("That message is not part of this session.", hint="Look at its tree.")
    moved = await sessions.move_head(session_id, stored.head_id, node)
    await daemon.turns.announce_change(session_id)
    return await session_response(daemon, moved)


async def set_overrides(call: Call[None, dict[str, OverrideChoice]]) -> Response:
    """Merged into what is there; `auto` takes one away."""
    _, alts = overrides_of(call.body)
    if alts or len(call.body) > 1_000 or any(not 0 < len(key) <= 300 for key in call.body):
        raise ContentError("Overrides are named as the plan names them, a thousand at most.")
    return await merge_overrides(call, {key: None if value == "auto" else value for key, value in call.body.items()})


async def merge_overrides(call: Call[None, Any], changes: Mapping[str, str | None]) -> Response:
    """What the user chose for blocks and media, merged into what the session keeps; None takes one away."""
    daemon, session_id = call.daemon, call.path("session")
    for _ in range(_TRIES):
        stored = await daemon.runtime.sessions.get(session_id)
        check_rev(call.request, stored)
        kept = {key: value for key, value in {**stored.overrides, **changes}.items() if value is not None}
        with suppress(Conflict):  # somebody changed it meanwhile: again from what it is now
            stored = await daemon.runtime.sessions.update(session_id, rev=stored.rev, overrides=kept)
            await daemon.turns.announce_change(session_id)
            return await session_response(daemon, stored)
    raise Conflict("This session is changed by others all the time.", hint="Try again.")


def without_auto(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What is left to the policy needs no word."""
    return {key: value for key, value in overrides.items() if value != "auto"}


async def tree(call: Call[None, None]) -> TreeView:
    runtime = call.daemon.runtime
    stored = await runtime.sessions.get(call.path("session"))
    found = await runtime.forest.read_tree(stored.id)
    if found.damaged:
        await runtime.forest.path(stored.head_id)  # a tree without its head is none; this says what is damaged
    return TreeView(stored.root_id, stored.head_id, tuple(tree_node(node) for node in found.nodes))


async def children(call: Call[None, None]) -> Children:
    daemon, session_id = call.daemon, call.path("session")
    node = await _own_node(daemon, session_id, call.path("node"))
    found = await daemon.runtime.forest.children(node, session_id=session_id)
    return Children(await daemon.views.messages(found, siblings_of(found)))


async def change_node(call: Call[None, NodeChange]) -> None:
    daemon, session_id = call.daemon, call.path("session")
    node = await _own_node(daemon, session_id, call.path("node"))
    if call.body.bookmark is not None:
        await daemon.runtime.forest.set_bookmark(node, call.body.bookmark)
    if call.body.tags is not None:
        await daemon.runtime.forest.set_tags(node, call.body.tags)
    await daemon.turns.announce_change(session_id)


async def _own_node(daemon: Daemon, session_id: str, node: str) -> str:
    found = (await daemon.runtime.forest.node(node)).id
    if not await daemon.runtime.sessions.keeps(session_id, found):
        raise NotFound("That message is not part of this session.", hint="Look at its tree.")
    return found


async def files(call: Call[FileQuery, None]) -> FileList:
    """Files of the workspace whose path holds the letters asked for, the best first."""
    stored = await call.daemon.runtime.sessions.get(call.path("session"))
    workspace = Path(stored.workspace) if stored.workspace else Path.cwd()
    return FileList(tuple(await asyncio.to_thread(_files, workspace, call.query.q)))


def _files(workspace: Path, asked: str) -> list[str]:
    wanted = asked.casefold()
    found: list[tuple[tuple[int, int, str], str]] = []
    try:
        with open_folder(workspace, ".") as folder:
            for entry in Walk(folder):
                rank = _rank(entry.path, wanted) if entry.kind == "file" else None
                if rank is not None and _is_writable_name(entry.path):
                    found.append(((rank, len(entry.parts), entry.path), entry.path))
    except Unreadable:  # the folder is gone: there is nothing to offer
        return []
    return [path for _, path in sorted(found)[:MAX_FILES]]


def _rank(path: str, wanted: str) -> int | None:
    """Name first, then path, then its letters in this order anywhere."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in folded:
        return 2
    letters = iter(folded)
    return 3 if all(letter in letters for letter in wanted) else None


def _is_writable_name(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


async def export(call: Call[ExportQuery, None]) -> Response:
    from loom.runtime.export import export_session as written

    runtime = call.daemon.runtime
    stored = await runtime.sessions.get(call.path("session"))
    form = call.query.format
    data = await written(runtime, stored, form)
    types = {"md": "text/markdown", "html": "text/html", "json": "application/json", "zip": "application/zip"}
    headers = {
        "Content-Disposition": f'attachment; filename="{stored.id}.{form}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "no-store",
    }
    return Response(data, 200, headers, types[form])


async def search(call: Call[SearchQuery, None]) -> SearchResults:
    return SearchResults(tuple(await _hits(call.daemon, call.query.q, call.query.limit)))


async def _hits(daemon: Daemon, words: str, limit: int) -> list[SearchResult]:
    from loom.store.search import MessageSearch

    found = await MessageSearch(daemon.runtime.database).find(words, limit=limit)
    return [
        SearchResult(
            session=hit.session,
            title=hit.title,
            node=hit.node,
            role=hit.role,
            snippet=redact(hit.snippet),
            media=hit.media or None,
            where=hit.where,
        )
        for hit in found
    ]


# Revisions -----------------------------------------------------------------------------------------------------------


async def session_response(daemon: Daemon, stored: StoredSession, *, status: int = 200) -> Response:
    view: SessionView = await daemon.views.session(stored, await daemon.turns.state(stored.id))
    headers = {"ETag": f'"{stored.rev}"'} | ({"Location": f"/v1/sessions/{stored.id}"} if status == 201 else {})
    return json_response(view, status, headers)


def check_rev(request: Request, stored: StoredSession) -> None:
    wanted = expected_rev(request)
    if wanted is not None and wanted != stored.rev:
        raise Stale("This session has changed since you read it.", hint="Load it again, then repeat the change.")


def expected_rev(request: Request) -> int | None:
    """What If-Match names."""
    written = request.headers.get("if-match", "").strip().removeprefix("W/").strip('"')
    if not written or written == "*":
        return None
    if not written.isascii() or not written.isdecimal() or len(written) > 18:
        raise Stale("If-Match names no revision of this session.", hint="Give its ETag.")
    return int(written)


async def _update(daemon: Daemon, call: Call[Any, Any], **changes: Any) -> StoredSession:
    stored = await daemon.runtime.sessions.get(call.path("session"))
    check_rev(call.request, stored)
    if all(value is None for value in changes.values()):
        return stored
    try:
        stored = await daemon.runtime.sessions.update(stored.id, rev=expected_rev(call.request), **changes)
    except Conflict:
        raise Stale("This session has changed since you read it.", hint="Load it again, then repeat.") from None
    await daemon.turns.announce_change(stored.id)
    return stored
