"""Blocks: the closed union of everything that a message can contain. Frozen values, equal by content, without IO.

    TextBlock      text, with citations
    ImageBlock     an image
    DocumentBlock  a PDF or office file, whole or a page range
    AudioBlock     a recording
    VideoBlock     a video, with or without sound
    ThinkingBlock  a model's reasoning, redacted or not
    ToolCall       a call of a tool by a model
    ToolResult     the result of a call: content for the model, `data` for interfaces only
    UnknownBlock   a block of a newer version, preserved

Match them exhaustively (`assert_never`), so that the type checker finds every place that must handle a new kind. Values
hold no cycles, so the garbage collector need not track the long paths that are made of them (`gc=False`).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from loom.content.media import Media, check_text, make_whole, require_text, wrong_field
from loom.content.media_kinds import media_kind
from loom.errors import ContentError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Detail = Literal["auto", "low", "high"]
NO_OUTPUT: Final = "(no output)"

_AUTO: Final = "auto"
_UNCITED: Final = ()
_PAGES = re.compile(r"([1-9][0-9]{0,6})(?:-([1-9][0-9]{0,6}))?")


class Opaque(msgspec.Struct, frozen=True, kw_only=True):
    """Provider data that is sent back unchanged, and only to the model that produced it."""

    provider: str
    model: str
    data: Any

    def __post_init__(self) -> None:
        if not (type(self.provider) is type(self.model) is str):
            require_text(self, "provider", "model")
        if not self.provider or not self.model:
            raise ContentError("Opaque data must name the provider and the model that produced it")
        check_text(self.provider, self.model)
        _make_json(self, "data", "opaque data")


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The source of a statement, in one form for all providers.

    `start` and `end` count code points of the block's text. `first` and `last` are in the unit that `locator` names
    (pages count from one, inclusive; characters and blocks from zero, end exclusive).
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
            raise ContentError("A citation with a locator needs first and last, and only then")
        if not (type(self.quote) is type(self.title) is type(self.url) is type(self.digest) is str):
            require_text(self, "quote", "title", "url", "digest")
        if not (self.quote.isascii() and self.title.isascii() and self.url.isascii() and self.digest.isascii()):
            check_text(self.quote, self.title, self.url, self.digest)
        if type(self.locator) is not str or self.locator not in _LOCATORS:
            make_choice(self, "locator", _LOCATORS)
        for count in (self.first, self.last, self.start, self.end):
            if count is not None and type(count) is not int:
                counts = ("first", "last", "start", "end")
                make_whole(self, *(count for count in counts if getattr(self, count) is not None))
                break
        if self.opaque is not None:
            _check_opaque(self, self.opaque)

    @property
    def source(self) -> str:
        """The source for a reader to look up: `manual.pdf p. 14`; empty if there is no name."""
        name = self.title or self.url
        return f"{name} p. {self.first}" if name and self.locator == "page" else name


SYSTEM_LABEL: Final = "system"
"""Stands in brackets before the words of a system message inside a conversation."""


class TextBlock(msgspec.Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    """`is_system` marks words of a system message inside a conversation: its text begins with a label that
    says so, for models and readers that know no such message."""

    text: str
    citations: tuple[Citation, ...] = ()
    opaque: Opaque | None = None
    is_system: bool = False

    def __post_init__(self) -> None:
        text = self.text
        if type(text) is not str:
            text = require_text(self, "text")
        if not text or text.isspace():
            raise ContentError("Text must not be blank")
        if not text.isascii():
            check_text(text)
        if self.citations is not _UNCITED:
            if type(self.citations) is not tuple:
                _make_tuple(self, "citations")
            for citation in self.citations:
                if type(citation) is not Citation:
                    raise wrong_field(self, "citations", "made of Citation", citation)
        if self.opaque is not None:
            _check_opaque(self, self.opaque)
        if self.is_system is not False and type(self.is_system) is not bool:
            raise wrong_field(self, "is_system", "True or False", self.is_system)


class ImageBlock(msgspec.Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """An image. `alt` is a text alternative by a person, `description` one by a model; both may replace the image."""

    media: Media
    alt: str = ""
    description: str = ""
    detail: Detail = "auto"

    def __post_init__(self) -> None:
        media = self.media
        if type(media) is not Media:
            raise wrong_field(self, "media", "a Media", media)
        if media.media_type[:6] != "image/":
            raise _wrong_kind(self, media)
        if not (type(self.alt) is type(self.description) is str):
            require_text(self, "alt", "description")
        if not (self.alt.isascii() and self.description.isascii()):
            check_text(self.alt, self.description)
        if self.detail is not _AUTO:
            make_choice(self, "detail", DETAILS)


class DocumentBlock(msgspec.Struct, frozen=True, tag="document", omit_defaults=True, gc=False):
    """A document. `pages` is a range such as "21-40", counted from one, inclusive; empty means all pages."""

    media: Media
    pages: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        media = self.media
        if type(media) is not Media:
            raise wrong_field(self, "media", "a Media", media)
        if media_kind(media.media_type).name != "document":
            raise _wrong_kind(self, media)
        if not (type(self.pages) is type(self.title) is str):
            require_text(self, "pages", "title")
        if self.pages:
            page_range(self.pages)
        if self.title:
            check_text(self.title)


class AudioBlock(msgspec.Struct, frozen=True, tag="audio", omit_defaults=True, gc=False):
    """A recording. `transcript` is the spoken text, if a person or a program has written it."""

    media: Media
    transcript: str = ""

    def __post_init__(self) -> None:
        _check_recording(self, "audio/")


class VideoBlock(msgspec.Struct, frozen=True, tag="video", omit_defaults=True, gc=False):
    """A video. `transcript` is the spoken text, if a person or a program has written it."""

    media: Media
    transcript: str = ""

    def __post_init__(self) -> None:
        _check_recording(self, "video/")


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True, gc=False):
    """A model's reasoning. The text may be empty if the provider keeps it; `opaque` then holds all of it."""

    text: str = ""
    redacted: bool = False
    opaque: Opaque | None = None

    def __post_init__(self) -> None:
        text = self.text
        if type(text) is not str:
            text = require_text(self, "text")
        if type(self.redacted) is not bool:
            raise wrong_field(self, "redacted", "True or False", self.redacted)
        if self.opaque is not None:
            _check_opaque(self, self.opaque)
        elif not text.strip():
            raise ContentError("Thinking needs its text or its opaque data")
        elif self.redacted:
            raise ContentError("Redacted thinking needs its opaque data")
        if not text.isascii():
            check_text(text)


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True, gc=False):
    """A tool call. `raw_arguments` keeps the model's output if it was not a JSON object; `arguments` is then empty."""

    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    raw_arguments: str | None = None
    opaque: Opaque | None = None

    def __post_init__(self) -> None:
        if not (type(self.id) is type(self.name) is str):
            require_text(self, "id", "name")
        if not self.id or not self.name:
            raise ContentError("A tool call needs an id and a name")
        if not (self.id.isascii() and self.name.isascii()):
            check_text(self.id, self.name)
        if not isinstance(self.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be unchecked
            raise wrong_field(self, "arguments", "a dict", self.arguments)
        if self.raw_arguments is not None:
            if self.arguments:
                raise ContentError("A tool call has parsed arguments or raw ones, not both")
            check_text(require_text(self, "raw_arguments"))
        if self.arguments:
            _make_json(self, "arguments", "arguments")
        if self.opaque is not None:
            _check_opaque(self, self.opaque)


class UnknownBlock(msgspec.Struct, frozen=True, tag="unknown", gc=False):
    """A block of a kind that this version does not know. `data` is the whole object, including `type`."""

    data: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.data, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be unchecked
            raise wrong_field(self, "data", "a dict", self.data)
        kind = self.data.get("type")
        if not isinstance(kind, str) or not kind or kind in KNOWN_TYPES:
            raise ContentError(f"An unknown block needs a type that this version does not know, not {kind!r}")
        _make_json(self, "data", "an unknown block")

    @property
    def kind(self) -> str:
        return cast("str", self.data["type"])


MediaBlock: TypeAlias = ImageBlock | DocumentBlock | AudioBlock | VideoBlock
"""One class for each row of `MEDIA_KINDS`; its tag is the row's name."""

ContentBlock: TypeAlias = TextBlock | MediaBlock | UnknownBlock
"""The blocks that a user or a tool may supply."""


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True, gc=False):
    """The result of a tool call. `blocks` are sent to the model, `data` only to interfaces (a table for a chart, a diff
    for a viewer)."""

    call_id: str
    blocks: tuple[ContentBlock, ...]
    name: str = ""
    is_error: bool = False
    data: Any = None

    def __post_init__(self) -> None:
        if not (type(self.call_id) is type(self.name) is str):
            require_text(self, "call_id", "name")
        if not self.call_id:
            raise ContentError("A tool result needs the id of its call")
        if not self.blocks:
            raise ContentError(f"A tool result must not be empty: use {NO_OUTPUT!r} if there is no output")
        if type(self.blocks) is not tuple:
            _make_tuple(self, "blocks")
        for block in self.blocks:
            if type(block) not in _CONTENT:
                raise wrong_field(self, "blocks", f"made of {', '.join(_NAMES)}", block)
        if type(self.is_error) is not bool:
            raise wrong_field(self, "is_error", "True or False", self.is_error)
        if not (self.call_id.isascii() and self.name.isascii()):
            check_text(self.call_id, self.name)
        if self.data is not None:
            _make_json(self, "data", "tool data")


