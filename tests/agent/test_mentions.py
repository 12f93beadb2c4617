"""`@file` in a message, however an interface hands it over."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom.content.blocks import DocumentBlock, TextBlock
from loom.content.inputs import Attachment
from loom.events import NoticeRaised
from loom.runtime.workspace_files import missing_files_notice, missing_mentions
from loom.testing import ScriptedProvider, memory_runtime, sample_pdf, sample_png

MODEL = "anthropic/claude-opus-5"


@pytest.mark.parametrize("as_block", [False, True])
async def test_a_mentioned_file_is_tracked_from_text_and_from_blocks(tmp_path: Path, as_block: bool) -> None:
    file = tmp_path / "a.txt"
    file.write_text("alpha\n")
    provider = ScriptedProvider(["One.", "Two."])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        words = "what is in @a.txt?"
        await session.send(TextBlock(words) if as_block else words)
        file.write_text("beta\n")
        await session.send("and now?")
        told = [
            [block.text for message in prompt.messages for block in message.blocks if isinstance(block, TextBlock)]
            for prompt in provider.prompts
        ]
        assert any("alpha" in text for text in told[0])
        assert any("+beta" in text for text in told[1])


@pytest.mark.parametrize("lines", [":2", ":2-3", ":2:7", "#L2", "#L2-3", "#L2-L3."])
async def test_a_file_that_is_mentioned_with_line_numbers_is_tracked(tmp_path: Path, lines: str) -> None:
    (tmp_path / "app.py").write_text("alpha\nbeta\n")
    provider = ScriptedProvider(["One."])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        async with session.stream(f"explain @app.py{lines}") as events:
            notices = [event.text async for event in events if isinstance(event, NoticeRaised)]
    (message,) = provider.prompts[0].messages
    told = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    assert any("[file: app.py]\nalpha" in text for text in told)
    assert notices == []
    assert missing_mentions(tmp_path, f"explain @ap.py{lines}") != {}


async def test_a_mentioned_image_is_attached_once_and_a_missing_file_is_named(tmp_path: Path) -> None:
    image = tmp_path / "login.png"
    image.write_bytes(sample_png())
    provider = ScriptedProvider(["One.", "Two."])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        async with session.stream("what is wrong in @login.png, and in @src/ap.py?") as events:
            notices = [event.text async for event in events if isinstance(event, NoticeRaised)]
        await session.send("again: @login.png", Attachment(source=image))
        assert [len([*prompt.media()]) for prompt in provider.prompts] == [1, 2]
    assert notices == ["File not found: src/ap.py; sent as text."]


async def test_mentioned_pages_are_attached_and_pages_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(sample_pdf("one", "two", "three"))
    (tmp_path / "notes.txt").write_text("x")
    provider = ScriptedProvider(["One."])
    text = "compare @report.pdf#2, @report.pdf#0 and @notes.txt#1, ignore @gone.pdf#1"
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        async with session.stream(text) as events:
            notices = [event.text async for event in events if isinstance(event, NoticeRaised)]
        blocks = [block for message in await session.path() for block in message.blocks]
        assert [block.pages for block in blocks if isinstance(block, DocumentBlock)] == ["2"]
    assert notices == [
        "Not a range of pages: '0'; sent as text.",
        "notes.txt#1 is not attached: only documents of the workspace have pages; sent as text.",
        "File not found: gone.pdf#1; sent as text.",
    ]
    assert list(missing_mentions(tmp_path, text)) == ["gone.pdf#1"]


def test_a_mistyped_name_is_told_with_the_file_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("x")
    found = missing_mentions(tmp_path, "fix @src/ap.py and @app.py, ask @anna, see @src/app.py and @files:x.txt")
    assert found == {"src/ap.py": "src/app.py", "app.py": "src/app.py"}
    assert missing_files_notice({"a.txt": ""}) == "File not found: a.txt."
    assert missing_files_notice(found) == (
        "Files not found: src/ap.py (did you mean src/app.py?), app.py (did you mean src/app.py?)."
    )


def test_handles_and_code_are_no_mistyped_files(tmp_path: Path) -> None:
    """What a user pastes is code more often than a mistyped name: a question about it would stop every such message."""
    (tmp_path / "src").mkdir()
    code = """@pytest.fixture, @app.get("/x"), @app.route('/a/b'), @functools.cache(maxsize=None), @click.option("--x")
    import x from "@angular/core"; npm i @types/node @babel/preset-env@7.1; @Override @org.junit.Test @media
    @someone @group/name"""
    assert missing_mentions(tmp_path, code) == {}
    files = [
        "src/Makefile",
        "notes.txt",
        "lib/a.kt",
        "a b/c.vue",
        "shot.png",
        "./x",
        "../y",
        "/no/z",
        "~/a",
        "report.pdf#3",
    ]
    typed = " ".join(f'@"{name}"' if " " in name else f"@{name}" for name in files)
    assert list(missing_mentions(tmp_path, typed)) == files
