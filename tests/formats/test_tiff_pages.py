"""A TIFF of several pages: every page can be named, seen and read."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageDraw, ImageFont

from formats.made_images import sample
from loom.content.blocks import DocumentBlock, ImageBlock
from loom.content.recipes import Ocr, Page
from loom.formats import render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept


def fax(mode: str, pages: int = 3) -> bytes:
    sheets = []
    for number in range(1, pages + 1):
        sheet = Image.new("L", (850, 400), 255)
        ImageDraw.Draw(sheet).text((60, 120), f"Sheet {number} of the fax", fill=0, font=ImageFont.load_default(60))
        sheets.append(sheet.convert(mode))
    file = io.BytesIO()
    compression = "group4" if mode == "1" else "tiff_lzw"
    sheets[0].save(file, "TIFF", save_all=True, append_images=sheets[1:], compression=compression, dpi=(100, 100))
    return file.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "CMYK", "P"])
def test_every_page_of_a_tiff_can_be_seen_and_read(mode: str) -> None:
    admitted = accept(fax(mode), "fax.tif", pages="2-3")

    block = admitted.block
    assert isinstance(block, DocumentBlock)
    assert (block.media.pages, block.media.name, block.pages) == (3, "fax.tif", "2-3")
    assert admitted.notices[0] == "fax.tif has 3 pages: it is kept as a PDF of them."
    assert admitted.data is not None
    third = render(admitted.data, block.media, Page(3))
    assert abs((third.width or 0) / (third.height or 1) - 850 / 400) < 0.02
    words = render(admitted.data, block.media, Ocr(page=3), IntakeLimits(ocr_seconds=120)).data.decode()
    assert "Sheet 3 of the fax" in words


def test_a_tiff_of_one_page_stays_a_picture() -> None:
    assert isinstance(accept(sample("lzw.tif"), "one.tif").block, ImageBlock)


def test_pages_that_make_no_pdf_within_the_limit_leave_the_first_one_with_a_reason() -> None:
    admitted = accept(fax("RGB"), "fax.tif", limits=IntakeLimits(max_pdf_bytes=1_000))

    assert isinstance(admitted.block, ImageBlock)
    assert any("over the limit of 1 KB" in notice for notice in admitted.notices)
