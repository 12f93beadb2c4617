"""The web client: the built files in this package, or a page with instructions to build them.

The build writes a brotli and a gzip copy of each larger file; the client's `Accept-Encoding` decides which is sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.responses import HTMLResponse, Response

from loom.daemon.compression import ENCODINGS, accepted_encodings
from loom.daemon.dispatch import Call
from loom.daemon.login_routes import redeem_link
from loom.errors import NotFound

WEB: Final = Path(__file__).parent / "web"
POLICY: Final = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
FRAME_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'self'"
)
"""The policy of the frame that draws model output: it has no origin and no network, and only the daemon's own pages may
embed it."""
SERVICE_WORKER: Final = "sw.js"
FOREVER: Final = "public, max-age=31536000, immutable"
_SUFFIXES: Final = {"br": ".br", "gzip": ".gz"}
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


async def get_index(call: Call[None, None]) -> Response:
    """Return the web client; with `?t=…`, redeem a one-time link."""
    word = call.request.query_params.get("t")
    if word is not None:
        return await redeem_link(call, word)
    try:
        return await _file(call, WEB / "index.html", "no-cache")
    except NotFound:
        return HTMLResponse(_MISSING, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})


async def asset(call: Call[None, None]) -> Response:
    """Return a file of the client. Its name changes with its content, except that of the service worker."""
    name = _name(call)
    file = WEB / "assets" / name
    if name == SERVICE_WORKER:
        return await _file(call, file, "no-cache", {"Service-Worker-Allowed": "/"})
    if file.suffix == ".html":
        frame = {"Content-Security-Policy": FRAME_POLICY, "X-Frame-Options": "SAMEORIGIN"}
        return await _file(call, file, FOREVER, frame)
    return await _file(call, file, FOREVER)


async def get_static_file(call: Call[None, None]) -> Response:
    """Return the icon or the manifest."""
    return await _file(call, WEB / call.request.url.path.removeprefix("/"), "no-cache")


def _name(call: Call[None, None]) -> str:
    name = call.path("name")
    if _NAME.fullmatch(name) is None:
        raise _page_not_found()
    return name


async def _file(call: Call[None, None], file: Path, cache: str, headers: Mapping[str, str] | None = None) -> Response:
    kind = _TYPES.get(file.suffix)
    if kind is None:
        raise _page_not_found()
    accepted = accepted_encodings(call.request.headers.get("accept-encoding", ""))
    try:
        data, encoding = await asyncio.to_thread(_read, file, accepted)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise _page_not_found() from None
    given = {"Cache-Control": cache, "Content-Security-Policy": POLICY, "Content-Type": kind, "Vary": "Accept-Encoding"}
    if encoding:
        given["Content-Encoding"] = encoding
    return Response(data, 200, {**given, **(headers or {})})


def _read(file: Path, accepted: frozenset[str]) -> tuple[bytes, str]:
    """Return the bytes to send and their content coding; empty for the file as it is."""
    for coding in ENCODINGS:
        if coding in accepted:
            try:
                return file.with_name(file.name + _SUFFIXES[coding]).read_bytes(), coding
            except FileNotFoundError:
                continue
    return file.read_bytes(), ""


def _page_not_found() -> NotFound:
    return NotFound("Page not found.")
