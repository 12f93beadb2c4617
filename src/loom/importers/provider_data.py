"""Convert thinking and citations, and keep the provider's original data beside them.

Opaque data has the provider's field names: `{"signature": …}` or `{"data": …}` from Anthropic,
`{"id": …, "summary": […], "encrypted_content": …}` from OpenAI, `{"thoughtSignature": …}` from Gemini.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.json_values import first_text, get_int, get_list, get_object, get_text
from loom.importers.reader import FoundBlock, LegacyReader


def read_thinking(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read `{"type":"thinking","thinking":…,"signature":…}`. The text may be empty: the signature contains it
    encrypted."""
    text = block.get("thinking", block.get("text"))
    signature = get_text(block.get("signature"))
    return thinking_of(text, "anthropic" if signature else "", {"signature": signature}, reading)


def read_redacted(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    data = get_text(block.get("data"))
    if not data:
        reading.note("redacted thinking without its data is left out")
        return []
    return [ThinkingBlock(redacted=True, opaque=reading.opaque("anthropic", {"data": data}))]


def read_reasoning(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read an OpenAI reasoning item: its summary and text become readable, its encrypted content stays opaque."""
    parts = [block.get("text"), *get_list(block.get("summary")), *get_list(block.get("content"))]
    texts = (get_text(item) or first_text(get_object(item), "text") for item in parts)
    owed = {key: block[key] for key in ("id", "summary", "encrypted_content") if block.get(key) is not None}
    provider = "openai" if "id" in owed or "encrypted_content" in owed else ""
    return thinking_of("\n\n".join(text for text in texts if text), provider, owed, reading)


def read_bedrock_reasoning(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    inner = get_object(block.get("reasoningContent"))
    if redacted := get_text(inner.get("redactedContent")):
        return read_redacted({"data": redacted}, reading)
    return read_thinking(get_object(inner.get("reasoningText")), reading)


def thinking_of(text: Any, provider: str, owed: Any, reading: LegacyReader) -> list[FoundBlock]:
    """Return thinking with its text, opaque data, or both; an empty list if there is neither. `owed` is the opaque
    data, used if `provider` is set."""
    plain = text if isinstance(text, str) else ""
    if not provider:
        return [ThinkingBlock(plain)] if plain.strip() else []
    return [ThinkingBlock(plain, opaque=reading.opaque(provider, owed))]


def sign(found: list[FoundBlock], block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Attach Gemini's thought signature to the block that it came with; without a block, return it as thinking."""
    signature = first_text(block, "thoughtSignature", "thought_signature")
    if not signature:
        return found
    opaque = reading.opaque("gemini", {"thoughtSignature": signature})
    if not found:
        return [ThinkingBlock(opaque=opaque)]
    head = found[0]
    if isinstance(head, TextBlock | ThinkingBlock | ToolCall):
        return [msgspec.structs.replace(head, opaque=opaque), *found[1:]]
    reading.note("a thought signature on something other than text, thinking or a call was left out")
    return found


def read_citations(value: Any, provider: str, reading: LegacyReader) -> tuple[Citation, ...]:
    """Convert citations and annotations of a text; the provider's originals become opaque data."""
    raws = (get_object(item) for item in get_list(value))
    return tuple(_citation(raw, provider, reading) for raw in raws if raw)


def _citation(raw: dict[str, Any], provider: str, reading: LegacyReader) -> Citation:
    facts = {**raw, **get_object(raw.get("url_citation")), **get_object(raw.get("file_citation"))}
    start, end = get_int(facts.get("start_index")), get_int(facts.get("end_index"))
    pieces = (first_text(get_object(item), "text") for item in get_list(facts.get("sourceContent")))  # Bedrock
    source = get_text(facts.get("source"))
    return Citation(
        quote=first_text(facts, "cited_text", "quote") or "\n".join(piece for piece in pieces if piece),
        title=first_text(facts, "document_title", "title", "filename"),
        url=first_text(facts, "url", "uri") or (source if source.startswith(("http://", "https://")) else ""),
        **_location(raw),
        start=start if end is not None else None,
        end=end if start is not None else None,
        opaque=reading.opaque(provider, raw),
    )


def _location(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the location in the source as fields of `Citation`. The end is inclusive for pages, exclusive for
    everything else."""
    match raw.get("type"):
        case "page_location":
            locator, first, last = "page", get_int(raw.get("start_page_number")), get_int(raw.get("end_page_number"))
            last = None if last is None or first is None else max(first, last - 1)
        case "char_location":
            locator, first, last = "char", get_int(raw.get("start_char_index")), get_int(raw.get("end_char_index"))
        case "content_block_location":
            locator, first, last = "block", get_int(raw.get("start_block_index")), get_int(raw.get("end_block_index"))
        case "search_result_location":
            locator, first, last = "result", *(get_int(raw.get("search_result_index")),) * 2
        case _:
            return {}
    return {} if first is None or last is None else {"locator": locator, "first": first, "last": last}
