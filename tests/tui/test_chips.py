"""Chips in the text of a message."""

from __future__ import annotations

from loom.content.blocks import DocumentBlock, ImageBlock
from loom.content.media import Media, digest_of
from loom.tui.chips import Chip, chip_name, chips_in, expand, token_for, unique_token

PNG = Media(digest=digest_of(b"png"), media_type="image/png", size_bytes=3, width=9, height=5, name="login.png")
PDF = Media(digest=digest_of(b"pdf"), media_type="application/pdf", size_bytes=3, pages=47, name="report.pdf")


def test_a_token_says_what_the_attachment_is() -> None:
    assert token_for([ImageBlock(PNG)], 3, "x") == "[Image #3]"
    assert token_for([DocumentBlock(PDF, pages="1-20")], 1, "x") == "[report.pdf 1-20]"
    assert token_for([], 1, "notes.txt") == "[notes.txt]"


def test_tokens_are_unique_and_on_one_line() -> None:
    assert unique_token("[a.txt]", ["[a.txt]", "[a.txt (2)]"]) == "[a.txt (3)]"
    assert chip_name("a]\x1b[31m\nb.txt") == "a31mb.txt"
    assert len(chip_name("n" * 300 + ".pdf")) == 40


def test_chips_are_sent_in_the_order_of_the_text() -> None:
    chips = {token: Chip(token=token) for token in ("[Image #1]", "[Image #2]", "[Image #3]")}
    assert [chip.token for chip in chips_in("see [Image #3] and [Image #1]", chips)] == ["[Image #3]", "[Image #1]"]


def test_an_image_without_words_is_a_message_without_text() -> None:
    chips = {"[Image #1]": Chip(token="[Image #1]", blocks=(ImageBlock(PNG),))}
    assert expand(" [Image #1] ", chips) == ""
    assert expand("what is [Image #1]?", chips) == "what is [Image #1]?"


def test_pasted_text_stands_where_its_chip_was() -> None:
    chips = {"[Pasted text #1, 90 lines]": Chip(token="[Pasted text #1, 90 lines]", text="a\nb")}
    assert expand("before [Pasted text #1, 90 lines] after", chips) == "before a\nb after"
