"""The kinds of media that a block can hold: one row each, read by unions, catalogue, discovery, prompt and wires.

A new kind is one row here, one block class in `blocks`, and a branch where the type checker asks for one.
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
    """How its media types begin; empty for the kind that takes all the others."""
    capability: str
    """The flag of a model that takes it: `vision`, `native_pdf`, `audio`, `video`."""
    accepted_prefix: str
    """How the media types begin that the flag stands for; a refusal takes these away."""
    usual_types: tuple[str, ...]
    """The media types that come with the flag where nothing names others."""
    modality: str
    """The word for it in the model lists of other services."""


MEDIA_KINDS: Final[dict[MediaKindName, MediaKind]] = {
    kind.name: kind
    for kind in (
        MediaKind(
            name="image",
            prefix="image/",
            capability="vision",
            accepted_prefix="image/",
            usual_types=("image/png", "image/jpeg"),
            modality="image",
        ),
        MediaKind(
            name="document",
            prefix="",
            capability="native_pdf",
            accepted_prefix=PDF,
            usual_types=(PDF,),
            modality="file",
        ),
        MediaKind(
            name="audio",
            prefix="audio/",
            capability="audio",
            accepted_prefix="audio/",
            usual_types=("audio/wav", "audio/mpeg"),
            modality="audio",
        ),
        MediaKind(
            name="video",
            prefix="video/",
            capability="video",
            accepted_prefix="video/",
            usual_types=("video/mp4", "video/webm"),
            modality="video",
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
    """Return the flag that media types with this beginning stand for; the prefix itself where it is not a medium."""
    for kind in MEDIA_KINDS.values():
        if kind.accepted_prefix == accepted_prefix:
            return kind.capability
    return accepted_prefix


def kind_word(media_type: str) -> str:
    """Return the word that a label uses: `image`, `audio`, `video`, `document`; `file` where the type is not known."""
    kind = media_type.partition("/")[0].lower()
    if kind in MEDIA_KINDS:
        return kind
    return "document" if media_type else "file"
