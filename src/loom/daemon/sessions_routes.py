"""Session routes: create, list, change, fork, navigate and delete."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from loom.api_types import (
    ExportQuery,
    FileList,
    FileQuery,
    MessagePlace,
    NewFork,
    NewHead,
    NewSession,
    NodeChange,
    OverrideChoice,
    SearchQuery,
    SearchResults,
    SessionChangeBody,
    SessionPage,
    SessionQuery,
    SessionUsage,
    SessionView,
    TreeQuery,
    TreeView,
    sampling_of_body,
)
from loom.content.messages import Message, media_of
from loom.daemon.dispatch import Call, json_response
from loom.errors import Conflict, Stale
from loom.message_types import ApprovalOverview, Children, ImportView, NewImport
from loom.runtime.session import LocalSession
from loom.runtime.session_settings import ALL_TOOLS
from loom.sampling import Sampling

_EXPORT_TYPES = {"md": "text/markdown", "html": "text/html", "json": "application/json", "zip": "application/zip"}


async def _session(call: Call[Any, Any]) -> LocalSession:
    return await call.daemon.library.open(call.path("session"))


async def create(call: Call[None, NewSession]) -> Response:
    body = call.body
    session = await call.daemon.library.create(
        title=body.title, model=body.model, system=body.system, workspace=body.workspace, agent=body.agent
    )
    await call.daemon.access.claim(call.identity, session.id)
    if body.tools != ALL_TOOLS or body.plan_mode:
        await session.change(tools=body.tools, plan_mode=body.plan_mode)
    if (options := sampling_of_body(body.thinking, body.options)) != Sampling():
        await session.set_options(options)
    await call.daemon.turns.announce_change(session.id)
    return session_response(await session.info(), status=201)


async def import_conversation(call: Call[None, NewImport]) -> ImportView:
    body = call.body
    messages = [Message(message.role, message.blocks) for message in body.messages]
    for digest in sorted({media.digest for message in messages for media in media_of(message)}):
        await call.daemon.library.forms.check_exists(digest)
        await call.daemon.access.check_media(call.identity, digest)
    found = await call.daemon.library.import_messages(
        messages, title=body.title, model=body.model, system=body.system, workspace=body.workspace
    )
    made, is_new = await call.daemon.access.claim_import(call.identity, found.session.id, is_new=found.is_new)
    if made != found.session.id:
        found = msgspec.structs.replace(found, session=await call.daemon.library.info(made), is_new=is_new)
    await call.daemon.turns.announce_change(found.session.id)
    return found


async def list_(call: Call[SessionQuery, None]) -> SessionPage:
    query = call.query

    async def fetch(limit: int, before: str) -> SessionPage:
        return await call.daemon.library.sessions(
            query=query.q,
            archived=query.archived,
            folder=query.folder,
            tag=query.tag,
            pinned=query.pinned,
            limit=limit,
            before=before,
        )

    return await call.daemon.access.page(call.identity, fetch, query.limit, query.before)


async def get(call: Call[None, None]) -> Response:
    return session_response(await call.daemon.library.info(call.path("session")))


async def change(call: Call[None, SessionChangeBody]) -> Response:
    body, session = call.body, await _session(call)
    view = await session.change(
        title=body.title,
        model=body.model,
        archived=body.archived,
        folder=body.folder,
        tags=body.tags,
        pinned=body.pinned,
        workspace=body.workspace,
        agent=body.agent,
        system=body.system,
        tools=body.tools,
        plan_mode=body.plan_mode,
        rev=expected_rev(call.request),
    )
    if body.options is not None or body.thinking is not None:
        kept = msgspec.structs.replace(view.options, thinking=body.thinking or "")
        await session.set_options(kept if body.options is None else sampling_of_body(body.thinking or "", body.options))
        view = await session.info()
    await call.daemon.turns.announce_change(session.id)
    return session_response(view)


async def delete(call: Call[None, None]) -> None:
    daemon, session_id = call.daemon, call.path("session")
    await daemon.access.check(call.identity, session_id, "own")
    await check_rev(call)
    await daemon.turns.cancel(session_id)
    await daemon.library.delete(session_id)
    await daemon.turns.announce_change(session_id, deleted=True)


async def fork(call: Call[None, NewFork]) -> Response:
    made = await (await _session(call)).fork(call.body.node, title=call.body.title)
    await call.daemon.access.claim(call.identity, made.id)
    await call.daemon.turns.announce_change(made.id)
    return session_response(await made.info(), status=201)


async def move_head(call: Call[None, NewHead]) -> Response:
    """Move the head to a node of the session. Refused while a turn runs or waits for an approval."""
    session = await _session(call)
    await check_rev(call)
    if (await session.info()).state in ("running", "waiting"):
        raise Conflict("A turn of this session is running.", hint="Wait until it is over, or cancel it.")
    await session.go(call.body.node)
    await call.daemon.turns.announce_change(session.id)
    return session_response(await session.info())


async def get_overrides(call: Call[None, None]) -> Response:
    return json_response(await (await _session(call)).overrides())


async def set_overrides(call: Call[None, dict[str, OverrideChoice]]) -> Response:
    """Merge overrides into those of the session; `auto` removes one."""
    session = await _session(call)
    view = await session.set_overrides(call.body, rev=expected_rev(call.request))
    await call.daemon.turns.announce_change(session.id)
    return session_response(view)


async def set_captions(call: Call[None, dict[str, str]]) -> Response:
    """Merge captions, by digest, into those of the session; an empty text removes one."""
    session = await _session(call)
    view = await session.set_captions(call.body, rev=expected_rev(call.request))
    await call.daemon.turns.announce_change(session.id)
    return session_response(view)


async def tree(call: Call[TreeQuery, None]) -> TreeView:
    """Return a page of the branches."""
    found, query = await (await _session(call)).tree(), call.query
    start = next((at + 1 for at, node in enumerate(found.nodes) if node.node == query.after), 0)
    nodes = found.nodes[start : start + query.limit] if query.limit else found.nodes[start:]
    has_more = start + len(nodes) < len(found.nodes)
    return msgspec.structs.replace(found, nodes=nodes, next=nodes[-1].node if has_more and nodes else None)


async def usage(call: Call[None, None]) -> SessionUsage:
    return await (await _session(call)).usage()


async def children(call: Call[None, None]) -> Children:
    return Children(await (await _session(call)).children(call.path("node")))


async def change_node(call: Call[None, NodeChange]) -> None:
    session = await _session(call)
    await session.mark(call.path("node"), bookmark=call.body.bookmark, tags=call.body.tags)
    await call.daemon.turns.announce_change(session.id)


async def files(call: Call[FileQuery, None]) -> FileList:
    return FileList(await (await _session(call)).files(call.query.q))


async def export(call: Call[ExportQuery, None]) -> Response:
    session, form = await _session(call), call.query.format
    headers = {
        "Content-Disposition": f'attachment; filename="{session.id}.{form}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "no-store",
    }
    return Response(await session.export(form), 200, headers, _EXPORT_TYPES[form])


async def search(call: Call[SearchQuery, None]) -> SearchResults:
    found = await call.daemon.library.search(call.query.q, limit=call.query.limit)
    return SearchResults(await call.daemon.access.only_readable(call.identity, found, lambda hit: hit.session))


async def find_message(call: Call[None, None]) -> MessagePlace:
    place = await call.daemon.library.find_message(call.path("node"))
    await call.daemon.access.check(call.identity, place.session.id)
    return place


async def list_all_approvals(call: Call[None, None]) -> ApprovalOverview:
    found = await call.daemon.library.approvals()
    return ApprovalOverview(await call.daemon.access.only_readable(call.identity, found, lambda one: one.session.id))


# Revisions -----------------------------------------------------------------------------------------------------------


def session_response(view: SessionView, *, status: int = 200) -> Response:
    headers = {"ETag": f'"{view.rev}"'} | ({"Location": f"/v1/sessions/{view.id}"} if status == 201 else {})
    return json_response(view, status, headers)


async def check_rev(call: Call[Any, Any]) -> None:
    """Raise `Stale` if `If-Match` names another revision than the current one, `NotFound` if the session does not
    exist."""
    rev = expected_rev(call.request)
    await (await _session(call)).change(rev=rev)


def expected_rev(request: Request) -> int | None:
    """Return the revision in `If-Match`; None if there is none."""
    written = request.headers.get("if-match", "").strip().removeprefix("W/").strip('"')
    if not written or written == "*":
        return None
    if not written.isascii() or not written.isdecimal() or len(written) > 18:
        raise Stale("If-Match is not an ETag of this session.", hint="Give its ETag.")
    return int(written)
