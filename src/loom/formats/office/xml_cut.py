"""XML cut down to the tags that somebody asks for, before it is parsed.

Formatting is most of a document, and a call for each of its tags is what costs time; a regular expression leaves them
out much faster. What a reader is told stays the same: words stand directly inside elements that are asked for. A file
that cannot be cut safely (comments, CDATA, a document type, unusual prefixes or encodings) is parsed whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Final

from loom.formats.office.xml_names import NAMESPACES, PREFIXES

BLOCK_BYTES: Final = 1_048_576
_WORTH_CUTTING_BYTES: Final = 1_024
_DECLARATION: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml[^>]*\?>")
_NAMESPACE: Final = re.compile(rb"""xmlns:?([A-Za-z0-9_.-]*)\s*=\s*["']([^"']*)["']""")
_MAX_NAMESPACES: Final = 20_000


def can_cut(data: bytes) -> bool:
    declaration = _DECLARATION.match(data)
    words = b"" if declaration is None else declaration[0].lower()
    is_utf8 = b"encoding" not in words or b"utf-8" in words
    return len(data) > _WORTH_CUTTING_BYTES and is_utf8 and b"<!" not in data


def cut_blocks(data: bytes, names: frozenset[str], idle: re.Pattern[bytes] | None) -> Iterator[bytes]:
    """What is left of the document, in pieces, inside an element of our own; `idle` is left out as well."""
    asked = _asked_tags(names)
    yield b"<_>"
    for block in _blocks(data):
        left = b"".join(asked.findall(block))
        yield left if idle is None else idle.sub(b"", left)
    yield b"</_>"


def _blocks(data: bytes) -> Iterator[bytes]:
    """Pieces of about a megabyte, each of which ends before a tag begins."""
    at = 0
    while at < len(data):
        end = data.rfind(b"<", at + 1, at + BLOCK_BYTES) if at + BLOCK_BYTES < len(data) else len(data)
        if end < 0:
            end = data.find(b"<", at + BLOCK_BYTES)
        end = len(data) if end < 0 else end
        yield data[at:end]
        at = end


def plain_prefix(data: bytes) -> str | None:
    """How to read names without resolving namespaces, which is half as fast again; None when they must be resolved.

    The answer is the prefix that elements without one stand for (empty when for none that we know). Names can be taken
    as they are when every known namespace has its usual prefix throughout, and no such prefix means anything else.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:4]:
        return None
    plain: set[str] = set()
    for count, match in enumerate(_NAMESPACE.finditer(data)):
        prefix = match[1].decode()
        usual = PREFIXES.get(match[2].decode("utf-8", "replace"), "")
        if not prefix:
            plain.add(usual)
        elif prefix != usual and (usual or prefix in NAMESPACES):
            return None
        if count > _MAX_NAMESPACES or len(plain) > 1:
            return None
    return plain.pop() if plain else ""


@cache
def _asked_tags(names: frozenset[str]) -> re.Pattern[bytes]:
    """The tags of `names`, each with the text behind it. Every character is looked at once, whatever the file holds."""
    attributes = r"""[^<>"']*(?:(?:"[^"<]*"|'[^'<]*')[^<>"']*){0,200}"""
    return re.compile(rf"</?{_any_of(sorted(names))}(?=[\s/>]){attributes}>[^<]*".encode())


def _any_of(words: list[str]) -> str:
    """A pattern for sorted words that decides letter by letter, so that a hundred of them cost no more than a few."""
    if words == [""]:
        return ""
    branches = [
        re.escape(letter) + _any_of([word[1:] for word in group])
        for letter, group in groupby(filter(None, words), key=itemgetter(0))
    ]
    return f"(?:{'|'.join(branches)}){'?' if '' in words else ''}"
