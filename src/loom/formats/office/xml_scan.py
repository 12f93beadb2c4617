"""XML read with one regular expression that stops only at the requested tags.

Formatting is most of a document, and a call for each of its tags costs most of the time; here they are skipped in C. A
reader gets the same as from a parser: the requested tags, in order, and the text inside them. The parser reads parts
that are not plain (comments, CDATA, processing instructions, a document type, elements between text, unusual prefixes,
encodings or characters). Characters that XML does not allow are not searched for: they are harmless, and `office`
removes them from the output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, Literal, TypeAlias

from loom.errors import Unreadable
from loom.formats.office.xml_names import NAMESPACES, PREFIXES, Attributes

OnStart: TypeAlias = Callable[[Attributes], None]
OnEnd: TypeAlias = Callable[[], None]
OnCharacters: TypeAlias = Callable[[str], None]
_TokenKind: TypeAlias = Literal["start", "open", "words", "end"]
_TagToken: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""A tag with its name (`/name` at the end of an element), its attributes, the text after it, and its closing tag."""

_BLOCK_BYTES: Final = 65_536
MAX_DEPTH: Final = 500
_MAX_NAMESPACES: Final = 20_000
_SLASH: Final = ord("/")
_SHORTEST_ATTRIBUTE: Final = 5
_BEGINNING: Final = re.compile(rb"""(?:\xef\xbb\xbf)?\s*(?:(<\?xml[^<>]*\?>)\s*)?<([^\s<>/"'?!]+)[^<>]*>""")
_OPENING: Final = re.compile(rb"<[^/]")
_NAMESPACE: Final = re.compile(rb"""xmlns:?([A-Za-z0-9_.-]*)\s*=\s*["']([^"']*)["']""")
_ATTRIBUTE: Final = re.compile(r"""([^ =<>"'/]++) *+= *+(?:"([^"]*+)"|'([^']*+)')""")
_REFERENCE: Final = re.compile(r"&(?:#x([0-9A-Fa-f]{1,6});|#([0-9]{1,7});|([a-z]{2,4});)?")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_WHITE: Final = bytes.maketrans(b"\t\n", b"  ")
_LONG_BEGINNING: Final = 8_192
_LONG_ATTRIBUTES: Final = 100
_MOST_WHITE: Final = 64
_PRIVATE_USE: Final = 0xE000
_NO_TOKEN: Final[_TagToken] = (b"", b"", b"", b"")
_NOT_IN_ORDER: Final = "elements are not closed in order"


def scan_prefix(data: bytes) -> str | None:
    """Return None for a part that only the parser can read, otherwise the result of `plain_prefix`."""
    end = data.find(b">") + 1
    if b"<?xml" in data[:_MOST_WHITE]:
        end = data.find(b">", end) + 1
    is_usual = end <= _LONG_BEGINNING
    beginning = _usual_beginning(data[:end]) if is_usual else _read_beginning(data[:end])
    if beginning is None or (b"!" in data and b"<!" in data) or data.find(b"<?", end) >= 0:
        return None
    closing, prefix = beginning
    if not data[-len(closing) - _MOST_WHITE :].rstrip().endswith(closing):
        return None
    return prefix if is_usual and data.rfind(b"xmlns") < end else plain_prefix(data)


@lru_cache(maxsize=64)
def _usual_beginning(beginning: bytes) -> tuple[bytes, str | None] | None:
    """Return `_read_beginning`, cached: the parts of a presentation have the same beginning."""
    return _read_beginning(beginning)


def _read_beginning(beginning: bytes) -> tuple[bytes, str | None] | None:
    """Return the tag that ends the part, and `plain_prefix`, from the declaration and the first tag; None without
    them."""
    found = _BEGINNING.fullmatch(beginning)
    if found is None:
        return None
    declaration = (found[1] or b"").lower()
    if b"encoding" in declaration and b"utf-8" not in declaration:
        return None
    return b"</%b>" % found[2], plain_prefix(beginning)


