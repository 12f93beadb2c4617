"""One built client, one daemon and one Chromium for all of these tests; every test gets a page of its own."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from browser.desk import Daemon, Desk, OpenDesk, context_of, launch
from browser.samples import write_workspace

expect.set_options(timeout=15_000)  # the machine that runs the tests may be busy
MAKER = Path(__file__).resolve().parents[2] / "web/make.py"


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def built() -> Path:
    maker = runpy.run_path(str(MAKER))
    maker["make"]()
    return maker["BUILT"]


@pytest.fixture(scope="session")
def daemon(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    running = Daemon(tmp_path_factory.mktemp("browser") / "home")
    write_workspace(running.workspace)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of one module: while it lives, no test with an event loop of its own can run in this process."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def open_desk(chromium: Browser, daemon: Daemon) -> Iterator[OpenDesk]:
    """`open_desk(scheme="dark", phone=True)`: a page that is let in. A script error fails the test."""
    contexts: list[BrowserContext] = []
    desks: list[Desk] = []

    def opened(*, on: Daemon = daemon, path: str = "/", **look: object) -> Desk:
        context = context_of(chromium, storage_state=on.cookies(chromium), **look)
        contexts.append(context)
        desk = Desk(context.new_page(), on)
        desks.append(desk)
        return desk.enter(path)

    yield opened
    for context in contexts:
        context.close()
    assert [error for desk in desks for error in desk.errors] == []


@pytest.fixture
def desk(open_desk: OpenDesk) -> Desk:
    return open_desk()
