"""search_files: what a model finds, and what cannot stop it."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.errors import ToolError
from loom.tools import file_search, ripgrep
from loom.tools.builtin import builtin_tools
from loom.tools.search_patterns import required_literal
from loom.tools.text_job import search_line
from patience import PATIENCE_SECONDS
from tools.world import Context, said

SEARCH = builtin_tools()["search_files"]


@pytest.fixture(autouse=True, params=["with ripgrep", "without"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test holds with both."""
    if request.param == "without":
        monkeypatch.setattr(ripgrep, "ripgrep_program", lambda: None)
    else:
        assert ripgrep.ripgrep_program(), "run tests/packages.sh"
    return str(request.param)


async def test_matches_come_with_file_and_line_and_binary_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("import os\n\ndef main():\n    return 1\n")
    (tmp_path / "notes.txt").write_bytes("Über main()\r\nnothing".encode("utf-16"))
    (tmp_path / "blob.bin").write_bytes(b"\0\1\2 main()" * 50)
    (tmp_path / ".gitignore").write_text("dist\n")
    (tmp_path / "dist").write_text("main()")
    assert (await said(SEARCH, Context(tmp_path), pattern=r"\bmain\(")).splitlines() == [
        "notes.txt:1: Über main()",
        "src/a.py:3: def main():",
        "(2 matches in 2 of 4 files)",
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


@given(
    before=st.integers(0, 40_000),
    after=st.integers(0, 40_000),
    pattern=st.sampled_from(["NEEDLE", "NEEDLE$", "^NEEDLE"]),
)
def test_a_long_line_is_searched_to_its_end(before: int, after: int, pattern: str) -> None:
    line, compiled = f"{'x' * before}NEEDLE{'y' * after}", re.compile(pattern)
    found, expected = search_line(compiled, line), compiled.search(line)
    assert (found and found.span()) == (expected and expected.span())
    assert search_line(re.compile("[xy]$"), line + "!") is None, "a part has no end of its own"


async def test_a_match_far_behind_in_a_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "bundle.js").write_text("x" * 300_000 + "NEEDLE" + "y" * 300_000)
    assert "xxNEEDLEyy" in await said(SEARCH, Context(tmp_path), pattern="NEEDLE")


async def test_a_pattern_that_never_ends_is_ended_and_nothing_stands_still_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "ripgrep_program", lambda: None)  # ripgrep has no such patterns
    monkeypatch.setattr(file_search, "SEARCH_SECONDS", 3.0)
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
    for pattern in ("TOKEN", "TOKEN=abc", "T[O]KEN", "absent"):
        found = await said(SEARCH, Context(tmp_path), pattern=pattern)
        assert "TOKEN=" not in found
        assert "1 file skipped that may contain secrets" in found, "whatever is in it"
    context = Context(tmp_path)
    with pytest.raises(ToolError, match="denied it"):
        await said(SEARCH, context, pattern="TOKEN", path=".env")
    assert "abc" in await said(SEARCH, Context(tmp_path, allow=True), pattern="TOKEN", path=".env")


async def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (tmp_path / "secret.txt").write_text("hidden words")
    (workspace / "link.txt").symlink_to("../secret.txt")
    (workspace / "folder").symlink_to("..")
    assert "no match" in await said(SEARCH, Context(workspace), pattern="hidden")
    with pytest.raises(ToolError, match="denied it"):
        await said(SEARCH, Context(workspace), pattern="hidden", path="folder")


async def test_lines_around_a_match_are_shown_as_grep_shows_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 21)))
    found = await said(SEARCH, Context(tmp_path), pattern="line (5|7|15)$", around=1)
    assert found.splitlines() == [
        "a.txt-4- line 4",
        "a.txt:5: line 5",
        "a.txt-6- line 6",
        "a.txt:7: line 7",
        "a.txt-8- line 8",
        "--",
        "a.txt-14- line 14",
        "a.txt:15: line 15",
        "a.txt-16- line 16",
        "(3 matches in 1 of 1 file)",
    ]
    close = await said(SEARCH, Context(tmp_path), pattern="line (5|6)$", around=2)
    assert close.splitlines()[:6] == [
        *("a.txt-3- line 3", "a.txt-4- line 4", "a.txt:5: line 5", "a.txt:6: line 6"),
        *("a.txt-7- line 7", "a.txt-8- line 8"),
    ]


