"""The readable text of a web page: headings, paragraphs, lists, tables, links. Pure; scripts, menus, comments and
everything that a reader would not see are left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Final, TypeAlias
from urllib.parse import urljoin

import msgspec

_UNREAD: Final = "script style template noscript svg math iframe object embed canvas audio video select textarea"
_AROUND: Final = "nav footer aside form dialog"
_VOID: Final = "area base br col embed hr img input link meta source track wbr"
_BLOCKS: Final = (
    "address article aside blockquote body center details dialog dd div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr html li main nav ol p pre section summary table tbody tfoot thead tr ul"
)
_unread, _around, _void, _blocks = (frozenset(names.split()) for names in (_UNREAD, _AROUND, _VOID, _BLOCKS))
_CLOSES: Final[dict[str, frozenset[str]]] = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr", "td", "th"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
}
"""The elements that a start tag ends without an end tag; every block ends an open paragraph."""
_HIDDEN: Final = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])"
)
_INVISIBLE: Final = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_SPACE: Final = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_MAX_DEPTH: Final = 256
_MAIN_CHARS: Final = 200
_LINK_CHARS: Final = 500


class PageText(msgspec.Struct, frozen=True):
    title: str
    text: str


class _Open(msgspec.Struct):
    """An element that has not ended."""

    tag: str
    unread: bool
    around: bool
    main: bool
    href: str = ""
    at: int = 0
    """The offset of its text on the current line."""
    items: int = 0
    """The number of items of a list so far."""


class _PageLine(msgspec.Struct):
    text: str
    around: bool
    main: bool


ShowPicture: TypeAlias = Callable[[str, str], str]
"""Takes the source and the alternative text of an image, and returns the marker for it (or an empty string)."""


def page_text(source: str, url: str, show_picture: ShowPicture | None = None) -> PageText:
    """Return the text of a page. `url` is the URL of the page; links are absolute. `show_picture` returns the markers
    of images."""
    reader = _PageReader(url, show_picture)
    reader.feed(source)
    reader.close()
    reader.end_line()
    lines = reader.lines
    main = [line for line in lines if line.main and not line.around]
    if sum(len(line.text) for line in main) < _MAIN_CHARS:
        main = [line for line in lines if not line.around]
    if not any(line.text.strip() for line in main):
        main = lines
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(line.text for line in main)).strip("\n")
    return PageText(title=_SPACE.sub(" ", reader.title).strip()[:300], text=text)


class _PageReader(HTMLParser):
    def __init__(self, url: str, show_picture: ShowPicture | None) -> None:
        super().__init__(convert_charrefs=True)
        self._show_picture = show_picture
        self.lines: list[_PageLine] = []
        self.title = ""
        self._url = url
        self._open: list[_Open] = []
        self._words: list[str] = []
        self._prefix = ""
        self._in_title = False

    # Parser events ----------------------------------------------------------------------------------------------------

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = not self.title
            return
        values = {name: value or "" for name, value in attrs}
        self._close_implied(tag)
        if tag in _blocks:
            self.end_line()
        if not self._top.unread:
            self._begin(tag, values)
        if tag in _void or len(self._open) >= _MAX_DEPTH:
            return
        top = self._top
        self._open.append(
            _Open(
                tag,
                unread=top.unread or tag in _unread or _is_hidden(values),
                around=top.around or tag in _around or values.get("role") in ("navigation", "banner", "contentinfo"),
                main=top.main or tag in ("main", "article") or values.get("role") == "main",
                href=values.get("href", "") if tag == "a" else "",
                at=len(self._words),
            )
        )

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
            return
        at = next((at for at in range(len(self._open) - 1, -1, -1) if self._open[at].tag == tag), None)
        if at is None:
            return
        element = self._open[at]
        if not element.unread:
            self._finish(element)
        if tag in _blocks:
            self.end_line()
        del self._open[at:]

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data[:1000]
        elif not self._top.unread:
            self._words.append(_INVISIBLE.sub("", data))

    # Interpretation ---------------------------------------------------------------------------------------------------

    @property
    def _top(self) -> _Open:
        return self._open[-1] if self._open else _Open("", unread=False, around=False, main=False)

    def _close_implied(self, tag: str) -> None:
        if self._open and tag in _blocks and self._top.tag == "p":
            self.handle_endtag("p")
        while self._open and self._top.tag in _CLOSES.get(tag, ()):
            self.handle_endtag(self._top.tag)

    def _begin(self, tag: str, values: dict[str, str]) -> None:
        if tag == "br":
            self.end_line()
        elif tag == "hr":
            self._put("---")
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self._put("")
            self._prefix = "#" * int(tag[1]) + " "
        elif tag == "li":
            self._prefix = self._bullet()
        elif tag in ("td", "th"):
            self._words.append(" | ")
        elif tag in ("img", "image") and self._show_picture is not None:
            source = values.get("src") or values.get("xlink:href") or values.get("href", "")
            self._words.append(self._show_picture(source, values.get("alt", "").strip()))
        elif tag == "img" and values.get("alt", "").strip():
            self._words.append(f"![{values['alt'].strip()}]({self._absolute_url(values.get('src', ''))})")
        elif tag in ("p", "table", "pre", "blockquote", "ul", "ol"):
            self._put("")

    def _finish(self, element: _Open) -> None:
        if element.tag == "a" and element.href and element.at <= len(self._words):
            words = _SPACE.sub(" ", "".join(self._words[element.at :])).strip()
            address = self._absolute_url(element.href)
            if words and address:
                del self._words[element.at :]
                self._words.append(f"[{words}]({address})")

    def _bullet(self) -> str:
        lists = [element for element in self._open if element.tag in ("ul", "ol")]
        if not lists:
            return "- "
        lists[-1].items += 1
        mark = f"{lists[-1].items}. " if lists[-1].tag == "ol" else "- "
        return "  " * min(len(lists) - 1, 8) + mark

    def _absolute_url(self, address: str) -> str:
        """Return an absolute http(s) URL, or an empty string for a script, an anchor or data."""
        try:
            full = urljoin(self._url, address.strip())
        except ValueError:
            return ""
        usable = full.startswith(("http://", "https://")) and not address.startswith("#")
        return full[:_LINK_CHARS].replace(" ", "%20").replace(")", "%29") if usable else ""

    def _put(self, text: str) -> None:
        self.lines.append(_PageLine(text, around=self._top.around, main=self._top.main))

    def end_line(self) -> None:
        raw = "".join(self._words)
        self._words = []
        for element in self._open:
            element.at = 0
        if any(element.tag == "pre" for element in self._open):
            for line in raw.strip("\n").splitlines():
                self._put(f"    {line.rstrip()}")
            return
        words = _SPACE.sub(" ", raw).strip().removeprefix("| ")
        if words:
            self._put(self._prefix + words)
            self._prefix = ""


def _is_hidden(values: dict[str, str]) -> bool:
    return (
        "hidden" in values
        or values.get("aria-hidden", "").lower() == "true"
        or _HIDDEN.search(values.get("style", "")[:2000].lower()) is not None
    )
