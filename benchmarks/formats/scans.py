"""F6: measure OCR of skewed scanned pages, in one and two columns: `python -m benchmarks.formats.scans`.

A page of the changelog is drawn at 200 dpi, rotated, and given the grain of paper. The score compares the recognized
words with the written ones (1: all of them, in order, and nothing else). Loom is compared with tesseract alone.
"""

from __future__ import annotations

import difflib
import io
import re
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFont

from loom.formats import ocr
from loom.formats.facts import IntakeLimits

ANGLES = (0.3, -0.3, 0.7, -0.7, 2.0, -2.0)
LIMITS = IntakeLimits(ocr_seconds=300)
WIDTH, HEIGHT, MARGIN, GAP = 1654, 2339, 150, 90
SIZE, STEP = 30, 44


def words() -> list[str]:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")
    return re.findall(r"[A-Za-z]{2,}[,.;]?", text)


def scan(degrees: float, columns: int) -> tuple[bytes, list[str]]:
    """Return the image of a page, and its words in reading order."""
    page = Image.new("L", (WIDTH, HEIGHT), 246)
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(SIZE)
    width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) // columns
    left, top = MARGIN, MARGIN
    written: list[str] = []
    line: list[str] = []
    column = 0
    for word in words():
        if font.getlength(" ".join([*line, word])) <= width:
            line.append(word)
            continue
        draw.text((left, top), " ".join(line), fill=25, font=font)
        written += line
        line, top = [word], top + STEP
        if top > HEIGHT - MARGIN:
            column, top, left = column + 1, MARGIN, left + width + GAP
            if column == columns:
                break
    page = page.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=246)
    page = ImageChops.add(page, Image.effect_noise(page.size, 12), scale=1.0, offset=-128)
    file = io.BytesIO()
    page.save(file, "PNG", compress_level=1)
    return file.getvalue(), written


def score(found: str, written: list[str]) -> float:
    pattern = re.compile(r"[a-z]{2,}")
    one, other = pattern.findall(" ".join(written).lower()), pattern.findall(found.lower())
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def by_tesseract(data: bytes) -> str:
    done = subprocess.run(["tesseract", "-", "-", "-l", "eng"], input=data, capture_output=True, check=True)
    return done.stdout.decode()


def main() -> None:
    print("columns  degrees  words   loom              tesseract alone")
    lowest = 1.0
    for columns in (1, 2):
        for degrees in ANGLES:
            data, written = scan(degrees, columns)
            cells: list[str] = []
            for read in (lambda data: ocr.read_picture(data, LIMITS), by_tesseract):
                began = time.perf_counter()
                found = score(read(data), written)
                cells.append(f"{found:.3f} ({time.perf_counter() - began:5.1f} s)")
                lowest = min(lowest, found) if len(cells) == 1 else lowest
            print(f"{columns:7} {degrees:8} {len(written):6}   {'   '.join(cells)}", flush=True)
    print(f"lowest score of Loom: {lowest:.3f} (target: at least 0.98)")
    sys.exit(lowest < 0.98)


if __name__ == "__main__":
    main()