async def test_names_alone_counts_and_types(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("word\nword\nword word\n")
    (tmp_path / "b.md").write_text("word\n")
    (tmp_path / "c.ts").write_text("nothing\n")
    context = Context(tmp_path)
    assert (await said(SEARCH, context, pattern="word", show="files")).splitlines() == [
        *("a.py", "b.md", "(a match in 2 of 3 files)"),
    ]
    assert (await said(SEARCH, context, pattern="word", show="count")).splitlines() == [
        *("a.py: 3", "b.md: 1", "(4 matches in 2 of 3 files)"),
    ]
    assert (await said(SEARCH, context, pattern="word", type="md")).splitlines()[0] == "b.md:1: word"
    with pytest.raises(ToolError, match="Unknown file type 'cobol'; known: c, cpp"):
        await said(SEARCH, context, pattern="word", type="cobol")


async def test_a_match_may_span_lines_if_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"def f(\r\n    a,\r\n):\r\n    pass\r\n")
    context = Context(tmp_path)
    assert "no match" in await said(SEARCH, context, pattern=r"f\(\s*a,")
    found = await said(SEARCH, context, pattern=r"f\(\s*a,", multiline=True, around=1)
    assert found.splitlines()[:3] == ["a.py:1: def f(", "a.py:2:     a,", "a.py-3- ):"]


async def test_both_engines_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns of every kind over texts of every kind, beside a plain loop over lines."""
    texts = {
        "a.txt": "alpha beta\nGamma_1 = 2\n\ttab\n",
        "b.py": "def alpha(x):\n    return x  # beta\n",
        "ü.txt": "schön alpha\n",
        "sub/c.md": "# Title\n\nalpha.beta(gamma)\n[link](x)\n" * 3,
        "sub/d.txt": "one\rtwo alpha\r\nthree",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "latin.txt").write_bytes("schöner alpha-Wert\n".encode("cp1252"))
    (tmp_path / "wide.txt").write_bytes("alpha wide\n".encode("utf-16"))
    for pattern in (
        *("alpha", "alpha.beta", r"alpha\.beta", "^alpha", "alpha$", r"\bx\b", "a+l", "al?pha", "(?i)gamma", "sch.n"),
        *(
            "alpha|Title",
            "[gG]amma",
            r"\w+_\d",
            "(alpha) (beta)",
            "schö",
            r"\talpha|\ttab",
            "x{1}",
            r"\(x\)",
            "(?<=al)pha",
        ),
    ):
        found = await said(SEARCH, Context(tmp_path), pattern=pattern, limit=1000)
        with monkeypatch.context() as patch:
            patch.setattr(ripgrep, "ripgrep_program", lambda: None)
            patch.setattr(file_search, "required_literal", lambda _: None)
            assert found == await said(SEARCH, Context(tmp_path), pattern=pattern, limit=1000), pattern


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("needle", b"needle"),
        (r"needle_\d+ = compute", b" = compute"),
        (r"def \w+\(self", b"(self"),
        ("abc*def", b"def"),
        ("abcd?", b"abc"),
        ("abc+de", b"abc"),
        ("(abcdef)?xyz", b"xyz"),
        ("[abc]+hello[xyz]", b"hello"),
        ("a|bcdef", None),
        ("(?i)needle", None),
        ("ab", None),
        (r"\.\*\.", b".*."),
        ("abc{2}def", b"def"),
    ],
)
def test_what_every_match_contains_is_known_beforehand(pattern: str, literal: bytes | None) -> None:
    assert required_literal(pattern) == literal
