"""Measure characters, recall and time of document text, compared with markitdown and kreuzberg (if installed).

    python -m benchmarks.documents [FILE …]

Without files, samples of each kind are generated; recall is the share of their words in the text. For your own files,
the reference is the words that any of the readers finds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.document_samples import Sample, recall_words, samples
from loom.content.blocks import TextBlock
from loom.content.recipes import Text
from loom.formats import render
from loom.formats.intake import accept

ROUNDS = 5


def by_loom(name: str, data: bytes) -> str:
    accepted = accept(data, name)
    if isinstance(accepted.block, TextBlock):
        return accepted.block.text
    return render(data, accepted.block.media, Text()).data.decode()  # type: ignore[union-attr]


def by_markitdown() -> Callable[[str, bytes], str]:
    from markitdown import MarkItDown

    converter = MarkItDown()

    def convert(name: str, data: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, name)
            file.write_bytes(data)
            return converter.convert(str(file)).text_content

    return convert


def by_kreuzberg() -> Callable[[str, bytes], str]:
    from kreuzberg import extract_file_sync

    def convert(name: str, data: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, name)
            file.write_bytes(data)
            return extract_file_sync(str(file)).content

    return convert


def main() -> None:
    readers: dict[str, Callable[[str, bytes], str]] = {"loom": by_loom}
    if find_spec("markitdown"):
        readers["markitdown"] = by_markitdown()
    if find_spec("kreuzberg"):
        readers["kreuzberg"] = by_kreuzberg()
    files = [Sample(Path(name).name, Path(name).read_bytes(), []) for name in sys.argv[1:]] or samples()
    print(f"{'file':24}" + "".join(f"{name + ': chars':>20}{'recall':>8}{'ms':>9}" for name in readers))
    for file in files:
        results = {name: _measure(read, file) for name, read in readers.items()}
        words = file.words or sorted({word for text, _ in results.values() for word in text.split()})
        cells = "".join(
            f"{len(text):>20,}{recall_words(text, words):>8.3f}{ms:>9.1f}" if text else f"{'-':>20}{'-':>8}{'-':>9}"
            for text, ms in results.values()
        )
        print(f"{file.name:24}{cells}")


def _measure(read: Callable[[str, bytes], str], file: Sample) -> tuple[str, float]:
    """Return the text and the median time in milliseconds, without the first round; no text if the reader fails."""
    times: list[float] = []
    text = ""
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        try:
            text = read(file.name, file.data)
        except Exception:  # noqa: BLE001 - other libraries raise anything on a file that they do not read
            return "", 0.0
        times.append((time.perf_counter() - began) * 1000)
    return text, statistics.median(times[1:])


if __name__ == "__main__":
    main()