def plain_prefix(data: bytes) -> str | None:
    """Return how to read names without resolving namespaces, or None if they must be resolved.

    The result is the prefix of elements that have none (empty if their namespace is unknown). Names can be used
    unchanged if every known namespace has its usual prefix throughout, and no such prefix has another meaning.
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


class Scan:
    """Scans parts of one kind. `opens` are starts whose attributes are not read.

    Ends are searched for if they were requested, and for `skipped`: tags at whose start `skip` may be called. `telling`
    are the attributes without which a tag is ignored, so that the scan need not stop at it.
    """

    def __init__(
        self,
        *,
        starts: Mapping[str, OnStart],
        opens: Mapping[str, OnEnd],
        ends: Mapping[str, OnEnd],
        words: Mapping[str, OnCharacters],
        skipped: Collection[str],
        telling: Mapping[str, str],
    ) -> None:
        self._closings = {name.encode(): f"/{name}".encode() for name in (*ends, *words, *skipped)}
        followed = frozenset((*ends, *words, *skipped))
        self._pattern = _tag_pattern(followed, frozenset((*starts, *opens)) - followed, frozenset(telling.items()))
        self._calls: dict[bytes, tuple[_TokenKind, Callable[..., None], bytes | None]] = {
            **dict.fromkeys(self._closings.values(), ("end", _ignore_tag, None)),
            **{f"/{name}".encode(): ("end", call, None) for name, call in ends.items()},
        }
        kinds: tuple[tuple[_TokenKind, Mapping[str, Callable[..., None]]], ...] = (
            ("open", dict.fromkeys(followed, _ignore_tag)),
            ("start", starts),
            ("open", opens),
            ("words", words),
        )
        for kind, asked in kinds:
            for name, call in asked.items():
                self._calls[name.encode()] = (kind, call, self._closings.get(name.encode()))
        self._mixed = _mixed_content_pattern(frozenset(words))
        self._then: OnEnd | None = None
        self._is_skipping = False

    def is_plain(self, data: bytes) -> bool:
        """Return whether elements with text contain nothing else; the parser reads all other parts."""
        return self._mixed is None or self._mixed.search(data) is None

    def skip(self, then: OnEnd | None) -> None:
        self._is_skipping, self._then = True, then

    def run(self, data: bytes, *, name: str, tick: Callable[[], None]) -> None:
        """Call the handlers in the order of the file, and `tick` from time to time.

        Raise ValueError if elements are not closed in the order in which they were opened.
        """
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = (data,) if len(data) <= _BLOCK_BYTES else _blocks(data)
        tokens = chain.from_iterable(_find_tokens(self._pattern, block, tick) for block in blocks)
        calls = self._calls
        is_open: list[bytes] = []
        self._is_skipping = False
        for tag, attributes, text, closing in tokens:
            kind, call, end = calls[tag]
            if kind == "end":
                if not is_open or is_open.pop() != tag:
                    raise ValueError(_NOT_IN_ORDER)
                call()
                continue
            if kind == "words":
                call(_decode(text))
                if not closing and attributes[-1:] != b"/" and next(tokens, _NO_TOKEN)[0] != end:
                    raise ValueError(_NOT_IN_ORDER)
                continue
            if kind == "open":
                call()
            else:
                call(_attributes(attributes) if len(attributes) >= _SHORTEST_ATTRIBUTE else {})
            if end is None:
                continue
            is_leaf = closing or attributes[-1:] == b"/"
            if self._is_skipping:
                self._pass_over(tokens, None if is_leaf else end, name)
            elif is_leaf:
                calls[end][1]()
            else:
                is_open.append(end)
                if len(is_open) > MAX_DEPTH:
                    raise too_deep_error(name)
        if is_open:
            raise ValueError(_NOT_IN_ORDER)

    def _pass_over(self, tokens: Iterator[_TagToken], closing: bytes | None, name: str) -> None:
        """Skip to the end of the element that was just opened. `closing` is None if it is already closed."""
        is_open = [closing] if closing else []
        while is_open:
            if (token := next(tokens, None)) is None:
                raise ValueError(_NOT_IN_ORDER)
            tag, attributes, _, closed = token
            if tag[0] == _SLASH:
                if is_open.pop() != tag:
                    raise ValueError(_NOT_IN_ORDER)
            elif tag in self._closings and not closed and attributes[-1:] != b"/":
                is_open.append(self._closings[tag])
                if len(is_open) > MAX_DEPTH:
                    raise too_deep_error(name)
        self._is_skipping = False
        if self._then is not None:
            self._then()


def _ignore_tag() -> None:
    """Do nothing: the handler of tags that are followed but not requested."""


def too_deep_error(name: str) -> Unreadable:
    return Unreadable(f"{name or 'The document'} nests elements too deeply.", name=name)


def _find_tokens(pattern: re.Pattern[bytes], block: bytes, tick: Callable[[], None]) -> list[_TagToken]:
    tick()
    return pattern.findall(block)


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield blocks that begin with an opening tag: no element that contains only text is split."""
    at = 0
    while at < len(data):
        following = _OPENING.search(data, at + _BLOCK_BYTES)
        end = len(data) if following is None else following.start()
        yield data[at:end]
        at = end


