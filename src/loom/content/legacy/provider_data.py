"""What only its provider understands: thinking with its signatures, and citations. Kept in our form and in theirs.

Opaque data has the field names of the wire: `{"signature": …}` or `{"data": …}` from Anthropic,
`{"id": …, "summary": […], "encrypted_content": …}` from OpenAI, `{"thoughtSignature": …}` from Gemini.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.content.legacy.reading import FoundBlock, Reading
from loom.content.legacy.values import first_words, mapping, sequence, whole, words


def read_thinking(block: dict[str, Any], reading: Reading) -> list[FoundBlock]:
    """`{"type":"thinking","thinking":…,"signature":…}`; without text the signature carries everything."""
    text = block.get("thinking", block.get("text"))
    signature = words(block.get("signature"))
    return thinking_of(text, "anthropic" if signature else "", {"signature": signature}, reading)


def read_redacted(block: dict[str, Any], reading: Reading) -> list[FoundBlock]:
    data = words(block.get("data"))
    if not data:
        reading.note("redacted thinking without its data is left out")
        return []
    return [ThinkingBlock(redacted=True, opaque=reading.opaque("anthropic", {"data": data}))]


def read_reasoning(block: dict[str, Any], reading: Reading) -> list[FoundBlock]:
    """An OpenAI reasoning item: its summary and text for people, the encrypted rest for its maker."""
    said = [block.get("text"), *sequence(block.get("summary")), *sequence(block.get("content"))]
    texts = (words(item) or first_words(mapping(item), "text") for item in said)
    owed = {key: block[key] for key in ("id", "summary", "encrypted_content") if block.get(key) is not None}
    provider = "openai" if "id" in owed or "encrypted_content" in owed else ""
    return thinking_of("\n\n".join(text for text in texts if text), provider, owed, reading)


def read_bedrock_reasoning(block: dict[str, Any], reading: Reading) -> list[FoundBlock]:
    inner = mapping(block.get("reasoningContent"))
    if redacted := words(inner.get("redactedContent")):
        return read_redacted({"data": redacted}, reading)
    return read_thinking(mapping(inner.get("reasoningText")), reading)


def thinking_of(text: Any, provider: str, owed: Any, reading: Reading) -> list[FoundBlock]:
    """Thinking with its text, its opaque data, or both; nothing where there is neither."""
    plain = text if isinstance(text, str) else ""
    if not provider:
        return [ThinkingBlock(plain)] if plain.strip() else []
    return [ThinkingBlock(plain, opaque=reading.opaque(provider, owed))]


def sign(found: list[FoundBlock], block: dict[str, Any], reading: Reading) -> list[FoundBlock]:
    """Put Gemini's thought signature on the block that it came with; on nothing, it stands as thinking of its own."""
    signature = first_words(block, "thoughtSignature", "thought_signature")
    if not signature:
        return found
    opaque = reading.opaque("gemini", {"thoughtSignature": signature})
    if not found:
        return [ThinkingBlock(opaque=opaque)]
    head = found[0]
    if isinstance(head, TextBlock | ThinkingBlock | ToolCall):
        return [msgspec.structs.replace(head, opaque=opaque), *found[1:]]
    reading.note("a thought signature on something other than text, thinking or a call is left out")
    return found


def read_citations(value: Any, provider: str, reading: Reading) -> tuple[Citation, ...]:
    """Citations and annotations of a text, in our form, with the provider's own beside it."""
    raws = (mapping(item) for item in sequence(value))
    return tuple(_citation(raw, provider, reading) for raw in raws if raw)


def _citation(raw: dict[str, Any], provider: str, reading: Reading) -> Citation:
    facts = {**raw, **mapping(raw.get("url_citation")), **mapping(raw.get("file_citation"))}
    start, end = whole(facts.get("start_index")), whole(facts.get("end_index"))
    return Citation(
        quote=first_words(facts, "cited_text", "quote") or _source_text(facts),
        title=first_words(facts, "document_title", "title", "filename"),
        url=first_words(facts, "url", "uri") or _url(words(facts.get("source"))),
        **_location(raw),
        start=start if end is not None else None,
        end=end if start is not None else None,
        opaque=reading.opaque(provider, raw),
    )


def _location(raw: dict[str, Any]) -> dict[str, Any]:
    """Where in the source: pages become inclusive, everything else keeps its exclusive end."""
    match raw.get("type"):
        case "page_location":
            locator, first, last = "page", whole(raw.get("start_page_number")), whole(raw.get("end_page_number"))
            last = None if last is None or first is None else max(first, last - 1)
        case "char_location":
            locator, first, last = "char", whole(raw.get("start_char_index")), whole(raw.get("end_char_index"))
        case "content_block_location":
            locator, first, last = "block", whole(raw.get("start_block_index")), whole(raw.get("end_block_index"))
        case "search_result_location":
            locator, first, last = "result", *(whole(raw.get("search_result_index")),) * 2
        case _:
            return {}
    return {} if first is None or last is None else {"locator": locator, "first": first, "last": last}


def _source_text(facts: dict[str, Any]) -> str:
    """Bedrock quotes in pieces."""
    pieces = (first_words(mapping(item), "text") for item in sequence(facts.get("sourceContent")))
    return "\n".join(piece for piece in pieces if piece)


def _url(source: str) -> str:
    return source if source.startswith(("http://", "https://")) else ""
