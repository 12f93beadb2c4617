"""Detection of text and its encoding, and decoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

from loom.errors import Unreadable
from loom.formats.encodings import declared_encoding, encoding_label, find_encoding, is_escaped_japanese

WINDOW_BYTES: Final = 8192
MIN_PRINTABLE: Final = 0.95
_MAX_UNREADABLE: Final = 0.1
"""The share of all characters. The first 8 KB decide whether a file is text; the rest may be something else."""
# Longest byte order mark first: that of UTF-32 begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNITS: Final = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}

# \b \t \n \v \f \r and ESC (terminal logs) count as printable.
_CONTROLS: Final = bytes(set(range(32)) - {8, 9, 10, 11, 12, 13, 27} | {127})
_NO_CONTROLS: Final = bytes(set(range(256)) - set(_CONTROLS))
_UTF8_CONTROLS: Final = re.compile(rb"\xc2[\x80-\x9f]")
_WIDE_CONTROLS: Final = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LINES_CHARS: Final = 65_536


def encoding_of(data: bytes) -> str | None:
    """Return the codec of a text, detected from its first 8 KB, or None if it is not text."""
    head = data[:WINDOW_BYTES]
    whole = len(head) == len(data)
    for mark, codec in _MARKS:
        if head.startswith(mark):
            if codec == "utf-8-sig":
                return codec if _is_utf8(head[3:], whole=whole) else None
            return codec if _is_wide(head[len(mark) :], codec, whole=whole) else None
    if b"\0" in head:
        return _unmarked_wide(head, whole=whole)
    if _is_utf8(head, whole=whole):
        return "iso2022_jp" if b"\x1b$" in head and is_escaped_japanese(head) else "utf-8"
    return find_encoding(data)


def _is_utf8(head: bytes, *, whole: bool) -> bool:
    if not head.isascii():
        try:
            codecs.utf_8_decode(head, "strict", whole)
        except UnicodeDecodeError:
            return False
    controls = len(head.translate(None, _NO_CONTROLS))
    if not head.isascii():
        controls += len(_UTF8_CONTROLS.findall(head))
    return controls <= len(head) * (1 - MIN_PRINTABLE) and b"\0" not in head


def _is_wide(head: bytes, codec: str, *, whole: bool) -> bool:
    unit = _UNITS[codec]
    if whole and len(head) % unit:
        return False
    try:
        text = codecs.getincrementaldecoder(codec)("strict").decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return len(_WIDE_CONTROLS.findall(text)) <= len(text) * (1 - MIN_PRINTABLE)


def _unmarked_wide(head: bytes, *, whole: bool) -> str | None:
    """Detect UTF-16 or UTF-32 without a byte order mark: most characters have zeros in the same places."""
    units = len(head) // 4
    if units:
        zeros = [head[place : units * 4 : 4].count(0) / units for place in range(4)]
        if min(zeros[2:]) > 0.95 and zeros[0] < 0.05:
            codec = "utf-32-le"
        elif min(zeros[:2]) > 0.95 and zeros[3] < 0.05:
            codec = "utf-32-be"
        elif min(zeros[1], zeros[3]) > 0.3 and max(zeros[0], zeros[2]) < 0.05:
            codec = "utf-16-le"
        elif min(zeros[0], zeros[2]) > 0.3 and max(zeros[1], zeros[3]) < 0.05:
            codec = "utf-16-be"
        else:
            return None
        return codec if _is_wide(head, codec, whole=whole) else None
    return None


def decode_text(data: bytes, name: str = "") -> tuple[str, str, tuple[str, ...]]:
    """Return (text, encoding, notices). Bytes that cannot be decoded are replaced, with a notice. Raise `Unreadable` if
    it is not text."""
    codec = encoding_of(data)
    if codec is None:
        raise Unreadable(
            f"{name or 'The data'} is not text in any encoding that Loom knows.",
            name=name,
            hint="Save it as UTF-8 and attach it again.",
        )
    text, codec, notices = _decode(data, codec, name or "the text")
    unreadable = text.count("\ufffd") + text.count("\0")
    if unreadable > _MAX_UNREADABLE * len(text) and len(data) > WINDOW_BYTES:
        raise Unreadable(
            f"{name or 'The data'} begins as text, but much of it is binary.",
            name=name,
            hint="Export what matters as text, PDF or an image and attach that.",
        )
    if "\0" in text:
        notices = (*notices, f"NUL characters in {name or 'the text'} are shown as ␀.")
        text = text.replace("\0", "␀")
    return text, codec.removesuffix("-sig").replace("cp125", "windows-125"), notices


def _decode(data: bytes, codec: str, shown: str) -> tuple[str, str, tuple[str, ...]]:
    for mark, marked in _MARKS:
        if marked == codec and marked != "utf-8-sig" and data.startswith(mark):
            data = data[len(mark) :]
    if codec == "utf-8" and b"\x1b$" in data and is_escaped_japanese(data):
        codec = "iso2022_jp"
    if codec.startswith("utf-"):
        try:
            return data.decode(codec), codec, ()
        except UnicodeDecodeError:
            text = data.decode(codec, "replace")
        damaged = text.count("\ufffd")
        found = find_encoding(data) if codec.startswith("utf-8") else None
        if found is None or sum(map(len, re.findall("[^\x00-\x7f\ufffd]+", text))) > damaged:
            return text, codec, (f"{damaged} damaged characters in {shown} are shown as \ufffd.",)
        codec = found
    return _decode_other(data, codec, shown)


def _decode_other(data: bytes, codec: str, shown: str) -> tuple[str, str, tuple[str, ...]]:
    """Decode text that is not Unicode. The author's declaration needs no notice; a detected encoding is reported in
    one."""
    text = data.decode(codec, "replace")
    notices: list[str] = []
    if codec != "iso2022_jp" and declared_encoding(data) != codec:
        notices.append(f"{shown} is not UTF-8; it was read as {encoding_label(codec)}.")
    if damaged := text.count("\ufffd"):
        notices.append(f"{damaged} damaged characters in {shown} are shown as \ufffd.")
    return text, codec, tuple(notices)


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text without line ends, a few at a time: all of them would take many times its memory.

    The line ends are those of editors and other tools, so that line numbers agree: line feeds and carriage returns, not
    form feeds and the like as in `splitlines`.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    start, size = 0, len(text)
    while start < size:
        end = text.rfind("\n", start, start + _LINES_CHARS)
        if end < 0:
            end = text.find("\n", start)
        if end < 0:
            end = size
        yield from text[start:end].split("\n")
        start = end + 1


def line_count(text: str) -> int:
    """Return the number of lines that `lines_of` yields."""
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    return ends if not text or text.endswith(("\n", "\r")) else ends + 1
