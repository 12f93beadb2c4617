"""The client of the worker for office files, used in the parent process."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from loom.content.media import Media
from loom.content.recipes import EmbeddedImage, Text
from loom.errors import Encrypted, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.office.read_messages import InspectOffice, OfficeJob, ReadFailure, ReadRows, RenderOffice
from loom.formats.office.sheet_messages import SheetText
from loom.formats.worker import WorkerKind, current_pool
from loom.struct_types import decode_msgpack

OFFICE_WORKER: Final = WorkerKind("loom.formats.office.read_job", size=2)
"""Two processes, because one slow document must not delay the others."""
_ERRORS: Final[dict[str, type[MediaError]]] = {
    error.code: error for error in (Unreadable, Unsupported, TooLarge, Encrypted)
}
T = TypeVar("T")


def inspect_in_worker(data: bytes, media: Media, limits: IntakeLimits) -> Inspection:
    result, _ = _call(InspectOffice(media), data, limits)
    return _decode(result, Inspection)


def render_in_worker(data: bytes, media: Media, recipe: Text | EmbeddedImage, limits: IntakeLimits) -> Rendered:
    result, blob = _call(RenderOffice(media, recipe), data, limits)
    return msgspec.structs.replace(_decode(result, Rendered), data=blob)


def rows_in_worker(data: bytes, job: ReadRows, limits: IntakeLimits) -> SheetText:
    result, _ = _call(job, data, limits)
    return _decode(result, SheetText)


def _call(job: OfficeJob, data: bytes, limits: IntakeLimits) -> tuple[msgspec.Raw, bytes]:
    """Send a job. The worker caches the parsed document under its type and name; errors contain the file name."""
    media = job.media
    return current_pool().call(
        OFFICE_WORKER,
        msgspec.msgpack.encode(job),
        data,
        digest=f"{media.digest} {media.media_type} {media.name}",
        name=media.name or "The document",
        limits=limits,
        seconds=limits.deadline_seconds,
    )


def _decode(result: msgspec.Raw, wanted: type[T]) -> T:
    """Return the result. Raise the reader's error if the result is one."""
    try:
        failure = decode_msgpack(result, ReadFailure)
    except msgspec.ValidationError:
        return decode_msgpack(result, wanted)
    raise _ERRORS[failure.code](failure.message, name=failure.name, hint=failure.hint)
