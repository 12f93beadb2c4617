"""Measure the web client on a long session: 2,000 messages with 300 images in a real Chromium, by browser traces.

    python -m benchmarks.web

Opening: from the start of the navigation to the newest answer on the screen.
Scrolling: to the top through every page of the history, frame by frame; a long time between two frames is jank.
A task of the main thread delays every frame that is due meanwhile: the trace has the duration of each task and its
processor time, which does not depend on other load.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from loom.config import load_config
from loom.content.blocks import ContentBlock, TextBlock
from loom.content.inputs import Attachment
from loom.content.messages import Message, assistant, media_of, user
from loom.runtime import Runtime

MESSAGES: Final = 2_000
IMAGES: Final = 300
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
COUNTERS: Final = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")
WORDS: Final = "The gateway waits for the app, and the app for the database; **nobody** waits for the user. "

# Scrolls 200 px in every frame (12,000 px a second) and measures the time between frames.
SCROLL: Final = """async (direction) => {
  const chat = document.querySelector('.chat');
  const gaps = [];
  let before = performance.now(), still = 0;
  while (still < 5) {
    const [top, height] = [chat.scrollTop, chat.scrollHeight];
    chat.scrollTop += direction * 200;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - before);
    before = now;
    const isEnd = chat.scrollTop === top && chat.scrollHeight === height;
    still = isEnd && (direction > 0 || document.querySelector('.top-mark:empty')) ? still + 1 : 0;
  }
  return gaps;
}"""


def numbered_png(number: int) -> bytes:
    image = Image.new("RGB", (960, 600), (number * 37 % 200, number * 61 % 200, number * 17 % 200))
    ImageDraw.Draw(image).text((60, 60), f"image {number}", fill="white", font_size=60)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


async def fill(home: Path) -> str:
    """Write a session of about a year directly into the store; return its id."""
    config = load_config(environ={"LOOM_HOME": str(home), "LOOM_OFFLINE": "1"}, cwd=home)
    async with Runtime.open(config) as runtime:
        session = await runtime.session(title="A long conversation", workspace=str(home))
        messages: list[Message] = []
        for number in range(0, MESSAGES, 2):
            question: list[ContentBlock] = [TextBlock(f"Question {number}: {WORDS}")]
            # Three in ten questions have an image: IMAGES in total.
            if number // 2 * IMAGES * 2 % MESSAGES < IMAGES * 2:
                shot = Attachment(source=numbered_png(number), name=f"shot-{number}.png")
                question += (await runtime.library.ingest(shot)).blocks
            answer = f"## Answer {number}\n\n{WORDS * 4}\n\n- one\n- two\n- `three`"
            messages += [user(*question), assistant(answer)]
        await runtime.stores.sessions.append_to_head(session.id, messages)
        assert sum(len(media_of(message)) for message in messages) == IMAGES
        return session.id


class Daemon:
    def __init__(self, home: Path) -> None:
        environ = {**os.environ, "LOOM_HOME": str(home), "LOOM_OFFLINE": "1", "LOOM_MODEL": "loom/spark"}
        command = [sys.executable, "-m", "loom.daemon", "--port", "0"]
        self.process = subprocess.Popen(command, env=environ, cwd=home, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found
        self.url = found[0]
        self.token = (home / "state" / "token").read_text().strip()

    def link(self) -> str:
        request = urllib.request.Request(
            f"{self.url}/v1/links",
            data=b"{}",
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return self.url + json.load(answer)["url"]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def open_session(page: Page, url: str) -> dict[str, float]:
    """Return milliseconds from the start of the navigation, by the clock of the browser."""
    page.goto("about:blank")
    page.goto(url, wait_until="commit")
    page.wait_for_selector(f".answer:has-text('Answer {MESSAGES - 2}')")
    visible = page.evaluate("performance.now()")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    return {"first paint": paint, "newest answer": visible}


def measure(daemon: Daemon, session: str) -> dict[str, Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(daemon.link())
        runs = [open_session(page, f"{daemon.url}/#/s/{session}") for _ in range(5)]
        up, down = scroll(browser, page, -1), scroll(browser, page, 1)
        turns = page.locator(".turn").count()
        browser.close()
    return {
        **{name: round(statistics.median(run[name] for run in runs)) for name in runs[0]},
        "turns loaded": turns,
        **{f"up, loading: {name}": value for name, value in up.items()},
        **{f"down: {name}": value for name, value in down.items()},
    }


def scroll(browser: Browser, page: Page, direction: int) -> dict[str, float]:
    """Return the time between frames, the average work of the main thread per frame, and figures of its tasks."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = counters(session)
    browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
    gaps = sorted(page.evaluate(SCROLL, direction))
    trace = json.loads(browser.stop_tracing())
    after = counters(session)
    work = {name: round((after[name] - before[name]) * 1000 / len(gaps), 2) for name in COUNTERS}
    return {
        "frames": len(gaps),
        "p50": round(quantile(gaps, 0.5), 1),
        "p95": round(quantile(gaps, 0.95), 1),
        "p99": round(quantile(gaps, 0.99), 1),
        "worst": round(gaps[-1]),
        **{f"{name.removesuffix('Duration').lower()} a frame": value for name, value in work.items()},
        **tasks(trace["traceEvents"]),
    }


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def tasks(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return figures of the tasks of the page's main thread by the trace: duration and processor time."""
    main = {(one["pid"], one["tid"]) for one in events if one.get("args", {}).get("name") == "CrRendererMain"}
    ran = [
        one for one in events if one["name"] == "RunTask" and one.get("ph") == "X" and (one["pid"], one["tid"]) in main
    ]
    found: dict[str, float] = {"tasks over 50 ms": sum(one["dur"] > 50_000 for one in ran)}
    for name, key in (("task", "dur"), ("task, processor", "tdur")):
        ordered = sorted(one.get(key, 0) / 1000 for one in ran) or [0.0]
        found |= {f"{name} p95": round(quantile(ordered, 0.95), 2), f"{name} p99": round(quantile(ordered, 0.99), 1)}
        found[f"{name} worst"] = round(ordered[-1], 1)
    return found


def counters(browser: CDPSession) -> dict[str, float]:
    return {one["name"]: one["value"] for one in browser.send("Performance.getMetrics")["metrics"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        session = asyncio.run(fill(home))
        daemon = Daemon(home)
        try:
            found = measure(daemon, session)
        finally:
            daemon.stop()
    print(f"{MESSAGES} messages, {IMAGES} images (milliseconds)")
    for name, value in found.items():
        print(f"  {name:<34}{value:>10}")


if __name__ == "__main__":
    main()
