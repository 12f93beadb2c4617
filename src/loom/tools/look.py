"""look: show earlier content again (shown, stored or truncated), or a part of it: pages, a crop, an image in a
document."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock, VideoBlock, page_range
from loom.content.media import Media
from loom.content.moments import parse_time, time_label
from loom.content.recipes import Crop, EmbeddedImage, Fit, Frame, Page
from loom.errors import ToolError
from loom.formats import render
from loom.formats.facts import Rendered
from loom.formats.sniff.kinds import category_of, label_of
from loom.tools.base import ToolContext, tool
from loom.tools.file_read import numbered_lines, page_stretch, picture_sentence
from loom.tools.media_lookup import LoadedMedia, derived_media, find_medium, session_images, short_id
from loom.tools.slides import page_pictures

MAX_LISTED: Final = 200
CROP_SCALE: Final = 1_000
"""Crops are in thousandths of the width and height: the image that a model saw may be smaller than the stored one, and
its provider may scale it again, but the share of the image is the same in all of them."""
_ZOOM: Final = 2
"""A part of a page is rendered larger than the whole page by this factor."""


class LookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The requested part, and its form."""

    pages: str = ""
    crop: tuple[float, float, float, float] | None = None
    image: int | None = None
    at: float | None = None
    full: bool = False
    offset: int = 1
    limit: int | None = None


@tool(reads_only=True)
async def look(
    context: ToolContext,
    media: str = "",
    *,
    pages: str = "",
    crop: str = "",
    full: bool = False,
    image: int | None = None,
    at: str = "",
    offset: int = 1,
    limit: int | None = None,
) -> list[ContentBlock]:
    """See an image, document, recording, video or long text again, or a part of it. Without arguments: list them.

    media: its id, its name, "Image #1" for the first image of the conversation, or a file of the workspace
    pages: pages of a document, such as "3" or "21-40"
    crop: a part of an image or of one page: "left,top,right,bottom", each from 0 to 1000, where 1000 is the full width
        or height, whatever its size in pixels: "500,0,1000,500" is the upper right quarter
    full: in the best quality; of a document, its pages as images
    image: the number of an image inside a document, counted from 1
    at: the time of a video frame, such as "1:30"
    offset: the first line of a text, or row of a table, counted from 1
    limit: how many lines or rows at most
    """
    if not media:
        return [TextBlock(_list_media(await context.media()))]
    if offset < 1 or (limit is not None and limit < 1) or (image is not None and image < 1):
        raise ToolError("offset, limit and image count from 1")
    if pages:
        page_range(pages)
    wish = LookRequest(
        pages=pages,
        crop=_box(crop) if crop else None,
        image=image,
        at=_seconds(at) if at else None,
        full=full,
        offset=offset,
        limit=limit,
    )
    return await _show_part(context, await find_medium(context, media), wish)


async def _show_part(context: ToolContext, source: LoadedMedia, wish: LookRequest) -> list[ContentBlock]:
    match category_of(source.media.media_type):
        case "image":
            return await _image(context, source, wish)
        case "pdf" | "office":
            return await _document(context, source, wish)
        case "audio":
            return [AudioBlock(source.media) if source.is_stored else await _attach_media(context, source)]
        case "video":
            return [await _video(context, source, wish)]
        case "text":
            lines = await asyncio.to_thread(
                numbered_lines,
                source.data,
                source.media.name or short_id(source.media),
                context.limits,
                offset=wish.offset,
                limit=wish.limit,
                media_type=source.media.media_type,
            )
            return [lines]
        case "unsupported":
            raise ToolError(f"{source.media.label} is {label_of(source.media.media_type)}: there is nothing to see")


async def _image(context: ToolContext, source: LoadedMedia, wish: LookRequest) -> list[ContentBlock]:
    if wish.pages or wish.image:
        raise ToolError(f"{source.media.name or 'it'} is an image: it has no pages and no images inside")
    if wish.crop is not None:
        width, height = source.media.width, source.media.height
        if width is None or height is None:
            raise ToolError(f"the size of {source.media.name or 'it'} is not known: it cannot be cropped")
        box = _pixels(wish.crop, width, height)
        made = await _render(context, source, Crop(box))
        part = await _attach_derived(context, made, source.media, f"part {_words(wish.crop)}")
        return [part, _crop_sentence(wish.crop, box, (width, height))]
    block = ImageBlock(source.media) if source.is_stored else await _attach_media(context, source)
    if wish.full and isinstance(block, ImageBlock):
        return [msgspec.structs.replace(block, detail="high")]
    return [block]


async def _video(context: ToolContext, source: LoadedMedia, wish: LookRequest) -> ContentBlock:
    """Return the clip, or the frame at one moment of it."""
    if wish.at is None:
        return VideoBlock(source.media) if source.is_stored else await _attach_media(context, source)
    most = source.media.duration_seconds
    if most is not None and wish.at > most:
        raise ToolError(f"{source.media.name or 'the video'} ends at {time_label(most)}")
    side = Fit().max_side_px if wish.full else Frame(0).max_side_px
    made = await _render(context, source, Frame(round(wish.at * 1000), max_side_px=side))
    return await _attach_derived(context, made, source.media, f"at {time_label(wish.at)}")


