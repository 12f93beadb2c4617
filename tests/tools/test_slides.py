"""render_slides: decks laid out by LibreOffice, page by page as pictures."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.util import Inches

from loom.content.blocks import TextBlock
from loom.errors import ExtraMissing, ToolError
from loom.testing import sample_pdf, sample_png
from loom.tools.slides import render_slides
from made import make_sample, run
from tools.world import Context, pictures

COLORS = [(200, 30, 40), (30, 160, 60), (40, 60, 200)]


def deck(path: Path) -> None:
    """Three slides, each with a large box of its own color and a line of text."""
    presentation = Presentation()
    for number, color in enumerate(COLORS, 1):
        slide = presentation.slides.add_slide(presentation.slide_layouts[6])
        box = slide.shapes.add_shape(1, Inches(1), Inches(2), Inches(8), Inches(4))
        box.fill.solid()
        box.fill.fore_color.rgb = RGBColor(*color)
        slide.shapes.add_textbox(Inches(1), Inches(0.5), Inches(8), Inches(1)).text_frame.text = f"Slide {number}"
    presentation.save(str(path))


def odp(path: Path) -> None:
    (path.parent / "deck.pptx").write_bytes(make_sample("deck.pptx", deck).read_bytes())
    profile = f"-env:UserInstallation={(path.parent / 'profile').as_uri()}"
    run("soffice", profile, "--headless", "--convert-to", "odp", "--outdir", path.parent, path.parent / "deck.pptx")


def seen(context: Context, digest: str) -> Image.Image:
    return Image.open(io.BytesIO(context.bytes[digest])).convert("RGB")


@pytest.mark.parametrize(("name", "build"), [("deck.pptx", deck), ("deck.odp", odp)])
async def test_every_slide_is_a_picture_of_what_is_on_it(
    tmp_path: Path, name: str, build: Callable[[Path], None]
) -> None:
    (tmp_path / name).write_bytes(make_sample(name, build).read_bytes())
    context = Context(tmp_path)
    blocks = await render_slides.run(context, {"path": name})
    slides = pictures(blocks)
    assert [slide.media.name for slide in slides] == [f"{name} page {number}" for number in (1, 2, 3)]
    assert blocks[-1] == TextBlock(f"{name}: pages 1–3 of 3")
    for slide, color in zip(slides, COLORS, strict=True):
        image = seen(context, slide.media.digest)
        assert 1_200 <= image.width <= 2_048
        assert abs(image.width / image.height - 4 / 3) < 0.01
        middle = image.crop((image.width // 2, image.height // 2, image.width // 2 + 1, image.height // 2 + 1))
        assert all(abs(a - b) < 12 for a, b in zip(middle.tobytes(), color, strict=True))
        words = image.crop((0, 0, image.width, image.height // 5)).convert("L")
        assert words.getextrema()[0] < 100, "the title is not drawn"
    assert "page 3 of 3" in context.told


async def test_pages_are_chosen_twenty_at_a_time_and_the_sentence_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(sample_pdf(*[f"page {n}" for n in range(1, 31)]))
    context = Context(tmp_path)
    blocks = await render_slides.run(context, {"path": "book.pdf"})
    assert len(pictures(blocks)) == 20
    assert blocks[-1] == TextBlock('book.pdf: pages 1–20 of 30; next: pages="21-30"')
    blocks = await render_slides.run(context, {"path": "book.pdf", "pages": "29-99"})
    assert [block.media.name for block in pictures(blocks)] == ["book.pdf page 29", "book.pdf page 30"]
    with pytest.raises(ToolError, match="30 pages"):
        await render_slides.run(context, {"path": "book.pdf", "pages": "31"})


async def test_a_deck_of_the_session_is_found_by_name(tmp_path: Path) -> None:
    context = Context(tmp_path)
    await context.say(make_sample("deck.pptx", deck).read_bytes(), "talk.pptx")
    (slide,) = pictures(await render_slides.run(context, {"path": "talk.pptx", "pages": "2"}))
    assert slide.media.name == "talk.pptx page 2"


async def test_what_has_no_pages_and_what_is_not_there_get_an_explanation(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample_png())
    with pytest.raises(ToolError, match="no slides or pages"):
        await render_slides.run(Context(tmp_path), {"path": "a.png"})
    with pytest.raises(ToolError, match="No image, document or file"):
        await render_slides.run(Context(tmp_path), {"path": "absent.pptx"})


async def test_without_libreoffice_the_answer_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.pptx").write_bytes(fresh_deck())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExtraMissing, match="apt install libreoffice"):
        await render_slides.run(Context(tmp_path), {"path": "other.pptx"})


def fresh_deck() -> bytes:
    """One that nobody has laid out before."""
    presentation = Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[6])
    out = io.BytesIO()
    presentation.save(out)
    return out.getvalue()
