"""XML from strangers, read as a stream of elements: no DTD, no entities, nothing fetched, bounded depth, size and time.

A reader names the elements that it cares about (`w:p`) and gets a call for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar
from xml.parsers import expat

from loom.errors import TooLarge, Unreadable
from loom.formats.office.archive import Archive, damage_reported
from loom.formats.office.xml_cut import BLOCK_BYTES, can_cut, cut_blocks, plain_prefix
from loom.formats.office.xml_names import Attributes, keys, value

Start: TypeAlias = Callable[[Attributes], None]
End: TypeAlias = Callable[[], None]

MAX_DEPTH: Final = 500
MAX_TOKEN_BYTES: Final = 8_388_608
"""One tag or comment; expat keeps an unfinished one in memory and scans it again with every chunk."""
MAX_XML_BYTES: Final = 67_108_864
"""All XML of one document: about twice the largest that office programs still open with ease."""
MAX_NODES: Final = 200_000
"""Elements that are kept as a tree, in one part."""


def whole_number(text: str, default: int = 0, *, most: int = 1_000_000_000) -> int:
    """Digits from an attribute, tamed: what is none gives the default, what is huge gives `most`."""
    digits = text.strip()
    if not digits.isdecimal() or not digits.isascii():
        return default
    return most if len(digits) > 10 else min(int(digits), most)


class XmlReader:
    """A pass over a part, and over the next. `starts` and `ends` map names such as `w:p` to what is done there.

    `idle` are tags that say nothing where they stand, such as those between two runs of text in one paragraph.
    `is_mixed`: words stand between elements that nobody asked for, too.
    """

    def __init__(
        self,
        starts: Mapping[str, Start],
        ends: Mapping[str, End],
        *,
        idle: re.Pattern[bytes] | None = None,
        is_mixed: bool = False,
    ) -> None:
        self._starts = starts
        self._ends = ends
        self._idle = idle
        self._is_mixed = is_mixed
        self._parser = expat.ParserCreate()
        self._skip: Callable[[End | None], None] | None = None

    def read(self, archive: Archive, member: str, *, name: str) -> None:
        if archive.size_bytes(member) > MAX_XML_BYTES:
            raise TooLarge(f"{name or 'The document'} holds more text than can be read at once.", name=name)
        data = archive.read(member)
        with damage_reported(name):
            prefix = plain_prefix(data)
            starts, ends = _named(self._starts, prefix), _named(self._ends, prefix)
            self._prepare(starts, ends, name, resolve=prefix is None)
            if prefix is not None and not self._is_mixed and can_cut(data):
                blocks = cut_blocks(data, frozenset(starts) | frozenset(ends), self._idle)
            else:
                blocks = (data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))
            self._feed(blocks, archive, name)

    def capture(self, sink: Callable[[str], object]) -> None:
        """Give the text from here on to `sink`, until `release`."""
        self._parser.CharacterDataHandler = sink

    def release(self) -> None:
        self._parser.CharacterDataHandler = None

    def skip(self, then: End | None = None) -> None:
        """Called in the start of an element: nothing inside it is reported, nor its end, which `then` follows."""
        if self._skip is not None:
            self._skip(then)

    def _feed(self, blocks: Iterable[bytes], archive: Archive, name: str) -> None:
        parser, fed, is_last = self._parser, 0, True
        for block in blocks:
            parser.Parse(block)
            archive.check_time()
            fed += len(block)
            if fed - max(0, parser.CurrentByteIndex) > MAX_TOKEN_BYTES:
                raise TooLarge(f"{name or 'The document'} holds a single tag of many megabytes.", name=name)
        parser.Parse(b"", is_last)

    def _prepare(self, starts: Mapping[str, Start], ends: Mapping[str, End], name: str, *, resolve: bool) -> None:
        def refused(*_: object) -> int:
            raise Unreadable(f"{name or 'The document'} declares XML entities, as no office program does.", name=name)

        self._parser = expat.ParserCreate(None, " ") if resolve else expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.buffer_size = 65_536
        self._parser.StartDoctypeDeclHandler = refused
        self._parser.EntityDeclHandler = refused
        self._parser.ExternalEntityRefHandler = refused
        self._report(self._parser, starts, ends, name)

    def _report(
        self, parser: expat.XMLParserType, starts: Mapping[str, Start], ends: Mapping[str, End], document: str
    ) -> None:
        depth = skipped_from = 0
        after: End | None = None
        start_of, end_of = starts.get, ends.get

        def start(name: str, attributes: Attributes) -> None:
            nonlocal depth
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(document)
            if (call := start_of(name)) is not None:
                call(attributes)

        def end(name: str) -> None:
            nonlocal depth
            depth -= 1
            if (call := end_of(name)) is not None:
                call()

        def skip(then: End | None) -> None:
            nonlocal skipped_from, after
            skipped_from, after = depth, then
            parser.StartElementHandler = skipped_start
            parser.EndElementHandler = skipped_end

        def skipped_start(_name: str, _attributes: Attributes) -> None:
            nonlocal depth
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(document)

        def skipped_end(_name: str) -> None:
            nonlocal depth
            depth -= 1
            if depth < skipped_from:
                parser.StartElementHandler = start
                parser.EndElementHandler = end
                if after is not None:
                    after()

        self._skip = skip
        parser.StartElementHandler = start
        parser.EndElementHandler = end


_Call = TypeVar("_Call")


def _named(calls: Mapping[str, _Call], plain_prefix: str | None) -> Mapping[str, _Call]:
    """The calls by the names that expat will report: resolved, as they are, or without the prefix that is left out."""
    if plain_prefix is None:
        return {spelling: call for name, call in calls.items() for spelling in keys(name)}
    if not plain_prefix:
        return calls
    return {name.removeprefix(f"{plain_prefix}:"): call for name, call in calls.items()}


class Node:
    """An element of a small part, with only those children and words that were asked for."""

    __slots__ = ("attributes", "children", "pieces", "tag")

    def __init__(self, tag: str, attributes: Attributes) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Node] = []
        self.pieces: list[str] = []

    def all(self, tag: str) -> list[Node]:
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Node | None:
        return next((child for child in self.children if child.tag == tag), None)

    def get(self, name: str) -> str:
        """An attribute: `w:val`, or a bare name for one without a namespace."""
        return value(self.attributes, keys(name)) if ":" in name else self.attributes.get(name, "")

    def child_value(self, tag: str, name: str) -> str:
        child = self.first(tag)
        return "" if child is None else child.get(name)

    @property
    def text(self) -> str:
        """The words of this element and of those inside it, in order."""
        return "".join(self.pieces) + "".join(child.text for child in self.children)


def read_tree(
    archive: Archive,
    member: str,
    *,
    tags: Collection[str],
    words: Collection[str] = (),
    name: str,
) -> Node:
    """A part as a tree of `tags`; elements that are not named are passed through, `words` keep their text."""
    root = Node("", {})
    path = [root]
    left = MAX_NODES

    def opened(tag: str, *, with_text: bool) -> Start:
        def start(attributes: Attributes) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise TooLarge(f"{name or 'The document'} holds too many elements in one part.", name=name)
            node = Node(tag, attributes)
            path[-1].children.append(node)
            path.append(node)
            if with_text:
                reader.capture(node.pieces.append)

        return start

    def closed() -> None:
        path.pop()

    def closed_words() -> None:
        reader.release()
        path.pop()

    starts = {tag: opened(tag, with_text=False) for tag in tags} | {tag: opened(tag, with_text=True) for tag in words}
    reader = XmlReader(starts, dict.fromkeys(tags, closed) | dict.fromkeys(words, closed_words))
    reader.read(archive, member, name=name)
    return root


def _too_deep(name: str) -> Unreadable:
    return Unreadable(f"{name or 'The document'} nests its elements deeper than any office program does.", name=name)
