"""search_files: what a model finds, and what cannot stop it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from loom.errors import ToolError
from loom.tools import searching
from loom.tools.builtin import builtin_tools
from patience import PATIENCE_SECONDS
from tools.world import Context, said

SEARCH = builtin_tools()["search_files"]


async def test_matches_come_with_file_and_line_and_binary_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("import os\n\ndef main():\n    return 1\n")
    (tmp_path / "notes.txt").write_bytes("Über main()\r\nnothing".encode("utf-16"))
    (tmp_path / "blob.bin").write_bytes(b"\0\1\2main()" * 50)
    (tmp_path / ".gitignore").write_text("dist\n")
    (tmp_path / "dist").write_text("main()")
    assert (await said(SEARCH, Context(tmp_path), pattern=r"\bmain\(")).splitlines() == [
        "notes.txt:1: Über main()",
        "src/a.py:3: def main():",
        "(2 matches in 2 of 3 files)",
        "(1 binary file skipped)",
    ]


async def test_line_numbers_are_those_of_other_tools(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\x0c\ntwo\xe2\x80\xa8\r\nthree\rfour")
    found = await said(SEARCH, Context(tmp_path), pattern="three|four")
    assert found.splitlines()[:2] == ["a.txt:3: three", "a.txt:4: four"]


async def test_a_path_and_a_glob_narrow_the_search(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("word")
    (tmp_path / "a" / "x.md").write_text("word")
    (tmp_path / "y.py").write_text("word")
    found = await said(SEARCH, Context(tmp_path), pattern="word", path="a", glob="*.py")
    assert found == "a/x.py:1: word\n(1 match in 1 of 1 file)"
    assert (await said(SEARCH, Context(tmp_path), pattern="word", path="y.py")).startswith("y.py:1: word")
    assert "no match in a: 2 files" in await said(SEARCH, Context(tmp_path), pattern="absent", path="a")


async def test_many_matches_are_cut_and_long_lines_are_shown_around_the_match(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("hit\n" * 5_000)
    (tmp_path / "min.js").write_text("x" * 5_000 + "NEEDLE" + "y" * 5_000)
    found = await said(SEARCH, Context(tmp_path), pattern="hit", limit=50)
    assert found.count("many.txt:") == 50
    assert "the first 50 matches; narrow it" in found
    line = (await said(SEARCH, Context(tmp_path), pattern="NEEDLE")).splitlines()[0]
    assert "NEEDLE" in line
    assert len(line) < 400


async def test_a_pattern_that_never_ends_is_ended_and_nothing_stands_still_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "SEARCH_SECONDS", 3.0)
    (tmp_path / "a.txt").write_text("a" * 60 + "!")
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    found = await said(SEARCH, Context(tmp_path), pattern=r"(a+)+$")
    ticking.cancel()
    assert "stopped after" in found
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert longest < 2.5, "the event loop stood still"
    assert "a.txt:1" in await said(SEARCH, Context(tmp_path), pattern="a!")


@pytest.mark.parametrize("pattern", ["(", "*x", "[z-a]", "(?P<n>a)(?P<n>b)", "a{99999999999}"])
async def test_what_is_no_regular_expression_gets_an_explanation(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ToolError, match="is not a regular expression"):
        await said(SEARCH, Context(tmp_path), pattern=pattern)


async def test_files_of_secrets_are_skipped_and_said_and_a_named_one_needs_approval(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=abc")
    (tmp_path / "a.txt").write_text("TOKEN")
    found = await said(SEARCH, Context(tmp_path), pattern="TOKEN")
    assert "abc" not in found
    assert "1 file skipped that may hold secrets" in found
    context = Context(tmp_path)
    with pytest.raises(ToolError, match="said no"):
        await said(SEARCH, context, pattern="TOKEN", path=".env")
    assert "abc" in await said(SEARCH, Context(tmp_path, allow=True), pattern="TOKEN", path=".env")


async def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (tmp_path / "secret.txt").write_text("hidden words")
    (workspace / "link.txt").symlink_to("../secret.txt")
    (workspace / "folder").symlink_to("..")
    assert "no match" in await said(SEARCH, Context(workspace), pattern="hidden")
    with pytest.raises(ToolError, match="said no"):
        await said(SEARCH, Context(workspace), pattern="hidden", path="folder")
