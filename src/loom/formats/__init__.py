"""The file formats: detect what a file is, check that it is complete, and render it in other forms.

There are two entry points. `inspect` accepts a file: it sniffs, measures and decodes the bytes, and returns facts or
raises a typed `MediaError`. `render` returns derived bytes for a recipe. Both call the `Format` that reads the media
type (`registry`). Nothing here uses paths or the network; code that may crash or use much memory runs in worker
processes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from loom.content.media import Category, Media, size_label
from loom.content.recipes import Crop, Describe, Fit, Low, Ocr, Recipe, Thumb
from loom.errors import Encrypted, TooLarge, Unreadable, Unsupported
from loom.formats.builtin import ImageFormat, cannot
from loom.formats.facts import EmbeddedPicture, ImageCharacter, Inspection, IntakeLimits, Rendered
from loom.formats.file_names import clean_name
from loom.formats.format import Format
from loom.formats.registry import format_of
from loom.formats.sniff import SniffResult, sniff
from loom.formats.sniff.kinds import category_of, label_of, type_of_name

__all__ = [
    "EmbeddedPicture",
    "Format",
    "ImageCharacter",
    "Inspection",
    "IntakeLimits",
    "Rendered",
    "clean_name",
    "extension_notice",
    "format_of",
    "inspect",
    "render",
    "unsupported_error",
]

_ATTACHED_AS: Final[dict[Category, str]] = {
    "text": "text",
    "image": "an image",
    "pdf": "a PDF",
    "office": "a document",
    "audio": "sound",
    "video": "a video",
}
# Keys are words in the label of the kind.
_ADVICE: Final = {
    "archive": "Unpack it and attach the files inside.",
    "package": "Unpack it and attach the files inside.",
    "disk image": "Open it and attach the files inside.",
    "Access": "Export its tables as CSV or Excel workbooks and attach those.",
    "OneNote": "Export it as PDF and attach that.",
    "mailbox": "Open it in Outlook, save the messages as .msg or .eml and attach those.",
    "help file": "Unpack it (7z x) and attach the pages inside.",
    "winmail.dat": "Ask for the mail in another format, or unpack it (tnef) and attach the files inside.",
    "dBASE": "Export it as CSV and attach that.",
    "AutoCAD": "Save it as PDF and attach that.",
    "PKCS #7": "Extract the content (openssl smime -verify -noverify -inform DER -in FILE) and attach that.",
    "PKCS #12": "It contains private keys: do not attach it. To share the certificate, attach it as PEM.",
    "certificate": "Convert it to text (openssl x509 -inform DER -text -in FILE) and attach that.",
    "DjVu": "Convert it to PDF and attach that.",
    "image": "Save it as PNG or JPEG and attach that.",
    "audio": "Save it as WAV or MP3 and attach that.",
    "MIDI": "Save it as WAV or MP3 and attach that.",
    "font": "Attach a screenshot of it, or describe it.",
    "data": "Export what matters as CSV, JSON or Parquet and attach that.",
    "array": "Export what matters as CSV, JSON or Parquet and attach that.",
    "capture": "Export what matters as text (for instance with tshark) and attach that.",
    "property list": "Convert it to XML (plutil -convert xml1) and attach that.",
    "program": "Describe what you want to know about it; commands such as strings or objdump show its content.",
    "class": "Attach its source.",
    "compiled Python": "Attach its source.",
    "OLE container": "Open it in the program that made it and export it as PDF or text.",
    "unknown": "Export it as text, PDF or an image and attach that.",
}


def inspect(
    data: bytes,
    name: str = "",
    limits: IntakeLimits = IntakeLimits(),
    recipes: tuple[Fit | Low | Crop | Thumb, ...] = (),
) -> Inspection:
    """Return the facts of a file, and for an image its renditions by `recipes`, made while it is decoded.

    Raises `Unreadable`, `Unsupported`, `TooLarge`, `Encrypted` or `ExtraMissing`.
    """
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
    reader = format_of(found.media_type)
    if reader is None:
        raise unsupported_error(found.media_type, len(data), name)
    if found.category == "image" and recipes and isinstance(reader, ImageFormat):
        from loom.formats.image import inspect_image

        inspection = inspect_image(data, found.media_type, name, limits, recipes)
    else:
        inspection = reader.inspect(data, found.media_type, name, limits)
    said = extension_notice(name, found)
    return msgspec.structs.replace(inspection, notices=(said, *inspection.notices)) if said else inspection


def _check_size(found: SniffResult, size_bytes: int, name: str, limits: IntakeLimits) -> None:
    allowed = {
        "text": max(limits.max_text_bytes, limits.max_office_bytes),
        "image": limits.max_image_bytes,
        "pdf": limits.max_pdf_bytes,
        "office": limits.max_office_bytes,
        "audio": limits.max_audio_bytes,
        "video": limits.max_video_bytes,
    }.get(found.category)
    if allowed is None or size_bytes <= allowed:
        return
    raise TooLarge(
        f"{name or 'The file'} is {label_of(found.media_type)} of {size_label(size_bytes)}, "
        f"over the limit of {size_label(allowed)}.",
        name=name,
        hint="Attach a smaller file, or raise the limit.",
    )


def unsupported_error(media_type: str, size_bytes: int, name: str) -> Unsupported:
    """Return the error for a file that no format reads. It names the type and a next step."""
    label = label_of(media_type)
    general = _ADVICE["image"] if media_type.startswith("image/") else "Export it as text or PDF and attach that."
    advice = next((words for word, words in _ADVICE.items() if word in label), general)
    return Unsupported(
        f"{name or 'The file'} is {label} ({media_type}, {size_label(size_bytes)}); "
        "Loom supports text, images, PDF, office files, audio and video.",
        name=name,
        hint=advice,
    )


def extension_notice(name: str, found: SniffResult) -> str:
    """Return a sentence if the extension of `name` and the type of the bytes disagree, else an empty string. Different
    kinds of text do not count as a disagreement."""
    claimed = type_of_name(name)
    if claimed is None or claimed == found.media_type:
        return ""
    if category_of(claimed) == found.category and found.category in ("text", "office"):
        return ""
    return f"{name} is {label_of(found.media_type)} (by its bytes), attached as {_ATTACHED_AS[found.category]}."


def render(data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits = IntakeLimits()) -> Rendered:
    """Return derived bytes. `data` are the bytes of `media`, which `inspect` accepted before."""
    if isinstance(recipe, Describe):
        raise cannot(media, "described without a model")
    found = format_of(media.media_type)
    if found is None:
        is_picture = isinstance(recipe, Fit | Low | Crop | Ocr)
        raise cannot(media, "shown as an image" if is_picture else "read as a document")
    return found.render(data, media, recipe, limits)
