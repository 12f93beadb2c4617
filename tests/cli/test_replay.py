"""`loom replay`: the questions of a conversation again, with another model, side by side."""

from __future__ import annotations

from pathlib import Path

from cli.loom_command import Loom


def test_a_replay_shows_both_answers_and_leaves_the_original_alone(tmp_path: Path):
    loom = Loom(tmp_path)
    notes = loom.file("notes.txt", "alpha\n")
    loom('!tool read_file {"path": "notes.txt"}')
    loom("-c", "!echo second")
    before = loom("log", "--json").out
    notes.unlink()

    shown = loom("replay", "-m", "loom/spark")
    assert "1. !tool read_file" in shown.out and "2. !echo second" in shown.out
    assert shown.out.count("│") > 4 and "1 tool call, " in shown.out
    assert "Stored as session" in shown.err
    first, second, *_ = loom("sessions", "--json").rows
    assert first["title"].endswith("(replay with spark)") and second["title"].startswith("!tool read_file")
    assert loom("log", second["id"], "--json").out == before

    rows = loom("replay", second["id"], "-m", "loom/spark", "--json").rows
    assert [row["question"] for row in rows] == ['!tool read_file {"path": "notes.txt"}', "!echo second"]
    assert rows[0]["original"]["text"] == rows[0]["replay"]["text"] and "alpha" in rows[0]["replay"]["text"]

    live = loom("replay", second["id"], "-m", "loom/spark", "--json", "--tools", "live").rows
    assert "alpha" not in live[0]["replay"]["text"], "the file is gone"


def test_what_cannot_be_replayed_is_said_and_nothing_is_stored(tmp_path: Path):
    loom = Loom(tmp_path)
    loom("!echo one")
    assert "not found" in loom("replay", "-m", "nosuch").err
    assert "Session 'nosuch' not found" in loom("replay", "nosuch", "-m", "loom/spark").err
    assert len(loom("sessions", "--json").rows) == 1
