"""The newcomer's first ten minutes (docs/cli.md), from a fresh virtual environment that holds the built package and
nothing of this repository, without a key and without a network: a namespace with no interfaces.

What the commands mean is compared, not how it is spaced.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.loom_command import Ran
from loom.providers.samples import samples
from loom.testing import sample_pdf

OFFLINE = ["unshare", "-n", "--"] if os.name == "posix" and os.geteuid() == 0 and shutil.which("unshare") else []
"""Only root may take the network away; for others nothing is configured that could use it."""


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, as `pip install .` gives it to somebody who has nothing yet."""
    fresh = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    subprocess.run([fresh / "bin/pip", "install", "-q", ROOT], check=True, capture_output=True)
    return fresh / "bin/loom"


class Newcomer:
    def __init__(self, folder: Path, command: Path) -> None:
        self.folder = folder
        self.command = command
        for sample in samples():
            (folder / sample.name).write_bytes(sample.data)
        pages = ["Introduction."] * 30
        pages[2], pages[13] = "A timeout of 30 seconds is usual.", "Raise the timeout to 60 seconds."
        (folder / "report.pdf").write_bytes(sample_pdf(*pages))
        (folder / "home").mkdir()
        kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        self.environ = {**kept, "LOOM_HOME": str(folder / "home"), "PYTHONUTF8": "1"}

    def types(self, *words: str, typed: bytes = b"") -> Ran:
        ran = subprocess.run(
            [*OFFLINE, self.command, *words],
            cwd=self.folder,
            env=self.environ,
            input=typed,
            capture_output=True,
            timeout=180,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_a_newcomer_gets_through_them_offline(tmp_path: Path, installed: Path):
    newcomer = Newcomer(tmp_path, installed)

    look = newcomer.types("what is wrong here?", "-a", "login.png")
    assert look.code == 0
    assert "No API key and no local model found: using loom/spark" in look.err
    assert "loom keys set anthropic" in look.err
    assert re.search(r"screenshot.*900×500", look.out)
    assert "Error 502" in look.out

    report = newcomer.types("-c", "report.pdf", "which pages talk about timeouts?")
    assert report.code == 0
    assert "no API key" not in report.err
    assert "report.pdf, 30 pages" in report.err
    assert "sending 1-20, more with report.pdf#21-30" in report.err
    assert re.search(r"Pages 3 and 14", report.out)

    assert newcomer.types("-c", "and the first picture again?").code == 0

    context = newcomer.types("context", "-m", "spark,claude-opus-5")
    picture = next(line for line in context.out.splitlines() if "[Image #1] login.png" in line)
    document = next(line for line in context.out.splitlines() if "of report.pdf" in line)
    assert context.code == 0
    assert picture.count("● full") + picture.count("◐ low") == 2
    assert document.count("○ text") == 2, "the next turn is the second after it"
    assert "claude-opus-5 needs a key: loom keys set anthropic" in context.out

    tree = newcomer.types("tree").out.splitlines()
    assert [line.split()[1] for line in tree[1:]] == ["●", "●", "●", "●", "●", "◉"]
    assert tree[1].endswith("▣")
    node = tree[2].split()[0]
    assert newcomer.types("ask", "--from", node, "shorter").code == 0
    assert "8 messages, 2 branches" in newcomer.types("tree").out

    found = newcomer.types("sessions", "search", "raise the timeout")
    assert found.code == 0 and "what is wrong here?" in found.out and "▤" in found.out

    key = newcomer.types("keys", "set", "mistral", typed=b"sk-mistral-1234567890\n")
    assert key.code == 0
    assert "could not be checked (mistral cannot be reached), stored in" in key.out

    doctor = newcomer.types("doctor")
    assert doctor.code == 0
    expected = ["✔ python", "✔ store", "1 session", "✔ spark", "○ anthropic", "→ loom keys set anthropic", "✔ mistral"]
    for words in [*expected, "✔ pdf", " terminal ", " clipboard ", "○ ollama", "○ daemon"]:
        assert words in doctor.out, doctor.out
