"""Measures pictures, in the worker for pictures: colours, brightness, edges, and what separates two pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from loom.formats.facts import IntakeLimits
from loom.formats.image.decode import decoder_errors, open_picture
from loom.formats.image.describe_pixels import (
    AccentColor,
    Brightness,
    ColorShare,
    ImageDifference,
    PictureKind,
    PixelFacts,
)
from loom.formats.image.describe_pixels.colours import colour_name, is_strong
from loom.formats.image.pixels import load

if TYPE_CHECKING:
    from PIL.Image import Image

PLACES: Final = (
    ("top left", "top centre", "top right"),
    ("middle left", "centre", "middle right"),
    ("bottom left", "bottom centre", "bottom right"),
)  # fmt: skip
ROWS: Final = ("upper third", "middle", "lower third")
COLUMNS: Final = ("left third", "middle", "right third")

_LOOK_SIDE_PX: Final = 2048
_SAMPLE_SIDE_PX: Final = 320
_COARSE: Final = [level & 0xF8 | 0x04 for level in range(256)] * 3
"""Thirty-two levels a channel: enough to name a colour, few enough to count quickly."""
_MOST_COLOURS: Final = 1 << 17


def describe_picture(data: bytes, media_type: str, limits: IntakeLimits) -> PixelFacts:
    return _measure(*_open_image(data, media_type, limits))


def compare_pictures(a: bytes, a_type: str, b: bytes, b_type: str, limits: IntakeLimits) -> ImageDifference:
    image_a, image_b = _open_image(a, a_type, limits), _open_image(b, b_type, limits)
    first, second = _measure(*image_a), _measure(*image_b)
    colours_a, colours_b = ({share.name for share in seen.palette} for seen in (first, second))
    known_a = colours_a | {accent.name for accent in first.accents}
    known_b = colours_b | {accent.name for accent in second.accents}
    found = ImageDifference(
        first=first,
        second=second,
        gained=tuple(share.name for share in second.palette if share.name not in known_a),
        lost=tuple(share.name for share in first.palette if share.name not in known_b),
    )
    ratio = (first.width * second.height) / (first.height * second.width)
    if not 0.98 <= ratio <= 1.02:
        return found
    return _overlaid(found, image_a[0], image_b[0])


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Facts(msgspec.Struct, frozen=True):
    width: int
    height: int
    media_type: str
    frames: int
    clear_percent: int


def _open_image(data: bytes, media_type: str, limits: IntakeLimits) -> tuple[Image, _Facts]:
    """The picture upright, in RGB on white, at most `_LOOK_SIDE_PX` long."""
    from PIL import Image

    opened = open_picture(data, media_type, limits)
    width, height = opened.size
    image = load(opened, _LOOK_SIDE_PX)
    with decoder_errors(media_type):
        clear = 0
        if image.mode in ("LA", "RGBA"):
            alpha = image.getchannel("A")
            clear = round(100 * sum(alpha.histogram()[:128]) / (image.width * image.height))
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        return image.convert("RGB"), _Facts(width, height, media_type, opened.frames, clear)


def _measure(image: Image, facts: _Facts) -> PixelFacts:
    sample = _sample(image)
    counts = {colour: count for count, colour in _colours(sample)}
    palette = _palette(counts)
    edges = _Edges(image)
    kind = _kind(edges, counts, facts.clear_percent)
    return PixelFacts(
        width=facts.width,
        height=facts.height,
        media_type=facts.media_type,
        kind=kind,
        tone=_tone(image),
        palette=palette,
        accents=() if kind in ("photograph", "plain picture") else _accents(sample, counts, palette),
        detail="" if kind == "plain picture" else edges.place(),
        frames=facts.frames,
        clear_percent=facts.clear_percent,
    )


# ── colours ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_Colour: TypeAlias = tuple[int, int, int]

_PALETTE_LEAST: Final = 0.07
_SECOND_LEAST: Final = 0.02
_ACCENT_LEAST: Final = 0.0004
_ACCENT_MOST: Final = 0.06
_ACCENTS: Final = 2
_PLAIN_SHARE: Final = 0.7


def _sample(image: Image) -> Image:
    """Single pixels, not averages: a thin red line must stay red."""
    from PIL.Image import Resampling

    scale = min(1.0, _SAMPLE_SIDE_PX / max(image.size))
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Resampling.NEAREST).point(_COARSE)


def _colours(sample: Image) -> list[tuple[int, _Colour]]:
    found = sample.getcolors(_MOST_COLOURS) or []
    return [(count, colour) for count, colour in found if isinstance(colour, tuple) and len(colour) == 3]


def _palette(counts: dict[_Colour, int]) -> tuple[ColorShare, ...]:
    """The colours that cover most, by name; at least one."""
    total = sum(counts.values())
    names: dict[str, int] = {}
    for colour, count in counts.items():
        name = colour_name(*colour)
        names[name] = names.get(name, 0) + count
    ranked = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    least = (0.0, _SECOND_LEAST, _PALETTE_LEAST, _PALETTE_LEAST)
    kept = [item for item, share in zip(ranked, least, strict=False) if item[1] >= total * share]
    return tuple(
        ColorShare(name, min(99, round(100 * count / total)) if len(ranked) > 1 else 100) for name, count in kept
    )


def _accents(sample: Image, counts: dict[_Colour, int], palette: tuple[ColorShare, ...]) -> tuple[AccentColor, ...]:
    """Strong colours on a picture that is mostly grey, white, black or one colour."""
    total = sum(counts.values())
    strong: dict[str, int] = {}
    for colour, count in counts.items():
        if is_strong(*colour):
            name = colour_name(*colour)
            strong[name] = strong.get(name, 0) + count
    shown = {share.name for share in palette}
    if palette[0].percent < 100 * _PLAIN_SHARE * 0.5 or sum(strong.values()) > total * (1 - _PLAIN_SHARE):
        return ()
    small = sorted(
        (
            (-count, name)
            for name, count in strong.items()
            if name not in shown and _ACCENT_LEAST * total <= count <= _ACCENT_MOST * total
        )
    )
    return tuple(AccentColor(name, _place_of(sample, name)) for _, name in small[:_ACCENTS])


def _place_of(sample: Image, name: str) -> str:
    """Where the pixels of a strong colour are: the one part that holds most of them, or nothing."""
    cells = [0] * 9
    width, height = sample.size
    wanted = {colour for _, colour in _colours(sample) if is_strong(*colour) and colour_name(*colour) == name}
    marks = {bytes(colour) for colour in wanted}
    pixels = sample.tobytes()
    for at in range(0, len(pixels), 3):
        if pixels[at : at + 3] in marks:
            row, column = divmod(at // 3, width)
            cells[row * 3 // height * 3 + column * 3 // width] += 1
    return place_name([float(cell) for cell in cells], least=0.6)


def _tone(image: Image) -> Brightness:
    from PIL import ImageStat

    mean = ImageStat.Stat(image.convert("L").reduce(max(1, min(image.size) // 64))).mean[0]
    return "dark" if mean < 85 else "mid-toned" if mean < 170 else "bright"


# ── edges ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_STRAIGHT_PX: Final = 12
_HARD: Final = 32
_SOFT: Final = 2


class _Edges:
    """Differences between neighbouring pixels: how many are nothing, soft or hard, how straight, and where."""

    def __init__(self, image: Image) -> None:
        from PIL import ImageChops
        from PIL.Image import Resampling

        grey = image.convert("L")
        if min(grey.size) < 2:
            grey = grey.resize((max(2, grey.width), max(2, grey.height)), Resampling.NEAREST)
        self.size = width, height = grey.size
        self._across = ImageChops.difference(grey.crop((1, 0, width, height)), grey.crop((0, 0, width - 1, height)))
        self._down = ImageChops.difference(grey.crop((0, 1, width, height)), grey.crop((0, 0, width, height - 1)))
        self.flat, self.soft, self.hard = self._shares()

    def _shares(self) -> tuple[float, float, float]:
        histogram = [a + b for a, b in zip(self._across.histogram(), self._down.histogram(), strict=True)]
        total = sum(histogram) or 1
        flat, hard = sum(histogram[: _SOFT + 1]), sum(histogram[_HARD:])
        return flat / total, (total - flat - hard) / total, hard / total

    def straight(self) -> float:
        """The share of hard edges that run exactly across or down for a while, as frames, tables and bars do."""
        found = whole = 0
        for edge, factor in ((self._across, (1, _STRAIGHT_PX)), (self._down, (_STRAIGHT_PX, 1))):
            if edge.width < factor[0] or edge.height < factor[1]:
                continue
            marked = edge.point([255 if level >= _HARD // 2 else 0 for level in range(256)])
            whole += marked.histogram()[255]
            found += sum(marked.reduce(factor).histogram()[230:]) * _STRAIGHT_PX
        return found / whole if whole else 0.0

    def place(self) -> str:
        """The part of the picture with most of the edges; empty where no part has much more than its share."""
        from PIL import ImageChops, ImageStat

        width, height = self._across.width, self._down.height
        if width < 9 or height < 9:
            return ""
        both = ImageChops.lighter(self._across.crop((0, 0, width, height)), self._down.crop((0, 0, width, height)))
        return place_name([ImageStat.Stat(part).mean[0] for part in _ninths(both)], least=0.24)


def _ninths(image: Image) -> list[Image]:
    """Three rows of three parts."""
    across = [image.width * third // 3 for third in range(4)]
    down = [image.height * third // 3 for third in range(4)]
    return [
        image.crop((across[column], down[row], across[column + 1], down[row + 1]))
        for row in range(3)
        for column in range(3)
    ]


def place_name(cells: list[float], *, least: float) -> str:
    """Nine weights, row by row → the cell that holds at least this share, else the row or the column that holds more
    than half of all, else nothing."""
    total = sum(cells)
    if total <= 0:
        return ""
    best = max(range(9), key=lambda at: cells[at])
    if cells[best] >= total * least and cells[best] >= 1.25 * sorted(cells)[-2]:
        return PLACES[best // 3][best % 3]
    for names, lines in (
        (ROWS, [cells[row * 3 : row * 3 + 3] for row in range(3)]),
        (COLUMNS, [cells[column::3] for column in range(3)]),
    ):
        weights = [sum(line) for line in lines]
        top = max(range(3), key=lambda at: weights[at])
        if weights[top] >= total * max(0.5, least):
            return names[top]
    return ""


# ── kind ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


_ICON_SIDE_PX: Final = 64
_CUT_OUT_PERCENT: Final = 20
"""A picture with this much transparency is a logo or an icon: cameras and screens give none."""


def _kind(edges: _Edges, counts: dict[_Colour, int], clear_percent: int) -> PictureKind:
    """Cameras give soft differences everywhere; programs give flat areas with hard borders, mostly straight ones."""
    total = sum(counts.values())
    common = sum(sorted(counts.values(), reverse=True)[:8]) / total
    if len(counts) == 1 or (edges.hard == 0.0 and edges.flat >= 0.97):
        return "plain picture"
    if max(edges.size) <= _ICON_SIDE_PX:
        return "icon"
    abrupt = edges.hard / (edges.hard + edges.soft)
    flat_areas = edges.flat >= 0.55 and common >= 0.45 and abrupt >= 0.08
    line_work = (edges.flat >= 0.85 or common >= 0.6) and abrupt >= 0.3
    if clear_percent >= _CUT_OUT_PERCENT and common >= 0.3:
        return "drawing"
    if not flat_areas and not line_work:
        return "photograph"
    coloured = sum(count for colour, count in counts.items() if is_strong(*colour)) / total
    straight = edges.straight()
    most_straight = 0.4 if coloured >= 0.2 else 0.15 if coloured >= 0.05 else 0.05
    return "drawing" if straight < most_straight else "screenshot or diagram"


# ── two pictures ─────────────────────────────────────────────────────────────────────────────────────────────────────

_CHANGED_LEVEL: Final = 24


def _overlaid(found: ImageDifference, a: Image, b: Image) -> ImageDifference:
    """Lay the second over the first, at the size of the smaller one."""
    from PIL import ImageChops
    from PIL.Image import Resampling

    size = min(a.size, b.size)
    one, other = (image if image.size == size else image.resize(size, Resampling.BICUBIC) for image in (a, b))
    channels = ImageChops.difference(one, other).split()
    largest = ImageChops.lighter(ImageChops.lighter(channels[0], channels[1]), channels[2])
    changed = largest.point([255 if level >= _CHANGED_LEVEL else 0 for level in range(256)])
    count = changed.histogram()[255]
    box = changed.getbbox()
    if not count or box is None:
        return msgspec.structs.replace(found, changed_percent=0.0)
    width, height = size
    cells = [float(part.histogram()[255]) for part in _ninths(changed)]
    scale = found.first.width / width
    left, top, right, bottom = (round(value * scale) for value in box)
    return msgspec.structs.replace(
        found,
        changed_percent=100 * count / (width * height),
        region=place_name(cells, least=0.6),
        box=(left, top, right, bottom),
    )
