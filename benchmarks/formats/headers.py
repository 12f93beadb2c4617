"""P7: measure reading image sizes from headers, as ratios to only opening and reading the beginning of the file.

python -m benchmarks.formats.headers
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

import imagesize
from PIL import Image

from benchmarks.formats.interleaved import medians, table
from loom.errors import Unreadable
from loom.formats.image.header import read_header

HEAD_BYTES = 4096
KINDS = ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "ICO", "AVIF"]
SIZES = [(64, 48), (321, 200), (800, 600), (1024, 1024)]


def corpus(folder: Path) -> dict[str, tuple[int, int]]:
    files: dict[str, tuple[int, int]] = {}
    exif = Image.Exif()
    exif[0x010E] = "a long description " * 200
    for kind in KINDS:
        for width, height in SIZES:
            size = (min(width, 256), min(height, 256)) if kind == "ICO" else (width, height)
            image = Image.effect_noise(size, 60).convert("RGB")
            for variant in range(3):
                options: dict[str, object] = {"exif": exif} if variant == 1 and kind in ("JPEG", "PNG", "WEBP") else {}
                if variant == 2 and kind in ("JPEG", "WEBP"):
                    options = {"progressive": True} if kind == "JPEG" else {"lossless": True}
                if kind == "ICO":
                    options = {"sizes": [size]}
                path = folder / f"{kind}-{width}-{variant}"
                file = io.BytesIO()
                image.save(file, kind, **options)
                path.write_bytes(file.getvalue())
                files[str(path)] = size
    return files


def head(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, HEAD_BYTES)
    finally:
        os.close(descriptor)


def loom_size(path: str) -> tuple[int, int]:
    try:
        found = read_header(head(path))
    except Unreadable:  # the size is further back in the file
        found = read_header(Path(path).read_bytes())
    return found.width, found.height


def pillow_size(path: str) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def imagesize_size(path: str) -> tuple[int, int]:
    try:
        return imagesize.get(path)
    except (ValueError, TypeError):
        return -1, -1


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = corpus(Path(folder))
        ways = {"loom": loom_size, "imagesize": imagesize_size, "Pillow": pillow_size}
        for name, way in ways.items():
            print(f"{name}: {sum(way(path) == size for path, size in files.items())} of {len(files)} right")
        seconds = medians(
            {"open + read": lambda: [head(path) for path in files]}
            | {name: lambda way=way: [way(path) for path in files] for name, way in ways.items()},
            rounds=41,
        )
        table("dimensions of a file (target: at most 2.2× open + read)", seconds, "open + read", per=len(files))


if __name__ == "__main__":
    main()