Block: TypeAlias = ContentBlock | ThinkingBlock | ToolCall | ToolResult

DETAILS: Final[tuple[str, ...]] = get_args(Detail)
_LOCATORS: Final = ("", "page", "char", "block", "result")
BLOCK_TYPES: Final[tuple[type[msgspec.Struct], ...]] = get_args(Block)
CONTENT_TYPES: Final[tuple[type[msgspec.Struct], ...]] = get_args(ContentBlock)
MEDIA_TYPES: Final[tuple[type[msgspec.Struct], ...]] = get_args(MediaBlock)
_CONTENT: Final = frozenset(CONTENT_TYPES)
_NAMES: Final = [block.__name__ for block in CONTENT_TYPES]


def block_tag(block: type[msgspec.Struct]) -> str:
    """Return the `type` under which a block class is stored."""
    return cast("str", block.__struct_config__.tag)


KNOWN_TYPES: Final = frozenset(block_tag(block) for block in BLOCK_TYPES) - {"unknown"}


def is_media_block(block: object) -> TypeIs[MediaBlock]:
    return type(block) in MEDIA_TYPES


def is_content_block(block: object) -> TypeIs[ContentBlock]:
    return type(block) in _CONTENT


def page_range(pages: str) -> tuple[int, int]:
    """Convert `"21-40"` to (21, 40) and `"7"` to (7, 7); pages count from one, inclusive. Raise `ContentError` for
    anything else."""
    match = _PAGES.fullmatch(pages.strip())
    if match is None:
        raise ContentError(f"Not a range of pages: {pages[:40]!r}", hint="Write 3 or 21-40; pages count from one.")
    first = int(match[1])
    last = int(match[2] or first)
    if last < first:
        raise ContentError(f"Pages {pages!r} end before they begin", hint="Write the lower number first.")
    return first, last