@cache
def _tag_pattern(
    followed: frozenset[str], others: frozenset[str], telling: frozenset[tuple[str, str]]
) -> re.Pattern[bytes]:
    """Return a pattern for tags, each with the text after it and the tag that closes it immediately. It reads every
    character once, for any input."""
    attributes = r"""([^<>"']*+(?:(?:"[^"<]*+"|'[^'<]*+')[^<>"']*+){0,200}+)"""
    needed = dict(telling)
    marks = {name: chr(_PRIVATE_USE + number) for number, name in enumerate(needed)}
    tags = _any_of(sorted(name + marks.get(name, "") for name in (*followed, *others)))
    for name, mark in marks.items():
        tags = tags.replace(mark, rf"(?=[^<]*\s(?:{needed[name]})\s*=)")
    closings = f"/{_any_of(sorted(followed))}|" if followed else ""
    return re.compile(rf"<((?>{closings}{tags})(?=[\s/>])){attributes}>(?:(?<!/>)([^<]*+)(</\1>)?+)?+".encode())


@cache
def _mixed_content_pattern(words: frozenset[str]) -> re.Pattern[bytes] | None:
    """Return a pattern for an element that contains text and then another element."""
    if not words:
        return None
    return re.compile(rf"<{_any_of(sorted(words))}(?=[\s/>])[^<>]*+(?<!/)>[^<]*+<(?!/)".encode())


def _any_of(words: list[str]) -> str:
    """Return a pattern for sorted words that decides letter by letter, so that a hundred of them cost no more than a
    few."""
    if not any(words):
        return ""
    branches = [
        re.escape(letter) + _any_of([word[1:] for word in group])
        for letter, group in groupby(filter(None, words), key=itemgetter(0))
    ]
    return f"(?:{'|'.join(branches)}){'?' if '' in words else ''}"


def _attributes(raw: bytes) -> Attributes:
    return _usual_attributes(raw) if len(raw) < _LONG_ATTRIBUTES else _read_attributes(raw)


@lru_cache(maxsize=2_048)
def _usual_attributes(raw: bytes) -> Attributes:
    """Return parsed attributes, cached: a style or a level is repeated often. The returned values are never changed."""
    return _read_attributes(raw)


def _read_attributes(raw: bytes) -> Attributes:
    if b"\n" in raw or b"\t" in raw:
        raw = raw.translate(_WHITE)
    found = _ATTRIBUTE.findall(raw.decode())
    if b"&" in raw:
        return {name: _REFERENCE.sub(_resolve_reference, one or other) for name, one, other in found}
    return {name: one or other for name, one, other in found}


def _decode(raw: bytes) -> str:
    return _REFERENCE.sub(_resolve_reference, raw.decode()) if b"&" in raw else raw.decode()


def _resolve_reference(match: re.Match[str]) -> str:
    if match[3]:
        return _NAMED[match[3]]
    if match[1] or match[2]:
        code = int(match[1], 16) if match[1] else int(match[2])
        is_character = code in (0x9, 0xA, 0xD) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE
        if is_character or 0x10000 <= code < 0x110000:
            return chr(code)
    raise ValueError("an ampersand that is not an entity")
