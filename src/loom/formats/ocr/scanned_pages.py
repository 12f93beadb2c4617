"""Scanned pages: the pages of a document without a text layer, read by OCR.

The prompt and the search index use the same function, so that they contain the same text.
"""

from __future__ import annotations

import re
import time
from typing import Final

import msgspec

from loom.content.media import Media
from loom.content.recipes import Ocr, Rendered
from loom.errors import MediaError
from loom.formats import render
from loom.formats.facts import IntakeLimits

MAX_PAGES: Final = 50
"""How many scanned pages of one document are read; OCR takes about a second a page."""
_DEADLINE_SHARE: Final = 2
"""The time limit for the scanned pages of a document together, as a multiple of the deadline of one image."""
_SCANNED_PAGE: Final = re.compile(r"^\[page (\d+): no text layer\]$", re.MULTILINE)


def has_scanned_pages(text: str) -> bool:
    """Return whether extracted `text` has pages without a text layer that have not been read."""
    return _SCANNED_PAGE.search(text) is not None


def read_scanned_pages(data: bytes, media: Media, rendered: Rendered, limits: IntakeLimits) -> Rendered:
    """Return the extracted text with its scanned pages read by OCR.

    A page that cannot be read, or for which there is no time, has the reason in its place. A page on which no words are
    found keeps its marker.
    """
    until = time.monotonic() + limits.ocr_seconds * _DEADLINE_SHARE
    read = 0
    failure = ""

    def replace(page: re.Match[str]) -> str:
        nonlocal read, failure
        number = int(page[1])
        if read >= MAX_PAGES:
            failure = f"only {MAX_PAGES} scanned pages of a document are read"
        elif time.monotonic() > until:
            failure = f"reading the pages before it took longer than {limits.ocr_seconds * _DEADLINE_SHARE:g} s"
        if failure:
            return f"[page {number}: no text layer; not read: {failure}]"
        read += 1
        try:
            words = render(data, media, Ocr(page=number), limits).data.decode().strip()
        except MediaError as error:
            return f"[page {number}: no text layer; could not be read: {error.message.rstrip('.')}]"
        return f"[page {number}, read from its image]\n{words}" if words else page[0]

    text = _SCANNED_PAGE.sub(replace, rendered.data.decode())
    notices = (*rendered.notices, f"Some scanned pages were not read: {failure}.") if failure else rendered.notices
    return msgspec.structs.replace(rendered, data=text.encode(), notices=notices)
