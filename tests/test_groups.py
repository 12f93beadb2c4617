"""Tests that share what they stand on (the built client, a database server) stay together in one worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_FAILING = """
import pytest

@pytest.mark.xdist_group("a group")
@pytest.mark.parametrize("way", ["a@b", "plain"])
def test_fails(way):
    assert way == "plain"

def test_passes():
    pass
"""


@pytest.mark.xdist_group("together")
def test_groups_are_kept_together(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@together")


def test_a_failed_test_of_a_group_is_the_only_one_that_runs_again(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_failing.py").write_text(_FAILING)

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:timeout", "--rootdir", str(tmp_path), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert "1 failed, 2 passed" in run("-n", "2", "--dist", "loadgroup")
    again = run("-n", "0", "--last-failed", "--last-failed-no-failures", "none")
    assert "1 failed" in again and "passed" not in again
