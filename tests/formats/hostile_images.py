"""Pictures that attack their reader: a few kilobytes that take a gigabyte, and a file that takes minutes."""

from __future__ import annotations

import io
from functools import cache

from PIL import Image


@cache
def expanding_webp(side: int = 7_990) -> bytes:
    """A few kilobytes that decode to a quarter of a gigabyte, and to several times that while they are decoded."""
    file = io.BytesIO()
    Image.new("RGBA", (side, side), (10, 200, 30, 128)).save(file, "WEBP", lossless=True, quality=0, method=0)
    return file.getvalue()


@cache
def slow_jpeg(side: int = 7_990, scans: int = 31) -> bytes:
    """A progressive JPEG whose last scan is repeated, each time costing a pass over all pixels."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), (200, 80, 40)).save(file, "JPEG", quality=10, progressive=True)
    data = file.getvalue()
    at = data.rindex(b"\xff\xda")
    have = data.count(b"\xff\xda")
    return data[:-2] + data[at:-2] * (scans - have) + b"\xff\xd9"
