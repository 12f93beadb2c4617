"""The web client: built files beside this one, or a page that says how to get them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from starlette.responses import HTMLResponse, Response

from loom.daemon.calls import Call
from loom.daemon.door_routes import redeemed
from loom.errors import NotFound

WEB: Final = Path(__file__).parent / "web"
POLICY: Final = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
_MISSING: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Loom</title>
<h1>The daemon is running</h1>
<p>The web client is not in this copy of Loom: it is built when a package is made. From the sources, run
<code>npm ci &amp;&amp; npm run build</code> in <code>web/</code>, then load this page again.</p>
<p>The API is described at <a href="/docs">/docs</a>.</p></html>
"""


async def shell(call: Call[None, None]) -> Response:
    """`/`, and `/?t=…`, which lets a browser in once."""
    word = call.request.query_params.get("t")
    if word is not None:
        return redeemed(call, word)
    try:
        return await _file(WEB / "index.html", "no-cache")
    except NotFound:
        return HTMLResponse(_MISSING, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})


async def asset(call: Call[None, None]) -> Response:
    """Their names change with what is in them."""
    return await _file(WEB / "assets" / _name(call), "public, max-age=31536000, immutable")


async def beside(call: Call[None, None]) -> Response:
    """The icon and the manifest."""
    return await _file(WEB / call.request.url.path.removeprefix("/"), "no-cache")


def _name(call: Call[None, None]) -> str:
    name = call.path("name")
    if _NAME.fullmatch(name) is None:
        raise _nothing()
    return name


async def _file(file: Path, cache: str) -> Response:
    kind = _TYPES.get(file.suffix)
    if kind is None:
        raise _nothing()
    try:
        data = await asyncio.to_thread(file.read_bytes)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise _nothing() from None
    return Response(data, 200, {"Cache-Control": cache, "Content-Security-Policy": POLICY, "Content-Type": kind})


def _nothing() -> NotFound:
    return NotFound("There is nothing here.")
