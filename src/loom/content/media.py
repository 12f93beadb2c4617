"""Media: a reference to bytes in the media store. It describes the bytes, but not their location."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from typing import Any, Final, Literal

import msgspec

from loom.errors import ContentError

Category = Literal["text", "image", "pdf", "office", "audio", "video", "unsupported"]

DIGEST_TAG: Final = "sha256:"
_DIGEST_LENGTH: Final = 71
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of bytes: a hash with the name of its algorithm."""
    return DIGEST_TAG + hashlib.sha256(data).hexdigest()


def check_text(*texts: str) -> None:
    """Raise `ContentError` if a text cannot be encoded as UTF-8: a lone surrogate would make the whole message
    unwritable."""
    for text in texts:
        if text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ContentError(
                f"Text contains a lone surrogate at position {error.start}: pass it through clean_text"
            ) from None


def require_text(value: msgspec.Struct, *fields: str) -> str:
    """Convert the text in these fields to plain `str`, because a subclass (markup, a parsed node) cannot be encoded.
    Return the text of the last field; raise `ContentError` for a field that is not text."""
    plain = ""
    for field in fields:
        text: Any = getattr(value, field)
        if not isinstance(text, str):
            raise wrong_field(value, field, "a string", text)
        plain = str.__str__(text)
        msgspec.structs.force_setattr(value, field, plain)
    return plain


def make_whole(value: msgspec.Struct, *fields: str) -> None:
    """Convert the integers in these fields to plain `int`; raise `ContentError` for a field that is not an integer."""
    for field in fields:
        number: Any = getattr(value, field)
        if not isinstance(number, int) or isinstance(number, bool):
            raise wrong_field(value, field, "a whole number", number)
        if type(number) is not int:
            msgspec.structs.force_setattr(value, field, int.__int__(number))


def wrong_field(value: msgspec.Struct, field: str, expected: str, found: Any) -> ContentError:
    return ContentError(f"{type(value).__name__}.{field} is {expected}, not {repr(found)[:80]}")


@functools.lru_cache(256)
def _is_media_type(text: str) -> bool:
    return _MEDIA_TYPE.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    return len(text) == _DIGEST_LENGTH and _is_digest(text)


@functools.lru_cache(1024)
def _is_digest(text: str) -> bool:
    """Check a digest. The result is cached, because a path that is loaded again refers to the same media."""
    return _DIGEST.fullmatch(text) is not None


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A reference to bytes. `media_type` is detected from the bytes, never from a suffix. `source` is the origin; it is
    never read again."""

    digest: str
    media_type: str
    size_bytes: int
    width: int | None = None
    height: int | None = None
    pages: int | None = None
    frames: int | None = None
    duration_seconds: float | None = None
    name: str = ""
    source: str = ""
    codec: str = ""
    """The codecs of a video, such as `h264, aac`."""

    def __post_init__(self) -> None:
        plain = type(self.digest) is type(self.media_type) is type(self.name) is type(self.source) is str
        if not plain or type(self.codec) is not str:
            require_text(self, "digest", "media_type", "name", "source", "codec")
        if (
            type(self.size_bytes) is not int
            or (self.width is not None and type(self.width) is not int)
            or (self.height is not None and type(self.height) is not int)
            or (self.pages is not None and type(self.pages) is not int)
            or (self.frames is not None and type(self.frames) is not int)
        ):
            counts = ("width", "height", "pages", "frames")
            make_whole(self, "size_bytes", *(count for count in counts if getattr(self, count) is not None))
        if self.duration_seconds is not None:
            _make_finite(self, self.duration_seconds)
        if len(self.digest) != _DIGEST_LENGTH or not _is_digest(self.digest):
            raise ContentError(f"A digest is 'sha256:' and 64 hex digits, not {self.digest[:80]!r}")
        if not _is_media_type(self.media_type):
            raise ContentError(f"A media type looks like 'image/png', not {self.media_type[:80]!r}")
        if self.size_bytes < 0:
            raise ContentError("size_bytes cannot be negative")
        if not (self.name.isascii() and self.source.isascii() and self.codec.isascii()):
            check_text(self.name, self.source, self.codec)

    @property
    def label(self) -> str:
        """The label for a text-only model: `photo.png, 640×480, 24 KB`."""
        facts = [self.name or self.media_type]
        if self.width and self.height:
            facts.append(f"{self.width}×{self.height}")
        if self.frames and self.frames > 1:
            facts.append(f"{self.frames} frames")
        if self.pages:
            facts.append("1 page" if self.pages == 1 else f"{self.pages} pages")
        if self.duration_seconds is not None:
            facts.append(_duration(self.duration_seconds))
        if self.codec:
            facts.append(self.codec)
        facts.append(size_label(self.size_bytes))
        return ", ".join(facts)


def _make_finite(media: Media, seconds: Any) -> None:
    """Convert the duration to a plain `float`. Raise `ContentError` if it is not finite, because JSON cannot represent
    it."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    try:
        plain = float(seconds) if is_number else math.nan
    except OverflowError:
        plain = math.inf
    if not math.isfinite(plain):
        raise wrong_field(media, "duration_seconds", "a finite number", seconds)
    if type(seconds) is not float:
        msgspec.structs.force_setattr(media, "duration_seconds", plain)


def size_label(size_bytes: int) -> str:
    """Return a size for people to read: 312 bytes, 24 KB, 1.8 MB (powers of 1000, as in file managers)."""
    if size_bytes < 1000:
        return "1 byte" if size_bytes == 1 else f"{size_bytes} bytes"
    value, unit = size_bytes / 1000, "KB"
    for larger in ("MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 10 or unit == "KB" else f"{value:.1f} {unit}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min"
