"""The program of the worker for office files (`python -m loom.formats.office.read_job`). It runs our own readers.

They are written in Python and bounded, but a file of 200,000 paragraphs takes longer than any deadline that they check
themselves, and would block every thread of their process.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from loom.errors import MediaError
from loom.formats import office
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.office.documents import OfficeDocument
from loom.formats.office.read_messages import InspectOffice, OfficeJob, ReadFailure, ReadRows, RenderOffice
from loom.formats.office.sheet_messages import SheetText
from loom.formats.worker.held_documents import HeldDocuments
from loom.formats.worker.loop import Task, serve
from loom.struct_types import msgpack_decoder

_JOB: Final = msgpack_decoder(OfficeJob)
_SHARE: Final = 0.6
"""The share of the deadline for the workbook reader: the rest is for the slower reader, if that one fails."""


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    job = _JOB.decode(task.job)
    try:
        if office.is_converted(job.media.media_type) and isinstance(job, InspectOffice):
            return None if data is None else (msgspec.msgpack.encode(office.inspect_legacy(data, job.media)), b"")
        opened = _held.get(task, data)
        if opened is None:
            return None
        result, blob = _answer(opened, job, task)
    except MediaError as error:  # its message already contains the file name
        result, blob = ReadFailure(code=error.code, message=error.message, name=error.name, hint=error.hint), b""
    return msgspec.msgpack.encode(result), blob


def _open(task: Task, data: bytes) -> OfficeDocument:
    return office.open_office(data, _JOB.decode(task.job).media, _limits(task))


def _answer(opened: OfficeDocument, job: OfficeJob, task: Task) -> tuple[Inspection | Rendered | SheetText, bytes]:
    if opened.package is not None:
        opened.package.archive.restart_clock(_limits(task).deadline_seconds)
    match job:
        case InspectOffice():
            return office.inspect_opened(opened, job.media), b""
        case RenderOffice():
            made = office.render_opened(opened, job.media, job.recipe, _limits(task))
            return msgspec.structs.replace(made, data=b""), made.data
        case ReadRows():
            return office.opened_rows(opened, job), b""
        case _:
            assert_never(job)


def _limits(task: Task) -> IntakeLimits:
    return msgspec.structs.replace(task.limits, deadline_seconds=task.seconds * _SHARE)


_held: Final = HeldDocuments(_open)


if __name__ == "__main__":
    serve(run)
