"""The kinds of media that a block can hold: one row each, used by unions, catalog, discovery, prompt and wires.

A new kind needs one row here, one block class in `blocks`, and a branch wherever the type checker reports one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

MediaKindName: TypeAlias = Literal["image", "document", "audio", "video"]

PDF: Final = "application/pdf"


class MediaKind(msgspec.Struct, frozen=True, kw_only=True):
    name: MediaKindName
    """The tag of its block and the kind of `ShownMedia`."""
    prefix: str
    """The prefix of its media types; empty for the kind that includes all others."""
    capability: str
    """The capability flag of a model that supports it: `vision`, `native_pdf`, `audio`, `video`."""
    accepted_prefix: str
    """The prefix of the media types that the flag covers; a refusal removes these."""
    usual_types: tuple[str, ...]
    """The media types that the flag implies if no others are named."""


MEDIA_KINDS: Final[dict[MediaKindName, MediaKind]] = {
    kind.name: kind
    for kind in (
        MediaKind(
            name="image",
            prefix="image/",
            capability="vision",
            accepted_prefix="image/",
            usual_types=("image/png", "image/jpeg"),
        ),
        MediaKind(
            name="document",
            prefix="",
            capability="native_pdf",
            accepted_prefix=PDF,
            usual_types=(PDF,),
        ),
        MediaKind(
            name="audio",
            prefix="audio/",
            capability="audio",
            accepted_prefix="audio/",
            usual_types=("audio/wav", "audio/mpeg"),
        ),
        MediaKind(
            name="video",
            prefix="video/",
            capability="video",
            accepted_prefix="video/",
            usual_types=("video/mp4", "video/webm"),
        ),
    )
}

MEDIA_KIND_NAMES: Final[tuple[MediaKindName, ...]] = get_args(MediaKindName)
MEDIA_CAPABILITIES: Final = tuple(kind.capability for kind in MEDIA_KINDS.values())


def media_kind(media_type: str) -> MediaKind:
    """Return the kind whose block holds this media type."""
    for kind in MEDIA_KINDS.values():
        if kind.prefix and media_type.startswith(kind.prefix):
            return kind
    return MEDIA_KINDS["document"]


def capability_of(accepted_prefix: str) -> str:
    """Return the capability flag for media types with this prefix; the prefix itself if it belongs to no kind."""
    for kind in MEDIA_KINDS.values():
        if kind.accepted_prefix == accepted_prefix:
            return kind.capability
    return accepted_prefix


def kind_word(media_type: str) -> str:
    """Return the word for labels: `image`, `audio`, `video` or `document`; `file` if the type is not known."""
    kind = media_type.partition("/")[0].lower()
    if kind in MEDIA_KINDS:
        return kind
    return "document" if media_type else "file"
