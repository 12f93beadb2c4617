"""64, 65: where statements come from and what a model thought, as the command line and the daemon show them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cli.loom_command import Loom, Terminal
from daemon.running import served
from loom.content.blocks import TextBlock, ThinkingBlock
from loom.events import Cited
from loom.testing import sample_pdf

LEAFLET = sample_pdf("The timeout is 30 seconds.", "Nothing to see on this page.", "Raise the timeout to 60 seconds.")
QUESTION = "which pages mention the timeout?"


def test_64_a_terminal_lists_the_sources_of_an_answer_with_their_pages(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    loom.file("manual.pdf", LEAFLET)

    with Terminal(loom, "-R", "manual.pdf", QUESTION) as terminal:
        assert terminal.end() == 0
    with Terminal(loom, "-R", "no file is attached here") as without:
        assert without.end() == 0

    (line,) = [line for line in terminal.text.splitlines() if line.startswith("sources: ")]
    assert line == "sources: manual.pdf p. 1, manual.pdf p. 3"
    assert "sources:" not in without.text


def test_64_a_name_in_the_sources_cannot_command_the_terminal(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    loom.file("\x1b]0;owned\x07manual\x1b[2J.pdf", LEAFLET)

    with Terminal(loom, "-R", "\x1b]0;owned\x07manual\x1b[2J.pdf", QUESTION) as terminal:
        assert terminal.end() == 0

    assert "sources: " in terminal.text
    assert "\x1b]0;" not in terminal.screen and "\x1b[2J" not in terminal.screen


def test_64_the_log_and_every_export_name_the_sources_and_mark_the_reasoning(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    loom.file("manual.pdf", LEAFLET)
    assert loom("manual.pdf", QUESTION).code == 0

    log = loom("log").out.splitlines()
    exports = {form: loom("sessions", "export", "1", "--format", form).out for form in ("md", "html")}

    assert "sources: manual.pdf p. 1, manual.pdf p. 3" in log
    assert any(line.startswith("thinking: ") for line in log)
    assert "*Sources: manual.pdf p. 1, manual.pdf p. 3*" in exports["md"]
    assert "Sources: manual.pdf p. 1, manual.pdf p. 3</p>" in exports["html"]


async def test_64_citations_reach_a_client_with_source_page_and_words(tmp_path: Path) -> None:
    (tmp_path / "manual.pdf").write_bytes(LEAFLET)
    async with served() as house, house.client() as client:
        session = await client.session()
        events = [event async for event in session.stream(QUESTION, tmp_path / "manual.pdf")]
        kept = [block for block in (await session.path())[-1].blocks if isinstance(block, TextBlock)]

    cited = [event.citation for event in events if isinstance(event, Cited)]
    assert {(one.title, one.locator, one.first) for one in cited} == {
        ("manual.pdf", "page", 1),
        ("manual.pdf", "page", 3),
    }
    assert any("30 seconds" in one.quote for one in cited)
    assert {one for block in kept for one in block.citations} == set(cited), "and stay with the words"


def test_65_reasoning_is_beside_the_answer_and_can_be_hidden_and_read_later(tmp_path: Path) -> None:
    loom = Loom(tmp_path)

    shown, hidden = loom("!think 5ms"), loom("-R", "!think 5ms")
    kept = msgspec.json.decode(loom("sessions", "export", "1", "--format", "json").out)

    assert shown.err != "" and hidden.err == ""
    assert shown.out == hidden.out
    assert "asked to think" in shown.err and "asked to think" not in shown.out
    assert '"thinking"' in msgspec.json.encode(kept).decode()


async def test_65_reasoning_is_a_block_of_its_own_for_every_client() -> None:
    async with served() as house, house.client() as client:
        session = await client.session()
        await session.send("!think 5ms")
        thought, *said = (await session.path())[-1].blocks

    assert isinstance(thought, ThinkingBlock) and thought.text
    assert not any(thought.text in block.text for block in said if isinstance(block, TextBlock))
