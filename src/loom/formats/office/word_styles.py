"""Word's data besides the text: which styles are headings, and how lists are numbered."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from loom.formats.office.ooxml import Package
from loom.formats.office.xml_reader import XmlNode, whole_number

_HEADING_NAME: Final = re.compile(r"heading ([1-9])", re.IGNORECASE)
_PLACE: Final = re.compile(r"%([1-9])")
_MAX_CHAIN: Final = 20
_LEVELS: Final = 9
_BODY_OUTLINE: Final = 9
_STYLE_TAGS: Final = ("w:style", "w:name", "w:basedOn", "w:outlineLvl", "w:numPr", "w:numId", "w:ilvl")
_LIST_TAGS: Final = ("w:abstractNum", "w:lvl", "w:start", "w:numFmt", "w:lvlText", "w:numStyleLink")
_NUM_TAGS: Final = ("w:num", "w:abstractNumId", "w:lvlOverride", "w:startOverride")
_ROMAN: Final = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


class Style(msgspec.Struct, frozen=True):
    name: str
    based_on: str
    outline: int | None
    num_id: str
    level: int | None


class StyleEffect(msgspec.Struct, frozen=True):
    """The effect of a style on its paragraphs: a heading of level 1 to 9 (0: none), or items of a list on a level."""

    heading: int
    num_id: str
    level: int


class Styles:
    """Paragraph styles by id. Ids are localized (`berschrift1`); the names of built-in styles are not (`heading 1`)."""

    def __init__(self, styles: dict[str, Style]) -> None:
        self._styles = styles
        self._looks: dict[str, StyleEffect] = {}

    @classmethod
    def read(cls, package: Package, parts: list[str]) -> Styles:
        trees = [package.tree(part, tags=_STYLE_TAGS, trim=_without_tables) for part in parts[:1]]
        return cls({node.get("w:styleId"): _style(node) for tree in trees for node in tree.all("w:style")})

    def look(self, style_id: str) -> StyleEffect:
        if style_id not in self._looks:
            chain = self._chain(style_id)
            num_id = next((style.num_id for style in chain if style.num_id), "")
            level = next((style.level for style in chain if style.level is not None), 0)
            self._looks[style_id] = StyleEffect(self._heading(style_id), num_id, level)
        return self._looks[style_id]

    def _heading(self, style_id: str) -> int:
        for style in self._chain(style_id):
            if match := _HEADING_NAME.fullmatch(style.name):
                return int(match[1])
            if style.name.lower() == "title":
                return 1
            if style.outline is not None:
                return style.outline + 1 if style.outline < _BODY_OUTLINE else 0
        return 0

    def _chain(self, style_id: str) -> list[Style]:
        chain: list[Style] = []
        while (style := self._styles.get(style_id)) is not None and len(chain) < _MAX_CHAIN:
            chain.append(style)
            style_id = style.based_on
        return chain


def _without_tables(data: bytes) -> bytes:
    """Remove table styles: they fill most of the part, and paragraphs do not use them."""
    head, *styles = data.split(b"<w:style ")
    kept = [style for style in styles if not style.startswith(b'w:type="table"')]
    return b"<w:style ".join((head, *kept))


def _style(node: XmlNode) -> Style:
    outline = node.first("w:outlineLvl")
    numbering = node.first("w:numPr") or XmlNode("", {})
    level = numbering.first("w:ilvl")
    return Style(
        name=node.child_value("w:name"),
        based_on=node.child_value("w:basedOn"),
        outline=None if outline is None else whole_number(outline.get("w:val"), _BODY_OUTLINE),
        num_id=numbering.child_value("w:numId"),
        level=None if level is None else list_level(level.get("w:val")),
    )


def list_level(text: str) -> int:
    return whole_number(text, most=_LEVELS - 1)


class ListLevel(msgspec.Struct, frozen=True):
    format: str
    pattern: str
    start: int


class ListUse(msgspec.Struct, frozen=True):
    """A list as paragraphs refer to it: an abstract list, and the levels that this use of it restarts."""

    abstract_id: str
    starts: dict[int, int]


class Numbering:
    """Lists by id, and their running numbers while the document is read."""

    def __init__(self, abstract: dict[str, dict[int, ListLevel]], uses: dict[str, ListUse]) -> None:
        self._abstract = abstract
        self._uses = uses
        self._counts: dict[str, list[int | None]] = {}
        self._begun: set[tuple[str, int]] = set()

    @classmethod
    def read(cls, package: Package, parts: list[str], styles: Styles) -> Numbering:
        root = package.tree(parts[0], tags=(*_LIST_TAGS, *_NUM_TAGS)) if parts else XmlNode("", {})
        abstract = {
            node.get("w:abstractNumId"): {list_level(level.get("w:ilvl")): _level(level) for level in node.all("w:lvl")}
            for node in root.all("w:abstractNum")
        }
        uses = {node.get("w:numId"): _use(node) for node in root.all("w:num")}
        for node in root.all("w:abstractNum"):
            if style_id := node.child_value("w:numStyleLink"):
                linked = uses.get(styles.look(style_id).num_id)
                abstract[node.get("w:abstractNumId")] = abstract.get(linked.abstract_id, {}) if linked else {}
        return cls(abstract, uses)

    def marker(self, num_id: str, level: int) -> str:
        """Return the text before the next paragraph of this list: `- `, `3. `, `2.1 `; empty if it is not a list."""
        use = self._uses.get(num_id)
        levels = self._abstract.get(use.abstract_id) if use else None
        if use is None or not levels:
            return ""
        own = levels.get(level) or ListLevel("decimal", f"%{level + 1}.", 1)
        if own.format == "none":
            return ""
        self._count(use, num_id, levels, level)
        if own.format == "bullet":
            return "- "
        counts = self._counts[use.abstract_id]

        def place(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            shown = levels.get(at)
            return numeral(counts[at] or (shown.start if shown else 1), shown.format if shown else "decimal")

        return f"{_PLACE.sub(place, own.pattern).strip()} ".lstrip()

    def _count(self, use: ListUse, num_id: str, levels: dict[int, ListLevel], level: int) -> None:
        counts = self._counts.setdefault(use.abstract_id, [None] * _LEVELS)
        start = levels[level].start if level in levels else 1
        if level in use.starts and (num_id, level) not in self._begun:
            self._begun.add((num_id, level))
            counts[level] = use.starts[level]
        else:
            current = counts[level]
            counts[level] = start if current is None else current + 1
        counts[level + 1 :] = [None] * (_LEVELS - level - 1)


def _level(node: XmlNode) -> ListLevel:
    return ListLevel(
        format=node.child_value("w:numFmt") or "decimal",
        pattern=node.child_value("w:lvlText")[:100],
        start=whole_number(node.child_value("w:start"), 1),
    )


def _use(node: XmlNode) -> ListUse:
    overrides = {list_level(child.get("w:ilvl")): child.first("w:startOverride") for child in node.all("w:lvlOverride")}
    starts = {level: whole_number(start.get("w:val"), 1) for level, start in overrides.items() if start is not None}
    return ListUse(abstract_id=node.child_value("w:abstractNumId"), starts=starts)


def numeral(number: int, style: str) -> str:
    """Return a list number as Word writes it; styles of other scripts, and numbers beyond the range of a style, become
    digits."""
    match style:
        case "lowerLetter" | "upperLetter" if 1 <= number <= 26 * 30:
            letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
            return letters.upper() if style == "upperLetter" else letters
        case "lowerRoman" | "upperRoman" if 1 <= number < 4000:
            roman = _roman(number)
            return roman.upper() if style == "upperRoman" else roman
        case "decimalZero" if number < 10:
            return f"0{number}"
        case _:
            return str(number)


def _roman(number: int) -> str:
    pieces: list[str] = []
    for size, letters in _ROMAN:
        times, number = divmod(number, size)
        pieces.append(letters * times)
    return "".join(pieces)
