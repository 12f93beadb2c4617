"""Where bytes hide in blocks of every shape: inline base64, `data:` URLs, paths, links, provider file ids.

One reader serves all shapes, because they differ only in the names of their fields. Bytes go out through `lift`; what
cannot be lifted becomes a text that says what was there and why it is not there now.
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
    page_range,
)
from loom.content.legacy.encoded import data_url, from_base64, looks_encoded
from loom.content.legacy.reading import Reading
from loom.content.legacy.values import first_ident, first_words, mapping, sequence, words
from loom.content.media import size_label
from loom.content.messages import text_of
from loom.errors import ContentError, MediaError

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


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What an old block says about its bytes. `words` is a person's text for them, `description` a model's."""

    kind: str
    name: str = ""
    declared: str = ""
    words: str = ""
    description: str = ""
    title: str = ""
    pages: str = ""
    detail: Detail = "auto"


def read_media(kind: str, block: dict[str, Any], reading: Reading) -> list[ContentBlock]:
    """The block for the bytes that a dict holds or points at (`source` may be nested); empty where there are none."""
    source = mapping(block.get("source"))
    facts = {**block, **source, **mapping(source.get("s3Location"))}
    about = _about(kind, facts)
    encoded = first_words(facts, *_INLINE)
    link = next((found for key in _LINKS if (found := _link(facts.get(key)))), "")
    path = words(facts.get("source_path"))
    inline = [
        text for text in (encoded, link) if text and (text is encoded or _is_data_url(text) or looks_encoded(text))
    ]
    for text in inline:
        data, told = _decoded(text, about)
        if data:
            return _lifted(data, told, reading)
    if path and (data := reading.fetch(path)) is not None:
        return _lifted(data, about, reading)
    if inline:
        return _lifted(*_decoded(inline[0], about), reading)
    if link:
        return _linked(link, about, reading)
    if path:
        return _unavailable(about, reading)
    if file_id := first_ident(facts, *_FILE_IDS):
        reading.note(f"{kind} {file_id} is held by a provider and was not copied")
        return _stand_in(about, f"[{kind}: file {file_id}, held by a provider]")
    return _lifted(b"", about, reading) if any(facts.get(key) == "" for key in _INLINE) else []


def lift_nested(value: Any, reading: Reading) -> tuple[Any, list[ContentBlock]]:
    """Take pictures and documents out of plain JSON: `data:` URLs, and base64 that begins like a known format.

    Each is replaced by its label, so that the JSON still says where it was.
    """
    found: list[ContentBlock] = []
    return _without_bytes(value, found, reading), found


def lift_url(text: str, reading: Reading) -> list[ContentBlock]:
    """The block for a text that is a `data:` URL as a whole; empty where it is not."""
    url = data_url(text)
    if url is None:
        return []
    about = About(kind=kind_of(url.media_type), name=url.name, declared=url.media_type)
    return _lifted(url.data, about, reading)


def kind_of(media_type: str) -> str:
    """The word that a label uses."""
    kind = media_type.partition("/")[0].lower()
    return kind if kind in ("image", "audio", "video") else "document" if media_type else "file"


def _about(kind: str, facts: dict[str, Any]) -> About:
    declared = first_words(facts, *_DECLARED)
    if not declared and (form := first_words(facts, "format")):
        declared = _FORMATS.get(form) or (f"{kind}/{form}" if kind in ("image", "audio", "video") else "")
    path_name = re.split(r"[\\/]", words(facts.get("source_path")).rstrip("\\/"))[-1]
    detail = facts.get("detail")
    return About(
        kind=kind,
        name=first_words(facts, *_NAMES) or path_name or first_words(facts, "title"),
        declared=declared.lower(),
        words="\n".join(dict.fromkeys(text for key in _WORDS if (text := words(facts.get(key))))),
        description=first_words(facts, "description"),
        title=first_words(facts, "title"),
        pages=_pages(facts.get("pages")),
        detail=detail if detail in ("low", "high") else "auto",
    )


def _pages(value: Any) -> str:
    try:
        page_range(text := words(value))
    except ContentError:
        return ""
    return text


