"""The same promise, byte by byte: real pictures and PDFs, rendered, streamed and read again from the body's JSON."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from flow.judge import encode, problems
from formats.made_pdfs import ghostscript_book
from loom.compile.policy import DerivedFacts, DetachedMessage, Known, Need, Policy, Request
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import ContentBlock, DocumentBlock, ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.media import Media
from loom.content.messages import Message, assistant, tool, user
from loom.content.recipes import Ocr, Text, recipe_key
from loom.formats import inspect, render
from loom.formats.facts import Rendered
from loom.prompt import MediaRef, ToolSpec
from loom.providers.catalog import model
from loom.providers.media_body import MediaBody

LOOK = Request(tools=(ToolSpec(name="look", description="See it again.", parameters={"type": "object"}),))
TARGETS = {
    "anthropic/claude-opus-5-5": (10_000_000, 2_000, {"png", "jpeg", "webp"}),
    "bedrock/anthropic.claude-sonnet-4-5": (5_000_000, 2_000, {"png", "jpeg", "webp"}),
    "openai/gpt-5.5": (None, 2_048, {"png", "jpeg", "webp"}),
    "openai-chat/gpt-5.5": (None, 2_048, {"png", "jpeg", "webp"}),
    "gemini/gemini-4-argon": (None, 2_048, {"png", "jpeg", "webp"}),
    "ollama/llava": (None, 2_048, {"png", "jpeg"}),
    "deepseek/deepseek-flash": (32 * 1024 * 1024, 2_048, {"png", "jpeg", "webp"}),
    "mistral/mistral-large-latest": (None, 2_048, {"png", "jpeg", "webp"}),
    "compatible/qwen3-vl": (None, 2_048, {"png", "jpeg"}),
}
"""Model → the most bytes of an encoded picture, its longest side, the formats that it is sent."""


@cache
def originals() -> dict[str, bytes]:
    """Pictures as people paste them: too large, too long, lying on their side, moving, in formats nobody takes."""

    def saved(picture: Image.Image, form: str, **options: Any) -> bytes:
        out = io.BytesIO()
        picture.save(out, form, **options)
        return out.getvalue()

    noise = Image.effect_noise((3_000, 2_200), 90).convert("RGB")
    frames = [Image.new("P", (320, 200), color) for color in (1, 2, 3)]
    rotated = Image.Exif()
    rotated[0x0112] = 6
    return {
        "photo.jpg": saved(noise, "JPEG", quality=95),
        "noise.png": saved(noise.crop((0, 0, 2_100, 1_500)), "PNG", compress_level=1),
        "tall.png": saved(Image.new("RGB", (120, 9_000), "white"), "PNG"),
        "dot.png": saved(Image.new("RGBA", (1, 1), (0, 0, 0, 0)), "PNG"),
        "moving.gif": saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "old.bmp": saved(Image.new("RGB", (640, 480), "red"), "BMP"),
        "scan.tiff": saved(Image.new("1", (2_480, 3_508)), "TIFF"),
        "side.jpg": saved(Image.new("RGB", (2_400, 800), "blue"), "JPEG", exif=rotated.tobytes()),
        "soft.webp": saved(Image.new("RGBA", (900, 900), (9, 9, 9, 128)), "WEBP"),
        "lies.png": saved(Image.new("RGB", (300, 300), "green"), "JPEG"),
        "book.pdf": ghostscript_book(30).read_bytes(),
    }


@cache
def media(name: str) -> Media:
    return inspect(originals()[name], name).media


def block(name: str) -> ContentBlock:
    return DocumentBlock(media(name)) if name.endswith(".pdf") else ImageBlock(media(name))


@cache
def rendered(name: str, recipe: Any) -> Rendered:
    return render(originals()[name], media(name), recipe)


class Shelf:
    """The bytes behind references, in memory."""

    def _bytes(self, ref: MediaRef) -> bytes:
        name = next(name for name in originals() if media(name).digest == ref.digest)
        return originals()[name] if ref.recipe is None else rendered(name, ref.recipe).data

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        return None

    async def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        data = self._bytes(ref)
        for at in range(0, len(data), block_bytes):
            yield data[at : at + block_bytes]


def made_known(needs: tuple[Need, ...], known: Known) -> Known:
    derived, texts = dict(known.derived), dict(known.texts)
    for need in needs:
        name = next(name for name in originals() if media(name).digest == need.digest)
        key = (need.digest, recipe_key(need.recipe))
        if isinstance(need.recipe, Text | Ocr):
            texts[key] = rendered(name, need.recipe).data.decode() if isinstance(need.recipe, Text) else ""
            continue
        found = rendered(name, need.recipe)
        derived[key] = DerivedFacts(
            media_type=found.media_type,
            size_bytes=len(found.data),
            width=found.width,
            height=found.height,
        )
    return Known(derived=derived, texts=texts)


def conversation() -> list[Message]:
    names = [name for name in originals() if name != "book.pdf"]
    shots = ToolResult("call_1", (TextBlock("taken"), *(block(name) for name in names[:3])), name="look")
    return [
        user("Old ones:", *(block(name) for name in names[3:6])),
        assistant("Seen."),
        user("Look", block("book.pdf"), *(block(name) for name in names[6:])),
        assistant("I look.", ToolCall("call_1", "look")),
        tool(shots),
    ]


def settled(reference: str, policy: Policy) -> Prepared:
    known = Known()
    path = [DetachedMessage(f"n{at}", message) for at, message in enumerate(conversation())]
    while True:
        prepared = prepare(path, model(reference), policy=policy, request=LOOK, known=known)
        if not prepared.needs:
            return prepared
        known = made_known(prepared.needs, known)


def base64_fields(value: Any) -> Iterator[tuple[str, bytes]]:
    """Every medium in the JSON as it left: what it is declared to be, and its bytes."""
    match value:
        case {"type": "base64", "media_type": str(declared), "data": str(data)} | {
            "mimeType": str(declared),
            "data": str(data),
        }:
            yield declared, base64.b64decode(data, validate=True)
        case {"images": [*images]}:
            yield from (("", base64.b64decode(image, validate=True)) for image in images)
        case dict():
            for item in value.values():
                yield from base64_fields(item)
        case list():
            for item in value:
                yield from base64_fields(item)
        case str() if found := re.match(r"data:([^;]+);base64,", value):
            yield found[1], base64.b64decode(value[found.end() :], validate=True)
        case _:
            pass


@pytest.mark.parametrize("aging", ["off", "every-turn"])
@pytest.mark.parametrize("reference", TARGETS)
async def test_what_leaves_is_what_it_says_it_is(reference: str, aging: Any) -> None:
    most, side, forms = TARGETS[reference]
    prepared = settled(reference, Policy(aging=aging, full_turns=0, page_images=3))
    assert problems(prepared) == []
    body = MediaBody(encode(prepared.prompt), Shelf())
    sent = b"".join([piece async for piece in body])
    assert len(sent) == body.content_length <= prepared.receipt.totals.wire_bytes
    found = list(base64_fields(json.loads(sent)))
    assert len(found) == len(prepared.prompt.media()) >= 7
    for declared, data in found:
        if declared == "application/pdf":
            assert len(pypdfium2.PdfDocument(data)) == 30
            continue
        with Image.open(io.BytesIO(data)) as picture:
            picture.load()
            form = (picture.format or "").lower()
            assert declared in ("", f"image/{form}")
            assert form in forms
            assert max(picture.size) <= side
            assert getattr(picture, "n_frames", 1) == 1
        assert most is None or len(base64.b64encode(data)) <= most


async def test_a_picture_that_lies_on_its_side_stands_upright_for_every_model() -> None:
    prepared = settled("anthropic/claude-opus-5-5", Policy(aging="off"))
    (ref,) = [ref for ref in prepared.prompt.media() if ref.digest == media("side.jpg").digest]
    assert (ref.width or 0) < (ref.height or 0)
