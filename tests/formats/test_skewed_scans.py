"""Scans that lie askew are read line by line and column by column."""

from __future__ import annotations

import math

import pytest

from formats import made_pdfs
from formats.scans import order_score, scan
from loom.content.media import Media, digest_of
from loom.content.recipes import Text
from loom.errors import Encrypted
from loom.formats import inspect, ocr, render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.formats.ocr.reading_order import in_reading_order, skew, straighten
from loom.formats.pdf.text_layer import is_gibberish

PROSE = " ".join(scan(0.0, 1)[1].split())


def quads(columns: int, degrees: float) -> list[tuple[str, list[tuple[float, float]]]]:
    """Twenty lines in each column under a title, turned around the middle of the page."""
    boxes = [("title", 100.0, 60.0, 700.0, 110.0)]
    for column in range(columns):
        left = 100.0 + column * 560
        boxes += [(f"{column}-{row}", left, 150.0 + row * 44, left + 500, 182.0 + row * 44) for row in range(20)]
    angle = math.radians(degrees)

    def turned(x: float, y: float) -> tuple[float, float]:
        x, y = x - 620, y - 700
        return 620 + x * math.cos(angle) - y * math.sin(angle), 700 + x * math.sin(angle) + y * math.cos(angle)

    return [
        (text, [turned(left, top), turned(right, top), turned(right, bottom), turned(left, bottom)])
        for text, left, top, right, bottom in boxes
    ]


@pytest.mark.parametrize("degrees", [0.0, 0.3, -0.3, 0.7, -0.7, 2.0, -2.0, 5.0, -8.0])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_columns_and_lines_stay_in_order_at_any_angle(columns: int, degrees: float) -> None:
    pieces = quads(columns, degrees)
    wanted = ["title", *(f"{column}-{row}" for column in range(columns) for row in range(20))]

    assert abs(math.degrees(skew([quad for _, quad in pieces])) - degrees) < 0.05
    assert in_reading_order(straighten(pieces[::-1])).split() == wanted


def test_text_on_its_side_is_not_taken_for_skew() -> None:
    assert skew([quad for _, quad in quads(1, 90.0)]) == 0.0
    assert skew([]) == 0.0
    assert straighten([]) == []


@pytest.mark.parametrize(("columns", "degrees"), [(1, 2.0), (2, 0.7)])
def test_a_skewed_scan_is_read_in_order(columns: int, degrees: float) -> None:
    data, wanted = scan(degrees, columns, 8)

    assert order_score(ocr.read_picture(data, IntakeLimits(ocr_seconds=300)), wanted) >= 0.98


@pytest.mark.parametrize(
    "text",
    [
        "".join(chr(0xE000 + ord(char)) if char != " " else char for char in PROSE),
        "".join("\ufffd" if char.isalpha() and number % 2 else char for number, char in enumerate(PROSE)),
        "".join(chr(ord(char) - 64) if char.isalpha() else char for char in PROSE),
        "".join(chr((ord(char) - 97 + 5) % 26 + 97) if char.isalpha() else char for char in PROSE.lower()),
    ],
    ids=["private use", "replaced", "shifted to signs", "shifted in the alphabet"],
)
def test_a_text_layer_that_means_nothing_is_recognized(text: str) -> None:
    assert is_gibberish(text)


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "Kapitel 1 ........................ 12\nKapitel 2 ........................ 48\n" * 10,
        "12.5 | 33.1 | 0.04 | 1,200 | -5\n" * 20,
        "天地玄黄宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏" * 6,
        "Быстрая лиса прыгает через ленивую собаку у реки ранним утром. " * 5,
        "def f(x):\n    return {k: v for k, v in x.items() if k != '_'}  # see https://example.com/a?b=1\n" * 5,
        "Strč prst skrz krk. Příliš žluťoučký kůň úpěl ďábelské ódy. " * 5,
        "∑∫√≤≥",
        "",
    ],
)
def test_texts_of_many_kinds_are_not(text: str) -> None:
    assert not is_gibberish(text)


def test_a_page_with_a_gibberish_layer_counts_as_scanned() -> None:
    shifted = "".join(chr((ord(char) - 97 + 5) % 26 + 97) if char.isalpha() else char for char in PROSE.lower())
    data = made_pdfs.text_page(shifted[:400])
    media = Media(digest=digest_of(data), media_type="application/pdf", size_bytes=len(data))

    found = inspect(data, "odd.pdf")
    text = render(data, media, Text())

    assert found.pages_without_text == text.pages_without_text == (1,)
    assert text.data == b"[page 1: no text layer]\n"
    assert text.notices == ("The text layer of page 1 is unreadable (its font has no character map) and was ignored.",)


def test_a_pdf_with_a_password_is_let_in_with_it() -> None:
    data = made_pdfs.encrypted_pdf("open sesame").read_bytes()
    with pytest.raises(Encrypted):
        accept(data, "locked.pdf")
    with pytest.raises(Encrypted, match="a different password"):
        accept(data, "locked.pdf", password="wrong")

    admitted = accept(data, "locked.pdf", password="open sesame")

    assert admitted.notices[0] == "locked.pdf was unlocked: a copy without the password is kept."
    assert admitted.data is not None and b"open sesame" not in admitted.data
    assert inspect(admitted.data, "locked.pdf").media.digest == admitted.block.media.digest


def test_a_password_for_a_file_that_needs_none_changes_nothing() -> None:
    data = made_pdfs.text_page("plain")

    assert accept(data, "a.pdf", password="x").data == data
    assert accept(b"text", "a.txt", password="x").block.text.endswith("text")
