"""The newcomer's first ten minutes (docs/cli.md), without a key and without a network: a namespace with no interfaces.

What the commands mean is compared, not how it is spaced.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from cli.loom_command import COMMAND, Ran
from loom.providers.samples import samples
from loom.testing import sample_pdf

OFFLINE = ["unshare", "-n", "--"] if os.name == "posix" and os.geteuid() == 0 and shutil.which("unshare") else []
"""Only root may take the network away; for others nothing is configured that could use it."""


class Newcomer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for sample in samples():
            (folder / sample.name).write_bytes(sample.data)
        pages = ["Introduction."] * 30
        pages[2], pages[13] = "A timeout of 30 seconds is usual.", "Raise the timeout to 60 seconds."
        (folder / "report.pdf").write_bytes(sample_pdf(*pages))
        (folder / "home").mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        self.environ = {**kept, "LOOM_HOME": str(folder / "home"), "PYTHONUTF8": "1"}

    def types(self, *words: str) -> Ran:
        ran = subprocess.run(
            [*OFFLINE, *COMMAND, *words],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=180,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_a_newcomer_gets_through_them_offline(tmp_path: Path):
    newcomer = Newcomer(tmp_path)

    look = newcomer.types("what is wrong here?", "-a", "login.png")
    assert look.code == 0
    assert "no API key and no local model found, so loom/spark answers" in look.err
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
    document = next(line for line in context.out.splitlines() if "[report.pdf" in line)
    assert context.code == 0
    assert picture.count("● full") + picture.count("◐ low") == 2
    assert document.count("● full") == 2
    assert "claude-opus-5 needs a key: loom keys set anthropic" in context.out

    tree = newcomer.types("tree").out.splitlines()
    assert [line.split()[1] for line in tree[1:]] == ["●", "●", "●", "●", "●", "◉"]
    assert tree[1].endswith("▣")
    node = tree[2].split()[0]
    assert newcomer.types("ask", "--from", node, "shorter").code == 0
    assert "8 messages, 2 leaves" in newcomer.types("tree").out

    doctor = newcomer.types("doctor")
    assert doctor.code == 0
    for words in ("✔ python", "✔ store", "1 sessions", "✔ spark", "○ anthropic", "→ loom keys set anthropic"):
        assert words in doctor.out, doctor.out
