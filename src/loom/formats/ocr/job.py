"""The program of the OCR worker (`python -m loom.formats.ocr.job`). It decodes the image and runs the engine."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec

from loom.errors import TooLarge, Unreadable
from loom.formats.ocr.line_reader import LineReader, ReadLine
from loom.formats.ocr.reading_order import in_reading_order, straighten
from loom.formats.worker.loop import Task, serve

_MAX_SIDE_PX: Final = 4000
_SURE: Final = 0.5
_DOUBTFUL: Final = 0.75
"""A page whose lines are read with a lower average confidence may be upside down."""
_MAX_LANGUAGES: Final = 4


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    if data is None:
        return None
    image = _decode(data, task.limits.max_pixels)
    text = _reader(msgspec.msgpack.decode(task.job))(image)
    return msgspec.msgpack.encode(None), text.encode()


def _reader(engine: str) -> Callable[[Any], str]:
    if engine == "tesseract":
        return _tesseract
    try:
        return _rapidocr()
    except ImportError as error:  # installed, but a system library that it needs is not
        if shutil.which("tesseract"):
            return _tesseract
        raise Unreadable(f"could not be read: rapidocr does not load ({error.name or error})") from error


def _decode(data: bytes, max_pixels: int) -> Any:
    """Decode an image: upright, on white, no larger than an engine can use."""
    pillow: Any = importlib.import_module("PIL.Image")
    upright: Any = importlib.import_module("PIL.ImageOps").exif_transpose
    pillow.MAX_IMAGE_PIXELS = None  # checked below, before anything is decoded
    try:
        with pillow.open(io.BytesIO(data)) as image:
            if image.width * image.height > max_pixels:
                raise TooLarge(f"is {image.width}×{image.height} pixels, more than {max_pixels / 1e6:.0f} million")
            image.draft("RGB", (_MAX_SIDE_PX, _MAX_SIDE_PX))
            whole = upright(image).convert("RGBA")
    except (OSError, ValueError, SyntaxError) as error:
        raise Unreadable("cannot be decoded") from error
    whole.thumbnail((_MAX_SIDE_PX, _MAX_SIDE_PX))
    paper = pillow.new("RGBA", whole.size, "white")
    return pillow.alpha_composite(paper, whole).convert("RGB")


@cache
def _rapidocr() -> Callable[[Any], str]:
    numpy: Any = importlib.import_module("numpy")
    reader = LineReader()

    def read(image: Any) -> str:
        pixels = numpy.ascontiguousarray(numpy.asarray(image)[:, :, ::-1])
        lines = reader.read(pixels)
        if lines and _confidence(lines) < _DOUBTFUL:  # upside down?
            turned = reader.read(numpy.ascontiguousarray(pixels[::-1, ::-1]))
            lines = max(lines, turned, key=_confidence)
        pieces = [(line.text, line.corners) for line in lines if line.score >= _SURE and line.text.strip()]
        return in_reading_order(straighten(pieces))

    return read


def _confidence(lines: list[ReadLine]) -> float:
    return sum(line.score for line in lines) / len(lines) if lines else 0.0


def _tesseract(image: Any) -> str:
    program = shutil.which("tesseract") or "tesseract"
    picture = io.BytesIO()
    image.save(picture, format="PNG", compress_level=1)
    done = subprocess.run(
        [program, "-", "-", "-l", _languages(program)],
        input=picture.getvalue(),
        check=False,
        capture_output=True,
        env=os.environ | {"OMP_THREAD_LIMIT": "1"},  # its threads wait for one another by spinning
    )
    if done.returncode != 0:
        raise Unreadable("could not be read by tesseract")
    return done.stdout.decode(errors="replace").replace("\f", "").strip()


@cache
def _languages(program: str) -> str:
    """Return the installed languages."""
    listed = subprocess.run([program, "--list-langs"], check=True, capture_output=True, text=True).stdout.splitlines()
    names = [name for name in listed[1:] if name not in ("osd", "equ")]
    names.sort(key=lambda name: name != "eng")
    return "+".join(names[:_MAX_LANGUAGES])


if __name__ == "__main__":
    serve(run)