def page_label(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def clean_text(text: str) -> str:
    """Return plain text; replace what cannot be written as UTF-8 (lone surrogates) with U+FFFD."""
    plain = text if type(text) is str else str.__str__(text)
    return plain if plain.isascii() else plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_json(value: Any, what: str) -> Any:
    """Return the value if JSON can represent it exactly: no NaN, no bytes, no tuples, string keys, bounded depth. Raise
    `ContentError` otherwise.

    Strings and numbers of a subclass, which cannot be encoded, are replaced with plain ones in a copy.
    """
    return value if _is_plain(value, what, 0) else _to_plain(value)


_MAX_DEPTH: Final = 200
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def _is_plain(value: Any, what: str, depth: int) -> bool:
    """Return whether the value needs no conversion to plain types; raise `ContentError` if it cannot be converted."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]  any JSON value
    if kind is str:
        if not value.isascii():
            check_text(value)
    elif kind is int:
        if not _MIN_INT <= value <= _MAX_INT:
            raise ContentError(f"{what} contain an integer beyond 64 bits: send it as a string")
    elif kind is float:
        if not math.isfinite(value):
            raise ContentError(f"{what} contain {value}, which JSON cannot represent")
    elif value is not None and kind is not bool:
        return _is_plain_other(value, what, depth)
    return True


def _is_plain_other(value: Any, what: str, depth: int) -> bool:
    if depth >= _MAX_DEPTH and value and isinstance(value, list | dict):
        raise ContentError(f"{what} are nested deeper than {_MAX_DEPTH} levels")
    is_plain = True
    match value:
        case list():
            for item in cast("list[Any]", value):
                is_plain &= _is_plain(item, what, depth + 1)
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise ContentError(f"{what} have a key that is not a string: {key!r}")
                check_text(key)
                is_plain &= type(key) is str
                is_plain &= _is_plain(item, what, depth + 1)
        case str() | int() | float():
            _is_plain(_to_plain(value), what, depth)
            return False
        case _:
            raise ContentError(f"{what} contain a {type(value).__name__}, which JSON cannot represent")
    return is_plain


def _to_plain(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case dict():
            return {str.__str__(key): _to_plain(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return [_to_plain(item) for item in value]


def _make_json(value: msgspec.Struct, field: str, what: str) -> None:
    data = getattr(value, field)
    if not _is_plain(data, what, 0):
        msgspec.structs.force_setattr(value, field, _to_plain(data))


def _make_tuple(value: msgspec.Struct, field: str) -> None:
    items: Any = getattr(value, field)
    if not isinstance(items, list | tuple):
        raise wrong_field(value, field, "a tuple", items)
    msgspec.structs.force_setattr(value, field, tuple(cast("list[Any]", items)))


def make_choice(value: msgspec.Struct, field: str, choices: tuple[str, ...]) -> None:
    chosen: Any = getattr(value, field)
    if not isinstance(chosen, str) or chosen not in choices:
        raise wrong_field(value, field, f"one of {', '.join(filter(None, choices))}", chosen)
    require_text(value, field)


def _check_opaque(value: msgspec.Struct, opaque: Any) -> None:
    if type(opaque) is not Opaque:
        raise wrong_field(value, "opaque", "an Opaque", opaque)


def _check_recording(block: AudioBlock | VideoBlock, prefix: str) -> None:
    media = block.media
    if type(media) is not Media:
        raise wrong_field(block, "media", "a Media", media)
    if media.media_type[:6] != prefix:
        raise _wrong_kind(block, media)
    if type(block.transcript) is not str:
        require_text(block, "transcript")
    if block.transcript:
        check_text(block.transcript)


def _wrong_kind(block: MediaBlock, media: Media) -> ContentError:
    """Return the error that a block cannot hold a media type: `an ImageBlock cannot hold audio/wav`."""
    name = type(block).__name__
    return ContentError(f"{'an' if name[0] in 'AEIOU' else 'a'} {name} cannot contain {media.media_type}")
