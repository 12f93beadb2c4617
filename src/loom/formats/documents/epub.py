"""EPUB books: each chapter of the spine is a page; images of the book become images of the document."""

from __future__ import annotations

import posixpath
from typing import Final
from urllib.parse import unquote
from xml.parsers.expat import ExpatError, ParserCreate

from loom.errors import Unreadable
from loom.formats.documents.html import PictureList, html_text
from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.office.archive import Archive
from loom.formats.text import decode_text

_CONTAINER: Final = "META-INF/container.xml"
_MAX_CHAPTERS: Final = 5_000
Element = tuple[str, dict[str, str]]


def read_epub(data: bytes, context: ReadContext) -> ReadDocument:
    archive = Archive(data, name="", limits=context.limits)
    roots = [attributes for tag, attributes in _elements(archive.read(_CONTAINER)) if tag == "rootfile"]
    if not roots:
        raise Unreadable("is not an EPUB book: it does not name its content")
    main = roots[0].get("full-path", "")
    folder = posixpath.dirname(main)
    package = archive.read(main)
    elements = _elements(package)
    items = {found.get("id", ""): found for tag, found in elements if tag == "item"}
    order = [found.get("idref", "") for tag, found in elements if tag == "itemref"]
    pictures = PictureList()
    sections: list[str] = []
    for name in order[:_MAX_CHAPTERS]:
        item = items.get(name)
        if item is None or "html" not in item.get("media-type", "html"):
            continue
        path = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        if path in archive:
            text = _chapter(archive, path, pictures, len(sections) + 1)
            sections.append(f"[chapter {len(sections) + 1}]\n{text}".rstrip())
        archive.check_time()
    heading = _book_heading(package)
    if sections and heading:
        sections[0] = f"{heading}\n\n{sections[0]}"
    return ReadDocument(sections=sections, is_paged=True, pictures=pictures.found)


def _chapter(archive: Archive, path: str, pictures: PictureList, page: int) -> str:
    source = decode_text(archive.read(path))[0] if archive.size_bytes(path) else ""

    def find(address: str) -> bytes | None:
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(address.partition("#")[0])))
        return archive.read(named) if named in archive else None

    return html_text(source, pictures, find, page=page, title=False)


def _elements(data: bytes) -> list[Element]:
    """Return all elements in order, without their namespaces."""
    found: list[Element] = []
    parser = ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda tag, attributes: found.append((tag.rpartition(" ")[2], attributes))
    _refuse_entities(parser)
    try:
        parser.Parse(data, True)  # noqa: FBT003 - the standard library's parser has no keyword for it
    except ExpatError:
        raise Unreadable("is damaged: its list of contents is not XML") from None
    return found


def _refuse_entities(parser: object) -> None:
    def refuse(*_declared: object) -> None:
        raise Unreadable("declares XML entities, which are not allowed")

    parser.EntityDeclHandler = refuse  # type: ignore[attr-defined]


def _book_heading(package: bytes) -> str:
    """Return the title and the authors of the book."""
    words: dict[str, list[str]] = {"title": [], "creator": []}
    state = {"tag": ""}
    parser = ParserCreate(namespace_separator=" ")

    def start(tag: str, _attributes: dict[str, str]) -> None:
        local = tag.rpartition(" ")[2]
        state["tag"] = local if local in words else ""
        if state["tag"]:
            words[local].append("")

    def say(text: str) -> None:
        if state["tag"]:
            words[state["tag"]][-1] += text

    def end(_tag: str) -> None:
        state["tag"] = ""

    parser.StartElementHandler = start
    parser.CharacterDataHandler = say
    parser.EndElementHandler = end
    _refuse_entities(parser)
    parser.Parse(package, True)  # noqa: FBT003 - the standard library's parser has no keyword for it
    title, authors = (
        ", ".join(" ".join(text.split()) for text in words[name] if text) for name in ("title", "creator")
    )
    return f"# {title}" + (f"\nby {authors}" if authors else "") if title else ""
