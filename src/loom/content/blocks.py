"""Blocks: the closed union of what can be said. Frozen values, equal by content, ignorant of IO.

    TextBlock      words, with citations
    ImageBlock     a picture
    DocumentBlock  a PDF or office file, whole or a page range
    AudioBlock     sound
    ThinkingBlock  a model's reasoning, redacted or not
    ToolCall       a model asks for a tool
    ToolResult     the answer to a call: content for the model, `data` for faces only
    UnknownBlock   written by a newer version; survives

Match them exhaustively (`assert_never`), so that a new kind makes the type checker list the work. Values hold no
cycles, so the garbage collector is spared the long paths that are made of them (`gc=False`).
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from loom.content.media import Media, check_text
from loom.errors import ContentError

Detail = Literal["auto", "low", "high"]
NO_OUTPUT: Final = "(no output)"

_PAGES = re.compile(r"([1-9][0-9]{0,6})(?:-([1-9][0-9]{0,6}))?")


class Opaque(msgspec.Struct, frozen=True, kw_only=True):
    """Provider data owed back unchanged, and only to the model that produced it."""

    provider: str
    model: str
    data: Any

    def __post_init__(self) -> None:
        if not self.provider or not self.model:
            raise ContentError("opaque data must name the provider and the model that produced it")
        check_text(self.provider, self.model)
        check_json(self.data, "opaque data")


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a statement comes from, in one form for every provider.

    `start` and `end` count code points of the block's text. `first` and `last` are what `locator` names (pages
    count from one, inclusive; characters and blocks from zero, end exclusive).
    """

    quote: str = ""
    title: str = ""
    url: str = ""
    digest: str = ""
    locator: Literal["", "page", "char", "block", "result"] = ""
    first: int | None = None
    last: int | None = None
    start: int | None = None
    end: int | None = None
    opaque: Opaque | None = None

    def __post_init__(self) -> None:
        if bool(self.locator) != (self.first is not None and self.last is not None):
            raise ContentError("a citation with a locator needs first and last, and only then")
        check_text(self.quote, self.title, self.url, self.digest)

    @property
    def source(self) -> str:
        """What a person would look up: `manual.pdf p. 14`; empty where nothing names it."""
        name = self.title or self.url
        return f"{name} p. {self.first}" if name and self.locator == "page" else name


class TextBlock(msgspec.Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    text: str
    citations: tuple[Citation, ...] = ()
    opaque: Opaque | None = None

    def __post_init__(self) -> None:
        text = self.text
        if not text or text.isspace():
            raise ContentError("text must hold something other than white space")
        if not text.isascii():
            check_text(text)


class ImageBlock(msgspec.Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """`alt` is a person's words, `description` a model's; both may stand in for the picture."""

    media: Media
    alt: str = ""
    description: str = ""
    detail: Detail = "auto"

    def __post_init__(self) -> None:
        if not self.media.media_type.startswith("image/"):
            raise _wrong_kind("ImageBlock", "image/", self.media)
        if self.alt or self.description:
            check_text(self.alt, self.description)


class DocumentBlock(msgspec.Struct, frozen=True, tag="document", omit_defaults=True, gc=False):
    """`pages` is a range such as "21-40", counted from one, inclusive; empty means all of it."""

    media: Media
    pages: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if self.media.media_type.startswith(("image/", "audio/")):
            raise ContentError(f"a DocumentBlock cannot hold {self.media.media_type}")
        if self.pages:
            page_range(self.pages)
        check_text(self.title)


class AudioBlock(msgspec.Struct, frozen=True, tag="audio", omit_defaults=True, gc=False):
    media: Media
    transcript: str = ""

    def __post_init__(self) -> None:
        if not self.media.media_type.startswith("audio/"):
            raise _wrong_kind("AudioBlock", "audio/", self.media)
        check_text(self.transcript)


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True, gc=False):
    """Reasoning. The text may be empty where the provider keeps it (then `opaque` carries everything)."""

    text: str = ""
    redacted: bool = False
    opaque: Opaque | None = None

    def __post_init__(self) -> None:
        if not self.text.strip() and self.opaque is None:
            raise ContentError("thinking needs its text or its opaque data")
        if self.redacted and self.opaque is None:
            raise ContentError("redacted thinking is nothing without its opaque data")
        check_text(self.text)


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True, gc=False):
    """`raw_arguments` keeps what the model wrote when it was not a JSON object; `arguments` is then empty."""

    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    raw_arguments: str | None = None
    opaque: Opaque | None = None

    def __post_init__(self) -> None:
        if not self.id or not self.name:
            raise ContentError("a tool call needs an id and a name")
        if self.raw_arguments is not None and self.arguments:
            raise ContentError("a tool call has parsed arguments or raw ones, not both")
        check_text(self.id, self.name, self.raw_arguments or "")
        check_json(self.arguments, "arguments")


