"""Small conversations for the compiler's tests."""

from __future__ import annotations

from typing import Any

import msgspec

from loom.compile.policy import DerivedFacts, DetachedMessage, Known, Need, Watermark
from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.content.recipes import Text, recipe_key


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def screenshot(number: int, *, width: int = 1920, height: int = 1080, size_bytes: int = 1_200_000) -> ImageBlock:
    return ImageBlock(
        Media(
            digest=digest(number),
            media_type="image/png",
            size_bytes=size_bytes,
            width=width,
            height=height,
            name=f"shot{number}.png",
        )
    )


def report(number: int, *, pages: int = 47, shown: str = "", size_bytes: int = 400_000) -> DocumentBlock:
    media = Media(
        digest=digest(number),
        media_type="application/pdf",
        size_bytes=size_bytes,
        pages=pages,
        name=f"report{number}.pdf",
    )
    return DocumentBlock(media, pages=shown)


def said(*messages: Message) -> list[DetachedMessage]:
    return [DetachedMessage(f"n{position}", message) for position, message in enumerate(messages)]


def tool_turn(number: int) -> list[Message]:
    """A turn in which a tool shows a screenshot."""
    return [
        user(f"turn {number}"),
        assistant("let me look", ToolCall(f"call_{number}", "screenshot", {"url": "http://localhost"})),
        tool(ToolResult(f"call_{number}", (TextBlock("done"), screenshot(1000 + number)), name="screenshot")),
        assistant(f"turn {number} is done"),
    ]


def settled(needs: tuple[Need, ...], *, size_bytes: int = 150_000) -> Known:
    """What settling would find out, with every rendition of one size."""
    derived: dict[tuple[str, str], DerivedFacts] = {}
    texts: dict[tuple[str, str], str] = {}
    for need in needs:
        key = (need.digest, recipe_key(need.recipe))
        if isinstance(need.recipe, Text):
            texts[key] = "[page 1]\nthe words of the document"
            continue
        formats = getattr(need.recipe, "formats", (need.media_type,))
        derived[key] = DerivedFacts(media_type=formats[0], size_bytes=size_bytes, width=800, height=600)
    return Known(derived=derived, texts=texts)


class _Made(dict[tuple[str, str], DerivedFacts]):
    """Every picture that could be asked for is already made, in the first format that the recipe names."""

    def get(self, key: tuple[str, str], default: Any = None) -> DerivedFacts:
        format_ = "jpeg" if key[1].endswith("jpeg") else "png"
        return DerivedFacts(media_type=f"image/{format_}", size_bytes=150_000, width=800, height=600)


class _Read(dict[tuple[str, str], str]):
    """Every document is already read."""

    def get(self, key: tuple[str, str], default: Any = None) -> str:
        return f"[page 1]\nthe words of {key[0][-4:]}"


def all_known(**facts: Any) -> Known:
    """As if everything had been settled long ago."""
    return Known(derived=_Made(), texts=_Read(), **facts)


def borders(mark: Watermark) -> frozenset[tuple[str, int]]:
    """Return the fields that decide how the path is shown, without the record of the last request."""
    fields = msgspec.structs.asdict(mark).items()
    return frozenset((name, value) for name, value in fields if name.endswith(("_before", "_cap", "_from")))
