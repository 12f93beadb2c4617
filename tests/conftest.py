"""For all tests: generated cases are the same in every run. The benchmarks look further.

With `LOOM_TEST_PROFILE=quick` each property is tried on a few cases only, and programs of Debian packages are hidden:
the fast loop of `make check` needs only Python.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from loom.formats.worker import shared_pool

QUICK: Final = os.environ.get("LOOM_TEST_PROFILE") == "quick"
QUICK_EXAMPLES: Final = 10
PACKAGED_PROGRAMS: Final = (
    *("chromium", "soffice", "libreoffice", "tesseract", "ffmpeg", "ffprobe", "magick", "convert", "gs", "qpdf"),
    *("pdftoppm", "pdftotext", "rg", "bwrap", "strace", "zsh", "tmux", "sshd", "psql", "redis-server", "Xvfb", "xclip"),
    *("sway", "wl-copy", "wl-paste", "node", "npm", "npx"),
)
"""Programs that `tests/packages.sh` installs. A machine that runs only the fast tests may have none of them."""

# How long a busy machine takes to make an example says nothing about the test.
settings.register_profile("seeded", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("seeded"), max_examples=QUICK_EXAMPLES)
settings.load_profile("quick" if QUICK else "seeded")

# A shell that runs the tests in the background lets them ignore Ctrl+C, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apply the quick profile also where a test states its own number of examples."""
    for item in items if QUICK else ():
        test = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)  # hypothesis has no public name for it
        if own is not None:
            few = settings(own, max_examples=min(own.max_examples, QUICK_EXAMPLES))
            test._hypothesis_internal_use_settings = few


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Store failed tests without the group that xdist adds to their names: `--last-failed` would not find them, and
    would run all tests."""
    result = yield
    cache: pytest.Cache | None = getattr(session.config, "cache", None)  # there is none without its plugin
    if cache is not None and not hasattr(session.config, "workerinput"):
        failed: dict[str, bool] = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {re.sub(r"@[^@\]]*$", "", name): it for name, it in failed.items()})
    return result


@pytest.fixture(scope="session", autouse=QUICK)
def _hidden_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run the fast tests with a PATH that lacks `PACKAGED_PROGRAMS`, so that a test which needs one fails here, too."""
    before = os.environ["PATH"]
    folders: list[str] = []
    for folder in before.split(os.pathsep):
        if any(shutil.which(name, path=folder) for name in PACKAGED_PROGRAMS):
            visible = tmp_path_factory.mktemp("programs")
            for program in Path(folder).iterdir():
                if program.name not in PACKAGED_PROGRAMS:
                    (visible / program.name).symlink_to(program)
            folders.append(str(visible))
        else:
            folders.append(folder)
    os.environ["PATH"] = os.pathsep.join(folders)
    yield
    os.environ["PATH"] = before


@pytest.fixture(scope="session", autouse=True)
def _warm_workers() -> Iterator[None]:
    """Keep worker processes between tests: each runtime would otherwise start its own."""
    with shared_pool():
        yield
