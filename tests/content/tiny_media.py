"""The smallest real files of each kind, and a store and a reader for importers that decode them."""

from __future__ import annotations

import base64
import io
import wave

from PIL import Image, UnidentifiedImageError

from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.media import Media, digest_of
from loom.errors import Unreadable

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGM8ISfHwMAAAAXMAQZFiFnUAAAAAElFTkSuQmCC"
)
GIF = base64.b64decode("R0lGODdhAQABAIAAAAAAAAAAACwAAAAAAQABAAAIBAABBAQAOw==")
WAV = base64.b64decode("UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==")
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
FILES = {"shots/photo.png": PNG, "docs/report.pdf": PDF}


def lift(data: bytes, name: str, declared: str) -> ContentBlock | None:
    if data.startswith(b"%PDF-"):
        return DocumentBlock(media(data, "application/pdf", name))
    if data[8:12] == b"WAVE":
        with wave.open(io.BytesIO(data)) as sound:
            return AudioBlock(media(data, "audio/wav", name, duration_seconds=sound.getnframes() / 8000))
    if declared.startswith("text/"):
        return TextBlock(data.decode())
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return ImageBlock(
                media(data, f"image/{image.format}".lower(), name, width=image.width, height=image.height)
            )
    except UnidentifiedImageError:
        if declared.startswith("image/"):
            raise Unreadable("these bytes are no picture") from None
        return None


def fetch(source_path: str) -> bytes | None:
    return FILES.get(source_path)


def media(
    data: bytes, media_type: str, name: str = "", *, width: int = 0, height: int = 0, duration_seconds: float = 0
) -> Media:
    return Media(
        digest=digest_of(data),
        media_type=media_type,
        size_bytes=len(data),
        width=width or None,
        height=height or None,
        duration_seconds=duration_seconds or None,
        name=name,
    )


def png(name: str = "") -> ImageBlock:
    return ImageBlock(media(PNG, "image/png", name, width=2, height=1))


def pdf(name: str = "") -> DocumentBlock:
    return DocumentBlock(media(PDF, "application/pdf", name))


def wav(name: str = "") -> AudioBlock:
    return AudioBlock(media(WAV, "audio/wav", name, duration_seconds=0.001))
