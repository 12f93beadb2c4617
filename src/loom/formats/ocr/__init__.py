"""The words that are drawn in a picture, read by an OCR engine in a worker process of its own.

rapidocr (the extra `ocr`) reads best; tesseract, where it is installed, is the second choice. An engine takes seconds
and most of a gigabyte to load, so one process loads it once and keeps it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Final, Literal, TypeVar

import msgspec

from loom.content.media import digest_of
from loom.errors import ExtraMissing, Unreadable
from loom.formats.facts import Limits
from loom.formats.worker import Crew

Engine = Literal["rapidocr", "tesseract", ""]
T = TypeVar("T")

_MEMORY_SHARE: Final = 3
"""onnxruntime maps 1.6 GB for a screenshot, 0.8 GB of it resident."""


_READERS: Final = 2


@cache
def _crew() -> Crew:
    return Crew("loom.formats.ocr.job", memory_share=_MEMORY_SHARE)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_READERS, thread_name_prefix="loom-ocr")


async def beside(work: Callable[..., T], *given: object) -> T:
    """Do work that reads pictures beside the event loop. It takes seconds: a hundred pictures wait for one another
    here, and not in the threads that everybody else needs."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(work, *given))


def available() -> Engine:
    """The engine that `read_picture` uses, or nothing."""
    if importlib.util.find_spec("rapidocr") and importlib.util.find_spec("onnxruntime"):
        return "rapidocr"
    return "tesseract" if shutil.which("tesseract") else ""


def read_picture(data: bytes, limits: Limits) -> str:
    """The text in reading order: columns one after another, lines from top to bottom; empty when there is none."""
    engine = available()
    if not engine:
        raise ExtraMissing("Reading text in pictures needs an OCR engine.", hint="pip install 'loom-runtime[ocr]'")
    if not data:
        raise Unreadable("The picture is empty.")
    _, text = _crew().call(
        msgspec.msgpack.encode(engine),
        data,
        digest=digest_of(data),
        name="The picture",
        limits=limits,
        seconds=limits.ocr_seconds,
    )
    return text.decode()
