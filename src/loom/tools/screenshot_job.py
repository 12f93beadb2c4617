"""The program of the process that controls a browser (`python -m loom.tools.screenshot_job`): one page, one image.

The job is read from standard input; `page.png` and `shot.json` are written into its folder. It is a separate process so
that the browser and its driver get no secrets and are ended together.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from loom.struct_types import decode_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

PICTURE: Final = "page.png"
FACTS: Final = "shot.json"
_FLAGS: Final = (
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
"""Nothing bypasses the proxy: no names are resolved here, no datagrams are sent."""
_QUIET_MS: Final = 3_000
_PICTURE_MS: Final = 15_000
_START_MS: Final = 30_000


class ScreenshotJob(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    folder: str
    browser: str
    """The program; empty means the one installed by Playwright."""
    proxy_port: int
    proxy_user: str
    proxy_password: str
    width: int
    height: int
    full_page: bool
    max_height_px: int
    load_ms: int


class ScreenshotResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. With a `problem` there is no image."""

    problem: str = ""
    no_browser: bool = False
    url: str = ""
    title: str = ""
    status: int | None = None
    still_loading: bool = False
    page_height_px: int = 0


def main() -> None:
    from playwright.sync_api import Error, sync_playwright

    job = decode_json(sys.stdin.buffer.read(), ScreenshotJob)
    with sync_playwright() as playwright:
        if not job.browser and not Path(playwright.chromium.executable_path).exists():
            _finish(job, ScreenshotResult(problem="no browser found", no_browser=True))
        try:
            browser = _launch_browser(playwright, job)
            browser.on("disconnected", lambda _: _finish(job, ScreenshotResult(problem="the browser ended")))
            _finish(job, _take_screenshot(browser, job))
        except Error as error:
            first = error.message.strip().split("\n")[0]
            _finish(job, ScreenshotResult(problem=first.partition(": ")[2] or first))


def _finish(job: ScreenshotJob, shot: ScreenshotResult) -> NoReturn:
    """Exit at once: the parent ends the browser with this process, and closing a browser that hangs would hang too."""
    (Path(job.folder) / FACTS).write_bytes(msgspec.json.encode(shot))
    os._exit(0)


def _launch_browser(playwright: Playwright, job: ScreenshotJob) -> Browser:
    return playwright.chromium.launch(
        executable_path=job.browser or None,
        args=list(_FLAGS),
        chromium_sandbox=os.geteuid() != 0,
        env=dict(os.environ),
        proxy={
            "server": f"http://127.0.0.1:{job.proxy_port}",
            "bypass": "<-loopback>",
            "username": job.proxy_user,
            "password": job.proxy_password,
        },
        timeout=_START_MS,
    )


def _take_screenshot(browser: Browser, job: ScreenshotJob) -> ScreenshotResult:
    from playwright.sync_api import TimeoutError as Late

    context = browser.new_context(
        viewport={"width": job.width, "height": job.height}, accept_downloads=False, service_workers="block"
    )
    page = context.new_page()
    status, still_loading = None, False
    try:
        response = page.goto(job.url, wait_until="load", timeout=job.load_ms)
        status = response.status if response is not None else None
        page.wait_for_load_state("networkidle", timeout=_QUIET_MS)
    except Late:
        still_loading = True
    height = _draw(page, job)
    return ScreenshotResult(
        url=page.url, title=page.title()[:200], status=status, still_loading=still_loading, page_height_px=height
    )


def _draw(page: Page, job: ScreenshotJob) -> int:
    """Write the image; return the height of the whole page."""
    height = int(page.evaluate("Math.max(document.documentElement.scrollHeight, document.body?.scrollHeight ?? 0)"))
    shown: dict[str, Any] = {}
    if job.full_page:
        shown["full_page"] = True
        if height > job.max_height_px:
            shown["clip"] = {"x": 0, "y": 0, "width": job.width, "height": job.max_height_px}
    page.screenshot(path=Path(job.folder) / PICTURE, animations="disabled", caret="hide", timeout=_PICTURE_MS, **shown)
    return height


if __name__ == "__main__":
    main()
