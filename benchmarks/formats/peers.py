"""Measure the text that a model gets from each kind of file, compared with other document readers.

    python -m benchmarks.formats.peers [--write]

Printed are characters, recall (the share of the written words in them), and the mean processor time of a call over
all its processes, which depends little on other load. All readers (markitdown, kreuzberg, docling, if installed) read
the same files in every round. Loom's times include intake and its worker processes. Each call gets bytes that no
reader has read before, so that no cache helps. `--write` stores the figures in `peers.json`, from which
`docs/formats.md` is generated.

The files are small ones of each kind, larger office files (forty pages, thirty slides, 2,000 rows), and their
conversions to other formats by LibreOffice. Loom reads the first sheet of a workbook in full, as for a model that
requests more than the first thousand rows.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from statistics import median
from unittest.mock import MagicMock

import msgspec

from benchmarks.document_samples import Sample, recall_words, samples
from benchmarks.formats.interleaved import worker_seconds
from benchmarks.formats.office import large_samples
from loom.content.blocks import DocumentBlock, TextBlock
from loom.content.recipes import Text
from loom.errors import LoomError
from loom.formats import render
from loom.formats.intake import accept
from loom.formats.office import is_spreadsheet
from loom.formats.office.pages import conversions
from loom.formats.sniff import sniff

ROUNDS = 12
SLOW_SECONDS = 2.0
"""A call that takes longer is not repeated."""
RESULTS = Path(__file__).with_name("peers.json")
OTHER_FORMATS = {"docx": ("odt", "doc", "rtf"), "pptx": ("odp", "ppt"), "xlsx": ("ods", "xls")}
OFFICE = (".docx", ".odt", ".doc", ".rtf", ".pptx", ".odp", ".ppt", ".xlsx", ".ods", ".xls")
Read = Callable[[Sample], str]


class PeerFigure(msgspec.Struct, frozen=True):
    """The result of one reader for one file. `recall` is a share. All three are None if the reader failed."""

    characters: int | None
    recall: float | None
    milliseconds: float | None


class PeerTable(msgspec.Struct, frozen=True):
    readers: dict[str, str]
    """Name → version."""
    files: dict[str, dict[str, PeerFigure]]


def by_loom(sample: Sample) -> str:
    conversions.cache_clear()
    accepted = accept(sample.data, sample.name)
    match accepted.block:
        case TextBlock(text):
            return text
        case DocumentBlock(media):
            pages = "1" if is_spreadsheet(media.media_type) else ""
            return render(accepted.data or b"", media, Text(pages)).data.decode()
        case _:
            return ""


def by_markitdown() -> Read:
    from markitdown import MarkItDown, StreamInfo

    converter = MarkItDown(enable_plugins=False)

    def read(sample: Sample) -> str:
        info = StreamInfo(extension=Path(sample.name).suffix, filename=sample.name)
        return converter.convert_stream(io.BytesIO(sample.data), stream_info=info).text_content

    return read


def by_kreuzberg() -> Read:
    from kreuzberg import extract_bytes_sync

    return lambda sample: extract_bytes_sync(sample.data, sniff(sample.data, sample.name).media_type).content


def by_docling() -> Read:
    if importlib.util.find_spec("torch") is None:
        # docling imports it at startup, though only PDFs and images need it: replace it by a stub
        for name in ("torch", "torch.nn", "torch.nn.functional", "transformers", "torchvision"):
            empty = MagicMock(name=name)
            empty.__spec__, empty.__path__ = ModuleSpec(name, None), []
            sys.modules[name] = empty
    from docling.datamodel.base_models import DocumentStream
    from docling.document_converter import DocumentConverter

    converter = DocumentConverter()

    def read(sample: Sample) -> str:
        stream = DocumentStream(name=sample.name, stream=io.BytesIO(sample.data))
        return converter.convert(stream).document.export_to_markdown()

    return read


def readers() -> dict[str, Read]:
    found: dict[str, Read] = {"loom": by_loom}
    for name, make in (("markitdown", by_markitdown), ("kreuzberg", by_kreuzberg), ("docling", by_docling)):
        try:
            found[name] = make()
        except ImportError as error:
            print(f"{name} is not measured: {error}")
    return found


def files(folder: Path) -> list[Sample]:
    found = samples()
    for sample in large_samples(folder):
        found.append(sample)
        source = folder / sample.name
        source.write_bytes(sample.data)
        for suffix in OTHER_FORMATS[source.suffix[1:]]:
            profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
            command = ["soffice", "--headless", profile, "--convert-to", suffix, "--outdir", str(folder), str(source)]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
            made = source.with_suffix(f".{suffix}")
            found.append(Sample(made.name, made.read_bytes(), sample.words))
    return found


_stamps = count(1)


def restamp(sample: Sample) -> Sample:
    """Return the file with other bytes that no reader uses: a time, an unused number, a comment."""
    stamp, data = next(_stamps).to_bytes(4, "little"), sample.data
    for magic, at in ((b"PK", 10), (b"\xd0\xcf\x11\xe0", 8), (b"\x1f\x8b", 4), (b"SQLite", 60)):
        if data.startswith(magic):
            return msgspec.structs.replace(sample, data=data[:at] + stamp + data[at + 4 :])
    if data.startswith(b"%PDF"):
        return msgspec.structs.replace(sample, data=data + b"%" + stamp.hex().encode() + b"\n")
    return msgspec.structs.replace(sample, data=data + b"\n" * (stamp[0] % 2) + b" " * stamp[0] + b"\n")


def measure(readers_by_name: dict[str, Read], sample: Sample) -> dict[str, PeerFigure]:
    """Read a file with all readers in every round, so that other load slows all equally."""
    taken: dict[str, list[float]] = {name: [] for name in readers_by_name}
    cpu_seconds = dict.fromkeys(readers_by_name, 0.0)
    texts: dict[str, str] = {}
    left = dict(readers_by_name)
    for name, read in readers_by_name.items():  # start processes and load libraries
        with suppress(Exception):
            read(restamp(sample)) if name == "loom" else read(sample)
    for _ in range(ROUNDS):
        for name, read in list(left.items()):
            unseen = restamp(sample)
            before, own, began = worker_seconds(), time.process_time(), time.perf_counter()
            try:
                texts[name] = read(unseen)
            except LoomError:
                raise
            except Exception:  # noqa: BLE001 - after any exception the model gets nothing
                del left[name]
                continue
            taken[name].append(time.perf_counter() - began)
            cpu_seconds[name] += time.process_time() - own + (worker_seconds() - before if name == "loom" else 0)
            if taken[name][-1] > SLOW_SECONDS and len(taken[name]) > 1:
                del left[name]
    figures: dict[str, PeerFigure] = {}
    for name in readers_by_name:
        if name not in texts:
            figures[name] = PeerFigure(None, None, None)
            continue
        recall = round(recall_words(texts[name], sample.words), 4)
        figures[name] = PeerFigure(len(texts[name]), recall, round(cpu_seconds[name] / len(taken[name]) * 1000, 2))
    return figures


def main() -> None:
    found_readers = readers()
    table: dict[str, dict[str, PeerFigure]] = {}
    with tempfile.TemporaryDirectory() as name:
        for sample in files(Path(name)):
            table[sample.name] = measure(found_readers, sample)
            for reader, found in table[sample.name].items():
                figures = (
                    "error"
                    if found.characters is None
                    else f"{found.characters:7} characters, recall {found.recall:.3f}, {found.milliseconds:8.1f} ms"
                )
                print(f"{sample.name:16} {reader:12} {figures}", flush=True)
    both = {
        name: row
        for name, row in table.items()
        if Path(name).suffix in OFFICE and "kreuzberg" in row and row["kreuzberg"].milliseconds is not None
    }
    ratios = {
        name: (row["loom"].milliseconds or 0) / (row["kreuzberg"].milliseconds or 1) for name, row in both.items()
    }
    behind = [
        name for name, row in table.items() if any((row["loom"].recall or 0) < (f.recall or 0) for f in row.values())
    ]
    if ratios:
        listed = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"Loom's time relative to kreuzberg's, office files: {median(ratios.values()):.2f}× (median of {listed})")
    print(f"files with less recall than the best reader: {', '.join(behind) or 'none'}")
    if "--write" in sys.argv:
        versions = {name: _version(name) for name in found_readers if name != "loom"}
        data = msgspec.json.format(msgspec.json.encode(PeerTable(versions, table)), indent=1)
        RESULTS.write_bytes(data + b"\n")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
