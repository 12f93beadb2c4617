"""Every screen in light, in dark and on a phone: no accessibility violation, and a picture of it.

`LOOM_SCREENSHOTS=1` keeps the pictures in docs/images, where the documentation shows them.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from browser.desk import WIDE, Daemon, Desk, OpenDesk
from browser.samples import carried, manual, write_workspace

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
TALL: Any = {"width": 1240, "height": 1580}  # the whole story in one picture
FIRST = "What is wrong on this page, and what does the leaflet say about the timeout?"
LOW: Any = {"width": 1440, "height": 620}
RAISED, OVERLOADED = "Raise the timeout", "A model that is away"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"scheme": "light"},
    "dark": {"scheme": "dark"},
    "mobile": {"scheme": "light", "phone": True},
}


@pytest.fixture(scope="module")
def house(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of its own, so that the list shows what a person would have there."""
    running = Daemon(tmp_path_factory.mktemp("screens") / "home")
    write_workspace(running.workspace)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def told(house: Daemon) -> str:
    """A conversation with a picture, a tool, a document and a branch; and others for the list."""
    samples = {
        one["name"]: [{"type": "media", "digest": one["media"]["digest"], "name": one["name"]}]
        for one in house.ask("/v1/samples")["samples"]
    }
    for title, words, blocks in (
        ("Refactor the uploader", "Read deploy.log and say when it went wrong.", []),
        ("How the gateway waits", "Which page says how long the gateway waits?", samples["leaflet.pdf"]),
        ("Receipt of the café", "How much was it in all?", samples["receipt.jpg"]),
    ):
        other = house.ask("/v1/sessions", {"title": title})["id"]
        _heard(house, other, {"text": words, "blocks": blocks})
    session = house.ask("/v1/sessions", {"title": "Nobody can sign in"})["id"]
    shown = {
        FIRST: [*samples["login.png"], *samples["leaflet.pdf"]],
        "Now look at shots/gateway.png": [],
        "How long may the gateway wait?": [],
    }
    for words, blocks in shown.items():
        _heard(house, session, {"text": words, "blocks": blocks})
    asked = house.ask(f"/v1/sessions/{session}/messages")["messages"]
    last = next(one for one in reversed(asked) if one["role"] == "user")
    better = "What does the leaflet say about the error 502?"
    _heard(house, session, {"text": better, "parent": last["parent"]})
    return session


# Pictures that are in sight have arrived (those far below are fetched when somebody scrolls there).
DRAWN = """Promise.all([...document.images].filter((one) => {
  const { top, bottom, left, right } = one.getBoundingClientRect();
  return bottom > 0 && top < innerHeight && right > 0 && left < innerWidth && one.checkVisibility();
}).map((one) => one.decode().catch(() => 0)))"""

# What moves once has come to rest; what pulses for ever is left alone.
SETTLED = """Promise.all(document.getAnimations()
  .filter((one) => one.effect.getComputedTiming().iterations !== Infinity).map((one) => one.finished))"""


def _heard(house: Daemon, session: str, message: dict[str, Any]) -> None:
    """Send, and read the events until the turn is over."""
    after = house.ask(f"/v1/sessions/{session}")["last_seq"]
    house.ask(f"/v1/sessions/{session}/messages", message)
    for kind in house.events(session, after):
        if kind in ("turn_finished", "turn_failed"):
            return


@pytest.mark.parametrize("look", LOOKS)
def test_screens_have_no_accessibility_violation(
    open_desk: OpenDesk, house: Daemon, told: str, look: str, tmp_path: Path
) -> None:
    folder = IMAGES if os.environ.get("LOOM_SCREENSHOTS") else tmp_path
    folder.mkdir(exist_ok=True)
    desk = open_desk(on=house, **LOOKS[look])
    found: dict[str, list[str]] = {}
    for name, opened in SCREENS.items():
        opened(desk, told)
        desk.page.evaluate(DRAWN)
        _keep(desk.page.screenshot(animations="disabled"), folder / f"{name}-{look}.png")
        if violations := _violations(desk):
            found[name] = violations
    for one in house.ask("/v1/sessions")["sessions"]:
        if one["title"] in (RAISED, OVERLOADED):
            house.ask(f"/v1/sessions/{one['id']}", method="DELETE")
    assert found == {}
    assert desk.foreign == []


def _keep(screenshot: bytes, file: Path) -> None:
    """With 256 colours, which a page does not miss: a third of the bytes."""
    Image.open(io.BytesIO(screenshot)).convert("RGB").quantize(256).save(file, optimize=True)


