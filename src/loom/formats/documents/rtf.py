"""RTF as structured text: headings, lists, tables, links and images, in every encoding that its fonts declare.

The parser makes one pass over the tokens. Groups without text (fonts, colors, styles) are skipped; nesting is bounded.
"""

from __future__ import annotations

import binascii
import re
from typing import Final

import msgspec

from loom.errors import Unreadable
from loom.formats.documents.html import PictureList
from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.office import text_marks

_TOKEN: Final = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?[0-9]{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_NO_TEXT: Final = """
    fonttbl colortbl stylesheet info themedata colorschememapping latentstyles datastore xmlnstbl listtable
    listoverridetable revtbl rsidtbl generator filetbl header footer headerl headerr headerf footerl footerr footerf
    fldinst datafield objdata nonshppict bkmkstart bkmkend mmathpr wgrffmtfilter pgdsctbl docvar annotation atnid
    atnauthor atnref shpinst listpicture background
"""
_SKIPPED: Final = frozenset(_NO_TEXT.split())
_SYMBOLS: Final = {
    "tab": "\t",
    "emdash": "—",
    "endash": "–",
    "lquote": "\u2018",
    "rquote": "\u2019",
    "ldblquote": "\u201c",
    "rdblquote": "\u201d",
    "bullet": "•",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
    "zwj": "\u200d",
    "zwnj": "\u200c",
}
_CHARSETS: Final = {
    0: "cp1252",
    77: "mac-roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gb18030",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
}
_MAX_DEPTH: Final = 1_000
_HEADING: Final = re.compile(r"heading\s*([1-6])", re.IGNORECASE)
_LINK: Final = re.compile(r'HYPERLINK\s+"?([^"\s\\]+)')
_MAX_LINK: Final = 500


class _Group(msgspec.Struct):
    """The state of a group, from its opening brace to its closing brace."""

    skip: bool = False
    kind: str = ""
    codec: str = "cp1252"
    uc: int = 1
    hidden: bool = False


def read_rtf(data: bytes, _context: ReadContext) -> ReadDocument:
    pictures = PictureList()
    text = rtf_text(data, pictures)
    return ReadDocument(sections=[text], pictures=pictures.found)


def rtf_text(data: bytes, pictures: PictureList) -> str:
    """Return the text of an RTF file. Raise `Unreadable` if the bytes are not RTF."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise Unreadable("is not RTF: it does not begin with {\\rtf")
    return _RtfReader(pictures).read(data)


class _RtfReader:
    def __init__(self, pictures: PictureList) -> None:
        self._pictures = pictures
        self._stack: list[_Group] = [_Group()]
        self._default = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font_being_defined = 0
        self._headings: dict[int, int] = {}
        self._style_being_defined: int | None = None
        self._style_words: list[str] = []
        self._lines: list[str] = []
        self._words: list[str] = []
        self._pending = bytearray()
        self._skip_characters = 0
        self._level = 0
        self._is_cell = False
        self._row: list[str] = []
        self._rows: list[list[str]] = []
        self._field = ""
        self._link_at = 0
        self._hexadecimal: list[bytes] = []

    def read(self, data: bytes) -> str:
        at = 0
        while at < len(data):
            found = _TOKEN.match(data, at)
            if found is None:
                at += 1
                continue
            at = found.end()
            word = found[1]
            if word == b"bin" and found[2]:
                size = max(0, int(found[2]))
                self._hexadecimal.append(binascii.hexlify(data[at : at + size]))
                at += size
            elif word is not None:
                self._control(word.decode(), int(found[2]) if found[2] else None)
            elif found[3] is not None:
                self._byte(int(found[3], 16))
            elif found[4] is not None:
                self._symbol(found[4])
            elif found[5] == b"{":
                self._open()
            elif found[5] == b"}":
                self._close()
            elif found[6] is not None:
                self._add_text(found[6])
        self._end_paragraph()
        self._end_table()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip()

    @property
    def _top(self) -> _Group:
        return self._stack[-1]

    def _open(self) -> None:
        self._flush()
        if len(self._stack) > _MAX_DEPTH:
            raise Unreadable("is nested too deeply")
        top = self._top
        self._stack.append(_Group(top.skip, "", top.codec, top.uc, top.hidden))

    def _close(self) -> None:
        self._flush()
        if len(self._stack) == 1:
            return
        group = self._stack.pop()
        if group.kind == "pict":
            self._end_picture()
        elif group.kind == "fldrslt":
            self._end_link()
        elif group.kind == "style" and self._style_being_defined is not None:
            heading = _HEADING.search("".join(self._style_words))
            if heading is not None:
                self._headings[self._style_being_defined] = int(heading[1])
            self._style_words = []
            self._style_being_defined = None

    def _symbol(self, sign: bytes) -> None:
        match sign:
            case b"~":
                self._say(" ")
            case b"_":
                self._say("-")
            case b"*":
                self._top.kind = "*"
            case b"\\" | b"{" | b"}":
                self._say(sign.decode())
            case b"\n" | b"\r":
                self._end_paragraph()
            case _:
                return

    def _control(self, word: str, number: int | None) -> None:  # noqa: C901 - a table of control words
        top = self._top
        if word != "u":
            self._flush()
        if top.kind == "*" and word not in ("shppict", "fldinst", "pn"):
            top.skip, top.kind = True, word
        if word in ("fonttbl", "stylesheet"):
            top.skip, top.kind = True, word
        elif word == "fldinst":
            top.kind, top.skip, self._field = "fldinst", True, ""
        elif word in _SKIPPED:
            top.skip, top.kind = True, word
        elif word == "f" and number is not None:
            if self._is_inside("fonttbl"):
                self._font_being_defined = number
            else:
                top.codec = self._fonts.get(number, self._default)
        elif word == "fcharset" and self._is_inside("fonttbl"):
            codec = _CHARSETS.get(number or 0)
            if codec and number:
                self._fonts[self._font_being_defined] = codec
        elif word == "s" and number is not None:
            if self._is_inside("stylesheet"):
                top.kind, self._style_being_defined = "style", number
            else:
                self._level = self._headings.get(number, 0)
        elif word == "ansicpg" and number:
            self._default = top.codec = _code_page(number)
        elif word == "mac":
            self._default = top.codec = "mac-roman"
        elif word == "uc":
            top.uc = min(max(number or 0, 0), 16)
        elif word == "u" and number is not None:
            self._unicode(number)
        elif word == "v":
            top.hidden = number != 0
        elif word == "pict":
            top.kind, top.skip, self._hexadecimal = "pict", True, []
        elif word == "fldrslt":
            top.kind, self._link_at = "fldrslt", len(self._words)
        elif not top.skip:
            self._layout(word, number)

    def _layout(self, word: str, number: int | None) -> None:
        match word:
            case "par" | "sect" | "page" | "line":
                if self._is_cell:
                    self._say("\n")
                else:
                    self._end_paragraph()
            case "pard":
                self._level, self._is_cell = 0, False
            case "intbl":
                self._is_cell = True
            case "outlinelevel" if number is not None and 0 <= number < 6:
                self._level = self._level or number + 1
            case "cell" | "nestcell":
                self._row.append(text_marks.cell("".join(self._words)))
                self._words = []
                self._link_at = 0
            case "row" | "nestrow":
                self._rows.append(self._row)
                self._row, self._words, self._is_cell = [], [], False
            case _ if word in _SYMBOLS:
                self._say(_SYMBOLS[word])
            case _:
                return

    def _unicode(self, number: int) -> None:
        self._flush()
        code = number & 0xFFFF
        self._skip_characters = self._top.uc
        self._say(chr(code), is_unit=True)

    def _byte(self, value: int) -> None:
        if self._skip_characters:
            self._skip_characters -= 1
            return
        self._pending.append(value)

    def _add_text(self, text: bytes) -> None:
        if self._top.kind == "pict" or (self._top.skip and self._is_inside("pict")):
            self._hexadecimal.append(text)
            return
        if self._skip_characters:
            taken = min(self._skip_characters, len(text))
            self._skip_characters -= taken
            text = text[taken:]
        self._pending += text
        if self._top.kind == "style":
            self._style_words.append(text.decode("latin-1"))
        if self._is_inside("fldinst"):
            self._field += text.decode("latin-1")

    def _flush(self) -> None:
        """Decode adjacent bytes together: one character may consist of two bytes."""
        if self._pending:
            text = self._pending.decode(self._top.codec, "replace")
            self._pending.clear()
            self._say(text)

    def _say(self, text: str, *, is_unit: bool = False) -> None:
        if self._top.skip or self._top.hidden:
            return
        if self._pending and is_unit:
            self._flush()
        if self._rows and not self._is_cell and not self._row and text.strip():
            self._end_table()
        self._words.append(text)

    def _end_paragraph(self) -> None:
        self._flush()
        text = _join_surrogates("".join(self._words)).strip()
        self._words = []
        self._link_at = 0
        if not text:
            if self._lines and self._lines[-1] and not self._rows:
                self._lines.append("")
            return
        self._end_table()
        if self._level:
            self._lines += ["", f"{'#' * self._level} {text}", ""]
        else:
            self._lines.append(text)

    def _end_table(self) -> None:
        if self._row:
            self._rows.append(self._row)
            self._row = []
        if self._rows:
            rows = [[_join_surrogates(cell) for cell in row] for row in self._rows]
            self._lines += ["", *text_marks.table(rows), ""]
            self._rows = []

    def _end_link(self) -> None:
        found = _LINK.search(self._field)
        self._field = ""
        words = "".join(self._words[self._link_at :]).strip()
        if found is not None and words and len(found[1]) <= _MAX_LINK:
            self._words.append(text_marks.link(found[1], words))

    def _end_picture(self) -> None:
        digits = re.sub(rb"[^0-9a-fA-F]", b"", b"".join(self._hexadecimal))
        self._hexadecimal = []
        try:
            data = binascii.unhexlify(digits[: len(digits) // 2 * 2])
        except binascii.Error:
            return
        if data and not self._top.skip:
            self._say(self._pictures.mark(data, ""))

    def _is_inside(self, kind: str) -> bool:
        return any(group.kind == kind for group in self._stack[-4:])


def _code_page(number: int) -> str:
    names = {65001: "utf-8", 10000: "mac-roman", 936: "gb18030", 950: "cp950", 932: "cp932", 949: "cp949"}
    name = names.get(number, f"cp{number}")
    try:
        "".encode(name)
    except LookupError:
        return "cp1252"
    return name


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs: RTF stores characters beyond the basic plane as two halves."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
