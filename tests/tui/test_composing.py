"""Writing a message: pastes, chips, files, commands, history."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.tui.pilots import Driven, driven

from loom.content.blocks import DocumentBlock, ImageBlock, TextBlock
from loom.content.media import digest_of
from loom.testing import sample_pdf, sample_png


async def sent_blocks(screen: Driven) -> tuple[object, ...]:
    assert screen.chat.conversation is not None
    path = await screen.chat.conversation.path()
    return next(placed.message.blocks for placed in reversed(path) if placed.message.role == "user")


async def test_ten_pasted_lines_are_one_message(tmp_path: Path) -> None:
    text = "\n".join(f"line {n}" for n in range(10))
    async with driven(tmp_path, answers=["understood"]) as screen:
        await screen.paste(text)
        assert screen.chat.composer.text == text
        assert screen.model is not None and screen.model.prompts == []
        await screen.press("enter")
        await screen.wait_until_idle()
        assert await sent_blocks(screen) == (TextBlock(text),)
        assert len(screen.model.prompts) == 1


async def test_a_long_paste_is_a_chip_and_is_sent_whole(tmp_path: Path) -> None:
    text = "\n".join(f"row {n}" for n in range(200))
    async with driven(tmp_path, answers=["long"]) as screen:
        await screen.paste(text)
        assert screen.chat.composer.text.strip() == "[Pasted text #1, 200 lines]"
        await screen.press("enter")
        await screen.wait_until_idle()
        assert await sent_blocks(screen) == (TextBlock(text),)


async def test_enter_sends_and_ctrl_j_makes_a_line(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["yes"]) as screen:
        await screen.type("one")
        await screen.press("ctrl+j")
        await screen.type("two")
        assert screen.chat.composer.text == "one\ntwo"
        await screen.press("enter")
        await screen.wait_until_idle()
        assert await sent_blocks(screen) == (TextBlock("one\ntwo"),)
        await screen.wait_for("yes")


async def test_a_dropped_picture_is_a_chip_that_is_deleted_as_one(tmp_path: Path) -> None:
    picture = tmp_path / "my picture.png"
    picture.write_bytes(sample_png())
    async with driven(tmp_path, answers=["blue"]) as screen:
        await screen.type("see ")
        await screen.paste(str(picture).replace(" ", "\\ "))
        assert screen.chat.composer.text == "see [Image #1] "
        await screen.press("backspace", "backspace")
        assert screen.chat.composer.text == "see "
        assert screen.chat.composer.placed_chips == []
        await screen.paste(f"file://{str(picture).replace(' ', '%20')}")
        await screen.press("left", "left")
        assert screen.chat.composer.cursor_location == (0, 4)  # the cursor passes over the chip
        await screen.press("enter")
        await screen.wait_until_idle()
        image, words = await sent_blocks(screen)
        assert isinstance(image, ImageBlock) and image.media.name == "my picture.png"
        assert words == TextBlock("see [Image #1]")


async def test_a_picture_alone_is_a_message(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(sample_png())
    async with driven(tmp_path, answers=["blue"]) as screen:
        await screen.paste(str(picture))
        await screen.press("enter")
        await screen.wait_until_idle()
        (image,) = await sent_blocks(screen)
        assert isinstance(image, ImageBlock)


async def test_two_files_are_dropped_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample_png())
    (tmp_path / "b.pdf").write_bytes(sample_pdf("one", "two"))
    async with driven(tmp_path, answers=["both"]) as screen:
        await screen.paste(f"'{tmp_path / 'a.png'}' '{tmp_path / 'b.pdf'}'")
        await screen.wait(lambda: "[b.pdf]" in screen.chat.composer.text)
        await screen.press("enter")
        await screen.wait_until_idle()
        blocks = await sent_blocks(screen)
        assert [type(block) for block in blocks] == [ImageBlock, DocumentBlock]


async def test_a_long_document_begins_with_its_first_pages(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(sample_pdf(*(f"page {n}" for n in range(1, 48))))
    async with driven(tmp_path, answers=["read"]) as screen:
        await screen.paste(str(tmp_path / "report.pdf"))
        await screen.wait(lambda: "[report.pdf 1-20]" in screen.chat.composer.text)
        await screen.press("enter")
        await screen.wait_until_idle()
        await screen.wait_for("[PDF: report.pdf, pages 1–20 of 47]")


async def test_what_is_no_picture_is_refused_and_the_chip_goes(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    async with driven(tmp_path, answers=[]) as screen:
        await screen.paste(str(tmp_path / "broken.png"))
        await screen.wait(lambda: not screen.chat.composer.placed_chips)
        await screen.wait_for("broken.png")


async def test_an_at_sign_lists_files_and_enter_attaches_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "login.png").write_bytes(sample_png())
    (work / "notes.txt").write_text("x")
    (work / "hidden.png").write_bytes(sample_png())
    (work / ".gitignore").write_text("hidden.png\n")
    async with driven(tmp_path, answers=["ok"]) as screen:
        await screen.type("@log")
        await screen.wait_for("login.png")
        assert "hidden.png" not in screen.text
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.text == "[Image #1] ")
        await screen.type("@not")
        await screen.wait_for("notes.txt")
        await screen.press("tab")
        assert screen.chat.composer.text == "[Image #1] @notes.txt "


async def test_a_slash_lists_commands(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.type("/the")
        await screen.wait_for("change the colors")
        await screen.press("tab")
        assert screen.chat.composer.text == "/theme "
        await screen.type("loom-light")
        await screen.press("enter")
        await screen.wait(lambda: screen.app.theme == "loom-light")
        await screen.type("/nonsense")
        await screen.press("escape", "enter")
        await screen.wait_for("Unknown command /nonsense")
        screen.chat.composer.text = ""
        await screen.type("/modle")
        await screen.press("escape", "enter")
        await screen.wait_for("/model?")


async def test_the_arrow_up_brings_earlier_messages_back_also_after_a_restart(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["a", "b"]) as screen:
        await screen.say("first")
        await screen.say("second", turns=2)
        await screen.press("up", "up")
        assert screen.chat.composer.text == "first"
        await screen.press("down")
        assert screen.chat.composer.text == "second"
    async with driven(tmp_path, answers=[]) as screen:
        await screen.press("up")
        assert screen.chat.composer.text == "second"
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o077 == 0


async def test_a_shell_command_is_shown_and_offered(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["seen"]) as screen:
        await screen.type("!echo from the shell")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.text == "[$ echo from the shell] ")
        await screen.wait_for("from the shell")
        await screen.press("enter")
        await screen.wait_until_idle()
        assert await sent_blocks(screen) == (TextBlock("$ echo from the shell\nfrom the shell"),)


async def test_what_is_typed_before_the_store_is_open_is_not_lost(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["hello"]) as screen:
        library, screen.chat.library = screen.chat.library, None
        await screen.type("early")
        await screen.press("enter")
        assert library is not None
        await screen.chat.connect(library, session="", model="fake", notices=())
        await screen.wait_until_idle()
        assert await sent_blocks(screen) == (TextBlock("early"),)


async def test_a_shell_command_is_stopped_by_escape_and_what_it_starts_in_the_background_is_not_waited_for(
    tmp_path: Path,
) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.type("!echo begun; sleep 3600")
        await screen.press("enter")
        await screen.wait_for("running")
        await screen.type("!echo second")
        await screen.press("enter")
        await screen.wait_for("Esc stops it")
        assert screen.chat.composer.text == "!echo second"
        await screen.press("escape")
        await screen.wait_for("stopped")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.text == "[$ echo second] ")
        await screen.press("ctrl+c")
        await screen.type("!sleep 3600 & echo $! > pid; echo over")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.text.startswith("[$ sleep"))
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it is still there


async def test_an_endless_shell_command_takes_little_memory_and_its_end_is_kept(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.type("!head -c 60000000 /dev/zero | tr '\\0' 'x'; echo; echo the end")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.chips)
        (chip,) = screen.chat.composer.chips.values()
        assert len(chip.text) < 100_000 and "the end" in chip.text


async def test_names_of_files_are_those_of_the_conversation_wherever_it_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder, color in ((project, (200, 0, 0)), (other, (0, 0, 200))):
        folder.mkdir()
        (folder / "shot.png").write_bytes(sample_png(colour=color))
    (project / "app.py").write_text("x = 1\n")
    monkeypatch.chdir(project)
    async with driven(tmp_path, answers=["first"]) as screen:
        await screen.say("hello")
        assert screen.chat.conversation is not None
        session = screen.chat.conversation.id
    monkeypatch.chdir(other)
    async with driven(tmp_path, answers=["second"], session=session) as screen:
        await screen.wait_for("The files of this conversation are in")
        await screen.type("!pwd")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.chips)
        (chip,) = screen.chat.composer.chips.values()
        assert chip.text == f"$ pwd\n{project}\n"
        await screen.press("ctrl+c")
        await screen.type("@ap")
        await screen.wait_for("app.py")
        await screen.press("tab")
        await screen.say("and @shot.png ")
        sent = await sent_blocks(screen)
        images = [block.media.digest for block in sent if isinstance(block, ImageBlock)]
        assert images == [digest_of((project / "shot.png").read_bytes())]
        assert "File not found" not in screen.text
