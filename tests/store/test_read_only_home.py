"""A home that can only be read (a backup, a mounted image): the command shows everything and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.loom_command import Loom
from frozen import read_only
from loom.testing import sample_png


@pytest.fixture
def loom(tmp_path: Path) -> Loom:
    loom = Loom(tmp_path)
    (loom.folder / "shot.png").write_bytes(sample_png(1700, 100))
    assert loom("what is this?", "shot.png").code == 0
    return loom


def test_conversations_can_be_listed_read_searched_planned_and_exported(loom: Loom):
    before = {path: path.stat().st_mtime_ns for path in loom.home.rglob("*")}
    with read_only(loom.home):
        for words, shown in (
            (("sessions",), "what is this?"),
            (("sessions", "search", "this"), "what is this?"),
            (("log",), "shot.png"),
            (("tree",), "what is this?"),
            (("context", "--model", "anthropic/claude-sonnet-4"), "shot.png"),
            (("sessions", "export", "1"), "## you"),
            (("doctor",), "all hashes valid"),
        ):
            ran = loom(*words)
            assert (ran.code, shown in ran.out) == (0, True), (words, ran)
        assert {path: path.stat().st_mtime_ns for path in loom.home.rglob("*")} == before


def test_what_would_be_written_is_refused_with_the_next_step(loom: Loom):
    with read_only(loom.home):
        for words in (("go on", "-c"), ("sessions", "rename", "1", "another"), ("sessions", "delete", "1", "--yes")):
            ran = loom(*words)
            assert ran.code != 0
            assert "read-only" in ran.err and "write access" in ran.err, ran
    assert "what is this?" in loom("sessions").out
