"""SVG: its source is text; resvg renders it as an image, if installed.

resvg would read any file that the drawing refers to, so it never gets the source but a copy that is written while
parsing: without document type, entities, external references, scripts and comments. resvg runs in a worker process.
"""

from __future__ import annotations

import importlib.util
import io
import re
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import msgspec

from loom.content.recipes import Fit, Low, Thumb
from loom.errors import ExtraMissing, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits, Rendered
from loom.formats.image import render_image
from loom.formats.text import decode_text
from loom.formats.worker import WorkerKind, current_pool

SVG_WORKER: Final = WorkerKind("loom.formats.image.svg_job")
SMALLEST_DRAWING_PX: Final = 512
"""Smaller drawings, such as icons of 24 px, are rendered larger, because a drawing has no pixels of its own."""
_SMALLER: Final = 8
_DEADLINE_SHARE: Final = 5
"""Nearly every drawing is rendered in a twentieth of a second; slow ones are stopped early."""
MAX_DEPTH: Final = 256
MAX_ELEMENTS: Final = 100_000
_MAX_ENTITIES: Final = 64
_MAX_ENTITY_CHARACTERS: Final = 256
_MAX_WRITTEN_CHARACTERS: Final = 16_000_000
_INLINE_PICTURE: Final = re.compile(r"\s*data:image/(?:png|jpe?g|gif|webp)[;,]", re.IGNORECASE)
_LENGTH: Final = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(px|pt|pc|mm|cm|in|)\s*")
_PX_PER_UNIT: Final = {"": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0}


class Drawing(msgspec.Struct, frozen=True):
    """A copy of an SVG without external references. `side_px` is its longer side, 0 if the SVG does not declare it."""

    source: str
    side_px: float
    left_out: int


def render_svg(data: bytes, recipe: Fit | Low | Thumb, limits: IntakeLimits) -> Rendered:
    if importlib.util.find_spec("resvg_py") is None:
        raise ExtraMissing(
            "Rendering an SVG needs a package that is not installed.", hint="pip install 'loom-runtime[svg]'"
        )
    drawing = remove_external_references(decode_text(data)[0])
    side_px = recipe.max_side_px if isinstance(recipe, Fit) else recipe.side_px
    target = min(side_px, round(max(SMALLEST_DRAWING_PX, min(drawing.side_px, side_px))))
    source = drawing.source.encode()
    try:
        picture = _draw(source, target, limits)
    except TooLarge:
        # resvg fills the whole of a filter or a mask, however far it extends beyond the borders of the drawing.
        picture = _draw(source, max(target // _SMALLER, 1), limits)
    rendered = render_image(picture, "image/png", recipe, limits)
    notices = (f"drawn at {rendered.width}×{rendered.height}",)
    if drawing.left_out:
        notices += (f"references to external files left out: {drawing.left_out}",)
    return msgspec.structs.replace(rendered, notices=notices)


def _draw(source: bytes, side_px: int, limits: IntakeLimits) -> bytes:
    return current_pool().call(
        SVG_WORKER,
        msgspec.msgpack.encode(side_px),
        source,
        name="The SVG drawing",
        limits=limits,
        seconds=limits.deadline_seconds / _DEADLINE_SHARE,
    )[1]


def remove_external_references(source: str) -> Drawing:
    """Return the copy. Raise `Unreadable` if `source` is not well-formed or uses entities as bombs, `TooLarge` for
    depth and size."""
    copy = _Copy()
    try:
        copy.parse(source)
    except expat.ExpatError as fault:
        raise Unreadable(f"The SVG is not well-formed (line {fault.lineno}).") from fault
    return Drawing("".join(copy.written), copy.side_px, copy.left_out)


class _Copy:
    """Writes what the parser reports, without the forbidden parts."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.side_px = 0.0
        self.left_out = 0
        self._characters = 0
        self._depth = 0
        self._elements = 0
        self._entities = 0

    def parse(self, source: str) -> None:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._entity
        parser.ParseFile(io.BytesIO(source.encode("utf-8", "replace")))

    def _write(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > _MAX_WRITTEN_CHARACTERS:
            raise TooLarge("The SVG grows too large when its entities are expanded.")
        self.written.append(text)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._elements == 0:
            self.side_px = _longer_side(attributes)
        self._elements += 1
        self._depth += 1
        if self._depth > MAX_DEPTH or self._elements > MAX_ELEMENTS:
            raise TooLarge(f"The SVG has more than {MAX_DEPTH} levels or {MAX_ELEMENTS:,} elements.")
        kept = [f" {key}={quoteattr(value)}" for key, value in attributes.items() if self._is_inside(key, value)]
        self._write(f"<{name}{''.join(kept)}>")

    def _is_inside(self, key: str, value: str) -> bool:
        if key.rpartition(":")[2] != "href" or value.lstrip().startswith("#") or _INLINE_PICTURE.match(value):
            return True
        self.left_out += 1
        return False

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._write(f"</{name}>")

    def _text(self, text: str) -> None:
        self._write(escape(text))

    def _entity(
        self,
        _name: str,
        is_parameter: bool,
        value: str | None,
        _base: str | None,
        _system: str | None,
        _public: str | None,
        _notation: str | None,
    ) -> None:
        """Accept only short entities: drawing programs abbreviate namespaces with them; other uses are attacks."""
        self._entities += 1
        harmless = value is not None and "&" not in value and "%" not in value and len(value) <= _MAX_ENTITY_CHARACTERS
        if is_parameter or not harmless or self._entities > _MAX_ENTITIES:
            raise Unreadable(
                "The SVG declares entities that are nested, large or outside the file; it is not rendered."
            )


def _longer_side(attributes: dict[str, str]) -> float:
    sides = [_pixels(attributes.get(side, "")) for side in ("width", "height")]
    if not all(sides):
        box = re.findall(r"[-+]?[0-9]*\.?[0-9]+", attributes.get("viewBox", ""))
        sides = [float(number) for number in box[2:4]] if len(box) == 4 else sides
    return max(sides)


def _pixels(length: str) -> float:
    found = _LENGTH.fullmatch(length[:40])
    return float(found[1]) * _PX_PER_UNIT[found[2]] if found else 0.0
