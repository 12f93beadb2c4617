"""Bytes encoded in text: base64 in its variants, and `data:` URLs."""

from __future__ import annotations

import binascii
import re
from typing import Final

import msgspec

_SPACE = re.compile(r"\s+")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_CHARSET = re.compile(
    r"(us-)?ascii|utf-?(8|16|32)(-?[bl]e)?|iso-8859-\d+|latin-?1|windows-\d+|cp\d+|koi8-[ru]|shift_jis|euc-\w+|gb\w+|big5"
)
"""The charsets of documents. Python supports others (punycode, unicode_escape) that are slow or not charsets at all."""
_URLSAFE = str.maketrans("-_", "+/")
_MIN_GUESSED_CHARS: Final = 64
_MAGIC: Final = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0")
"""The first characters of base64 of PNG, JPEG, GIF, RIFF (WebP, WAV) and PDF."""


class DataUrl(msgspec.Struct, frozen=True):
    """A parsed `data:` URL. `data` is None if its base64 does not decode; `media_type` may be empty."""

    data: bytes | None
    media_type: str
    name: str = ""


def from_base64(text: str) -> bytes | None:
    """Decode base64; return None if it is invalid. Line breaks, the URL-safe alphabet and missing padding are
    accepted."""
    if not text.isascii():
        return None
    if (data := _decode_base64(text)) is not None:
        return data or None
    compact = _SPACE.sub("", text).translate(_URLSAFE).rstrip("=")
    return _decode_base64(compact + "=" * (-len(compact) % 4)) or None


def _decode_base64(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None


def data_url(text: str) -> DataUrl | None:
    """Parse `data:image/png;name=a.png;base64,…`; return None if the text is not such a URL."""
    text = text.strip()
    if text[:5].lower() != "data:":
        return None
    head, comma, body = text.partition(",")
    if not comma or _SPACE.search(head):
        return None
    media_type, *parameters = head[5:].split(";")
    named = {key.strip().lower(): value for key, _, value in (item.partition("=") for item in parameters)}
    kind = media_type.lower() or ("text/plain" if "charset" in named else "")
    if _TYPE.fullmatch(kind) is None and (kind or "base64" not in named):
        return None
    data = from_base64(_unquote(body).decode("latin-1")) if "base64" in named else _unquote(body)
    name = _unquote(named.get("filename") or named.get("name") or "").decode(errors="replace")
    return DataUrl(_as_utf8(data, named.get("charset", "")) if kind.startswith("text/") else data, kind, name)


def looks_encoded(text: str) -> bool:
    """Return whether a string begins like base64 of an image, audio or a PDF."""
    return len(text) >= _MIN_GUESSED_CHARS and text.startswith(_MAGIC)


def may_hold_bytes(text: str) -> bool:
    """Return whether a text may contain encoded bytes. This is a quick check before it is parsed."""
    return "data:" in text or any(magic in text for magic in _MAGIC)


def _unquote(text: str) -> bytes:
    """Return the bytes of a URL part with its %41 escapes resolved."""
    data = text.encode()
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), data) if b"%" in data else data


def _as_utf8(data: bytes | None, charset: str) -> bytes | None:
    """Convert text with a declared charset to UTF-8."""
    charset = charset.strip('"').lower()
    if data is None or _CHARSET.fullmatch(charset) is None:
        return data
    try:
        return data.decode(charset).encode()
    except (LookupError, ValueError):
        return data
