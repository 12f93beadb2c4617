"""`loom usage`: tokens and cost by day, model and session."""

from __future__ import annotations

import time
from pathlib import Path

from cli.loom_command import Loom
from loom.testing import sample_png


def test_usage_is_summed_by_day_model_and_session(tmp_path: Path):
    loom = Loom(tmp_path)
    assert loom("usage").err.strip() == "No answers in the last 30 days."
    loom("!echo one")
    loom("-c", "!echo two")
    loom("!echo three")

    rows = loom("usage", "--json").rows
    assert [(row["title"], row["answers"]) for row in rows] == [("!echo one", 2), ("!echo three", 1)]
    day, *_, total = loom("usage").out.splitlines()[1:]
    assert day.split()[:2] == [time.strftime("%Y-%m-%d"), "3"] and total.split()[:2] == ["total", "3"]
    by_model = loom("usage", "--by", "model", "--days", "1").out.splitlines()
    assert by_model[1].split()[:2] == ["loom/spark", "3"] and by_model[1].endswith("$0")
    assert len(loom("usage", "--by", "session").out.splitlines()) == 4


def test_the_use_of_tools_is_counted_with_failures_media_and_tokens(tmp_path: Path):
    loom = Loom(tmp_path)
    assert loom("usage", "--by", "tool").err.strip() == "No tool calls in the last 30 days."
    loom.file("a.txt", "alpha beta " * 100)
    loom.file("a.png", sample_png())
    loom('!tool read_file {"path": "a.txt"}')
    loom("-c", '!tool read_file {"path": "a.png"}')
    loom('!tool read_file {"path": "nosuch.txt"}')
    loom("!tool list_files {}")

    first, second = loom("usage", "--by", "tool").out.splitlines()[1:]
    assert first.split()[:4] == ["read_file", "3", "1", "1"] and second.split()[:4] == ["list_files", "1", "0", "0"]
    rows = loom("usage", "--by", "tool", "--json").rows
    assert sorted((row["tool"], row["calls"], row["failed"], row["media"]) for row in rows) == [
        ("list_files", 1, 0, 0),
        ("read_file", 1, 1, 0),
        ("read_file", 2, 0, 1),
    ]
    assert max(row["text_tokens"] for row in rows) > 250
