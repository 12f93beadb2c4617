"""look: what was said before, again, whole or in part."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from docx.shared import Inches
from PIL import Image

from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.media import Media
from loom.errors import ContentError, ToolError, Unsupported
from loom.testing import sample_pdf, sample_png, sample_wav
from loom.tools.builtin import builtin_tools
from loom.tools.look import look
from loom.tools.media_lookup import short_id
from tools.world import Context, said


async def see(context: Context, media: str, **more: object) -> Any:
    return await look.run(context, {"media": media, **more})


def opened(context: Context, block: ImageBlock) -> Image.Image:
    return Image.open(io.BytesIO(context.bytes[block.media.digest]))


async def test_the_list_has_everything_once_with_the_id_that_calls_it_back(tmp_path: Path) -> None:
    context = Context(tmp_path)
    assert "nothing is stored" in await said(look, context)
    photo = await context.say(sample_png(64, 48), "photo.png")
    report = await context.say(sample_pdf("one", "two"), "report.pdf")
    await context.say(sample_png(64, 48), "photo.png")
    output = context.keep("x\n" * 5_000, "output of run_command")
    assert (await said(look, context)).splitlines() == [
        f"{short_id(photo)}  Image #2, photo.png, 64×48, {photo.size_bytes} bytes",
        f"{short_id(report)}  report.pdf, 2 pages, {report.size_bytes} bytes",
        f"{short_id(output)}  output of run_command, 10 KB",
    ]


async def test_a_medium_is_found_by_short_id_full_digest_and_name(tmp_path: Path) -> None:
    context = Context(tmp_path)
    media = await context.say(sample_png(64, 48), "photo.png")
    for asked in (short_id(media), media.digest[7:15], media.digest, media.digest[7:], "photo.png", " photo.png "):
        assert await see(context, asked) == [ImageBlock(media)]
    assert await see(context, "photo.png", full=True) == [ImageBlock(media, detail="high")]


async def test_of_two_media_with_one_name_the_last_is_meant(tmp_path: Path) -> None:
    context = Context(tmp_path)
    await context.say(sample_png(10, 10), "shot.png")
    last = await context.say(sample_png(20, 20), "shot.png")
    assert await see(context, "shot.png") == [ImageBlock(last)]


async def test_an_id_that_fits_two_media_is_refused(tmp_path: Path) -> None:
    context = Context(tmp_path)
    for end in ("0", "1"):
        context.stored.append(
            Media(digest="sha256:" + "ab" * 31 + "c" + end, media_type="image/png", size_bytes=1, name=f"{end}.png")
        )
    with pytest.raises(ToolError, match="several media begin with abababab"):
        await see(context, "abababab")


async def test_what_is_nowhere_gets_the_nearest_names(tmp_path: Path) -> None:
    context = Context(tmp_path)
    await context.say(sample_png(), "diagram.png")
    with pytest.raises(ToolError, match=r"Near it: diagram\.png"):
        await see(context, "diagramm.png")
    with pytest.raises(ToolError, match=r"Call look\(\) to list"):
        await see(context, "deadbeef00")


async def test_a_medium_that_was_swept_says_so(tmp_path: Path) -> None:
    context = Context(tmp_path)
    media = context.keep("long ago", "output of run_command")
    del context.bytes[media.digest]
    with pytest.raises(ToolError, match="no longer stored"):
        await see(context, short_id(media))


async def test_a_crop_is_that_part_of_the_picture(tmp_path: Path) -> None:
    image = Image.new("RGB", (400, 300), "white")
    image.paste((200, 10, 20), (100, 50, 180, 90))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    context = Context(tmp_path)
    await context.say(buffer.getvalue(), "wall.png")
    part, space = await see(context, "wall.png", crop="250, 166.7, 450, 300")
    assert part.media.name == "wall.png part 250,166.7,450,300"
    assert space == TextBlock("(250,166.7,450,300 of 0-1000 in both directions; pixels 100,50 to 180,90 of 400×300)")
    seen = opened(context, part).convert("RGB")
    assert seen.size == (80, 40)
    assert seen.getpixel((0, 0)) == seen.getpixel((79, 39)) == (200, 10, 20)
    edge, _ = await see(context, "wall.png", crop="999.9,999.9,1000,1000")
    assert opened(context, edge).size == (1, 1)


async def test_a_crop_is_the_same_part_whatever_size_the_model_saw(tmp_path: Path) -> None:
    """A model sees a rendition of 2048 or 512 pixels of an image of 4000; the share of it is the same."""
    context = Context(tmp_path)
    image = Image.new("RGB", (4000, 3000), "white")
    image.paste((10, 20, 200), (3000, 0, 4000, 750))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    await context.say(buffer.getvalue(), "scan.png")
    part, _ = await see(context, "Image #1", crop="750,0,1000,250")
    seen = opened(context, part).convert("RGB")
    assert seen.size == (1000, 750)
    assert seen.getcolors() == [(750_000, (10, 20, 200))]


async def test_an_image_is_found_by_the_number_that_receipts_use(tmp_path: Path) -> None:
    context = Context(tmp_path)
    with pytest.raises(ToolError, match="there are no images"):
        await see(context, "Image #1")
    first = await context.say(sample_png(10, 10), "same.png")
    await context.say(sample_pdf("one"), "report.pdf")
    second = await context.say(sample_png(20, 20), "same.png")
    for asked in ("Image #1", "[Image #1]", "image 1", "#1"):
        assert await see(context, asked) == [ImageBlock(first)]
    assert await see(context, "Image #2") == [ImageBlock(second)]
    with pytest.raises(ToolError, match="there are 2, Image #1 to Image #2"):
        await see(context, "Image #3")


@pytest.mark.parametrize(
    "crop", ["1,2,3", "a,b,c,d", "5,5,5,9", "9,9,1,1", "-1,0,5,5", "0,0,1920,1080", "nan,0,9,9", "inf,0,9,9", ","]
)
async def test_odd_crops_get_an_explanation(tmp_path: Path, crop: str) -> None:
    context = Context(tmp_path)
    await context.say(sample_png(64, 48), "a.png")
    with pytest.raises(ToolError, match="crop"):
        await see(context, "a.png", crop=crop)


async def test_documents_come_by_pages_and_as_pictures_when_full(tmp_path: Path) -> None:
    context = Context(tmp_path)
    media = await context.say(sample_pdf(*[f"page {n}" for n in range(1, 48)]), "report.pdf")
    shown, sentence = await see(context, "report.pdf")
    assert shown == DocumentBlock(media, pages="1-20")
    assert sentence == TextBlock('report.pdf: pages 1–20 of 47; next: pages="21-40"')
    shown, sentence = await see(context, "report.pdf", pages="41-60")
    assert shown == DocumentBlock(media, pages="41-47")
    *pages, sentence = await see(context, "report.pdf", pages="3-4", full=True)
    assert [page.media.name for page in pages] == ["report.pdf page 3", "report.pdf page 4"]
    assert sentence == TextBlock('report.pdf: pages 3–4 of 47; next: pages="5-24"')


async def test_a_part_of_a_page_is_drawn_larger_than_the_page(tmp_path: Path) -> None:
    context = Context(tmp_path)
    await context.say(sample_pdf("small print"), "paper.pdf")
    part, space = await see(context, "paper.pdf", pages="1", crop="100,50,500,200")
    seen = opened(context, part)
    assert 0.39 < seen.width / int(re.search(r"of (\d+)×", space.text)[1]) < 0.41  # type: ignore[index]  # it says so
    assert seen.width > 900
    assert seen.convert("L").getextrema()[0] < 100, "the words are in that part"
    with pytest.raises(ToolError, match="single page"):
        await see(context, "paper.pdf", pages="1-2", crop="0,0,9,9")


def report(picture: bytes) -> bytes:
    document = Document()
    document.add_paragraph("Before")
    document.add_picture(io.BytesIO(sample_png(40, 30)), width=Inches(1))
    document.add_picture(io.BytesIO(picture), width=Inches(1))
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


async def test_pictures_inside_a_document_are_offered_and_shown(tmp_path: Path) -> None:
    inner = sample_png(70, 50, (200, 0, 0))
    context = Context(tmp_path)
    await context.say(report(inner), "report.docx")
    shown, sentence = await see(context, "report.docx")
    assert isinstance(shown, DocumentBlock)
    assert sentence == TextBlock('(report.docx contains 2 images: look(media="report.docx", image=1) shows the first)')
    (picture,) = await see(context, "report.docx", image=2)
    assert context.bytes[picture.media.digest] == inner
    assert picture.media.name == "report.docx image 2"
    with pytest.raises(Unsupported, match="image 3 does not exist"):
        await see(context, "report.docx", image=3)


async def test_reading_a_document_offers_the_pictures_inside(tmp_path: Path) -> None:
    (tmp_path / "report.docx").write_bytes(report(sample_png()))
    _, sentence = await builtin_tools()["read_file"].run(Context(tmp_path), {"path": "report.docx"})
    assert sentence == TextBlock('(report.docx contains 2 images: look(media="report.docx", image=1) shows the first)')


async def test_a_long_text_of_the_workspace_is_read_by_lines(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text("\n".join(f"line {n}" for n in range(1, 300_000)))
    (block,) = await see(Context(tmp_path), "big.log", offset=200_000, limit=1)
    assert block.text.startswith("200000\tline 200000\n")


async def test_sound_and_long_texts_are_called_back_too(tmp_path: Path) -> None:
    context = Context(tmp_path)
    sound = await context.say(sample_wav(), "memo.wav")
    assert await see(context, "memo.wav") == [AudioBlock(sound)]
    text = context.keep("\n".join(f"line {n}" for n in range(1, 6_001)), "output of run_command")
    (block,) = await see(context, short_id(text), offset=3_000, limit=2)
    assert block.text == (
        "  3000\tline 3000\n  3001\tline 3001\n(output of run_command: lines 3000–3001 of 6000; next: offset=3002)"
    )


async def test_a_file_of_the_workspace_is_looked_at_without_being_said_before(tmp_path: Path) -> None:
    (tmp_path / "wall.png").write_bytes(sample_png(60, 40))
    (tmp_path / "deck.docx").write_bytes(report(sample_png()))
    (tmp_path / "notes.txt").write_text("words\n")
    context = Context(tmp_path)
    (whole,) = await see(context, "wall.png")
    assert (whole.media.width, whole.media.source) == (60, str(tmp_path / "wall.png"))
    part, _ = await see(context, "wall.png", crop="0,0,500,500")
    assert part.media.width == 30
    assert (await see(context, "deck.docx", image=1))[0].media.width == 40
    assert (await see(context, "notes.txt"))[0].text == "     1\twords"


async def test_files_outside_and_secrets_need_approval_here_as_well(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (tmp_path / "outside.png").write_bytes(sample_png())
    (workspace / "token").write_text("abc")
    for asked in ("../outside.png", "token", "/etc/passwd"):
        context = Context(workspace)
        with pytest.raises(ToolError, match="denied it"):
            await see(context, asked)
        assert len(context.asked) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pages": "2"}, "no pages"),
        ({"image": 1}, "no images inside"),
        ({"image": 0}, "count from 1"),
        ({"offset": 0}, "count from 1"),
        ({"pages": "b"}, "Not a range of pages"),
    ],
)
async def test_what_makes_no_sense_gets_an_explanation(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    context = Context(tmp_path)
    await context.say(sample_png(), "a.png")
    with pytest.raises((ToolError, ContentError), match=words):
        await see(context, "a.png", **arguments)
