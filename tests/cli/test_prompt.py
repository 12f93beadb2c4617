"""`loom prompt` as a person reads it."""

from __future__ import annotations

from pathlib import Path

from cli.loom_command import Loom


def test_the_prompt_of_a_new_session_is_printed(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_PROMPT__DEFAULT="true")
    (loom.folder / "AGENTS.md").write_text("Speak plainly.\n")
    printed = loom("prompt").out
    assert "# How to work" in printed
    assert "- edit_file:" in printed
    assert str(loom.folder) in printed
    assert printed.endswith("Speak plainly.\n")
