"""Text that is not Unicode: the encoding that a text declares, or else the encoding that is detected.

A declaration (XML, HTML, e-mail, Python) is used if the bytes are valid in that encoding; otherwise chardet decides.
Encodings are replaced by the supersets that programs really write under their names (`shift_jis` → cp932), as in
browsers. Detection reads a bounded part of a text, so that a large file costs no more than a small one.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Final

_DECLARED: Final = re.compile(rb"""(?:coding|charset)\s*[=:]\s*["']?([\w.:-]{2,32})""", re.IGNORECASE)
_DECLARED_BYTES: Final = 1024
_DETECTED_BYTES: Final = 32_768
_FEW_HIGH_BYTES: Final = 4
"""With fewer bytes beyond ASCII, statistics are useless; Western European is assumed, by far the most frequent."""
_MAX_CONTROL_SHARE: Final = 0.002
"""The largest share of control characters in undeclared text. Binary files, such as programs and images, have more."""
_MIN_PRINTABLE: Final = 0.95
_ASCII: Final = bytes(range(0x80))
_CONTROLS: Final = bytes(set(range(32)) - {9, 10, 12, 13, 27} | {127})
_NO_CONTROLS: Final = bytes(set(range(256)) - set(_CONTROLS))
_UNPRINTABLE: Final = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f\ud800-\udfff\ufffd\ufffe\uffff]")
_PRIVATE: Final = re.compile("[\ue000-\uf8ff]")
_UNDEFINED_1252: Final = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_ESCAPED_JAPANESE: Final = re.compile(rb"\x1b\$[@B]")
_WIDER: Final = {
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "latin-1": "cp1252",
}
"""Encodings that are replaced by a superset, by Python's names."""
_FAMILIES: Final = (("big5", "cp950", "big5hkscs"), ("cp932", "shift_jis_2004"), ("euc_jp", "euc_jis_2004"))
"""Variants of one encoding; the first that fits is used."""
_NOT_OF_FILES: Final = frozenset(("utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"))
_DETECTABLE: Final = (
    *("ascii", "utf-8", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("iso8859-1", "iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-15"),
    *("koi8-r", "koi8-u", "cp866", "cp855", "mac-cyrillic", "mac-roman", "cp437", "cp850", "cp852", "cp874"),
    *("tis-620", "gb18030", "big5hkscs", "cp932", "shift_jis_2004", "euc_jis_2004", "cp949", "johab", "hz"),
)
"""Encodings that occur in files. Others that chardet supports (such as EBCDIC) would only be wrong guesses."""
_LABELS: Final = {
    "cp932": "Shift-JIS",
    "cp949": "EUC-KR",
    "gb18030": "GB 18030",
    "big5": "Big5",
    "cp950": "Big5",
    "big5hkscs": "Big5",
    "euc_jp": "EUC-JP",
    "euc_jis_2004": "EUC-JP",
    "shift_jis_2004": "Shift-JIS",
    "iso2022_jp": "ISO-2022-JP",
    "cp1252": "Windows-1252 (Western European)",
    "cp874": "Windows-874",
}


def find_encoding(data: bytes) -> str | None:
    """Return the codec of bytes that are not valid Unicode, or None if they are not text in any known encoding."""
    return declared_encoding(data) or _detect(_window(data))


def declared_encoding(data: bytes) -> str | None:
    """Return the encoding that a text declares in its first kilobyte, if its bytes are valid in it."""
    said = _DECLARED.search(data, 0, _DECLARED_BYTES)
    codec = known_codec(said[1].decode()) if said else None
    if codec is None or codec.startswith(("utf-16", "utf-32", "utf-8")):
        return None
    part = _window(data)
    return next((name for name in _variants(codec) if _fits(part, name)), None)


def known_codec(name: str) -> str | None:
    """Return Python's codec for the name of an encoding, or its superset as in browsers; None if it is not a text
    encoding."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # raises for codecs that are not text encodings: rot13, base64, zip
    except (LookupError, ValueError):
        return None
    return None if found.name in _NOT_OF_FILES else _WIDER.get(found.name, found.name)


def is_escaped_japanese(data: bytes) -> bool:
    """Return whether a text of 7-bit characters is ISO-2022-JP, as in old mail."""
    return _ESCAPED_JAPANESE.search(data) is not None and _fits(data, "iso2022_jp")


def encoding_label(codec: str) -> str:
    """Return the display name: `Windows-1251`, `Shift-JIS`, `KOI8-R`."""
    label = _LABELS.get(codec)
    if label is not None:
        return label
    if codec.startswith("cp125"):
        return f"Windows-{codec[2:]}"
    return codec.upper().replace("ISO8859", "ISO-8859").replace("_", "-")


def _window(data: bytes) -> bytes:
    """Return the part that is examined: it begins shortly before the first byte beyond ASCII, with whole lines if
    possible."""
    first = _first_high(data)
    start = data.rfind(b"\n", max(0, first - 4096), first) + 1
    part = data[start : start + _DETECTED_BYTES]
    return part if start + len(part) == len(data) else part[: part.rfind(b"\n") + 1] or part


def _first_high(data: bytes) -> int:
    for at in range(0, len(data), _DETECTED_BYTES):
        block = data[at : at + _DETECTED_BYTES]
        if not block.isascii():
            return at + next(place for place, value in enumerate(block) if value > 0x7F)
    return 0


@lru_cache(maxsize=8)  # cached: a file is examined by the sniffer, and again when it is decoded
def _detect(part: bytes) -> str | None:
    high = len(part.translate(None, _ASCII))
    if len(part.translate(None, _NO_CONTROLS)) > len(part) * _MAX_CONTROL_SHARE or not high:
        return None
    is_western = _UNDEFINED_1252.search(part) is None
    if high < _FEW_HIGH_BYTES:
        return "cp1252" if is_western else None
    import chardet

    found = chardet.detect(part, compat_names=False, include_encodings=_DETECTABLE, max_bytes=_DETECTED_BYTES)
    codec = known_codec(found["encoding"] or "")
    if codec is not None:
        fitting = (name for name in _variants(codec) if not name.startswith(("utf", "ascii")) and _fits(part, name))
        if (first := next(fitting, None)) is not None:
            return first
    return "cp1252" if is_western and high <= len(part) * 0.3 else None


def _variants(codec: str) -> tuple[str, ...]:
    return next((family for family in _FAMILIES if codec in family), (codec,))


def _fits(part: bytes, codec: str) -> bool:
    """Return whether `part` decodes to text. A character that is truncated at the end of the part is ignored."""
    try:
        text = codecs.getincrementaldecoder(codec)("strict").decode(part, final=False)
    except (UnicodeDecodeError, LookupError):
        return False
    allowed = len(text) * (1 - _MIN_PRINTABLE)
    return bool(text) and len(_UNPRINTABLE.findall(text)) <= allowed and len(_PRIVATE.findall(text)) <= allowed
