"""The formats of texts, images, audio, PDF and office files. Their readers are imported when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from loom.content.media import Category, Media, digest_of
from loom.content.recipes import Crop, EmbeddedImage, Fit, Low, Ocr, Page, Recipe, Slice, SoundTrack, Text, Thumb
from loom.errors import Unreadable, Unsupported
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.format import Format
from loom.formats.sniff.kinds import KINDS, SVG, FileKind, label_of
from loom.formats.text import decode_text

_PLAIN: Final = "text/plain"
_RECORDS: Final = ("application/json", "application/x-ndjson")
_OCR_SIDE_PX: Final = 4096
_OCR_ENCODED_BYTES: Final = 200_000_000
_OCR_FORMATS: Final = ("image/png",)


class BuiltinFormat:
    """A format that reads all kinds of one category."""

    recipes: tuple[type[Recipe], ...] = ()

    def __init__(self, category: Category) -> None:
        self._category: Category = category

    @cached_property
    def kinds(self) -> Mapping[str, FileKind]:
        return {media_type: kind for media_type, kind in KINDS.items() if kind.category == self._category}

    def detect(self, data: bytes, name: str) -> str | None:
        """Return None: `sniff` detects built-in types."""
        return None


class TextFormat(BuiltinFormat):
    """Text in any encoding, and SVG, which is text that can also be rendered."""

    recipes = (Text, Thumb, Fit, Low, Ocr)

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        if len(data) > limits.max_text_bytes:
            return _long_text_format(media_type).inspect(
                data, _PLAIN if media_type == SVG else media_type, name, limits
            )
        text, encoding, notices = decode_text(data, name)
        if not text:
            raise Unreadable(f"{name or 'The file'} contains no text (only a byte order mark).", name=name)
        media = new_media(data, media_type, name)
        return Inspection(media=media, category="text", text=text, encoding=encoding, notices=notices)

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        match recipe:
            case Text() if recipe.pages or (len(data) > limits.max_text_bytes and media.media_type in _RECORDS):
                return _long_text_format(media.media_type).render(data, media, recipe, limits)
            case Text():
                text, _, notices = decode_text(data, media.name)
                return Rendered(data=text.encode(), media_type="text/plain", notices=notices)
            case Fit() | Low() | Thumb() if media.media_type == SVG:
                from loom.formats.image.svg import render_svg

                return render_svg(data, recipe, limits)
            case Ocr() if media.media_type == SVG and not recipe.page:
                return read_words(self.render(data, media, _ocr_recipe(), limits), limits)
            case Fit() | Low() | Crop() | Thumb() | Ocr():
                raise cannot(media, "shown as an image")
            case _:
                raise cannot(media, "read as a document")


class ImageFormat(BuiltinFormat):
    recipes = (Fit, Low, Crop, Thumb, Ocr)

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        from loom.formats.image import inspect_image

        return inspect_image(data, media_type, name, limits, ())

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        from loom.formats.image import render_image

        match recipe:
            case Fit() | Low() | Crop() | Thumb():
                return render_image(data, media.media_type, recipe, limits)
            case Ocr() if not recipe.page:
                return read_words(render_image(data, media.media_type, _ocr_recipe(), limits), limits)
            case _:
                raise cannot(media, "read as a document")


class AudioFormat(BuiltinFormat):
    recipes = (SoundTrack,)

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        from loom.formats.audio import inspect_audio

        facts = inspect_audio(data, media_type, name)
        notices = (f"{name or 'The recording'} ends before the length that it declares.",) if facts.is_cut_off else ()
        media = new_media(data, media_type, name)
        return Inspection(
            media=msgspec.structs.replace(media, duration_seconds=facts.duration_seconds),
            category="audio",
            notices=notices,
            sample_rate_hz=facts.sample_rate_hz,
            channels=facts.channels,
        )

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        if isinstance(recipe, SoundTrack):
            from loom.formats.video import take_sound

            return Rendered(data=take_sound(data, media.name, limits, media.digest), media_type="audio/mpeg")
        is_picture = isinstance(recipe, Fit | Low | Crop | Ocr)
        raise cannot(media, "shown as an image" if is_picture else "read as a document")


class PdfFormat(BuiltinFormat):
    recipes = (Text, Page, Slice, EmbeddedImage, Thumb, Ocr)

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        from loom.formats.pdf import inspect_pdf

        return inspect_pdf(data, name, limits)

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        from loom.formats.pdf import render_pdf

        match recipe:
            case Text() | Page() | Slice() | EmbeddedImage() | Thumb():
                return render_pdf(data, media, recipe, limits)
            case Ocr() if recipe.page:
                return read_words(render_pdf(data, media, _scanned_page(recipe.page), limits), limits)
            case _:
                raise cannot(media, "shown as an image")


class OfficeFormat(BuiltinFormat):
    recipes = (Text, Page, Slice, EmbeddedImage, Thumb, Ocr)

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        from loom.formats.office import inspect_office

        return inspect_office(data, media_type, name, limits)

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        from loom.formats.office import render_office

        match recipe:
            case Text() | Page() | Slice() | EmbeddedImage() | Thumb():
                return render_office(data, media, recipe, limits)
            case Ocr() if recipe.page:
                return read_words(render_office(data, media, _scanned_page(recipe.page), limits), limits)
            case _:
                raise cannot(media, "shown as an image")


def _long_text_format(media_type: str) -> Format:
    """Return the format that reads a text too long for one message: by records if it has any, else by lines."""
    from loom.formats.documents import builtin

    known: dict[str, Format] = {"application/json": builtin.JSON, "application/x-ndjson": builtin.JSON_LINES}
    return known.get(media_type, builtin.LONG_TEXT)


def new_media(data: bytes, media_type: str, name: str) -> Media:
    return Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=name)


def read_words(picture: Rendered, limits: IntakeLimits) -> Rendered:
    """Return the text in an image, by OCR."""
    from loom.formats.ocr import read_picture

    return Rendered(data=read_picture(picture.data, limits).encode(), media_type="text/plain")


def cannot(media: Media, done: str) -> Unsupported:
    return Unsupported(
        f"{media.name or 'The file'} is {label_of(media.media_type)} and cannot be {done}.", name=media.name
    )


def _ocr_recipe() -> Fit:
    return Fit(max_side_px=_OCR_SIDE_PX, max_encoded_bytes=_OCR_ENCODED_BYTES, formats=_OCR_FORMATS)


def _scanned_page(number: int) -> Page:
    return Page(number, max_side_px=_OCR_SIDE_PX, max_encoded_bytes=_OCR_ENCODED_BYTES, formats=_OCR_FORMATS)


TEXT: Final = TextFormat("text")
IMAGE: Final = ImageFormat("image")
AUDIO: Final = AudioFormat("audio")
PDF: Final = PdfFormat("pdf")
OFFICE: Final = OfficeFormat("office")
