"""The text in an image, read by an OCR engine in its own worker process.

rapidocr (the extra `ocr`) gives the best results; tesseract, if installed, is the second choice. An engine needs
most of a gigabyte, so one process loads it once and keeps it. The texts of the last images are cached too: a prompt,
the search index and the built-in model need the same ones.
"""

from __future__ import annotations

import importlib.util
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import msgspec

from loom.content.media import digest_of
from loom.errors import ExtraMissing, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerKind, current_pool

Engine = Literal["rapidocr", "tesseract", ""]
T = TypeVar("T")

OCR_WORKER: Final = WorkerKind("loom.formats.ocr.job", memory_share=3)
"""onnxruntime maps 1.6 GB for a screenshot, 0.8 GB of it resident."""
_KEPT_TEXTS: Final = 64
_KEPT_CHARACTERS: Final = 500_000


async def run_in_ocr_thread(work: Callable[..., T], *given: object) -> T:
    """Run OCR in the threads of the worker pool: it takes seconds, and must not delay other work."""
    return await current_pool().run(work, *given)


def is_available() -> Engine:
    """Return the engine that `read_picture` uses, or an empty string if there is none."""
    if importlib.util.find_spec("rapidocr") and importlib.util.find_spec("onnxruntime"):
        return "rapidocr"
    return "tesseract" if shutil.which("tesseract") else ""


def read_picture(data: bytes, limits: IntakeLimits) -> str:
    """Return the text in reading order: columns one after another, lines from top to bottom; empty if there is none.

    Raise `TooLarge` if it takes longer than `limits.ocr_seconds`, `Unreadable` if the image cannot be decoded, and
    `ExtraMissing` without an engine.
    """
    engine = is_available()
    if not engine:
        raise ExtraMissing("Reading text in images needs an OCR engine.", hint="pip install 'loom-runtime[ocr]'")
    if not data:
        raise Unreadable("The image is empty.")
    key = (engine, digest_of(data))
    text = _texts.get(key)
    if text is None:
        text = _call(engine, data, limits)
        _texts.put(key, text)
    return text


def _call(engine: Engine, data: bytes, limits: IntakeLimits) -> str:
    seconds = limits.ocr_seconds
    try:
        _, text = current_pool().call(
            OCR_WORKER, msgspec.msgpack.encode(engine), data, name="The image", limits=limits, seconds=seconds
        )
    except TooLarge as error:
        if "takes longer than" not in error.message:
            raise
        raise TooLarge(
            f"Reading the text in the image takes longer than {seconds:g} s.",
            hint="Set worker.ocr_seconds higher, or attach the part that matters.",
        ) from None
    return text.decode()


class _Texts:
    """The texts of the last images, by engine and digest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], str] = OrderedDict()

    def get(self, key: tuple[str, str]) -> str | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: tuple[str, str], text: str) -> None:
        with self._lock:
            self._kept[key] = text
            while len(self._kept) > _KEPT_TEXTS or sum(map(len, self._kept.values())) > _KEPT_CHARACTERS:
                self._kept.popitem(last=False)


_texts: Final = _Texts()
