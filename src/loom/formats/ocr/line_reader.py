"""Find and read the lines of text in an image: the models of rapidocr, run by onnxruntime without rapidocr's code.

That code imports for half a second (it parses its list of models twice), enlarges every screenshot whose shorter side
is under 736 px before it looks for text, and pads every word to the width of a line. The models are the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.formats.ocr.reading_order import Quad

MAX_THREADS: Final = 4
_SEARCH_SCALE: Final = 0.75
"""Lines are searched for in a smaller copy and read from the full image: letters of 8 px are found as well as before,
in 60 % of the time."""
_SEARCH_SIDE_PX: Final = 2000
_LEAST_SIDE_PX: Final = 320
"""A smaller copy is enlarged: the model finds no text whose letters fill it."""
_KEPT_PIXELS: Final = 1_000_000
"""The buffers for a copy of this size are kept, which saves a fifth of the search. Those for larger ones are freed."""
_STRIDE_PX: Final = 32
_TEXT: Final = 0.3
"""A pixel is text if the model's estimate is above this; a box is text if the mean of its pixels is above `_BOX`."""
_BOX: Final = 0.5
_GROWTH: Final = 1.6
"""The model marks the core of a line. Its box grows by this share of area over circumference on each side."""
_MAX_BOXES: Final = 1000
_LEAST_BOX_PX: Final = 3
_LINE_HEIGHT_PX: Final = 48
_LINE_STRIDE_PX: Final = 8
_LEAST_LINE_PX: Final = 48
_UPRIGHT: Final = 1.5
"""A box that is this many times higher than wide holds a line that runs from bottom to top."""


class ReadLine(msgspec.Struct, frozen=True):
    text: str
    corners: Quad
    score: float


