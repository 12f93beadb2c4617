"""P8: measure decoding and resizing, relative to `Image.thumbnail`: 4000×3000 JPEG → 1568 px, 1080p PNG → 512 px.

    python -m benchmarks.formats.resize

All ways return pixels, so that they can be compared. "encoded" also chooses a format and encodes the bytes that are
sent, for which `thumbnail` has no counterpart. Decoding alone is the lower bound of every way that uses Pillow's zlib;
Loom inflates with zlib-ng and is faster.
"""

from __future__ import annotations

import io
import random

from PIL import Image, ImageDraw

from benchmarks.formats.interleaved import medians, table
from loom.content.recipes import Fit, Low
from loom.formats.facts import IntakeLimits
from loom.formats.image import render_image
from loom.formats.image.decode import open_picture
from loom.formats.image.pixels import load

LIMITS = IntakeLimits()


def photograph() -> bytes:
    bands = [Image.effect_noise((500, 375), 70).resize((4000, 3000), Image.Resampling.BICUBIC) for _ in range(3)]
    file = io.BytesIO()
    Image.merge("RGB", bands).save(file, "JPEG", quality=90)
    return file.getvalue()


def screenshot() -> bytes:
    chance = random.Random(8)
    image = Image.new("RGB", (1920, 1080), "#f7f7f9")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 300, 1080), fill="#20242c")
    for row in range(40, 1060, 18):
        words = " ".join(chance.choice(("return", "value", "if", "None", "message", "=", "self.")) for _ in range(12))
        draw.text((320 + chance.randrange(6) * 24, row), words, fill=chance.choice(("#224", "#a33", "#27a", "#393")))
    for tile in range(4):
        tile_image = Image.effect_noise((300, 200), 80).convert("RGB")
        image.paste(tile_image, (1500, 40 + tile * 250))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def thumbnail(data: bytes, side: int) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.thumbnail((side, side))
    return image


def resize_by_pillow(data: bytes, side: int) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = side / max(image.size)
    return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)


def resize_by_loom(data: bytes, media_type: str, side: int) -> Image.Image:
    return load(open_picture(data, media_type, LIMITS), side)


def decode_by_loom(data: bytes, media_type: str) -> None:
    open_picture(data, media_type, LIMITS).image.load()


def compare(title: str, data: bytes, media_type: str, side: int, recipe: Fit | Low) -> None:
    seconds = medians(
        {
            "Image.thumbnail": lambda: thumbnail(data, side),
            "Pillow, full decode and LANCZOS": lambda: resize_by_pillow(data, side),
            "decode alone": lambda: Image.open(io.BytesIO(data)).load(),
            "decode alone, by loom": lambda: decode_by_loom(data, media_type),
            "loom": lambda: resize_by_loom(data, media_type, side),
            "loom, encoded": lambda: render_image(data, media_type, recipe, LIMITS),
        },
        rounds=21,
    )
    table(f"{title} ({len(data) / 1e6:.1f} MB; target: at most 0.6×)", seconds, "Image.thumbnail", unit="ms")


def main() -> None:
    compare("4000×3000 JPEG → 1568", photograph(), "image/jpeg", 1568, Fit(max_side_px=1568))
    compare("1920×1080 PNG → 512", screenshot(), "image/png", 512, Low())


if __name__ == "__main__":
    main()
