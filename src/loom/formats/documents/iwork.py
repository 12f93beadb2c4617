"""Pages, Numbers and Keynote files. Their format is not published, so the embedded preview is used."""

from __future__ import annotations

from functools import partial
from typing import Final

from loom.errors import Unreadable
from loom.formats.documents.messages import ReadContext, ReadDocument, StoredPicture
from loom.formats.office.archive import Archive
from loom.formats.sniff import sniff

_PREVIEWS: Final = ("preview.jpg", "QuickLook/Thumbnail.jpg", "preview-web.jpg", "preview-micro.jpg")
_PDF: Final = "QuickLook/Preview.pdf"
_EXPORT: Final = "Export it as PDF (File, Export To) and attach that."


def read_iwork(data: bytes, context: ReadContext) -> ReadDocument:
    """Return the embedded preview. Raise `Unreadable` if the file contains none."""
    archive = Archive(data, name="", limits=context.limits)
    pictures = [
        StoredPicture(picture, kind.media_type, path)
        for path in _PREVIEWS
        if path in archive and (kind := sniff(picture := archive.read(path))).category == "image"
    ][:1]
    has_pdf = _PDF in archive
    if not pictures and not has_pdf:
        raise Unreadable("is an iWork document without a preview", hint=_EXPORT)
    lines = [f"[iWork document: only its preview can be read. {_EXPORT}]"]
    lines += [f"[image 1: {picture.name}]" for picture in pictures]
    if has_pdf:
        lines.append(f'[its pages as PDF: read_file(path, member="{_PDF}")]')
    members = {_PDF: partial(archive.read, _PDF)} if has_pdf else {}
    return ReadDocument(sections=["\n".join(lines)], pictures=pictures, members=members)
