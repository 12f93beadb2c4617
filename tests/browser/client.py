"""A person's client: a daemon in a process of its own that can be killed, and Chromium with a page on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright, Request, Route, expect

CHROMIUM: Final = "/usr/bin/chromium"
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE: Final = {"width": 1440, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
TABLET: Final = {"width": 820, "height": 1180}


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))


class Daemon:
    """`start` after `kill` listens on the same address and finds what was there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "workspace"
        self.workspace.mkdir(parents=True)
        self.url = ""
        self._state: Any = None
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
        environ |= {"LOOM_HOME": str(self.home), "LOOM_OFFLINE": "1", "LOOM_MODEL": "loom/spark"}
        command = [sys.executable, "-m", "loom.daemon", "--port", self.url.rpartition(":")[2] or "0"]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environ, cwd=self.workspace, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout
        found = re.search(r"http://\S+", self._process.stdout.readline())
        assert found, (self.home / "log").read_text()
        self.url = found[0]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            assert self._process.stdout
            self._process.stdout.close()
            self._process = None

    def ask(self, path: str, body: object = None, method: str = "") -> Any:
        """As a program with the token would."""
        token = (self.home / "state" / "token").read_text().strip()
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=headers, method=method or None)
        with urllib.request.urlopen(request, timeout=30) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None

    def status(self, path: str, key: str) -> int:
        """How a request with the key of a user is answered."""
        request = urllib.request.Request(f"{self.url}{path}", headers={"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def events(self, session: str, after: int) -> Iterator[str]:
        """The types of the events of a session, as they happen."""
        token = (self.home / "state" / "token").read_text().strip()
        url = f"{self.url}/v1/sessions/{session}/events?after={after}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])["type"]

    def link(self) -> str:
        """An address that lets a browser in, once."""
        return f"{self.url}{self.ask('/v1/links', {})['url']}"

    def cookies(self, browser: Browser) -> Any:
        """What a browser holds after it came in by a link; kept, because every page of every test needs it."""
        if self._state is None:
            context = browser.new_context()
            context.new_page().goto(self.link())
            self._state = context.storage_state()
            context.close()
        return self._state


class Client:
    """A page that is let in, with the words that tests use for what a person does."""

    def __init__(self, page: Page, daemon: Daemon) -> None:
        self.page = page
        self.daemon = daemon
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._note)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def is_phone(self) -> bool:
        return self.page.viewport_size == PHONE

    @property
    def is_wide(self) -> bool:
        return self.page.viewport_size not in (PHONE, TABLET)

    @property
    def foreign(self) -> list[str]:
        """Requests to anywhere but the daemon."""
        own = (self.daemon.url, self.daemon.url.replace("http", "ws"), "data:", "blob:")
        return [url for url in self.requests if not url.startswith(own)]

    def enter(self, path: str = "/") -> Client:
        self.page.goto(f"{self.daemon.url}{path}")
        if path == "/":
            expect(self.page.locator("button.sample")).to_have_count(4)
        else:
            expect(self.user_messages.first).to_be_visible()
        return self

    def hold(self, url: str) -> Callable[[], None]:
        """Hold back the requests to `url`; the function that this returns waits for the first and lets them go on."""
        held: list[Route] = []

        def keep(route: Route) -> None:
            held.append(route)

        def release() -> None:
            ends = time.monotonic() + 15
            while not held:
                assert time.monotonic() < ends, f"nothing asked for {url}"
                self.page.wait_for_timeout(20)
            self.page.unroute(url, keep)  # lets those that are held go on

        self.page.route(url, keep)
        return release

    @property
    def message_box(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    @property
    def send_button(self) -> Locator:
        return self.page.locator("button.send")

    def send(self, text: str) -> None:
        self.message_box.fill(text)
        self.send_button.click()

    def send_and_wait(self, text: str) -> Locator:
        """Send, and wait for the whole answer."""
        before = self.answers.count()
        self.send(text)
        expect(self.answers).to_have_count(before + 1)
        self.wait_idle()
        return self.answers.last

    def wait_idle(self) -> None:
        expect(self.page.locator(".answer[aria-busy=true]")).to_have_count(0)

    @property
    def answers(self) -> Locator:
        return self.page.locator(".answer")

    @property
    def user_messages(self) -> Locator:
        return self.page.locator("article.user-message[data-node]")

    @property
    def attachments(self) -> Locator:
        return self.page.get_by_role("list", name="Attachments").get_by_role("listitem")

    def edit_last(self, text: str) -> None:
        """Say the last message differently, and wait for the answer."""
        self.user_messages.last.hover()
        self.user_messages.last.get_by_role("button", name="Edit and resend").click()
        self.message_box.fill(f"!echo {text}")
        self.send_button.click()
        expect(self.answers.last).to_contain_text(text)
        self.wait_idle()

    def choose_in_list(self, item: str) -> Locator:
        """Choose something from the menu of the session that is open; gives its row."""
        row = self.page.locator(".session.here")
        row.hover()
        row.get_by_role("button", name=re.compile("Actions for")).click()
        self.page.get_by_role("menuitem", name=item).click()
        return row

    @property
    def session(self) -> str:
        """The id of the open session, once the address tells it."""
        self.page.wait_for_url(re.compile(r"#/s/"))
        return self.page.url.rpartition("/")[2]

    def paste_files(self, *files: tuple[str, str, str]) -> None:
        """What the browser does on Ctrl+V of (name, type, base64): a paste event with files."""
        self.page.evaluate(_PASTE, list(files))

    def drop_files(self, *files: tuple[str, str, str]) -> None:
        self.page.evaluate(_DROP, list(files))


_TRANSFER: Final = """
    const transfer = new DataTransfer();
    for (const [name, type, base64] of files) {
      const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
      transfer.items.add(new File([bytes], name, { type }));
    }
"""
_PASTE: Final = (
    "(files) => {" + _TRANSFER + "document.querySelector('#message').dispatchEvent("
    "new ClipboardEvent('paste', { clipboardData: transfer, bubbles: true, cancelable: true })); }"
)
_DROP: Final = (
    "(files) => {" + _TRANSFER + "for (const type of ['dragenter', 'dragover', 'drop']) "
    "document.body.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true })); }"
)

OpenClient = Callable[..., Client]


def context_of(
    browser: Browser, *, scheme: Any = "light", phone: bool = False, tablet: bool = False, **options: Any
) -> BrowserContext:
    """A browser context. Without a service worker unless a test asks for one: it would answer instead of the daemon."""
    options.setdefault("service_workers", "block")
    return browser.new_context(
        viewport=PHONE if phone else TABLET if tablet else WIDE,
        color_scheme=scheme,
        has_touch=phone or tablet,
        is_mobile=phone or tablet,
        **options,
    )
