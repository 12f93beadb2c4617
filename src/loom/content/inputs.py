"""Content of a message before it becomes blocks: plain values that the runtime resolves at intake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from loom.content.blocks import (
    DETAILS,
    ContentBlock,
    Detail,
    is_content_block,
    make_choice,
)
from loom.content.blocks import page_range as _page_range
from loom.content.media import require_text
from loom.errors import ContentError


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Content to attach: a path, bytes, or an http(s) URL, with its description."""

    source: Path | bytes | str
    name: str = ""
    alt: str = ""
    detail: Detail = "auto"
    pages: str = ""
    password: str = ""
    """The password of a PDF. A decrypted copy is stored; the password itself is never stored."""

    def __post_init__(self) -> None:
        source: Any = self.source
        is_url = isinstance(source, str) and source.startswith(("http://", "https://"))
        if not is_url and not isinstance(source, Path | bytes):
            raise ContentError(f"An attachment is a Path, bytes or an http(s) URL, not {repr(source)[:80]}")
        require_text(self, "name", "alt", "pages")
        make_choice(self, "detail", DETAILS)
        if self.pages:
            _page_range(self.pages)


Content: TypeAlias = "str | Path | bytes | Attachment | ContentBlock | Sequence[Content]"


def image(source: str | Path | bytes, *, alt: str = "", detail: Detail = "auto", name: str = "") -> Attachment:
    """Return an image to attach: `image("login.png")`, `image(png_bytes)`, `image("https://…/logo.png")`."""
    return Attachment(source=_source(source), alt=alt, detail=detail, name=name)


def document(source: str | Path | bytes, *, pages: str = "", name: str = "") -> Attachment:
    """Return a PDF or office file to attach, whole or a page range: `document("manual.pdf", pages="14-20")`."""
    return Attachment(source=_source(source), pages=pages, name=name)


def audio(source: str | Path | bytes, *, name: str = "") -> Attachment:
    """Return a recording to attach: `audio("memo.m4a")`."""
    return Attachment(source=_source(source), name=name)


def video(source: str | Path | bytes, *, name: str = "") -> Attachment:
    """Return a video to attach. Depending on the model it is sent unchanged, as frames with their times, or as its
    transcript."""
    return Attachment(source=_source(source), name=name)


def flatten(content: Content) -> list[str | Path | bytes | Attachment | ContentBlock]:
    """Flatten nested lists into one list, in order. Raise `ContentError` for anything that is not content."""
    if isinstance(content, str | Path | bytes | Attachment) or is_content_block(content):
        return [content]
    if isinstance(content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be unchecked
        return [leaf for item in content for leaf in flatten(item)]
    raise ContentError(f"Content is text, a Path, bytes, a block or a list of these, not {type(content).__name__}")


def _source(source: str | Path | bytes) -> Path | bytes | str:
    if isinstance(source, str) and not source.startswith(("http://", "https://")):
        return Path(source)
    return source


class Ingested(msgspec.Struct, frozen=True):
    """Content as blocks whose bytes are stored, and notices about changes to it."""

    blocks: tuple[ContentBlock, ...]
    notices: tuple[str, ...] = ()
