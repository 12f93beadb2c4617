"""A PDF with a password becomes the same PDF without one: what is kept can then be read by whoever may read the store,
and the password itself is kept nowhere."""

from __future__ import annotations

from functools import cache

import msgspec

from loom.content.media import digest_of
from loom.formats.facts import Limits
from loom.formats.worker import Crew


@cache
def _crew() -> Crew:
    return Crew("loom.formats.pdf.unlock_job")


def unlock_pdf(data: bytes, password: str, *, name: str = "", limits: Limits = Limits()) -> bytes:
    """The same pages without encryption. Raises `Encrypted` where the password is not the right one."""
    _, unlocked = _crew().call(
        msgspec.msgpack.encode(password),
        data,
        digest=digest_of(data),
        name=name or "The PDF",
        limits=limits,
        seconds=limits.deadline_seconds,
    )
    return unlocked
