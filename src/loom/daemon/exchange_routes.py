"""Import of files with conversations, and pages of shared conversations."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from loom.api_types import FolderList, MediaName, NewShare, ShareList, ShareView
from loom.daemon.dispatch import Call
from loom.daemon.request_bodies import one_file
from loom.errors import NotFound
from loom.formats.file_names import clean_name
from loom.message_types import ImportedSession, ImportReport

MAX_IMPORT_BYTES: Final = 500_000_000
"""Data exports are larger than attachments; for still larger ones there is `loom import`."""


async def import_file(call: Call[MediaName, None]) -> ImportReport:
    """Store the conversations of a file, which is the body or the only file of a form."""
    daemon = call.daemon
    daemon.rates.upload(call.client)
    most = max(daemon.runtime.config.server.max_upload_bytes, MAX_IMPORT_BYTES)
    async with one_file(call.request, daemon.runtime.config.data_folder(), most) as (spool, filename):
        data = await spool.read_all()
    found = await daemon.library.import_file(data, clean_name(call.query.name or filename))
    sessions: list[ImportedSession] = []
    for one in found.sessions:
        made, is_new = await daemon.access.claim_import(call.identity, one.session, is_new=one.is_new)
        sessions.append(msgspec.structs.replace(one, session=made, is_new=is_new))
        if is_new:
            await daemon.turns.announce_change(made)
    return msgspec.structs.replace(found, sessions=tuple(sessions))


async def list_folders(call: Call[None, None]) -> FolderList:
    return await call.daemon.access.folders(call.identity)


async def create_share(call: Call[None, NewShare]) -> ShareView:
    return await call.daemon.library.share(call.path("session"), days=call.body.days)


async def list_shares(call: Call[None, None]) -> ShareList:
    return ShareList(await call.daemon.library.shares(call.path("session")))


async def delete_share(call: Call[None, None]) -> None:
    await call.daemon.library.unshare(call.path("session"), call.path("share"))


async def get_shared_page(call: Call[None, None]) -> Response:
    """Return a conversation as a page. The page runs no script and loads nothing from other servers. People who open a
    link that has expired read the reason on a page, too."""
    try:
        page = await call.daemon.library.shared_page(call.path("secret"))
    except NotFound as error:
        if "text/html" not in call.request.headers.get("accept", ""):
            raise
        return Response(_ERROR_PAGE.format(title=error.message, hint=error.hint), 404, _PAGE_HEADERS, "text/html")
    return Response(page, 200, _PAGE_HEADERS, "text/html")


_ERROR_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Loom</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 1rem/1.5 system-ui; max-width: 40rem; margin: 15vh auto;
padding: 0 1rem }} h1 {{ font-size: 1.4rem }}</style>
<h1>{title}</h1>
<p>{hint}</p></html>
"""

_PAGE_HEADERS: Final = {
    "Content-Security-Policy": "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
}
