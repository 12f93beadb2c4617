"""Media: a reference to bytes that the media store holds. Knows what they are, never where they are."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Final, Literal

import msgspec

from loom.errors import ContentError

Category = Literal["text", "image", "pdf", "office", "audio", "unsupported"]

DIGEST_TAG: Final = "sha256:"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")


def digest_of(data: bytes | memoryview) -> str:
    """The identity of bytes: a hash tagged with its algorithm."""
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


@functools.lru_cache(256)
def _is_media_type(text: str) -> bool:
    return _MEDIA_TYPE.fullmatch(text) is not None


def is_digest(text: str) -> bool:
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

    def __post_init__(self) -> None:
        if _DIGEST.fullmatch(self.digest) is None:
            raise ContentError(f"a digest is 'sha256:' and 64 hex digits, not {self.digest[:80]!r}")
        if not _is_media_type(self.media_type):
            raise ContentError(f"a media type looks like 'image/png', not {self.media_type[:80]!r}")
        if self.size_bytes < 0:
            raise ContentError("size_bytes cannot be negative")
        if not (self.name.isascii() and self.source.isascii()):
            check_text(self.name, self.source)

    @property
    def label(self) -> str:
        """What a text-only reader is told: `photo.png, 640×480, 24 KB`."""
        return _label(self)


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
    facts.append(size_label(media.size_bytes))
    return ", ".join(facts)


def size_label(size_bytes: int) -> str:
    """Bytes for people: 312 bytes, 24 KB, 1.8 MB (powers of 1000, as file managers show them)."""
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
