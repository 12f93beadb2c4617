"""docs/comparison.md: Loom's programs run as they stand, and the lines are counted."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "comparison.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
OTHERS = re.findall(r"<summary>(.*?)</summary>\n\n```py\n(.*?)```", PAGE, re.DOTALL)


def count_lines(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip())


@pytest.mark.parametrize(
    ("number", "said"), [(0, "90×50"), (1, "5"), (2, "navy"), (3, "-I would begin"), (4, "drafts/notes.txt")]
)
def test_the_program_runs(number: int, said: str, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LOOM_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    environ["PYTHONUTF8"] = "1"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[number]],
        cwd=tmp_path,
        env=environ | ({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_the_table_counts_the_lines_of_the_page() -> None:
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [count_lines(code) for code in PROGRAMS]
    libraries = list(dict.fromkeys(name for name, _ in OTHERS))
    for column, library in enumerate(libraries, 1):
        counted = [count_lines(code) for name, code in OTHERS if name == library]
        assert [int(row[column]) for row in rows] == counted, library


def test_the_programs_of_the_others_are_python() -> None:
    assert len(OTHERS) == 20
    for _, code in OTHERS:
        ast.parse(code)
