"""Three sample files for new users: a screenshot with an error, a receipt, a leaflet of two pages (41 KB in total)."""

from __future__ import annotations

from importlib import resources

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """A sample file; `question` is a typical question about it."""

    name: str
    media_type: str
    question: str
    data: bytes


def samples() -> tuple[Sample, ...]:
    folder = resources.files(__name__)
    return tuple(
        Sample(name, media_type, question, folder.joinpath(name).read_bytes())
        for name, media_type, question in (
            ("login.png", "image/png", "What is wrong here?"),
            ("receipt.jpg", "image/jpeg", "What does this look like?"),
            ("leaflet.pdf", "application/pdf", "Which pages talk about timeouts?"),
        )
    )