def _link(value: Any) -> str:
    return words(value) or first_words(mapping(value), "url", "uri")


def _is_data_url(text: str) -> bool:
    return text.lstrip()[:5].lower() == "data:"


def _decoded(text: str, about: About) -> tuple[bytes | None, About]:
    """The bytes of base64 or of a `data:` URL, and what is known of them then."""
    if not _is_data_url(text):
        return from_base64(text), about
    url = data_url(text)
    if url is None:
        return None, about
    return url.data, msgspec.structs.replace(about, name=about.name or url.name, declared=url.media_type)


def _linked(link: str, about: About, reading: Reading) -> list[ContentBlock]:
    """Links are never followed. A bare string may be base64: some local servers take it so."""
    if not _SCHEME.match(link) and about.declared and (data := from_base64(link)):
        return _lifted(data, about, reading)
    reading.note(f"{about.kind} at {link[:200]} was not fetched")
    return _stand_in(about, f"[{about.kind} at {link}]")


def _unavailable(about: About, reading: Reading) -> list[ContentBlock]:
    reading.note(f"{_named(about)} is not available; a text stands in for it")
    return [TextBlock(_said(about) or f"[{_named(about)}: the file is not available]")]


def _lifted(data: bytes | None, about: About, reading: Reading) -> list[ContentBlock]:
    if not data:
        problem = "its base64 data could not be decoded" if data is None else "it was empty"
        reading.note(f"{_named(about)}: {problem}")
        return _stand_in(about, f"[{_named(about)}: {problem}]")
    reason = "it could not be read"
    try:
        block = reading.lift(data, about.name, about.declared)
    except MediaError as error:
        block, reason = None, error.message
    if block is not None:
        return [_with_words(block, about, reading)]
    facts = ", ".join(fact for fact in (_named(about), about.declared, size_label(len(data))) if fact)
    reading.note(f"{facts}: {reason}")
    return _stand_in(about, f"[{facts}: {reason}]")


def _with_words(block: ContentBlock, about: About, reading: Reading) -> ContentBlock:
    """What somebody said about the bytes goes with them."""
    match block:
        case ImageBlock():
            return msgspec.structs.replace(
                block,
                alt=block.alt or about.words,
                description=block.description or about.description,
                detail=about.detail,
            )
        case AudioBlock():
            return msgspec.structs.replace(block, transcript=block.transcript or _said(about))
        case DocumentBlock():
            if _said(about):
                reading.note(f"the stored text of {_named(about)} is left out: it is read from the document itself")
            return msgspec.structs.replace(block, title=block.title or about.title, pages=block.pages or about.pages)
        case _:
            return block


def _named(about: About) -> str:
    return f"{about.kind}: {about.name}" if about.name else about.kind


def _said(about: About) -> str:
    return "\n".join(text for text in (about.words, about.description) if text)


def _stand_in(about: About, label: str) -> list[ContentBlock]:
    return [TextBlock("\n".join(text for text in (label, _said(about)) if text))]


def _without_bytes(value: Any, found: list[ContentBlock], reading: Reading) -> Any:
    if isinstance(value, str):
        return _label_of(value, found, reading)
    if isinstance(value, dict):
        return {key: _without_bytes(item, found, reading) for key, item in mapping(value).items()}
    if isinstance(value, list):
        return [_without_bytes(item, found, reading) for item in sequence(value)]
    return value


def _label_of(text: str, found: list[ContentBlock], reading: Reading) -> str:
    """The label of the bytes that a string holds, or the string itself."""
    blocks = lift_url(text, reading)
    if not blocks and looks_encoded(text) and (data := from_base64(text)):
        block = _refused_is_none(data, reading)
        blocks = [] if block is None else [block]
    found.extend(block for block in blocks if not isinstance(block, TextBlock))
    return text_of(blocks[0]) if blocks else text


def _refused_is_none(data: bytes, reading: Reading) -> ContentBlock | None:
    """A string that only looked like a picture stays as it is."""
    try:
        return reading.lift(data, "", "")
    except MediaError:
        return None
