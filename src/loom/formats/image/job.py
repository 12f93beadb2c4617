"""What runs inside the worker for pictures whose decoder must not run in our process (see `image`)."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.errors import MediaError
from loom.formats.image import SUBJECT, Check, ImageJob, check_here, render_here
from loom.formats.worker.loop import Task, serve

_JOB: Final = msgspec.msgpack.Decoder(tuple[str, ImageJob])


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    media_type, job = _JOB.decode(task.job)
    try:
        if isinstance(job, Check):
            return msgspec.msgpack.encode(check_here(document, media_type, task.limits)), b""
        rendered = render_here(document, media_type, job, task.limits)
    except MediaError as error:  # the parent puts the name of the file in front
        raise type(error)(error.message.removeprefix(SUBJECT + " ").removesuffix("."), hint=error.hint) from error
    return msgspec.msgpack.encode(msgspec.structs.replace(rendered, data=b"")), rendered.data


if __name__ == "__main__":
    serve(run)
