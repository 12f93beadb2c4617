"""P23: measure a question about an image to the built-in model: a cold command, and a daemon with a loaded OCR engine.

    python -m benchmarks.spark_image [ROUNDS]

Budgets: 1.5 s for the command, 0.3 s for the daemon, including upload, description, OCR and the complete answer. The
images are Loom's sample screenshot and receipt, and windows with more and more lines, each with another pixel in every
round, so that no cache helps. Recall is the share of the written words in the answer (which quotes at most 2,000
characters). tesseract alone reads the same image; its time is that of its process.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from daemon.running import daemon
from loom.client import Client
from loom.providers.samples import samples

ROUNDS = 5
QUESTION = "What is in this image?"
LOGIN = "Acme Console - Sign in Email ana@example.org Password Sign in Error 502: upstream timed out after 30 s"
RECEIPT = (
    "CAFE AURORA 12 Harbour Street 2x Flat white 7.00 1x Cinnamon bun 3.20 1x Orange juice 2.80 TOTAL 13.00 CARD 13.00 "
    "Thank you!"
)
WORDS = tuple((Path(__file__).parents[1] / "LICENSE").read_text().split()[20:80])
_stamps = count(1)


def window(width: int, height: int, size_px: int, lines: int) -> tuple[bytes, str]:
    chance = random.Random(width + lines)
    image = Image.new("RGB", (width, height), "#f8f8fa")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size_px)
    draw.rectangle((0, 0, width, size_px * 3), fill="#2b4a7a")
    draw.text((20, size_px), "Loom Settings", fill="white", font=font)
    written = ["Loom Settings"]
    for line in range(lines):
        written.append(" ".join((*chance.choices(WORDS, k=5), str(chance.randrange(1_000, 99_999)))))
        draw.text((40, size_px * 5 + line * size_px * 2), written[-1], fill="#202228", font=font)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue(), " ".join(written)


def images() -> dict[str, tuple[bytes, str]]:
    data_of = {sample.name: sample.data for sample in samples()}
    return {
        "login.png, 900×500, 6 lines": (data_of["login.png"], LOGIN),
        "receipt.jpg, 640×800, 13 texts": (data_of["receipt.jpg"], RECEIPT),
        "window, 640×360, 6 lines": window(640, 360, 14, 6),
        "window, 1280×720, 18 lines": window(1280, 720, 16, 18),
        "screen, 1920×1080, 30 lines": window(1920, 1080, 16, 30),
    }


def restamp(data: bytes) -> bytes:
    """Return the image with a new color of the pixel in its corner."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.putpixel((0, 0), tuple(next(_stamps).to_bytes(3, "little")))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def recall(text: str, written: str) -> float:
    found, wanted = (Counter(re.findall(r"\w+", one.lower())) for one in (text, written))
    return (found & wanted).total() / wanted.total()


def by_command(data: bytes, home: Path) -> str:
    path = home / "question.png"
    path.write_bytes(data)
    environ = {**os.environ, "LOOM_HOME": str(home), "LOOM_MODEL": "loom/spark"}
    loom = str(Path(sys.executable).with_name("loom"))
    done = subprocess.run(
        [loom, "-R", "-a", str(path), QUESTION], env=environ, check=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.decode()


def by_tesseract(data: bytes) -> str:
    environ = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    done = subprocess.run(
        ["tesseract", "-", "-", "-l", "eng"], input=data, capture_output=True, check=True, env=environ
    )
    return done.stdout.decode()


async def by_daemon(client: Client, data: bytes) -> str:
    session = await client.session(model="loom/spark")
    return (await session.send(QUESTION, data)).text


async def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(f"{'':34}{'cold command':>24}{'warm daemon':>24}{'tesseract':>24}")
    print(f"{'':34}{'best   median  recall':>24}" + f"{'best   median  recall':>24}" * 2)
    with tempfile.TemporaryDirectory() as name, daemon(Path(name, "daemon")) as house:
        async with house.client() as client:
            for title, (data, written) in images().items():
                await by_daemon(client, restamp(data))
                taken: list[list[float]] = [[], [], []]
                texts = ["", "", ""]
                for _ in range(rounds):
                    unseen = restamp(data)
                    began = time.perf_counter()
                    texts[0] = await asyncio.to_thread(by_command, unseen, Path(name))
                    taken[0].append(time.perf_counter() - began)
                    unseen = restamp(data)
                    began = time.perf_counter()
                    texts[1] = await by_daemon(client, unseen)
                    taken[1].append(time.perf_counter() - began)
                    began = time.perf_counter()
                    texts[2] = await asyncio.to_thread(by_tesseract, unseen)
                    taken[2].append(time.perf_counter() - began)
                columns = "".join(
                    f"{min(times):9.2f} {statistics.median(times):6.2f}  {recall(text, written):6.3f}"
                    for times, text in zip(taken, texts, strict=True)
                )
                print(f"{title:34}{columns}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
