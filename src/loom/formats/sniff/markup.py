"""Detects whether markup is SVG, HTML or other XML, by its first element. Linear in the bytes that are read."""

from __future__ import annotations

import re
from typing import Final

from loom.formats.sniff.kinds import SVG

_REACH_BYTES: Final = 65_536
"""Drawing programs write long comments before the first element."""
_SPACE: Final = re.compile(rb"\s*")
_ROOT: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)(?=[\s/>])")
_DOCTYPE: Final = re.compile(rb"<!doctype\s+([\w:]+)", re.IGNORECASE)
_FLAT: Final = re.compile(rb'office:mimetype="application/vnd\.oasis\.opendocument\.(text|spreadsheet|presentation)"')
_FRAGMENT: Final = re.compile(rb"(?:div|p|h[1-6]|table|script|title|meta|style|center|font|a|ul|span)", re.IGNORECASE)


def markup_type(data: bytes) -> str | None:
    """Return the type of text that begins with `<` (after white space): SVG, HTML, XML, or None if it is not
    certain."""
    at, doctype = _prolog(data)
    if doctype == b"html":
        return "text/html"
    declared = data.startswith(b"<?xml", _spaces(data, 0))
    root = _ROOT.match(data, at, at + 512)
    if root is None:
        return SVG if doctype == b"svg" else "text/xml" if declared else None
    local = root[1]
    if local == b"svg":
        return SVG
    if local in (b"mxfile", b"mxGraphModel"):
        return "application/vnd.jgraph.mxfile"
    if local == b"document" and (flat := _FLAT.search(data, at, at + _REACH_BYTES)) is not None:
        return f"application/vnd.oasis.opendocument.{flat[1].decode()}-flat-xml"
    if local.lower() in (b"html", b"head", b"body"):
        return "text/html"
    return "text/xml" if declared or b"xmlns" in data[at : at + 512] else None


def looks_like_html(data: bytes) -> bool:
    """Return whether a fragment begins with an element that only HTML has."""
    at, _ = _prolog(data)
    root = _ROOT.match(data, at, at + 512)
    return root is not None and _FRAGMENT.fullmatch(root[1]) is not None


def _spaces(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at, _REACH_BYTES)
    return found.end() if found else at


def _prolog(data: bytes) -> tuple[int, bytes]:
    """Return the offset of the first element, and the name in the document type declaration (lower case)."""
    doctype = b""
    at = _spaces(data, 0)
    while at < _REACH_BYTES:
        if data.startswith(b"<?", at):
            end, length = data.find(b"?>", at, _REACH_BYTES), 2
        elif data.startswith(b"<!--", at):
            end, length = data.find(b"-->", at, _REACH_BYTES), 3
        elif data[at : at + 9].lower() == b"<!doctype":
            named = _DOCTYPE.match(data, at)
            doctype = named[1].lower() if named else b"?"
            end, length = _doctype_end(data, at), 1
        else:
            break
        if end < 0:
            break
        at = _spaces(data, end + length)
    return at, doctype


def _doctype_end(data: bytes, at: int) -> int:
    close = data.find(b">", at, _REACH_BYTES)
    subset = data.find(b"[", at, _REACH_BYTES)
    if close < 0 or subset < 0 or close < subset:
        return close
    return data.find(b">", data.find(b"]", subset, _REACH_BYTES), _REACH_BYTES)
