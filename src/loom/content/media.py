"""Media: a reference to bytes that the media store holds. Knows what they are, never where they are."""

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
    """Return the identity of bytes: a hash tagged with its algorithm."""
    return DIGEST_TAG + hashlib.sha256(data).hexdigest()


def check_text(*texts: str) -> None:
    """Text must survive UTF-8: a lone surrogate would make the whole message unwritable."""
    for text in texts:
        if text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ContentError(
                f"text holds a lone surrogate at position {error.start}: pass it through clean_text"
            ) from None


def make_plain(value: msgspec.Struct, *fields: str) -> str:
    """Text in these fields becomes plain `str`, because a subclass (markup, a parsed node) cannot be written; what is
    no text is refused. Gives the text of the last."""
    plain = ""
    for field in fields:
        text: Any = getattr(value, field)
        if not isinstance(text, str):
            raise wrong_field(value, field, "a string", text)
        plain = str.__str__(text)
        msgspec.structs.force_setattr(value, field, plain)
    return plain


def make_whole(value: msgspec.Struct, *fields: str) -> None:
    """The same for whole numbers."""
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


@functools.lru_cache(4096)
def _is_digest(text: str) -> bool:
    """Remembered, because a path that is loaded again names the same media; only texts of this length are."""
    return _DIGEST.fullmatch(text) is not None


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`media_type` comes from the bytes, never from a suffix. `source` is provenance and is never read again."""

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
    """Of a video: how pictures and sound are encoded, such as `h264, aac`."""

    def __post_init__(self) -> None:
        plain = type(self.digest) is type(self.media_type) is type(self.name) is type(self.source) is str
        if not plain or type(self.codec) is not str:
            make_plain(self, "digest", "media_type", "name", "source", "codec")
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
            raise ContentError(f"a digest is 'sha256:' and 64 hex digits, not {self.digest[:80]!r}")
        if not _is_media_type(self.media_type):
            raise ContentError(f"a media type looks like 'image/png', not {self.media_type[:80]!r}")
        if self.size_bytes < 0:
            raise ContentError("size_bytes cannot be negative")
        if not (self.name.isascii() and self.source.isascii() and self.codec.isascii()):
            check_text(self.name, self.source, self.codec)

    @property
    def label(self) -> str:
        """The label for a text-only reader: `photo.png, 640×480, 24 KB`."""
        return _label(self)


def _make_finite(media: Media, seconds: Any) -> None:
    """JSON has no word for a duration without an end: it would come back as none at all."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    try:
        plain = float(seconds) if is_number else math.nan
    except OverflowError:
        plain = math.inf
    if not math.isfinite(plain):
        raise wrong_field(media, "duration_seconds", "a finite number", seconds)
    if type(seconds) is not float:
        msgspec.structs.force_setattr(media, "duration_seconds", plain)


@functools.lru_cache(4096)
def _label(media: Media) -> str:
    facts = [media.name or media.media_type]
    if media.width and media.height:
        facts.append(f"{media.width}×{media.height}")
    if media.frames and media.frames > 1:
        facts.append(f"{media.frames} frames")
    if media.pages:
        facts.append("1 page" if media.pages == 1 else f"{media.pages} pages")
    if media.duration_seconds is not None:
        facts.append(_duration(media.duration_seconds))
    if media.codec:
        facts.append(media.codec)
    facts.append(size_label(media.size_bytes))
    return ", ".join(facts)


def size_label(size_bytes: int) -> str:
    """Return bytes for people: 312 bytes, 24 KB, 1.8 MB (powers of 1000, as file managers show them)."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
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
