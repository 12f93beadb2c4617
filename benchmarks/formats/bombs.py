"""Measure the cost of decompression bombs, until each is refused or converted to a safe form.

    python -m benchmarks.formats.bombs

Each is built and accepted in its own process, with its worker running, as in a daemon. Measured: wall time, the
processor time of the process and its workers, and their peak memory, idle memory included. Target: under a second and
under 200 MB.
"""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from benchmarks.formats.interleaved import processes, processor_seconds
from loom.content.recipes import Low, Page, Text
from loom.errors import MediaError
from loom.formats import inspect, render

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
LAUGHS = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 11))
BILLION_LAUGHS = f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e0 "ha">{LAUGHS}]>'


def png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    squeeze = zlib.compressobj(9)
    rows = b"".join(squeeze.compress(bytes(6_251)) for _ in range(50_000)) + squeeze.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def gif() -> bytes:
    frame = b"\x21\xf9\x04\0\0\0\0\0," + struct.pack("<HHHHB", 0, 0, 500, 500, 0) + b"\x02\x02\x4c\x01\0"
    screen = struct.pack("<HHBBB", 500, 500, 0x80, 0, 0)
    return b"GIF89a" + screen + b"\0\0\0\xff\xff\xff" + frame * 10_000 + b";"


def container(members: dict[str, bytes | str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return file.getvalue()


def document(xml: str = f'<w:document xmlns:w="{WORD}"><w:body/></w:document>', **more: bytes) -> bytes:
    return container({"word/document.xml": xml, **{f"word/media/{name}.bin": body for name, body in more.items()}})


def nested_zips() -> bytes:
    """Return a document with zip files inside zip files, three levels deep; each level expands tenfold."""
    body = bytes(50_000_000)
    for _ in range(3):
        body = container({f"{number}": body for number in range(10)})
    return document(nested=body)


def laughing_document() -> bytes:
    body = f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>&e10;</w:t></w:r></w:p></w:body></w:document>'
    return document(BILLION_LAUGHS + body)


def laughing_drawing() -> bytes:
    return f'{BILLION_LAUGHS}<svg xmlns="http://www.w3.org/2000/svg"><text>&e10;</text></svg>'.encode()


def pdf(side_pt: int = 14_400) -> bytes:
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents 4 0 R>>" % (side_pt, side_pt),
        b"<</Length 33>>stream\n1 0 0 rg 0 0 14400 14400 re f    \nendstream",
    ]
    body = b"".join(b"%d 0 obj%b endobj\n" % (number, text) for number, text in enumerate(objects, 1))
    return b"%PDF-1.4\n" + body + b"trailer<</Root 1 0 R/Size 5>>\n%%EOF"


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "PNG of 50,000 × 50,000": ("bomb.png", png),
    "GIF of 10,000 frames": ("bomb.gif", gif),
    "zips in zips in a .docx": ("nested.docx", nested_zips),
    ".docx that expands to 400 MB": ("bomb.docx", lambda: document(zeros=bytes(400_000_000))),
    "billion laughs in a .docx": ("laughs.docx", laughing_document),
    "billion laughs in an .svg": ("laughs.svg", laughing_drawing),
    "PDF page of 14,400 × 14,400 pt": ("bomb.pdf", pdf),
}


def peaks_mb() -> list[int]:
    found = (re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()) for pid in processes())
    return [int(peak[1]) // 1024 for peak in found if peak]


def try_intake(data: bytes, name: str) -> str:
    """Inspect and render a file; return the outcome as text."""
    try:
        media = inspect(data, name).media
        rendered = render(data, media, {"pdf": Page(1), "docx": Text()}.get(name.rpartition(".")[2], Low()))
    except MediaError as error:
        return f"{type(error).__name__}: {error.message}"
    return (
        f"rendered at {rendered.width}×{rendered.height}" if rendered.width else f"{len(rendered.data)} bytes of text"
    )


def measure(title: str) -> None:
    name, build = BOMBS[title]
    data = build()
    # reset the peak: the memory that building the bomb took does not count
    Path("/proc/self/clear_refs").write_text("5")
    if name.endswith(".pdf"):
        try_intake(pdf(100), name)
    cpu_seconds, began = processor_seconds(), time.perf_counter()
    outcome = try_intake(data, name)
    seconds, cpu_seconds = time.perf_counter() - began, processor_seconds() - cpu_seconds
    peaks = " + ".join(map(str, peaks_mb()))
    print(f"  {title:32} {seconds:6.2f} s  {cpu_seconds:6.2f} s of processor  {peaks:>9} MB   {outcome}", flush=True)


def main() -> None:
    if sys.argv[1:]:
        measure(sys.argv[1])
        return
    print("bombs, until each is refused or rendered (target: under 1 s, under 200 MB)", flush=True)
    for title in BOMBS:
        subprocess.run([sys.executable, "-m", __spec__.name, title], check=True)


if __name__ == "__main__":
    main()
