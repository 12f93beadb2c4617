"""What a model gets from each kind of file, compared with other readers: `python -m benchmarks.formats.peers`.

Characters, the share of the written words that are in them, and the processor time of a call with all processes that
take part, the mean of some rounds: a busy machine changes little in it. All
readers (markitdown, kreuzberg, docling; one that is not installed is left out) read the same bytes in turn. Loom's
times include letting the file in and its worker processes. Each call gets bytes that no reader has seen before, so that
nothing that was kept helps. `--write` keeps the figures in `peers.json`, from which `docs/formats.md` is made.

The files are small ones of each kind, larger office files (forty pages, thirty slides, 2,000 rows), and what
LibreOffice makes of those in other formats. Of a workbook Loom is asked for the first sheet, as a model does that wants
more than the first thousand rows.
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
    """`recall` is a share; None in all three where the reader gives an error."""

    characters: int | None
    recall: float | None
    milliseconds: float | None


class PeerTable(msgspec.Struct, frozen=True):
    readers: dict[str, str]
    """The version of each."""
    files: dict[str, dict[str, PeerFigure]]


def by_loom(sample: Sample) -> str:
    conversions.cache_clear()
    admitted = accept(sample.data, sample.name)
    match admitted.block:
        case TextBlock(text):
            return text
        case DocumentBlock(media):
            pages = "1" if is_spreadsheet(media.media_type) else ""
            return render(admitted.data or b"", media, Text(pages)).data.decode()
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
        # docling imports it at its start, though only PDFs and pictures need it: an empty one stands in its place
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
            print(f"{name} is left out: {error}")
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
    """Return the same file with other bytes where no reader looks: a time, an unused number, a comment."""
    stamp, data = next(_stamps).to_bytes(4, "little"), sample.data
    for magic, at in ((b"PK", 10), (b"\xd0\xcf\x11\xe0", 8), (b"\x1f\x8b", 4), (b"SQLite", 60)):
        if data.startswith(magic):
            return msgspec.structs.replace(sample, data=data[:at] + stamp + data[at + 4 :])
    if data.startswith(b"%PDF"):
        return msgspec.structs.replace(sample, data=data + b"%" + stamp.hex().encode() + b"\n")
    return msgspec.structs.replace(sample, data=data + b"\n" * (stamp[0] % 2) + b" " * stamp[0] + b"\n")


def measure(asked: dict[str, Read], sample: Sample) -> dict[str, PeerFigure]:
    """Read a file by all of them in every round, so that a busy machine hurts all alike."""
    taken: dict[str, list[float]] = {name: [] for name in asked}
    worked = dict.fromkeys(asked, 0.0)
    texts: dict[str, str] = {}
    left = dict(asked)
    for name, read in asked.items():  # processes are started and libraries loaded
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
            except Exception:  # noqa: BLE001 - whatever a peer raises, the model gets nothing
                del left[name]
                continue
            taken[name].append(time.perf_counter() - began)
            worked[name] += time.process_time() - own + (worker_seconds() - before if name == "loom" else 0)
            if taken[name][-1] > SLOW_SECONDS and len(taken[name]) > 1:
                del left[name]
    figures: dict[str, PeerFigure] = {}
    for name in asked:
        if name not in texts:
            figures[name] = PeerFigure(None, None, None)
            continue
        recall = round(recall_words(texts[name], sample.words), 4)
        figures[name] = PeerFigure(len(texts[name]), recall, round(worked[name] / len(taken[name]) * 1000, 2))
    return figures


def main() -> None:
    asked = readers()
    table: dict[str, dict[str, PeerFigure]] = {}
    with tempfile.TemporaryDirectory() as name:
        for sample in files(Path(name)):
            table[sample.name] = measure(asked, sample)
            for reader, found in table[sample.name].items():
                shown = (
                    "error"
                    if found.characters is None
                    else f"{found.characters:7} characters, recall {found.recall:.3f}, {found.milliseconds:8.1f} ms"
                )
                print(f"{sample.name:16} {reader:12} {shown}", flush=True)
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
        print(f"Loom's time beside kreuzberg's, office files: {median(ratios.values()):.2f}× (median of {listed})")
    print(f"files with less recall than the best reader: {', '.join(behind) or 'none'}")
    if "--write" in sys.argv:
        versions = {name: _version(name) for name in asked if name != "loom"}
        data = msgspec.json.format(msgspec.json.encode(PeerTable(versions, table)), indent=1)
        RESULTS.write_bytes(data + b"\n")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