class UnknownBlock(msgspec.Struct, frozen=True, tag="unknown", gc=False):
    """A block of a kind this version does not know. `data` is the whole object, `type` included."""

    data: dict[str, Any]

    def __post_init__(self) -> None:
        kind = self.data.get("type")
        if not isinstance(kind, str) or not kind or kind in KNOWN_TYPES:
            raise ContentError(f"an unknown block needs a type that this version does not know, not {kind!r}")
        check_json(self.data, "an unknown block")

    @property
    def kind(self) -> str:
        return cast("str", self.data["type"])


ContentBlock: TypeAlias = TextBlock | ImageBlock | DocumentBlock | AudioBlock | UnknownBlock
"""What a person or a tool may supply."""


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True, gc=False):
    """`blocks` go to the model, `data` only to faces (a table for a chart, a diff for a viewer)."""

    call_id: str
    blocks: tuple[ContentBlock, ...]
    name: str = ""
    is_error: bool = False
    data: Any = None

    def __post_init__(self) -> None:
        if not self.call_id:
            raise ContentError("a tool result needs the id of its call")
        if not self.blocks:
            raise ContentError(f"a tool result is never empty: say {NO_OUTPUT!r} where there is nothing")
        check_text(self.call_id, self.name)
        check_json(self.data, "tool data")


Block: TypeAlias = (
    TextBlock | ImageBlock | DocumentBlock | AudioBlock | ThinkingBlock | ToolCall | ToolResult | UnknownBlock
)
MediaBlock: TypeAlias = ImageBlock | DocumentBlock | AudioBlock

KNOWN_TYPES: Final = frozenset({"text", "image", "document", "audio", "thinking", "tool_call", "tool_result"})


def page_range(pages: str) -> tuple[int, int]:
    """`"21-40"` → (21, 40); `"7"` → (7, 7). Counted from one, inclusive."""
    match = _PAGES.fullmatch(pages.strip())
    if match is None:
        raise ContentError(f'pages look like "3" or "21-40", counted from one, not {pages[:40]!r}')
    first = int(match[1])
    last = int(match[2] or first)
    if last < first:
        raise ContentError(f"pages {pages!r} end before they begin")
    return first, last


def page_label(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def clean_text(text: str) -> str:
    """Replace what cannot be written as UTF-8 (lone surrogates) by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_json(value: Any, what: str) -> None:
    """Only what JSON can say and give back unchanged: no NaN, no bytes, no tuples, string keys, bounded depth."""
    _check_json(value, what, 0)


_MAX_DEPTH: Final = 200
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def _check_json(value: Any, what: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ContentError(f"{what} are nested deeper than {_MAX_DEPTH} levels")
    match value:
        case None | bool():
            return
        case str():
            check_text(value)
        case int():
            if not _MIN_INT <= value <= _MAX_INT:
                raise ContentError(f"{what} hold an integer beyond 64 bits: send it as a string")
        case float():
            if not math.isfinite(value):
                raise ContentError(f"{what} hold {value}, which JSON cannot say")
        case list():
            for item in cast("list[Any]", value):
                _check_json(item, what, depth + 1)
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise ContentError(f"{what} have a key that is not a string: {key!r}")
                check_text(key)
                _check_json(item, what, depth + 1)
        case _:
            raise ContentError(f"{what} hold a {type(value).__name__}, which JSON cannot say")


def _wrong_kind(block: str, prefix: str, media: Media) -> ContentError:
    return ContentError(f"an {block} holds {prefix}…, not {media.media_type}")