def _violations(desk: Desk) -> list[str]:
    """Styles that move are finished first: axe measures the colours that it sees."""
    desk.page.evaluate(SETTLED)
    results = Axe().run(desk.page).response["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in results for node in one["nodes"][:3]]


# How to get to each screen, in the order in which a page walks through them ------------------------------------------


def _start(desk: Desk, _: str) -> None:
    expect(desk.page.locator(".sample")).to_have_count(4)


def _chat(desk: Desk, session: str) -> None:
    if not desk.is_phone:
        desk.page.set_viewport_size(TALL)
    desk.page.goto(f"{desk.daemon.url}/#/s/{session}")
    expect(desk.answers).to_have_count(3)
    expect(desk.asked.first.locator(".badge").first).to_be_visible()
    desk.page.locator(".chat").evaluate("(chat) => chat.scrollTo(0, 0)")


def _composer(desk: Desk, session: str) -> None:
    if not desk.is_phone:
        desk.page.set_viewport_size(WIDE)
    desk.page.locator(".chat").evaluate("(chat) => chat.scrollTo(0, chat.scrollHeight)")
    sample = desk.daemon.workspace / "shots/login.png"
    desk.paste_files(carried("login.png", sample.read_bytes()))
    desk.page.locator("[data-pick=files]").set_input_files(manual())
    expect(desk.attachments).to_have_count(2)
    desk.attachments.get_by_role("button", name=re.compile("pages 1–20")).click()
    desk.box.fill("Compare it with the manual")
    expect(desk.page.locator(".composer .pages li.in")).to_have_count(20)


def _inspector(desk: Desk, _: str) -> None:
    desk.page.get_by_role("button", name=re.compile("The next request")).click()
    drawer = desk.page.get_by_role("complementary", name="Context inspector")
    expect(drawer.locator("tfoot")).to_contain_text("free")
    expect(drawer.locator(".columns li")).to_have_count(3)


def _words(desk: Desk, _: str) -> None:
    drawer = desk.page.get_by_role("complementary", name="Context inspector")
    row = drawer.locator("tbody tr", has=desk.page.get_by_role("button", name=re.compile("^Open login.png"))).first
    row.get_by_role("button", name=re.compile("text, .* Change")).click()
    desk.page.get_by_role("menuitem", name=re.compile("^edit the words")).click()
    dialog = desk.page.get_by_role("dialog", name="What the blind will read")
    expect(dialog.get_by_role("textbox", name="Words")).to_have_value(re.compile("502"))


def _forest(desk: Desk, _: str) -> None:
    _clear(desk)
    desk.page.locator(".chat").press("t")
    expect(desk.page.get_by_role("treeitem", selected=True)).to_be_visible()


def _models(desk: Desk, _: str) -> None:
    _clear(desk)
    desk.page.locator("button.model").click()
    dialog = desk.page.get_by_role("dialog", name="Whom to ask")
    dialog.get_by_role("searchbox").press("ArrowDown")
    expect(dialog.get_by_role("region")).to_contain_text("login.png")


def _lightbox(desk: Desk, _: str) -> None:
    _clear(desk)
    desk.page.get_by_role("button", name=re.compile("^Open login.png")).first.click()
    expect(desk.page.get_by_role("dialog", name="login.png").locator("footer")).to_contain_text("×")


def _settings(desk: Desk, _: str) -> None:
    _clear(desk)
    desk.page.get_by_role("button", name="Settings").click()
    expect(desk.page.get_by_role("dialog", name="Settings")).to_contain_text("anthropic")


def _palette(desk: Desk, _: str) -> None:
    _clear(desk)
    desk.page.keyboard.press("Control+k")
    desk.page.get_by_role("combobox", name="Search everything").fill("timed out")
    expect(desk.page.get_by_role("option", name=re.compile("timed out")).first).to_be_visible()


def _shortcuts(desk: Desk, _: str) -> None:
    _clear(desk)
    desk.page.locator(".chat").press("?")
    expect(desk.page.get_by_role("dialog", name="Keys")).to_be_visible()


def _sessions(desk: Desk, _: str) -> None:
    _clear(desk)
    menu = desk.page.get_by_role("button", name="Sessions")
    if menu.is_visible():
        menu.click()
    expect(desk.page.get_by_role("link", name=re.compile("Refactor"))).to_be_visible()


def _approval(desk: Desk, session: str) -> None:
    desk.page.keyboard.press("Escape")
    desk.page.mouse.move(0, 0)
    if not desk.is_phone:
        desk.page.set_viewport_size(LOW)
    desk.daemon.ask(f"/v1/sessions/{session}/fork", {"title": RAISED})
    fork = desk.daemon.ask("/v1/sessions?limit=1")["sessions"][0]["id"]
    desk.page.goto(f"{desk.daemon.url}/#/s/{fork}")
    expect(desk.answers).to_have_count(3)
    edit = '{"path": "nginx.conf", "old": "30s", "new": "60s"}'
    desk.daemon.ask(f"/v1/sessions/{fork}/messages", {"text": f"Raise it to a minute.\n!tool edit_file {edit}"})
    expect(desk.page.get_by_role("form", name=re.compile("Approve"))).to_be_visible()


def _failure(desk: Desk, session: str) -> None:
    if not desk.is_phone:
        desk.page.set_viewport_size(WIDE)
    fork = desk.daemon.ask(f"/v1/sessions/{session}/fork", {"title": OVERLOADED})["id"]
    desk.page.goto(f"{desk.daemon.url}/#/s/{fork}")
    expect(desk.answers).to_have_count(3)
    desk.daemon.ask(f"/v1/sessions/{fork}/messages", {"text": "In one line, please.", "model": "ollama/llama3.2"})
    expect(desk.page.get_by_role("alert", name="The turn failed")).to_be_visible()


def _locked(desk: Desk, _: str) -> None:
    desk.page.context.clear_cookies()
    desk.page.reload()
    expect(desk.page.get_by_role("heading", name="This Loom is locked")).to_be_visible()


def _clear(desk: Desk) -> None:
    """Back to the conversation: nothing open, nothing drafted."""
    for _ in range(3):
        desk.page.keyboard.press("Escape")
    for name in ("Close the inspector", "Close branches", "Close"):
        button = desk.page.get_by_role("button", name=name, exact=True)
        if button.is_visible():
            button.click()
    for _ in range(desk.attachments.count()):
        desk.attachments.last.get_by_role("button", name=re.compile("^Remove")).click()
    desk.box.fill("")


SCREENS = {
    "start": _start,
    "chat": _chat,
    "composer": _composer,
    "inspector": _inspector,
    "words": _words,
    "forest": _forest,
    "models": _models,
    "lightbox": _lightbox,
    "settings": _settings,
    "palette": _palette,
    "shortcuts": _shortcuts,
    "sessions": _sessions,
    "approval": _approval,
    "failure": _failure,
    "locked": _locked,
}
