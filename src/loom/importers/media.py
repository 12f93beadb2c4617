"""Read media from blocks of every format: inline base64, `data:` URLs, paths, links, provider file ids.

One reader serves all formats, because they differ only in the names of their fields. `lift` stores the bytes; media
that cannot be stored become a text that names them and the reason.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    Detail,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    is_media_block,
    page_range,
)
from loom.content.encoded import data_url, from_base64, looks_encoded
from loom.content.json_values import first_ident, first_text, get_object, get_text
from loom.content.nested_media import store_bytes
from loom.errors import ContentError
from loom.importers.reader import LegacyReader

_INLINE: Final = ("data", "bytes", "base64", "b64_json", "blob", "file_data", "image_base64")
_LINKS: Final = (
    *("url", "image_url", "file_url", "audio_url", "video_url", "uri", "fileUri", "file_uri"),
    *("image", "audio", "video", "document", "file", "source"),
)
_FILE_IDS: Final = ("file_id", "fileId")
_WORDS: Final = ("alt", "text_fallback", "fallback_text", "caption", "transcript", "text")
_NAMES: Final = ("filename", "file_name", "name", "displayName", "display_name")
_DECLARED: Final = ("media_type", "mime_type", "mimeType", "mediaType")
_FORMATS: Final = {"pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown", "html": "text/html"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class LegacyMediaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts in an old block about its bytes. `words` is a text alternative, `description` one by a model."""

    kind: str
    name: str = ""
    declared: str = ""
    words: str = ""
    description: str = ""
    title: str = ""
    pages: str = ""
    detail: Detail = "auto"


def read_legacy_media(kind: str, block: dict[str, Any], reading: LegacyReader) -> list[ContentBlock]:
    """Return the block for the bytes that a dict contains or refers to (`source` may be nested); an empty list if there
    are none."""
    source = get_object(block.get("source"))
    facts = {**block, **source, **get_object(source.get("s3Location"))}
    about = _media_facts(kind, facts)
    encoded = first_text(facts, *_INLINE)
    link = next((found for key in _LINKS if (found := _link(facts.get(key)))), "")
    path = get_text(facts.get("source_path"))
    inline = [
        text for text in (encoded, link) if text and (text is encoded or _is_data_url(text) or looks_encoded(text))
    ]
    for text in inline:
        data, known = _decode(text, about)
        if data:
            return _keep_source(text, data, _store_bytes(data, known, reading), reading)
    if path and (data := reading.fetch(path)) is not None:
        return _store_bytes(data, about, reading)
    if inline:
        return _store_bytes(*_decode(inline[0], about), reading)
    if link:
        return _read_link(link, about, reading)
    if path:
        reading.note(f"{_media_name(about)} is not available; replaced by text")
        return [TextBlock(_caption_text(about) or f"[{_media_name(about)}: the file is not available]")]
    if file_id := first_ident(facts, *_FILE_IDS):
        reading.note(f"{kind} {file_id} is stored by a provider and was not copied")
        return _replacement(about, f"[{kind}: file {file_id}, stored by a provider]")
    return _store_bytes(b"", about, reading) if any(facts.get(key) == "" for key in _INLINE) else []


def _keep_source(text: str, data: bytes, found: list[ContentBlock], reading: LegacyReader) -> list[ContentBlock]:
    """Record which text contained a medium, so that the original message can be rebuilt."""
    block = found[0] if found else None
    if is_media_block(block) and block.media.digest == reading.identify(data):
        reading.encoded[text] = block.media
    return found


def _media_facts(kind: str, facts: dict[str, Any]) -> LegacyMediaFacts:
    declared = first_text(facts, *_DECLARED)
    if not declared and (form := first_text(facts, "format")):
        declared = _FORMATS.get(form) or (f"{kind}/{form}" if kind in ("image", "audio", "video") else "")
    path_name = re.split(r"[\\/]", get_text(facts.get("source_path")).rstrip("\\/"))[-1]
    detail = facts.get("detail")
    return LegacyMediaFacts(
        kind=kind,
        name=first_text(facts, *_NAMES) or path_name or first_text(facts, "title"),
        declared=declared.lower(),
        words="\n".join(dict.fromkeys(text for key in _WORDS if (text := get_text(facts.get(key))))),
        description=first_text(facts, "description"),
        title=first_text(facts, "title"),
        pages=_pages(facts.get("pages")),
        detail=detail if detail in ("low", "high") else "auto",
    )


def _pages(value: Any) -> str:
    try:
        page_range(text := get_text(value))
    except ContentError:
        return ""
    return text


def _link(value: Any) -> str:
    return get_text(value) or first_text(get_object(value), "url", "uri")


def _is_data_url(text: str) -> bool:
    return text.lstrip()[:5].lower() == "data:"


def _decode(text: str, about: LegacyMediaFacts) -> tuple[bytes | None, LegacyMediaFacts]:
    """Return the bytes of base64 or a `data:` URL, and their facts, completed from the URL."""
    if not _is_data_url(text):
        return from_base64(text), about
    url = data_url(text)
    if url is None:
        return None, about
    return url.data, msgspec.structs.replace(about, name=about.name or url.name, declared=url.media_type)


def _read_link(link: str, about: LegacyMediaFacts, reading: LegacyReader) -> list[ContentBlock]:
    """Return a text for a link; links are never followed. A string without a scheme may be base64, which some local
    servers accept."""
    if not _SCHEME.match(link) and about.declared and (data := from_base64(link)):
        return _store_bytes(data, about, reading)
    reading.note(f"{about.kind} at {link[:200]} was not fetched")
    return _replacement(about, f"[{about.kind} at {link}]")


def _store_bytes(data: bytes | None, about: LegacyMediaFacts, reading: LegacyReader) -> list[ContentBlock]:
    found = store_bytes(data, reading.lift, reading.note, kind=about.kind, name=about.name, declared=about.declared)
    return _replacement(about, found) if isinstance(found, str) else [_with_words(found, about, reading)]


def _with_words(block: ContentBlock, about: LegacyMediaFacts, reading: LegacyReader) -> ContentBlock:
    """Return a stored block with the texts that the old block had."""
    match block:
        case ImageBlock():
            return msgspec.structs.replace(
                block,
                alt=block.alt or about.words,
                description=block.description or about.description,
                detail=about.detail,
            )
        case AudioBlock():
            return msgspec.structs.replace(block, transcript=block.transcript or _caption_text(about))
        case DocumentBlock():
            if _caption_text(about):
                reading.note(f"the stored text of {_media_name(about)} was left out: Loom reads it from the document")
            return msgspec.structs.replace(block, title=block.title or about.title, pages=block.pages or about.pages)
        case _:
            return block


def _media_name(about: LegacyMediaFacts) -> str:
    return f"{about.kind}: {about.name}" if about.name else about.kind


def _caption_text(about: LegacyMediaFacts) -> str:
    return "\n".join(text for text in (about.words, about.description) if text)


def _replacement(about: LegacyMediaFacts, label: str) -> list[ContentBlock]:
    return [TextBlock("\n".join(text for text in (label, _caption_text(about)) if text))]
