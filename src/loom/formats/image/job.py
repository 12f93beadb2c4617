"""The program of the image worker (`python -m loom.formats.image.job`). It runs every image decoder."""

from __future__ import annotations

import importlib
import warnings
from typing import Final, assert_never

import msgspec

from loom.errors import MediaError
from loom.formats.image.describe_pixels import describe_picture
from loom.formats.image.messages import (
    SUBJECT,
    CheckedPicture,
    CheckPicture,
    DescribePixels,
    PagesToPdf,
    PictureJob,
    RenderPicture,
    pack,
)
from loom.formats.image.page_document import write_pdf
from loom.formats.image.render import check_picture, render_picture
from loom.formats.worker.loop import Task, serve
from loom.struct_types import msgpack_decoder

_JOB: Final = msgpack_decoder(tuple[str, PictureJob])
_encode: Final = msgspec.msgpack.encode


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    media_type, job = _JOB.decode(task.job)
    try:
        return _run(job, document, media_type, task)
    except MediaError as error:  # the parent process adds the file name
        raise type(error)(error.message.removeprefix(SUBJECT + " ").removesuffix("."), hint=error.hint) from error


def _run(job: PictureJob, data: bytes, media_type: str, task: Task) -> tuple[bytes, bytes]:
    match job:
        case CheckPicture():
            facts, made = check_picture(data, media_type, task.limits, job.recipes)
            packed, blob = pack(made, data)
            return _encode(CheckedPicture(facts, packed)), blob
        case RenderPicture():
            packed, blob = pack([render_picture(data, media_type, job.recipe, task.limits)], data)
            return _encode(packed[0]), blob
        case PagesToPdf():
            return _encode(None), write_pdf(data, media_type, task.limits)
        case DescribePixels():
            return _encode(describe_picture(data, media_type, task.limits)), b""
        case _:
            assert_never(job)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # warnings of decoders are about the file, and nothing here reads them
    for plugin in ("JpegImagePlugin", "PngImagePlugin", "WebPImagePlugin"):
        importlib.import_module(f"PIL.{plugin}")  # before the first image waits for it
    serve(run)
