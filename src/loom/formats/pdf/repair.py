"""A PDF that pdfium refuses becomes one that it reads, where there are pages to be found in it."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from loom.content.media import digest_of
from loom.errors import MediaError
from loom.formats.facts import Limits
from loom.formats.worker import Crew

_SHARE: Final = 1 / 3
"""Of the deadline of a document: this is a second attempt, and somebody waits."""


@cache
def _crew() -> Crew:
    return Crew("loom.formats.pdf.repair_job")


def repair_pdf(data: bytes, *, name: str = "", limits: Limits = Limits()) -> bytes | None:
    """What could be saved, written anew; None where nothing could."""
    try:
        _, rebuilt = _crew().call(
            msgspec.msgpack.encode(None),
            data,
            digest=digest_of(data),
            name=name or "The PDF",
            limits=limits,
            seconds=limits.deadline_seconds * _SHARE,
        )
    except MediaError:
        return None
    return rebuilt