class LineReader:
    """Loads the models once. Raise `ImportError` if a package, a library of the system or a model is missing."""

    def __init__(self) -> None:
        self._numpy: Any = importlib.import_module("numpy")
        self._cv: Any = importlib.import_module("cv2")
        self._cv.setNumThreads(1)
        self._runtime: Any = importlib.import_module("onnxruntime")
        threads = max(1, min(MAX_THREADS, os.cpu_count() or 1))
        self._detector = _session(self._runtime, _model_path("det"), threads)
        # One thread for each line, and several lines at once: a line is too small to be divided.
        self._recognizer = _session(self._runtime, _model_path("rec"), 1)
        self._threads = ThreadPoolExecutor(threads)
        letters = self._recognizer.get_modelmeta().custom_metadata_map.get("character")
        if letters is None:
            raise ImportError("rapidocr's model does not list its letters", name="rapidocr")
        self._letters = ["", *letters.splitlines(), " "]

    def read(self, pixels: Any) -> list[ReadLine]:
        """Return the lines in an array of height × width × (blue, green, red)."""
        boxes = self._find(pixels)
        crops = [self._crop(pixels, box) for box in boxes]
        widest_first = sorted(range(len(crops)), key=lambda index: -crops[index].shape[1] / crops[index].shape[0])
        texts: dict[int, tuple[str, float]] = dict(
            zip(widest_first, self._threads.map(self._recognize, [crops[at] for at in widest_first]), strict=True)
        )
        return [ReadLine(texts[at][0], box.tolist(), texts[at][1]) for at, box in enumerate(boxes)]

    def _find(self, pixels: Any) -> list[Any]:
        """Return the corners of each line: top left, top right, bottom right, bottom left."""
        numpy, cv = self._numpy, self._cv
        height, width = pixels.shape[:2]
        scale = min(_SEARCH_SIDE_PX / max(height, width), max(_SEARCH_SCALE, _LEAST_SIDE_PX / min(height, width)))
        size = tuple(max(_STRIDE_PX, round(side * scale / _STRIDE_PX) * _STRIDE_PX) for side in (width, height))
        seen = cv.resize(pixels, size).astype(numpy.float32).transpose(2, 0, 1)[None] / 127.5 - 1
        estimate = self._search(seen)
        mask = cv.dilate((estimate > _TEXT).astype(numpy.uint8), numpy.ones((2, 2), numpy.uint8))
        contours, _ = cv.findContours(mask, cv.RETR_LIST, cv.CHAIN_APPROX_SIMPLE)
        boxes: list[Any] = []
        for contour in contours[:_MAX_BOXES]:
            middle, (across, down), angle = cv.minAreaRect(contour)
            if min(across, down) < _LEAST_BOX_PX or self._mean(estimate, (middle, (across, down), angle)) < _BOX:
                continue
            growth = across * down * _GROWTH / (across + down)
            grown = cv.boxPoints((middle, (across + growth, down + growth), angle))
            corners = _clockwise(grown * numpy.array([width / size[0], height / size[1]], numpy.float32))
            boxes.append(numpy.array(corners, numpy.float32).clip(0, (width - 1, height - 1)).astype(numpy.float32))
        return boxes

    def _search(self, seen: Any) -> Any:
        """Return the estimate for each pixel that it is text."""
        options = self._runtime.RunOptions()
        if seen.shape[2] * seen.shape[3] > _KEPT_PIXELS:
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return _run(self._detector, seen, options)[0, 0]

    def _mean(self, estimate: Any, box: Any) -> float:
        numpy, cv = self._numpy, self._cv
        corners = cv.boxPoints(box)
        height, width = estimate.shape
        left, top = numpy.clip(numpy.floor(corners.min(0)).astype(int), 0, (width - 1, height - 1))
        right, bottom = numpy.clip(numpy.ceil(corners.max(0)).astype(int), 0, (width - 1, height - 1))
        mask = numpy.zeros((bottom - top + 1, right - left + 1), numpy.uint8)
        cv.fillPoly(mask, [(corners - (left, top)).astype(numpy.int32)], 1)
        return float(cv.mean(estimate[top : bottom + 1, left : right + 1], mask)[0])

    def _crop(self, pixels: Any, corners: Any) -> Any:
        """Return a box as an upright image."""
        numpy, cv = self._numpy, self._cv
        sides = [numpy.linalg.norm(corners[at] - corners[at - 1]) for at in range(4)]
        width, height = max(1, int(max(sides[1], sides[3]))), max(1, int(max(sides[0], sides[2])))
        target = numpy.array([[0, 0], [width, 0], [width, height], [0, height]], numpy.float32)
        turned = cv.getPerspectiveTransform(corners, target)
        crop = cv.warpPerspective(pixels, turned, (width, height), borderMode=cv.BORDER_REPLICATE, flags=cv.INTER_CUBIC)
        return numpy.rot90(crop) if height >= _UPRIGHT * width else crop

    def _recognize(self, crop: Any) -> tuple[str, float]:
        """Return the text of a line and the mean of the estimates of its letters."""
        numpy, cv = self._numpy, self._cv
        width = max(1, round(crop.shape[1] * _LINE_HEIGHT_PX / crop.shape[0]))
        line = cv.resize(numpy.ascontiguousarray(crop), (width, _LINE_HEIGHT_PX))
        padded = max(_LEAST_LINE_PX, -(-width // _LINE_STRIDE_PX) * _LINE_STRIDE_PX)
        seen = numpy.zeros((1, 3, _LINE_HEIGHT_PX, padded), numpy.float32)
        seen[0, :, :, :width] = line.transpose(2, 0, 1) / numpy.float32(127.5) - 1
        estimates = _run(self._recognizer, seen)[0]
        best = estimates.argmax(1)
        # A letter is reported in several steps; between two equal letters there is an empty one.
        is_letter = (best != 0) & numpy.append(True, best[1:] != best[:-1])
        if not is_letter.any():
            return "", 0.0
        text = "".join(self._letters[at] for at in best[is_letter])
        return text, float(estimates.max(1)[is_letter].mean())


def _session(runtime: Any, path: Path, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leave the cores to others
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(session: Any, seen: Any, options: Any = None) -> Any:
    return session.run(None, {session.get_inputs()[0].name: seen}, options)[0]


def _model_path(task: str) -> Path:
    found = importlib.util.find_spec("rapidocr")
    for folder in (found.submodule_search_locations or ()) if found else ():
        models = sorted(Path(folder, "models").glob(f"*_{task}_*.onnx"))
        if models:
            return models[-1]
    raise ImportError(f"rapidocr contains no model *_{task}_*.onnx", name="rapidocr")


def _clockwise(corners: Any) -> Sequence[Any]:
    by_side = sorted(corners, key=lambda corner: float(corner[0]))
    top_left, bottom_left = sorted(by_side[:2], key=lambda corner: float(corner[1]))
    top_right, bottom_right = sorted(by_side[2:], key=lambda corner: float(corner[1]))
    return top_left, top_right, bottom_right, bottom_left
