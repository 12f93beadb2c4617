"""Bytes in, facts or bytes out: what a file is, whether it is whole, and the forms in which it can be shown.

Two doors. `inspect` lets a file in: it sniffs, measures and decodes, and gives facts or a typed `MediaError`. `render`
makes derived bytes by a recipe. No paths, no network; what may crash or grow runs in worker processes.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from loom.content.media import Category, Media, digest_of, size_label
from loom.content.recipes import Crop, Describe, Fit, Low, Ocr, Page, Picture, Recipe, Slice, Text, Thumb
from loom.errors import Encrypted, TooLarge, Unreadable, Unsupported
from loom.formats.facts import EmbeddedPicture, Inspection, Limits, Nature, Rendered
from loom.formats.names import clean_name
from loom.formats.sniff import Sniffed, sniff
from loom.formats.sniff.kinds import SVG, category_of, label_of, type_of_name
from loom.formats.text import decode_text

__all__ = [
    "EmbeddedPicture",
    "Inspection",
    "Limits",
    "Nature",
    "Rendered",
    "clean_name",
    "inspect",
    "mislabelled",
    "render",
]

_OCR_SIDE_PX: Final = 4096
_OCR_ENCODED_BYTES: Final = 200_000_000
_ATTACHED_AS: Final[dict[Category, str]] = {
    "text": "text",
    "image": "a picture",
    "pdf": "a PDF",
    "office": "a document",
    "audio": "sound",
}
# by a word in the label of the kind
_ADVICE: Final = {
    "archive": "Unpack it and attach the files inside.",
    "video": "Attach single pictures or the sound track of it.",
    "picture": "Save it as PNG or JPEG and attach that.",
    "audio": "Save it as WAV or MP3 and attach that.",
}


def inspect(data: bytes, name: str = "", limits: Limits = Limits()) -> Inspection:
    """What these bytes are. Raises `Unreadable`, `Unsupported`, `TooLarge`, `Encrypted` or `ExtraMissing`."""
    name = clean_name(name)
    if not data:
        raise Unreadable(
            f"{name or 'The file'} is empty (0 bytes).", name=name, hint="Attach it again when it is complete."
        )
    found = sniff(data, name)
    if found.is_encrypted:
        raise Encrypted(
            f"{name or 'The file'} is an encrypted Office document.",
            name=name,
            hint="Save it without a password and attach that.",
        )
    _check_size(found, len(data), name, limits)
    inspection = _inspect(data, found, name, limits)
    said = mislabelled(name, found)
    return msgspec.structs.replace(inspection, notices=(said, *inspection.notices)) if said else inspection


def _inspect(data: bytes, found: Sniffed, name: str, limits: Limits) -> Inspection:
    match found.category:
        case "text":
            return _inspect_text(data, found, name)
        case "image":
            return _inspect_image(data, found, name, limits)
        case "audio":
            return _inspect_audio(data, found, name)
        case "pdf":
            from loom.formats.pdf import inspect_pdf

            return inspect_pdf(data, name, limits)
        case "office":
            from loom.formats.office import inspect_office

            return inspect_office(data, found.media_type, name, limits)
        case "unsupported":
            raise _unsupported(found.media_type, len(data), name)
        case _:
            assert_never(found.category)


def _media(data: bytes, found: Sniffed, name: str) -> Media:
    return Media(digest=digest_of(data), media_type=found.media_type, size_bytes=len(data), name=name)


def _inspect_text(data: bytes, found: Sniffed, name: str) -> Inspection:
    text, encoding, notices = decode_text(data, name)
    if not text:
        raise Unreadable(f"{name or 'The file'} holds no text (only a byte order mark).", name=name)
    return Inspection(media=_media(data, found, name), category="text", text=text, encoding=encoding, notices=notices)


def _inspect_image(data: bytes, found: Sniffed, name: str, limits: Limits) -> Inspection:
    from loom.formats.image import check_image

    facts = check_image(data, found.media_type, limits, name)
    media = msgspec.structs.replace(_media(data, found, name), width=facts.width, height=facts.height)
    if facts.frames == 1:
        return Inspection(media=media, category="image")
    what = "pages" if found.media_type == "image/tiff" else "frames"
    return Inspection(
        media=msgspec.structs.replace(media, frames=facts.frames),
        category="image",
        notices=(f"{name or 'The picture'} has {facts.frames} {what}; models are shown the first",),
    )


def _inspect_audio(data: bytes, found: Sniffed, name: str) -> Inspection:
    from loom.formats.audio import inspect_audio

    facts = inspect_audio(data, found.media_type, name)
    notices = (f"{name or 'The sound'} ends before the length that it declares",) if facts.is_cut_off else ()
    return Inspection(
        media=msgspec.structs.replace(_media(data, found, name), duration_seconds=facts.duration_seconds),
        category="audio",
        notices=notices,
        sample_rate_hz=facts.sample_rate_hz,
        channels=facts.channels,
    )


def _check_size(found: Sniffed, size_bytes: int, name: str, limits: Limits) -> None:
    allowed = {
        "text": limits.max_text_bytes,
        "image": limits.max_image_bytes,
        "pdf": limits.max_pdf_bytes,
        "office": limits.max_office_bytes,
        "audio": limits.max_audio_bytes,
    }.get(found.category)
    if allowed is None or size_bytes <= allowed:
        return
    raise TooLarge(
        f"{name or 'The file'} is {label_of(found.media_type)} of {size_label(size_bytes)}, "
        f"over the limit of {size_label(allowed)}.",
        name=name,
        hint="Read a part of it by lines."
        if found.category == "text"
        else "Attach a smaller file, or raise the limit.",
    )


def _unsupported(media_type: str, size_bytes: int, name: str) -> Unsupported:
    label = label_of(media_type)
    advice = next((words for word, words in _ADVICE.items() if word in label), "")
    return Unsupported(
        f"{name or 'The file'} is {label} ({media_type}, {size_label(size_bytes)}); "
        "Loom takes text, pictures, PDF, office files and sound.",
        name=name,
        hint=advice,
    )


def mislabelled(name: str, found: Sniffed) -> str:
    """A sentence where the extension promises one thing and the bytes are another, else nothing. Kinds of text are not
    told apart that strictly."""
    claimed = type_of_name(name)
    if claimed is None or claimed == found.media_type:
        return ""
    if category_of(claimed) == found.category and found.category in ("text", "office"):
        return ""
    return f"{name} is {label_of(found.media_type)} (by its bytes), attached as {_ATTACHED_AS[found.category]}"


def render(data: bytes, media: Media, recipe: Recipe, limits: Limits = Limits()) -> Rendered:
    """Derived bytes. `data` are the bytes of `media`, let in by `inspect`."""
    category = category_of(media.media_type)
    match recipe:
        case Fit() | Low() | Crop():
            return _render_picture(data, media, recipe, limits)
        case Thumb() if category in ("image", "text"):
            return _render_picture(data, media, recipe, limits)
        case Text() if category == "text":
            text, _, notices = decode_text(data, media.name)
            return Rendered(data=text.encode(), media_type="text/plain", notices=notices)
        case Thumb() | Page() | Slice() | Text() | Picture():
            return _render_document(data, media, recipe, limits)
        case Ocr():
            return _render_ocr(data, media, recipe, limits)
        case Describe():
            raise _cannot(media, "described without a model")
        case _:
            assert_never(recipe)


def _render_picture(data: bytes, media: Media, recipe: Fit | Low | Crop | Thumb, limits: Limits) -> Rendered:
    if media.media_type == SVG and not isinstance(recipe, Crop):
        from loom.formats.image.svg import render_svg

        return render_svg(data, recipe, limits)
    if category_of(media.media_type) != "image":
        raise _cannot(media, "shown as a picture")
    from loom.formats.image import render_image

    return render_image(data, media.media_type, recipe, limits)


def _render_document(
    data: bytes, media: Media, recipe: Page | Slice | Text | Thumb | Picture, limits: Limits
) -> Rendered:
    match category_of(media.media_type):
        case "pdf":
            from loom.formats.pdf import render_pdf

            return render_pdf(data, media, recipe, limits)
        case "office":
            from loom.formats.office import render_office

            return render_office(data, media, recipe, limits)
        case _:
            raise _cannot(media, "read as a document")


def _render_ocr(data: bytes, media: Media, recipe: Ocr, limits: Limits) -> Rendered:
    from loom.formats.ocr import read_picture

    if recipe.page:
        page = Page(recipe.page, max_side_px=_OCR_SIDE_PX, max_encoded_bytes=_OCR_ENCODED_BYTES, formats=("image/png",))
        picture = _render_document(data, media, page, limits)
    else:
        upright = Fit(max_side_px=_OCR_SIDE_PX, max_encoded_bytes=_OCR_ENCODED_BYTES, formats=("image/png",))
        picture = _render_picture(data, media, upright, limits)
    return Rendered(data=read_picture(picture.data, limits).encode(), media_type="text/plain")


def _cannot(media: Media, done: str) -> Unsupported:
    return Unsupported(
        f"{media.name or 'The file'} is {label_of(media.media_type)} and cannot be {done}.", name=media.name
    )
