"""Diagrams (.vsdx, .drawio): the text of the shapes, and the connections between them, page by page."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from typing import Any, Final
from urllib.parse import unquote
from xml.parsers.expat import ExpatError, ParserCreate

from loom.errors import Unreadable
from loom.formats.documents.html import PictureList, html_text
from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.office.archive import Archive
from loom.formats.text import decode_text

_PAGE: Final = re.compile(r"visio/pages/page(\d+)\.xml", re.IGNORECASE)
_MAX_DIAGRAM_BYTES: Final = 50_000_000
_TAGS: Final = re.compile(r"<[a-zA-Z/][^>]*>")


def read_vsdx(data: bytes, context: ReadContext) -> ReadDocument:
    archive = Archive(data, name="", limits=context.limits)
    names = _visio_names(archive)
    numbers = sorted(int(found[1]) for name in archive.names if (found := _PAGE.fullmatch(name)))
    sections = [
        _visio_page(archive.read(f"visio/pages/page{number}.xml"), names[at] if at < len(names) else "", at + 1)
        for at, number in enumerate(numbers)
    ]
    if not sections:
        raise Unreadable("is a Visio drawing from before 2013 or has no pages", hint="Save it as .vsdx or PDF.")
    return ReadDocument(sections=sections, is_paged=True)


def _visio_names(archive: Archive) -> list[str]:
    if "visio/pages/pages.xml" not in archive:
        return []
    found: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(" ")[2] == "Page":
            found.append(attributes.get("Name", ""))

    _parse(archive.read("visio/pages/pages.xml"), start=start)
    return found


def _visio_page(data: bytes, name: str, number: int) -> str:
    shapes: dict[str, str] = {}
    links: dict[str, dict[str, str]] = {}
    stack: list[str] = []
    words: list[str] | None = None

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal words
        local = tag.rpartition(" ")[2]
        if local == "Shape":
            stack.append(attributes.get("ID", ""))
            shapes.setdefault(stack[-1], "")
        elif local == "Text":
            words = []
        elif local == "Connect":
            side = "from" if attributes.get("FromCell") == "BeginX" else "to"
            links.setdefault(attributes.get("FromSheet", ""), {})[side] = attributes.get("ToSheet", "")

    def end(tag: str) -> None:
        nonlocal words
        local = tag.rpartition(" ")[2]
        if local == "Shape" and stack:
            stack.pop()
        elif local == "Text" and words is not None:
            if stack:
                shapes[stack[-1]] = " ".join("".join(words).split())
            words = None

    def say(text: str) -> None:
        if words is not None:
            words.append(text)

    _parse(data, start=start, end=end, say=say)
    edges = [
        (link["from"], shapes.get(connector, ""), link["to"])
        for connector, link in links.items()
        if "from" in link and "to" in link
    ]
    kept = {key: text for key, text in shapes.items() if key not in links}
    return _page_text(number, name, kept, edges)


def read_drawio(data: bytes, context: ReadContext) -> ReadDocument:
    source, _, notices = decode_text(data, context.name)
    diagrams: list[tuple[str, str, bool]] = []
    state: dict[str, Any] = {"name": "", "words": None, "nested": False}

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "diagram":
            state.update(name=attributes.get("name", ""), words=[], nested=False)
        elif tag == "mxGraphModel":
            state["nested"] = True

    def end(tag: str) -> None:
        if tag == "diagram":
            diagrams.append((state["name"], "".join(state["words"] or ()), bool(state["nested"])))
            state["words"] = None

    def say(text: str) -> None:
        if state["words"] is not None:
            state["words"].append(text)

    _parse(source.encode(), start=start, end=end, say=say)
    sections: list[str] = []
    plain = re.findall(r"<diagram\b[^>]*>(.*?)</diagram>", source, re.DOTALL)
    for number, (name, packed, is_plain) in enumerate(diagrams, 1):
        inner = plain[number - 1] if is_plain and number <= len(plain) else _unpack_page(packed)
        sections.append(_drawio_page(inner, name, number))
    if not sections:
        sections = [_drawio_page(source, "", 1)]
    return ReadDocument(sections=sections, is_paged=True, notices=notices)


def _unpack_page(packed: str) -> str:
    """Return the XML of a page, which is stored deflated, percent-encoded and in base64."""
    try:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        return unquote(inflater.decompress(base64.b64decode(packed.strip()), _MAX_DIAGRAM_BYTES).decode())
    except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError):
        raise Unreadable("is a diagram with a damaged page") from None


def _drawio_page(source: str, name: str, number: int) -> str:
    shapes: dict[str, str] = {}
    edges: list[tuple[str, str, str]] = []
    labels: dict[str, str] = {}

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag in ("object", "UserObject"):
            labels["next"] = attributes.get("label", "")
            labels["id"] = attributes.get("id", "")
        if tag != "mxCell":
            return
        words = _words(attributes.get("value") or labels.pop("next", ""))
        key = attributes.get("id") or labels.pop("id", "")
        if attributes.get("edge") == "1":
            edges.append((attributes.get("source", ""), words, attributes.get("target", "")))
        elif attributes.get("vertex") == "1":
            shapes[key] = words

    _parse(source.encode(), start=start)
    return _page_text(number, name, shapes, edges)


def _words(value: str) -> str:
    if _TAGS.search(value):
        value = html_text(value, PictureList(), lambda _source: None, title=False)
    return " ".join(value.replace("&nbsp;", " ").split())


def _page_text(number: int, name: str, shapes: dict[str, str], edges: list[tuple[str, str, str]]) -> str:
    lines = [f"[page {number}{f': {name}' if name else ''}]"]
    lines += [f"- {text}" for text in shapes.values() if text]
    for first, words, last in edges:
        left, right = (shapes.get(key) or f"[shape {key}]" if key else "[nothing]" for key in (first, last))
        lines.append(f"- {left} → {right}{f': {words}' if words else ''}")
    return "\n".join(lines)


def _parse(data: bytes, *, start: Any = None, end: Any = None, say: Any = None) -> None:
    parser: Any = ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    if start is not None:
        parser.StartElementHandler = start
    if end is not None:
        parser.EndElementHandler = end
    if say is not None:
        parser.CharacterDataHandler = say

    def refuse(*_declared: object) -> None:
        raise Unreadable("declares XML entities, which are not allowed")

    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)  # noqa: FBT003 - the standard library's parser has no keyword for it
    except ExpatError:
        raise Unreadable("is damaged: it is not XML") from None
