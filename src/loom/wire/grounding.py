"""Convert Gemini's grounding metadata to citations with positions in the text of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loom.content.blocks import Citation
from loom.wire.framing import get_count, get_object, get_str


def citations(sources: list[dict[str, Any]], texts: dict[int, str]) -> Iterator[tuple[int, Citation]]:
    """Yield (block, citation) from `groundingMetadata` and `citationMetadata`, each once.

    They are read at the end of the answer, because their offsets count in its whole text and some are repeated in every
    event.
    """
    seen: set[tuple[str, str, tuple[int, int, int]]] = set()
    for source in sources:
        for segment, about in _cited_segments(source):
            place = _span(texts, segment)
            url, title = get_str(about, "uri"), get_str(about, "title")
            if place is None or (url, title, place) in seen:
                continue
            seen.add((url, title, place))
            index, start, end = place
            yield index, Citation(url=url, title=title, quote=get_str(about, "text"), start=start, end=end)


def _cited_segments(source: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (segment of the answer, source of it)."""
    chunks: Any = source.get("groundingChunks") or ()
    for support in source.get("groundingSupports") or ():
        for number in support.get("groundingChunkIndices") or ():
            if number < len(chunks):
                chunk: dict[str, Any] = chunks[number]
                yield get_object(support, "segment"), get_object(chunk, next(iter(chunk), ""))
    for cited in source.get("citations") or source.get("citationSources") or ():
        yield cited, cited


def _span(texts: dict[int, str], segment: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return (block, start, end) in code points; None if the segment is not found. Offsets count bytes of UTF-8; if the
    segment has a text, that takes precedence."""
    start, end, said = get_count(segment, "startIndex"), get_count(segment, "endIndex"), get_str(segment, "text")
    for index, text in texts.items():
        data = text.encode()
        first = len(data[:start].decode(errors="ignore"))
        last = len(data[:end].decode(errors="ignore"))
        if not said or text[first:last] == said:
            return index, first, last
    for index, text in texts.items():
        at = text.find(said)
        if at >= 0:
            return index, at, at + len(said)
    return None
