"""What runs inside the worker for office files (`python -m loom.formats.office.read_job`): our own readers.

They are written in Python and bounded, but a file of 200,000 paragraphs keeps them busy past any deadline that they
check themselves, and holds up every thread of the process that they run in.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from loom.errors import MediaError
from loom.formats import office
from loom.formats.office.read_messages import InspectOffice, OfficeJob, ReadFailure, ReadRows, RenderOffice
from loom.formats.worker.loop import Task, serve

_JOB: Final = msgspec.msgpack.Decoder(OfficeJob)
_SHARE: Final = 0.6
"""Of the deadline for the workbook reader, so that there is time to read carefully where it fails."""


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    limits = msgspec.structs.replace(task.limits, deadline_seconds=task.seconds * _SHARE)
    job = _JOB.decode(task.job)
    data = b""
    try:
        match job:
            case InspectOffice():
                result = office.inspect_here(document, job.media_type, job.name, limits)
            case RenderOffice():
                made = office.render_here(document, job.media, job.recipe, limits)
                result, data = msgspec.structs.replace(made, data=b""), made.data
            case ReadRows():
                result = office.rows_here(
                    document, job.media, limits, pages=job.pages, first_row=job.first_row, max_rows=job.max_rows
                )
            case _:
                assert_never(job)
    except MediaError as error:  # its sentence names the file already
        result = ReadFailure(code=error.code, message=error.message, name=error.name, hint=error.hint)
    return msgspec.msgpack.encode(result), data


if __name__ == "__main__":
    serve(run)
