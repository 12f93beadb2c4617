"""Web pages: headings, paragraphs, lists, tables and links as text; images inside the page as images."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote_to_bytes

from loom.formats.documents.messages import ReadContext, ReadDocument, StoredPicture
from loom.formats.office.text_marks import picture_mark
from loom.formats.page_text import page_text
from loom.formats.sniff import sniff
from loom.formats.text import decode_text

MAX_PICTURES: Final = 1_000
_DATA: Final = re.compile(r"data:([\w.+/-]*)((?:;[\w=-]+)*),", re.IGNORECASE)


class PictureList:
    """Images in the order in which a text refers to them; identical bytes are listed once."""

    def __init__(self) -> None:
        self.found: list[StoredPicture] = []
        self._numbers: dict[bytes, int] = {}

    def mark(self, data: bytes, alt: str, *, name: str = "", page: int = 1) -> str:
        """Add an image and return the marker that refers to it. The marker has no number if `data` is not an image, or
        beyond `MAX_PICTURES`."""
        number = self._numbers.get(data)
        if number is None:
            media_type = sniff(data[:65_536]).media_type if data else ""
            if not media_type.startswith("image/") or len(self.found) >= MAX_PICTURES:
                return picture_mark(None, alt)
            self.found.append(StoredPicture(data, media_type, name, page))
            number = self._numbers[data] = len(self.found)
        return picture_mark(number, alt or name)


def read_html(data: bytes, context: ReadContext) -> ReadDocument:
    source, _, notices = decode_text(data, context.name)
    pictures = PictureList()
    text = html_text(source, pictures, lambda _source: None)
    return ReadDocument(sections=[text], pictures=pictures.found, notices=notices)


def html_text(
    source: str, pictures: PictureList, find: Callable[[str], bytes | None], *, page: int = 1, title: bool = True
) -> str:
    """Return the readable text of a page. `find` returns the bytes of an image that the page refers to, or None if
    there are none."""

    def show(address: str, alt: str) -> str:
        data = data_bytes(address) if address[:5].lower() == "data:" else find(address)
        if data is not None:
            return pictures.mark(data, alt, page=page)
        if not alt:
            return ""
        return f"[image: {alt}]"

    found = page_text(source, "", show)
    if title and found.title and found.title not in found.text[:400]:
        return f"# {found.title}\n\n{found.text}"
    return found.text


def data_bytes(address: str) -> bytes | None:
    """Return the bytes of a `data:` URL, or None if they are damaged."""
    head = _DATA.match(address)
    if head is None:
        return None
    rest = address[head.end() :]
    if "base64" not in head[2].lower():
        return unquote_to_bytes(rest)
    try:
        return b64decode("".join(rest.split()))
    except (binascii.Error, ValueError):
        return None
