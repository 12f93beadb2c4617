"""`docs/formats.md`: what a model gets of each kind of file, made by reading a sample of each."""

from __future__ import annotations

import msgspec
from benchmarks.document_samples import Sample, recall_words, samples
from benchmarks.formats.peers import RESULTS, PeerTable

from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.recipes import Text
from loom.formats import format_of, inspect, render
from loom.formats.intake import accept
from loom.formats.sniff.kinds import KINDS

_HEAD = """# Formats

What Loom reads, and what a model gets of it. The first table is made by reading a sample of each kind; the second is
the list of all kinds. A package can add a format: `src/loom/formats/format.py`.

## What a model gets

| file | block | pages | images | words found | begins with |
|---|---|--:|--:|--:|---|
"""


_PEERS = """## Beside other readers

Characters that a model would get, the share of the written words in them, and milliseconds of processor time, all
processes counted, as `python -m benchmarks.formats.peers --write` measured them last on one machine; – is an error.
Loom's times include letting the file in and its worker processes. Archives are listed, and their files read one by one.
`large.*` are forty pages, thirty slides or 2,000 rows; .doc and .ppt go through LibreOffice. docling was installed with
its extras for office files, web pages and mail, and without torch: its readers of other kinds, and that of PDFs, which
needs models from the network, were not measured.

"""


def page() -> str:
    lines = [_row(sample) for sample in samples()]
    return _HEAD + "\n".join(lines) + "\n\n" + _peers() + _kinds()


def _peers() -> str:
    found = msgspec.json.decode(RESULTS.read_bytes(), type=PeerTable)
    names = ["loom", *found.readers]
    titles = ["Loom", *(f"{name} {version}" for name, version in found.readers.items())]
    lines = [f"| file | {' | '.join(titles)} |", f"|---|{'--:|' * len(names)}"]
    for file, figures in found.files.items():
        cells = [
            "–" if figure.recall is None else f"{figure.characters} · {figure.recall:.0%} · {figure.milliseconds:.1f}"
            for figure in map(figures.__getitem__, names)
        ]
        lines.append(f"| {file} | {' | '.join(cells)} |")
    return _PEERS + "\n".join(lines) + "\n\n"


def _row(sample: Sample) -> str:
    admitted = accept(sample.data, sample.name)
    block = admitted.block
    pages, images = "", 0
    match block:
        case TextBlock():
            kind, text = "text", block.text
        case DocumentBlock():
            kind = "document"
            text = render(sample.data, block.media, Text()).data.decode()
            pages = str(block.media.pages or "")
            images = len(inspect(sample.data, sample.name).pictures)
        case ImageBlock() | AudioBlock():
            kind, text = "image" if isinstance(block, ImageBlock) else "audio", ""
        case _:
            kind, text = "unknown", ""
    begins = " ".join(text[:60].split()).replace("|", "\\|")
    found = recall_words(text, sample.words)
    return f"| {sample.name} | {kind} | {pages} | {images or ''} | {found:.0%} | `{begins}` |"


def _kinds() -> str:
    lines = ["## All kinds", "", "| kind | extensions | media type | as |", "|---|---|---|---|"]
    for media_type, kind in KINDS.items():
        form = format_of(media_type)
        said = kind.category if form is not None else "named, with what to do"
        lines.append(f"| {kind.label} | {kind.extensions} | `{media_type}` | {said} |")
    return "\n".join(lines) + "\n"
