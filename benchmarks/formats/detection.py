"""P13: measure file type detection with the right, a wrong and no extension: time per file and share of right answers.

    python -m benchmarks.formats.detection

All libraries get the same bytes. The files are samples of the tests, made by real programs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import filetype
import magic
import puremagic
from magika import Magika

sys.path[:0] = [str(Path(__file__).parents[2] / "tests")]

from benchmarks.formats.interleaved import medians, table  # noqa: E402 - as above
from formats.test_sniff import ALIASES, FILES  # noqa: E402 - the samples of the tests, found through the path above
from loom.formats.sniff import sniff  # noqa: E402 - as above

MORE_ALIASES = ALIASES | {
    "audio/ogg; codecs=opus": "audio/ogg",
    "audio/opus": "audio/ogg",
    "audio/x-flac": "audio/flac",
    "audio/m4a": "audio/mp4",
    "application/x-zip-compressed": "application/zip",
    "application/x-compressed": "application/gzip",
    "application/x-gzip": "application/gzip",
    "application/x-bzip": "application/x-bzip2",
    "image/x-bmp": "image/bmp",
    "application/xml": "text/xml",
    "application/rtf": "text/rtf",
    "application/font-sfnt": "font/ttf",
    "application/font-woff": "font/woff2",
    "audio/vnd.wave": "audio/wav",
    "audio/wave": "audio/wav",
    "image/x-photoshop": "image/vnd.adobe.photoshop",
    "application/x-msdownload": "application/vnd.microsoft.portable-executable",
    "video/avi": "video/x-msvideo",
    "application/x-executable-elf": "application/x-elf",
    "image/jpeg2000": "image/jp2",
    "application/vnd.ms-excel.sheet.binary.macroEnabled.12": "application/vnd.ms-excel.sheet.binary.macroenabled.12",
}


def by_libmagic(data: bytes, _name: str) -> str:
    return ORACLE.from_buffer(data)


def by_filetype(data: bytes, _name: str) -> str:
    guessed = filetype.guess(data)
    return guessed.mime if guessed else ""


def by_puremagic(data: bytes, name: str) -> str:
    try:
        return puremagic.from_string(data, mime=True, filename=name or None)
    except (puremagic.PureError, ValueError, IndexError):
        return ""


def by_loom(data: bytes, name: str) -> str:
    return sniff(data, name).media_type


def by_magika(data: bytes, _name: str) -> str:
    return NETWORK.identify_bytes(data).output.mime_type


ORACLE = magic.Magic(mime=True)
NETWORK = Magika()
WAYS = {"loom": by_loom, "libmagic": by_libmagic, "puremagic": by_puremagic, "filetype": by_filetype}
SLOW = {"magika": by_magika}


def wrong_name(name: str) -> str:
    return "file.mp3" if name.endswith((".png", ".svg", ".txt")) else "file.png"


def main() -> None:
    files = [(name, media_type, build()) for name, (media_type, build) in FILES.items()]
    renames = {"right": lambda name: name, "wrong": wrong_name, "no": lambda _name: ""}
    print(f"{len(files)} files, share of right answers with the right, a wrong and no extension")
    for title, way in (WAYS | SLOW).items():
        shares = []
        for rename in renames.values():
            answers = [(way(data, rename(name)), media_type) for name, media_type, data in files]
            right = sum(MORE_ALIASES.get(answer, answer.lower()) == media_type for answer, media_type in answers)
            shares.append(f"{right / len(files):6.1%}")
        print(f"  {title:<34} {' '.join(shares)}")
    calls = {
        title: lambda way=way: [way(data, name) for name, _, data in files] for title, way in (WAYS | SLOW).items()
    }
    slow = {title: calls.pop(title) for title in SLOW}
    seconds = medians(calls, rounds=15) | medians(slow, rounds=2)
    table("time per file (target: at most 30 µs)", seconds, "libmagic", per=len(files))


if __name__ == "__main__":
    main()
