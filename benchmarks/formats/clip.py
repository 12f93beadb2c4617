"""Row 161: measure a ten-minute clip for three kinds of model: `python -m benchmarks.formats.clip`.

ffmpeg makes a clip of ten scenes of a minute each, with words on the screen and sound. The command attaches it; then
the request is compiled for a text-only model, for one that supports images and for one that supports video. Printed are
the time of each step and the memory of the largest process. Hostile clips must be refused within the deadline.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

MODELS = {
    "is text-only": "ollama/llama3.2",
    "supports images": "anthropic/claude-opus-5",
    "supports video": "gemini/gemini-3-pro",
}
MINUTES = 10
LOOM = str(Path(sys.executable).with_name("loom"))
WORDS = ("harbour", "lantern", "violin", "granite", "meadow", "pepper", "cathedral", "blizzard", "saffron", "turbine")


def clip(folder: Path) -> Path:
    lines: list[str] = []
    for number in range(MINUTES):
        image = Image.new("RGB", (1280, 720), f"hsl({number * 36}, 60%, {30 + number * 5}%)")
        words = f"Chapter {number + 1}: {WORDS[number]}"
        ImageDraw.Draw(image).text((120, 300), words, fill="white", font=ImageFont.load_default(72))
        image.save(folder / f"{number}.png")
        lines.append(f"file '{number}.png'\nduration 60\n")
    (folder / "list.txt").write_text("".join(lines) + f"file '{MINUTES - 1}.png'\n")
    target = folder / "talk.mp4"
    command = ["ffmpeg", "-loglevel", "error", "-f", "concat", "-i", "list.txt", "-f", "lavfi", "-i", "sine=330"]
    coded = ["-t", str(60 * MINUTES), "-r", "5", "-c:v", "mpeg4", "-q:v", "5", "-c:a", "aac", "-b:a", "48k"]
    subprocess.run([*command, *coded, target.name], cwd=folder, check=True, timeout=300)
    return target


def hostile_clips(folder: Path) -> dict[str, bytes]:
    """Return clips that open other files, never end, or are of another type than their name says."""
    secret = folder / "secret.txt"
    secret.write_text("the secret")
    whole = (folder / "talk.mp4").read_bytes()
    noise = io.BytesIO()
    Image.effect_noise((400, 400), 90).save(noise, "PNG")
    return {
        "playlist.mp4": f"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:1,\n{secret.as_uri()}\n".encode(),
        "concat.mp4": f"ffconcat version 1.0\nfile {secret}\n".encode(),
        "cut-off.mp4": whole[:20_000],
        "noise.mp4": whole[:64] + noise.getvalue() * 20,
        "no-pictures.avi": b"RIFF\xff\xff\xff\x7fAVI LIST" + bytes(4000),
        "endless.mkv": b"\x1aE\xdf\xa3\x9fB\x86\x81\x01" + b"\x18S\x80g\x01\xff\xff\xff\xff\xff\xff\xff" * 40_000,
    }


def loom(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    environment = os.environ | {"HOME": str(folder), "LOOM_HOME": str(folder / "home")}
    began = time.perf_counter()
    command = [LOOM, *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    return done, time.perf_counter() - began


def largest_process_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = clip(folder)
        print(f"{made.name}: {MINUTES} minutes, {made.stat().st_size / 1e6:.1f} MB")
        _, seconds = loom(folder, "read", made.name)
        print(f"  accepted and described: {seconds:.1f} s, largest process {largest_process_bytes() / 1e6:.0f} MB")
        _, seconds = loom(folder, "-m", "loom/spark", "Which chapters are there?", made.name)
        print(f"  question to the built-in model: {seconds:.1f} s")
        for kind, model in MODELS.items():
            done, seconds = loom(folder, "wire", "-m", model)
            if done.returncode:
                print(f"  a model that {kind} ({model}): {done.stderr.strip()[:200]}")
                continue
            body = json.loads(done.stdout.splitlines()[0])
            request = json.dumps(body["request"])
            parts = {
                kind: request.count(f'"{kind}"') for kind in ("image", "image_url", "video/mp4") if kind in request
            }
            found = sum(word in request for word in WORDS)
            print(
                f"  a model that {kind} ({model}): {seconds:.1f} s, {len(request):,} characters without media, "
                f"parts {parts or 'text'}, {found} of {len(WORDS)} words on screen in text; {body['receipt']}"[:400]
            )
        print(f"  largest process of all: {largest_process_bytes() / 1e6:.0f} MB")
        for title, data in hostile_clips(folder).items():
            (folder / title).write_bytes(data)
            done, seconds = loom(folder, "read", title)
            output = " ".join((done.stdout + done.stderr).split())
            leaked = " LEAKED" if "the secret" in output else ""
            print(f"  {title:16} {seconds:5.1f} s, exit {done.returncode}: {output[:150]}{leaked}")


if __name__ == "__main__":
    main()
