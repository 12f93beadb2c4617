"""Office files are read in a worker process, which a hostile one cannot leave."""

from __future__ import annotations

import random

import pytest

from formats.made_office import DOCX, paragraph, word
from loom.content.media import Media, digest_of
from loom.content.recipes import Text
from loom.errors import TooLarge
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits
from loom.formats.office.read_worker import OFFICE_WORKER
from loom.formats.worker import WorkerPool


def test_a_document_of_endless_paragraphs_ends_at_its_deadline() -> None:
    chance = random.Random(5)
    endless = word("".join(paragraph(f"{chance.random()} {chance.random()}") for _ in range(150_000)))

    media = Media(digest=digest_of(endless), media_type=DOCX, size_bytes=len(endless), name="long.docx")

    with pytest.raises(TooLarge, match=r"long\.docx takes (too long|longer than)"):
        render(endless, media, Text(), IntakeLimits(deadline_seconds=0.3))


def test_the_digest_is_that_of_the_bytes_and_errors_keep_their_words() -> None:
    pool = WorkerPool()
    data = word(paragraph("words"))
    with pool.use():
        found = inspect(data, "a.docx")
        text = render(data, found.media, Text()).data.decode()
        assert len(pool.pids(OFFICE_WORKER)) == 1
        with pytest.raises(Exception, match=r"^b\.docx ") as raised:
            inspect(data[: len(data) // 2], "b.docx")
    pool.close()

    assert text.strip() == "words"
    assert str(raised.value).count("b.docx") == 1
