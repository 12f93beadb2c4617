"""One built client for all of these tests, one daemon for each half of them; every test gets a page of its own."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from browser.client import Client, Daemon, OpenClient, context_of, launch
from browser.echo_server import echo_server
from browser.samples import write_workspace
from patience import PATIENCE_SECONDS

expect.set_options(timeout=PATIENCE_SECONDS * 1_000)
MAKER = Path(__file__).resolve().parents[2] / "web/make.py"
SECOND_HALF = ("test_context", "test_recovery", "test_rendering", "test_screens")
"""In a process of their own: these take as long as the others together, and no other tests take as long."""


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(f"browser {1 + (item.path.stem in SECOND_HALF)}"))


@pytest.fixture(scope="session")
def built() -> Path:
    maker = runpy.run_path(str(MAKER))
    maker["make"]()
    return maker["BUILT"]


@pytest.fixture(scope="session")
def daemon(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with echo_server() as echo_model:
        running = Daemon(tmp_path_factory.mktemp("browser") / "home")
        write_workspace(running.workspace, echo_model)
        running.start()
        yield running
        running.stop()


@pytest.fixture
def own_daemon(built: Path, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that a test may kill, or change."""
    running = Daemon(tmp_path / "home")
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
def open_client(chromium: Browser, daemon: Daemon) -> Iterator[OpenClient]:
    """`open_client(scheme="dark", phone=True)`: a page that is let in. A script error fails the test."""
    contexts: list[BrowserContext] = []
    clients: list[Client] = []

    def opened(*, on: Daemon = daemon, path: str = "/", **look: object) -> Client:
        context = context_of(chromium, storage_state=on.cookies(chromium), **look)
        contexts.append(context)
        client = Client(context.new_page(), on)
        clients.append(client)
        return client.enter(path)

    yield opened
    for context in contexts:
        context.close()
    assert [error for client in clients for error in client.errors] == []


@pytest.fixture
def client(open_client: OpenClient) -> Client:
    return open_client()
