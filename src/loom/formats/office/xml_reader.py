"""Untrusted XML, read as a stream of elements: no DTD, no entities, nothing fetched, bounded depth, size and time.

A reader registers the elements that it needs (`w:p`) and gets a call for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar
from xml.parsers import expat

from loom.errors import TooLarge, Unreadable
from loom.formats.office.archive import Archive, damage_reported
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_scan import (
    MAX_DEPTH,
    OnCharacters,
    OnEnd,
    OnStart,
    Scan,
    plain_prefix,
    scan_prefix,
    too_deep_error,
)

_Handler = TypeVar("_Handler")
Trim: TypeAlias = Callable[[bytes], bytes]
MAX_TOKEN_BYTES: Final = 8_388_608
"""The limit for one tag or comment; expat keeps an unfinished one in memory and scans it again with every chunk."""
_FED_BYTES: Final = 1_048_576
MAX_XML_BYTES: Final = 67_108_864
"""The limit for all XML of one document: about twice the largest that office programs still open easily."""
MAX_NODES: Final = 200_000
"""The maximum number of elements of one part that are kept as a tree."""


def whole_number(text: str, default: int = 0, *, most: int = 1_000_000_000) -> int:
    """Return the number in an attribute: `default` if it is invalid, at most `most`."""
    digits = text.strip()
    if not digits.isdecimal() or not digits.isascii():
        return default
    return most if len(digits) > 10 else min(int(digits), most)


class XmlReader:
    """Reads the parts of a document, one after the other. The maps assign handlers to tag names (`w:p`).

    `starts` and `opens` are called at the start of an element (`opens` without its attributes), `ends` at its end,
    `words` with the text of an element that contains only text. `skipped` are tags at whose start `skip` may be called.
    Three arguments avoid needless calls: `telling` are tags that are ignored without one of these attributes
    (`name|other`), `beside` are tags that matter only in parts that contain this other tag, and `trim` removes whole
    elements that are not needed from a plain part. `is_mixed` means that text is between elements without handlers; it
    is passed to the sink of `capture`.
    """

    def __init__(
        self,
        starts: Mapping[str, OnStart],
        ends: Mapping[str, OnEnd],
        *,
        opens: Mapping[str, OnEnd] | None = None,
        words: Mapping[str, OnCharacters] | None = None,
        skipped: Collection[str] = (),
        telling: Mapping[str, str] | None = None,
        beside: Mapping[str, str] | None = None,
        trim: Trim | None = None,
        is_mixed: bool = False,
    ) -> None:
        self._starts = starts
        self._opens = opens or {}
        self._ends = ends
        self._words = words or {}
        self._skipped = skipped
        self._telling = telling or {}
        self._beside = beside or {}
        self._trim = trim
        self._is_mixed = is_mixed
        self._scans: dict[tuple[str, ...], Scan] = {}
        self._parser = expat.ParserCreate()
        self._skip: Callable[[OnEnd | None], None] | None = None

    def read(self, archive: Archive, member: str, *, name: str) -> None:
        if archive.size_bytes(member) > MAX_XML_BYTES:
            raise TooLarge(f"{name or 'The document'} contains more text than can be read at once.", name=name)
        data = archive.read(member)
        with damage_reported(name):
            prefix = None if self._is_mixed else scan_prefix(data)
            if prefix is None:
                self._parse(data, plain_prefix(data), archive, name)
                return
            scan = self._scan(prefix, data)
            if not scan.is_plain(data):
                self._parse(data, prefix, archive, name)
                return
            self._skip = scan.skip
            scan.run(self._trim(data) if self._trim else data, name=name, tick=archive.check_time)

    def capture(self, sink: Callable[[str], object]) -> None:
        """Pass the text from here on to `sink`, until `release`."""
        self._parser.CharacterDataHandler = sink

    def release(self) -> None:
        self._parser.CharacterDataHandler = None

    def skip(self, then: OnEnd | None = None) -> None:
        """Skip the current element; call this at its start. Neither its content nor its end is reported; `then` is
        called after it."""
        if self._skip is not None:
            self._skip(then)

    def _scan(self, prefix: str, data: bytes) -> Scan:
        lone = [tag for tag, other in self._beside.items() if not prefix and f"<{other}".encode() not in data]
        key = (prefix, *lone)
        if key not in self._scans:
            self._scans[key] = self._new_scan(prefix, lone)
        return self._scans[key]

    def _new_scan(self, prefix: str, lone: Collection[str]) -> Scan:
        def by_name(calls: Mapping[str, _Handler]) -> Mapping[str, _Handler]:
            return _by_reported_name({tag: call for tag, call in calls.items() if tag not in lone}, prefix)

        return Scan(
            starts=by_name(self._starts),
            opens=by_name(self._opens),
            ends=by_name(self._ends),
            words=by_name(self._words),
            skipped=by_name(dict.fromkeys(self._skipped)),
            telling=by_name(self._telling),
        )

    def _parse(self, data: bytes, prefix: str | None, archive: Archive, name: str) -> None:
        starts, ends = dict(self._starts), dict(self._ends)
        for tag, call in self._opens.items():
            starts[tag] = _without_attributes(call)
        for tag, call in self._words.items():
            starts[tag], ends[tag] = self._collect_text(call)
        self._prepare(_by_reported_name(starts, prefix), _by_reported_name(ends, prefix), name, resolve=prefix is None)
        self._feed((data[at : at + _FED_BYTES] for at in range(0, len(data), _FED_BYTES)), archive, name)

    def _collect_text(self, call: OnCharacters) -> tuple[OnStart, OnEnd]:
        pieces: list[str] = []

        def end() -> None:
            self.release()
            call("".join(pieces))
            pieces.clear()

        return lambda _attributes: self.capture(pieces.append), end

    def _feed(self, blocks: Iterable[bytes], archive: Archive, name: str) -> None:
        parser, fed, is_last = self._parser, 0, True
        for block in blocks:
            parser.Parse(block)
            archive.check_time()
            fed += len(block)
            if fed - max(0, parser.CurrentByteIndex) > MAX_TOKEN_BYTES:
                raise TooLarge(f"{name or 'The document'} contains a single tag of many megabytes.", name=name)
        parser.Parse(b"", is_last)

    def _prepare(self, starts: Mapping[str, OnStart], ends: Mapping[str, OnEnd], name: str, *, resolve: bool) -> None:
        def refuse_entity(*_: object) -> int:
            raise Unreadable(f"{name or 'The document'} declares XML entities, which are not allowed.", name=name)

        def document_type(_root: str, _system: str | None, _public: str | None, has_declarations: bool) -> None:
            """Accept a document type, as in files of the first OpenOffice, without fetching it. Raise if it has
            declarations: they are an attack."""
            if has_declarations:
                refuse_entity()

        self._parser = expat.ParserCreate(None, " ") if resolve else expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.buffer_size = 65_536
        self._parser.StartDoctypeDeclHandler = document_type
        self._parser.EntityDeclHandler = refuse_entity
        self._parser.ExternalEntityRefHandler = refuse_entity
        self._report(self._parser, starts, ends, name)

    def _report(
        self, parser: expat.XMLParserType, starts: Mapping[str, OnStart], ends: Mapping[str, OnEnd], document: str
    ) -> None:
        depth = skipped_from = 0
        after: OnEnd | None = None
        start_of, end_of = starts.get, ends.get

        def start(name: str, attributes: Attributes) -> None:
            nonlocal depth
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep_error(document)
            if (call := start_of(name)) is not None:
                call(attributes)

        def end(name: str) -> None:
            nonlocal depth
            depth -= 1
            if (call := end_of(name)) is not None:
                call()

        def skip(then: OnEnd | None) -> None:
            nonlocal skipped_from, after
            skipped_from, after = depth, then
            parser.StartElementHandler = skipped_start
            parser.EndElementHandler = skipped_end

        def skipped_start(_name: str, _attributes: Attributes) -> None:
            nonlocal depth
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep_error(document)

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


def _without_attributes(call: OnEnd) -> OnStart:
    return lambda _attributes: call()


def _by_reported_name(calls: Mapping[str, _Handler], plain_prefix: str | None) -> Mapping[str, _Handler]:
    """Return the handlers by the names that expat reports: resolved, unchanged, or without the omitted prefix."""
    if plain_prefix is None:
        return {spelling: call for name, call in calls.items() for spelling in keys(name)}
    if not plain_prefix:
        return calls
    return {name.removeprefix(f"{plain_prefix}:"): call for name, call in calls.items()}


class XmlNode:
    """An element of a small part, with only the requested children and text."""

    __slots__ = ("attributes", "children", "pieces", "tag")

    def __init__(self, tag: str, attributes: Attributes) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[XmlNode] = []
        self.pieces: list[str] = []

    def all(self, tag: str) -> list[XmlNode]:
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> XmlNode | None:
        return next((child for child in self.children if child.tag == tag), None)

    def get(self, name: str) -> str:
        """Return an attribute: `w:val`, or a bare name for an attribute without a namespace."""
        return value(self.attributes, keys(name)) if ":" in name else self.attributes.get(name, "")

    def child_value(self, tag: str) -> str:
        """Return `w:val` of the first child with this tag."""
        child = self.first(tag)
        return "" if child is None else child.get("w:val")

    @property
    def text(self) -> str:
        """The text of this element and of its descendants, in order."""
        return "".join(self.pieces) + "".join(child.text for child in self.children)


def read_tree(
    archive: Archive,
    member: str,
    *,
    tags: Collection[str],
    words: Collection[str] = (),
    trim: Trim | None = None,
    name: str,
) -> XmlNode:
    """Return a part as a tree of `tags`; other elements are replaced by their children. Elements in `words` keep their
    text."""
    root = XmlNode("", {})
    path = [root]
    left = MAX_NODES

    def add_node(tag: str, attributes: Attributes) -> XmlNode:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLarge(f"{name or 'The document'} contains too many elements in one part.", name=name)
        node = XmlNode(tag, attributes)
        path[-1].children.append(node)
        return node

    def on_start(tag: str) -> OnStart:
        return lambda attributes: path.append(add_node(tag, attributes))

    def on_characters(tag: str) -> OnCharacters:
        def words(text: str) -> None:
            add_node(tag, {}).pieces.append(text)

        return words

    def on_end() -> None:
        path.pop()

    reader = XmlReader(
        {tag: on_start(tag) for tag in tags},
        dict.fromkeys(tags, on_end),
        words={tag: on_characters(tag) for tag in words},
        trim=trim,
    )
    reader.read(archive, member, name=name)
    return root