async def _document(context: ToolContext, source: LoadedMedia, wish: LookRequest) -> list[ContentBlock]:
    if wish.image is not None:
        made = await _render(context, source, EmbeddedImage(wish.image))
        return [await _attach_derived(context, made, source.media, f"image {wish.image}")]
    if wish.crop is not None:
        return await _part_of_page(context, source, wish.pages, wish.crop)
    if wish.full:
        return await page_pictures(context, source, wish.pages)
    block = DocumentBlock(source.media, pages=wish.pages)
    shown = block if source.is_stored else await _attach_media(context, source, wish.pages)
    return [*page_stretch(shown, wish.pages), *await picture_sentence(source.data, source.media, context.limits)]


async def _part_of_page(
    context: ToolContext, source: LoadedMedia, pages: str, crop: tuple[float, float, float, float]
) -> list[ContentBlock]:
    """Return a part of a page, rendered larger than the page usually is."""
    first, last = page_range(pages or "1")
    if first != last:
        raise ToolError('a crop needs a single page: pages="3"')
    dpi, side = Page(first).dpi * _ZOOM, Page(first).max_side_px * _ZOOM
    large = await _render(context, source, Page(first, dpi=dpi, max_side_px=side, max_encoded_bytes=40_000_000))
    size = (large.width or 1, large.height or 1)
    box = _pixels(crop, *size)
    page = derived_media(large, source.media.name)
    made = await _render(context, page, Crop(box))
    part = await _attach_derived(context, made, source.media, f"page {first}, part {_words(crop)}")
    return [part, _crop_sentence(crop, box, size)]


async def _render(context: ToolContext, source: LoadedMedia, recipe: Crop | Page | Frame | EmbeddedImage) -> Rendered:
    return await asyncio.to_thread(render, source.data, source.media, recipe, context.limits)


async def _attach_derived(context: ToolContext, made: Rendered, of: Media, part: str) -> ContentBlock:
    """Store a derived image as a medium of its own, named after its source."""
    name = f"{of.name or short_id(of)} {part}"
    return (await context.attach(made.data, name=name, source=of.source or of.digest))[0]


async def _attach_media(context: ToolContext, source: LoadedMedia, pages: str = "") -> ContentBlock:
    return (await context.attach(source.data, name=source.media.name, source=source.media.source, pages=pages))[0]


def _seconds(at: str) -> float:
    try:
        return parse_time(at)
    except ValueError as error:
        raise ToolError(str(error)) from None


def _box(crop: str) -> tuple[float, float, float, float]:
    space = f'crop is "left,top,right,bottom", each from 0 to {CROP_SCALE} (thousandths of the width and the height)'
    try:
        left, top, right, bottom = (float(part) for part in crop.split(","))
    except ValueError:
        raise ToolError(f"{space}, not {crop[:80]!r}") from None
    if not (0 <= left < right <= CROP_SCALE and 0 <= top < bottom <= CROP_SCALE):
        raise ToolError(
            f"{space}, with an area, not {crop[:80]!r}",
            hint="If these are pixels, divide by the width or height of the image and multiply by 1000.",
        )
    return left, top, right, bottom


def _pixels(crop: tuple[float, float, float, float], width: int, height: int) -> tuple[int, int, int, int]:
    """Return the box of all pixels that the crop touches."""
    left, top, right, bottom = crop
    return (
        min(math.floor(left * width / CROP_SCALE), width - 1),
        min(math.floor(top * height / CROP_SCALE), height - 1),
        math.ceil(right * width / CROP_SCALE),
        math.ceil(bottom * height / CROP_SCALE),
    )


def _crop_sentence(
    crop: tuple[float, float, float, float], box: tuple[int, int, int, int], size: tuple[int, int]
) -> TextBlock:
    left, top, right, bottom = box
    return TextBlock(
        f"({_words(crop)} of 0-{CROP_SCALE} in both directions; pixels {left},{top} to {right},{bottom} of "
        f"{size[0]}×{size[1]})"
    )


def _words(crop: tuple[float, float, float, float]) -> str:
    return ",".join(f"{edge:g}" for edge in crop)


def _list_media(stored: Sequence[Media]) -> str:
    """Return a list of the media, newest last, each once, with its id."""
    numbers = {media.digest: number for number, media in enumerate(session_images(stored), 1)}
    named = {media.digest: f"Image #{numbers[media.digest]}, " if media.digest in numbers else "" for media in stored}
    lines = list({media.digest: f"{short_id(media)}  {named[media.digest]}{media.label}" for media in stored}.values())
    if not lines:
        return "(nothing is stored in this session yet; list_files lists the files of the workspace)"
    said = f"({MAX_LISTED} of {len(lines)}, the newest)\n" if len(lines) > MAX_LISTED else ""
    return said + "\n".join(lines[-MAX_LISTED:])
