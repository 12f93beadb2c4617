"""`loom usage`: tokens and cost by day, model and session."""

from __future__ import annotations

import time
from pathlib import Path

from cli.loom_command import Loom


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
