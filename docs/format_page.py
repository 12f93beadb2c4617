"""`docs/formats.md`: what a model gets of each kind of file, made by reading a sample of each."""

from __future__ import annotations

from benchmarks.document_samples import Sample, recall_words, samples

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


def page() -> str:
    lines = [_row(sample) for sample in samples()]
    return _HEAD + "\n".join(lines) + "\n\n" + _kinds()


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
