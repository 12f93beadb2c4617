"""Compression of JSON responses.

Compressed length can reveal a secret (BREACH): an attacker makes a browser request a response that contains both the
secret and the attacker's guess, many times, and watches the length. Here all of these stand against it:

- Only responses to reads are compressed. Every credential (token, login link, key of a user, share link) is issued by a
  POST, and lists show none of them again.
- A page of another site cannot make a browser send an authenticated request: the cookie is `SameSite=Strict` and is
  ignored on requests that another site started (`Visitor`), and the guard checks `Origin` and `Host`.
- Event streams stay as they are: a chunk per event would show the length of each one, and delay it.

What remains is a writer of messages who also watches the network. They would need a new message for every guess.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from starlette.responses import Response

from loom.daemon.problems import JSON

ENCODINGS: Final = ("br", "gzip")
"""Content codings of static files, best first. Responses are compressed with gzip alone: it needs no package."""
MIN_BYTES: Final = 1_400
"""What fits into one packet gains nothing."""
_INLINE_BYTES: Final = 32_000
"""Larger bodies are compressed in a thread (zlib releases the GIL): the event loop serves other requests meanwhile. For
smaller ones, handing over takes as long as the work."""
_LEVEL: Final = 1
"""Level 6 takes three times as long and saves a few percent more; see `benchmarks/compression.py`."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def accepted_encodings(header: str) -> frozenset[str]:
    """Return the content codings that an `Accept-Encoding` header allows; a weight of zero forbids one."""
    found: dict[str, bool] = {}
    for item in header.lower().split(","):
        coding, _, weight = item.partition(";")
        value = weight.replace(" ", "").removeprefix("q=")
        found[coding.strip()] = not weight or value.strip("0.") != ""
    everything = found.get("*", False)
    return frozenset(coding for coding in ENCODINGS if found.get(coding, everything))


async def compress(response: Response, accept_encoding: str) -> None:
    """Compress the body of a JSON response if it is large enough and the client accepts gzip."""
    if type(response) is not Response or response.media_type != JSON or len(response.body) < MIN_BYTES:
        return
    response.headers.add_vary_header("Accept-Encoding")
    if "content-encoding" in response.headers or "gzip" not in accepted_encodings(accept_encoding):
        return
    body = bytes(response.body)
    response.body = gzip_bytes(body) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(gzip_bytes, body)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))


def gzip_bytes(data: bytes, level: int = _LEVEL) -> bytes:
    packer = zlib.compressobj(level, wbits=_GZIP)
    return packer.compress(data) + packer.flush()
