"""Files inside files: members of archives, attachments of mails."""

from __future__ import annotations

from loom.content.media import Media
from loom.errors import Unsupported
from loom.formats.documents import DocumentFormat
from loom.formats.documents.messages import Member
from loom.formats.facts import IntakeLimits
from loom.formats.registry import format_of
from loom.formats.sniff.kinds import label_of


def read_member(data: bytes, media: Media, path: str, limits: IntakeLimits = IntakeLimits()) -> Member:
    """Return the file at `path` in an archive or a mail. Raise a `MediaError` if there is none."""
    found = format_of(media.media_type)
    if not isinstance(found, DocumentFormat):
        raise Unsupported(
            f"{media.name or 'The file'} is {label_of(media.media_type)} and has no files inside.", name=media.name
        )
    return found.member(data, media, path, limits)
