"""F7: measure how much small text survives downscaling: numbers that OCR still reads, and noise.

    python -m benchmarks.formats.small_text

A 5K screenshot full of numbers is scaled to 2048 px and a 4K one to 1568 px, by Loom and by Pillow's LANCZOS, and
read by tesseract. The `low` rendition of a screenshot is compared with LANCZOS and JPEG at the same size: the
peak signal-to-noise ratio in decibels relative to LANCZOS without JPEG.
"""

from __future__ import annotations

import io
import math
import random
import re
import shutil
import subprocess

from PIL import Image, ImageChops, ImageDraw, ImageFont, ImageStat

from benchmarks.formats.resize import screenshot
from loom.content.recipes import Fit, Low
from loom.formats.facts import IntakeLimits
from loom.formats.image import render_image

LIMITS = IntakeLimits()


def numbers(width: int, height: int, size_px: int) -> tuple[bytes, list[str]]:
    chance = random.Random(width)
    image = Image.new("RGB", (width, height), "#fcfcfd")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size_px)
    written: list[str] = []
    for top in range(40, height - 60, size_px * 3):
        for left in range(40, width - 300, size_px * 12):
            written.append(str(chance.randrange(100_000, 1_000_000)))
            draw.text((left, top), written[-1], fill=chance.choice(("#222", "#036", "#722")), font=font)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue(), written


def share_read(image: Image.Image, written: list[str]) -> float:
    """Return the share of `written` that OCR reads in `image`, enlarged: OCR needs larger letters than models do."""
    file = io.BytesIO()
    image.resize((image.width * 2, image.height * 2), Image.Resampling.BICUBIC).save(file, "PNG", compress_level=1)
    program = shutil.which("tesseract") or "tesseract"
    done = subprocess.run(
        [program, "-", "-", "--psm", "11", "-l", "eng"], input=file.getvalue(), capture_output=True, check=True
    )
    found = set(re.findall(r"\d{6}", done.stdout.decode()))
    return sum(number in found for number in written) / len(written)


def decibels(image: Image.Image, reference: Image.Image) -> float:
    error = ImageStat.Stat(ImageChops.difference(image.convert("RGB"), reference)).rms
    mean = sum(channel**2 for channel in error) / len(error)
    return 99.0 if mean == 0 else 10 * math.log10(255**2 / mean)


def main() -> None:
    for width, height, size_px, side in ((5120, 2880, 26, 2048), (3840, 2160, 25, 1568)):
        data, written = numbers(width, height, size_px)
        whole = Image.open(io.BytesIO(data)).convert("RGB")
        small = (side, round(height * side / width))
        ours = Image.open(io.BytesIO(render_image(data, "image/png", Fit(max_side_px=side), LIMITS).data))
        box = whole.resize(small, Image.Resampling.HAMMING, reducing_gap=1.0)
        lanczos = whole.resize(small, Image.Resampling.LANCZOS)
        print(f"{width}×{height} → {side}: {len(written)} numbers of {size_px} px")
        for name, image in (("loom", ours.convert("RGB")), ("LANCZOS", lanczos), ("box + HAMMING", box)):
            print(f"  {name:<16} {100 * share_read(image, written):5.1f} % read")
    data = screenshot()
    low = render_image(data, "image/png", Low(), LIMITS)
    whole = Image.open(io.BytesIO(data)).convert("RGB")
    reference = whole.resize((512, 288), Image.Resampling.LANCZOS)
    print("low of a 1080p screenshot")
    print(
        f"  loom             {decibels(Image.open(io.BytesIO(low.data)), reference):5.1f} dB, {len(low.data):,} bytes"
    )
    for quality in (75, 82, 90):
        file = io.BytesIO()
        reference.save(file, "JPEG", quality=quality)
        made = Image.open(io.BytesIO(file.getvalue()))
        print(f"  LANCZOS + JPEG{quality}  {decibels(made, reference):5.1f} dB, {len(file.getvalue()):,} bytes")


if __name__ == "__main__":
    main()
