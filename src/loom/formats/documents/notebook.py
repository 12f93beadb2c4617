"""Jupyter notebooks: cells in order, code with its outputs; plots as images."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any, Final, cast

import msgspec

from loom.content.json_values import get_object
from loom.errors import Unreadable
from loom.formats.documents.html import PictureList, html_text
from loom.formats.documents.messages import ReadContext, ReadDocument

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MAX_OUTPUT_CHARS: Final = 20_000
_MAX_CELLS: Final = 50_000
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


def read_notebook(data: bytes, _context: ReadContext) -> ReadDocument:
    try:
        book = get_object(msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf")))
    except msgspec.DecodeError:
        raise Unreadable("is not a notebook: its JSON is damaged") from None
    pictures = PictureList()
    language = str(get_object(get_object(book.get("metadata")).get("kernelspec")).get("language") or "python")
    cells = _items(book.get("cells"))
    if not cells:  # notebooks before version 4
        cells = [cell for sheet in _items(book.get("worksheets")) for cell in _items(get_object(sheet).get("cells"))]
    parts = [_cell(get_object(cell), number, language, pictures) for number, cell in enumerate(cells[:_MAX_CELLS], 1)]
    return ReadDocument(sections=["\n\n".join(filter(None, parts))], pictures=pictures.found)


def _cell(cell: dict[str, Any], number: int, language: str, pictures: PictureList) -> str:
    source = _join(cell.get("source", cell.get("input", "")))
    if cell.get("cell_type") != "code":
        return source
    count = cell.get("execution_count", cell.get("prompt_number"))
    lines = [f"[cell {number}{f', run {count}' if isinstance(count, int) else ''}]", f"```{language}", source, "```"]
    for output in _items(cell.get("outputs")):
        shown = _output(get_object(output), pictures)
        if shown:
            lines += ["[output]", shown]
    return "\n".join(lines)


def _output(output: dict[str, Any], pictures: PictureList) -> str:
    if "traceback" in output:
        return _elide_middle(_ANSI.sub("", "\n".join(map(str, _items(output["traceback"])))))
    if "text" in output and "data" not in output:
        return _elide_middle(_ANSI.sub("", _join(output["text"])))
    offered = get_object(output.get("data", output))
    shown: list[str] = []
    for kind in _PICTURES:
        if kind in offered:
            try:
                shown.append(pictures.mark(b64decode(_join(offered[kind])), ""))
            except (binascii.Error, ValueError):
                shown.append("[image: damaged]")
    words = _join(offered.get("text/markdown") or offered.get("text/plain") or "")
    if "text/html" in offered and (not words or words.startswith("<") or "\n" in words):
        words = html_text(_join(offered["text/html"]), pictures, lambda _source: None, title=False) or words
    if words and not (shown and words.startswith("<")):
        shown.append(_elide_middle(words))
    return "\n".join(shown)


def _elide_middle(text: str) -> str:
    text = text.rstrip()
    if len(text) <= _MAX_OUTPUT_CHARS:
        return text
    half = _MAX_OUTPUT_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters of output left out …]\n{text[-half:]}"


def _join(value: object) -> str:
    if isinstance(value, list):
        return "".join(map(str, cast("list[object]", value)))
    return value if isinstance(value, str) else ""


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
