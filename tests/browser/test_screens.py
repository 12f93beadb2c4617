"""Every screen on a desktop, a tablet and a phone, in light and in dark: no accessibility violation, nothing cut off,
covered or squeezed, and a picture of it.

`LOOM_SCREENSHOTS=1` keeps the pictures in docs/images, where the documentation shows them.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import expect

from browser.accessibility import violations
from browser.client import WIDE, Client, Daemon, OpenClient
from browser.layout import layout_problems
from browser.samples import file_payload, manual_pdf, write_workspace

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
TALL: Any = {"width": 1240, "height": 1580}  # the whole story in one picture
FIRST = "What is wrong on this page, and what does the leaflet say about the timeout?"
LOW: Any = {"width": 1440, "height": 620}
RAISED, OVERLOADED, STOPPED = "Raise the timeout", "A model that is away", "The gateway, continued"
BUSY = "Many files"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"scheme": "light"},
    "dark": {"scheme": "dark"},
    "mobile": {"scheme": "light", "phone": True},
    "mobile-dark": {"scheme": "dark", "phone": True},
    "tablet": {"scheme": "light", "tablet": True},
    "tablet-dark": {"scheme": "dark", "tablet": True},
}


@pytest.fixture(scope="module")
def screens_daemon(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of its own, so that the list shows what a person would have there."""
    running = Daemon(tmp_path_factory.mktemp("screens") / "home")
    write_workspace(running.workspace)
    running.start()
    running.ask("/v1/users", {"name": "bea", "role": "user"})
    prompt = {"text": "Say ${what} about $city in one line."}
    running.ask("/v1/prompts/city", prompt, method="PUT")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def session_id(screens_daemon: Daemon) -> str:
    """A conversation with a picture, a tool, a document and a branch; and others for the list."""
    samples = {
        one["name"]: [{"type": "media", "digest": one["media"]["digest"], "name": one["name"]}]
        for one in screens_daemon.ask("/v1/samples")["samples"]
    }
    for title, words, blocks in (
        ("Refactor the uploader", "Read deploy.log and say when it went wrong.", []),
        ("How the gateway waits", "Which page says how long the gateway waits?", samples["leaflet.pdf"]),
        ("Receipt of the café", "How much was it in all?", samples["receipt.jpg"]),
    ):
        other = screens_daemon.ask("/v1/sessions", {"title": title})["id"]
        _send_and_wait(screens_daemon, other, {"text": words, "blocks": blocks})
    session = screens_daemon.ask("/v1/sessions", {"title": "Login page error"})["id"]
    shown = {
        FIRST: [*samples["login.png"], *samples["leaflet.pdf"]],
        "Now look at shots/gateway.png": [],
        "How long may the gateway wait?": [],
    }
    for words, blocks in shown.items():
        _send_and_wait(screens_daemon, session, {"text": words, "blocks": blocks})
    asked = screens_daemon.ask(f"/v1/sessions/{session}/messages")["messages"]
    last = next(one for one in reversed(asked) if one["role"] == "user")
    better = "What does the leaflet say about the error 502?"
    _send_and_wait(screens_daemon, session, {"text": better, "parent": last["parent"]})
    return session


# Pictures that are in sight have arrived (those far below are fetched when somebody scrolls there).
DRAWN = """Promise.all([...document.images].filter((one) => {
  const { top, bottom, left, right } = one.getBoundingClientRect();
  return bottom > 0 && top < innerHeight && right > 0 && left < innerWidth && one.checkVisibility();
}).map((one) => one.decode().catch(() => 0)))"""


def _send_and_wait(screens_daemon: Daemon, session: str, message: dict[str, Any]) -> None:
    """Send, and read the events until the turn is over."""
    after = screens_daemon.ask(f"/v1/sessions/{session}")["last_seq"]
    screens_daemon.ask(f"/v1/sessions/{session}/messages", message)
    for kind in screens_daemon.events(session, after):
        if kind in ("turn_finished", "turn_failed"):
            return


@pytest.mark.parametrize("look", LOOKS)
def test_screens_are_accessible_and_nothing_is_cut_off(
    open_client: OpenClient, screens_daemon: Daemon, session_id: str, look: str, tmp_path: Path
) -> None:
    folder = IMAGES if os.environ.get("LOOM_SCREENSHOTS") and look in ("light", "dark", "mobile") else tmp_path
    client = open_client(on=screens_daemon, **LOOKS[look])
    found: dict[str, list[str]] = {}
    for name, opened in SCREENS.items():
        opened(client, session_id)
        client.page.evaluate(DRAWN)
        place = tmp_path if name in UNILLUSTRATED else folder
        _keep(client.page.screenshot(animations="disabled"), place / f"{name}-{look}.png")
        if problems := [*violations(client), *layout_problems(client)]:
            found[name] = problems
    for one in screens_daemon.ask("/v1/sessions")["sessions"]:
        if one["title"] in (RAISED, OVERLOADED, STOPPED, BUSY):
            screens_daemon.ask(f"/v1/sessions/{one['id']}", method="DELETE")
    assert found == {}
    assert client.foreign == []


def _keep(screenshot: bytes, file: Path) -> None:
    """With 256 colors, which a page does not miss: a third of the bytes."""
    Image.open(io.BytesIO(screenshot)).convert("RGB").quantize(256).save(file, optimize=True)


# How to get to each screen, in the order in which a page walks through them ------------------------------------------


def _start(client: Client, _: str) -> None:
    expect(client.page.locator(".sample")).to_have_count(4)


def _chat(client: Client, session: str) -> None:
    if client.is_wide:
        client.page.set_viewport_size(TALL)
    client.page.goto(f"{client.daemon.url}/#/s/{session}")
    expect(client.answers).to_have_count(3)
    expect(client.user_messages.first.locator(".badge").first).to_be_visible()
    client.page.locator(".chat").evaluate("(chat) => chat.scrollTo(0, 0)")


def _composer(client: Client, session: str) -> None:
    if client.is_wide:
        client.page.set_viewport_size(WIDE)
    client.page.locator(".chat").evaluate("(chat) => chat.scrollTo(0, chat.scrollHeight)")
    sample = client.daemon.workspace / "shots/login.png"
    client.paste_files(file_payload("login.png", sample.read_bytes()))
    client.page.locator("[data-pick=files]").set_input_files(manual_pdf())
    expect(client.attachments).to_have_count(2)
    client.attachments.get_by_role("button", name=re.compile("pages 1–20")).click()
    client.message_box.fill("Compare it with the manual")
    expect(client.page.locator(".composer .pages li.in")).to_have_count(20)


def _inspector(client: Client, _: str) -> None:
    client.page.get_by_role("button", name=re.compile("Next request")).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    expect(drawer.locator("tfoot")).to_contain_text("free")
    expect(drawer.locator(".columns li")).to_have_count(3)


def _text_alternative(client: Client, _: str) -> None:
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    row = drawer.locator("tbody tr", has=client.page.get_by_role("button", name=re.compile("^Open login.png"))).first
    row.get_by_role("button", name=re.compile("text, .* Change")).click()
    client.page.get_by_role("menuitem", name=re.compile("^Edit text alternative")).click()
    dialog = client.page.get_by_role("dialog", name="Text alternative")
    expect(dialog.get_by_role("textbox", name="Text alternative")).to_have_value(re.compile("502"))


def _branches(client: Client, _: str) -> None:
    _clear(client)
    client.page.locator(".chat").press("t")
    expect(client.page.get_by_role("treeitem", selected=True)).to_be_visible()


def _models(client: Client, _: str) -> None:
    _clear(client)
    client.page.locator("button.model").click()
    dialog = client.page.get_by_role("dialog", name="Choose a model")
    dialog.get_by_role("searchbox").press("ArrowDown")
    expect(dialog.get_by_role("region")).to_contain_text("login.png")


def _lightbox(client: Client, _: str) -> None:
    _clear(client)
    client.page.get_by_role("button", name=re.compile("^Open login.png")).first.click()
    expect(client.page.get_by_role("dialog", name="login.png").locator("footer")).to_contain_text("×")


def _settings(client: Client, _: str) -> None:
    _clear(client)
    client.page.get_by_role("button", name="Settings", exact=True).click()
    dialog = client.page.get_by_role("dialog", name="Settings")
    dialog.get_by_role("tab", name="Models").click()
    expect(dialog).to_contain_text("anthropic")


def _palette(client: Client, _: str) -> None:
    _clear(client)
    client.page.keyboard.press("Control+k")
    client.page.get_by_role("combobox", name="Search everything").fill("timed out")
    expect(client.page.get_by_role("option", name=re.compile("timed out")).first).to_be_visible()


def _shortcuts(client: Client, _: str) -> None:
    _clear(client)
    client.page.locator(".chat").press("?")
    expect(client.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


def _sessions(client: Client, _: str) -> None:
    _clear(client)
    menu = client.page.get_by_role("button", name="Sessions")
    if menu.is_visible():
        menu.click()
    expect(client.page.get_by_role("link", name=re.compile("Refactor"))).to_be_visible()


def _approval(client: Client, session: str) -> None:
    client.page.keyboard.press("Escape")
    client.page.mouse.move(0, 0)
    if client.is_wide:
        client.page.set_viewport_size(LOW)
    client.daemon.ask(f"/v1/sessions/{session}/fork", {"title": RAISED})
    fork = client.daemon.ask("/v1/sessions?limit=1")["sessions"][0]["id"]
    client.page.goto(f"{client.daemon.url}/#/s/{fork}")
    expect(client.answers).to_have_count(3)
    edit = '{"path": "nginx.conf", "old": "30s", "new": "60s"}'
    # A file that was not read is not edited, and nobody is asked.
    calls = f"!tool read_file nginx.conf\n!echo It says 30 s.\n!tool edit_file {edit}"
    client.daemon.ask(f"/v1/sessions/{fork}/messages", {"text": f"Raise it to a minute.\n{calls}"})
    expect(client.page.get_by_role("form", name=re.compile("Approve"))).to_be_visible()


def _failure(client: Client, session: str) -> None:
    if client.is_wide:
        client.page.set_viewport_size(WIDE)
    fork = client.daemon.ask(f"/v1/sessions/{session}/fork", {"title": OVERLOADED})["id"]
    client.page.goto(f"{client.daemon.url}/#/s/{fork}")
    expect(client.answers).to_have_count(3)
    client.daemon.ask(f"/v1/sessions/{fork}/messages", {"text": "In one line, please.", "model": "ollama/llama3.2"})
    expect(client.page.get_by_role("alert", name="Answer failed")).to_be_visible()


def _stopped(client: Client, session: str) -> None:
    """A stopped answer with a queue, a text file, and an attachment that failed."""
    fork = client.daemon.ask(f"/v1/sessions/{session}/fork", {"title": STOPPED})["id"]
    client.page.goto(f"{client.daemon.url}/#/s/{fork}")
    expect(client.answers).to_have_count(3)
    client.paste_files(file_payload("notes.md", b"# Notes\n\nThe gateway waits.\n", "text/markdown"))
    expect(client.attachments).to_contain_text(" B")
    client.send("!slow 8tps\n!tokens 400")
    expect(client.page.locator(".answer[aria-busy=true] .prose")).to_be_visible()
    client.send("And then?")
    expect(client.page.get_by_role("region", name="Queued messages")).to_be_visible()
    client.page.get_by_role("button", name="Stop", exact=True).click()
    expect(client.page.get_by_role("region", name="Paused messages")).to_be_visible()
    expect(client.page.get_by_role("note", name="Answer status")).to_be_visible()
    client.paste_files(file_payload("broken.png", b"\x89PNG\r\n\x1a\nnot an image"))
    expect(client.page.locator(".failed-attachment")).to_be_visible()


def _tab(name: str, words: str) -> Callable[[Client, str], None]:
    def opened(client: Client, _: str) -> None:
        if not client.page.get_by_role("dialog", name="Settings").is_visible():
            _clear(client)
            client.page.get_by_role("button", name="Settings", exact=True).click()
        dialog = client.page.get_by_role("dialog", name="Settings")
        dialog.get_by_role("tab", name=name).click()
        expect(dialog).to_contain_text(words)

    return opened


def _more(item: str, words: str) -> Callable[[Client, str], None]:
    def opened(client: Client, _: str) -> None:
        _sessions(client, "")
        client.page.get_by_role("button", name="More", exact=True).click()
        client.page.get_by_role("menuitem", name=item).click()
        expect(client.page.locator("dialog[open]")).to_contain_text(words)

    return opened


def _share(client: Client, _: str) -> None:
    _sessions(client, "")
    client.choose_in_list("Share or export")
    dialog = client.page.locator("dialog[open]")
    dialog.get_by_role("button", name="Create link").click()
    expect(dialog.get_by_role("list", name="Links").get_by_role("listitem").first).to_be_visible()


def _session_settings(client: Client, _: str) -> None:
    _clear(client)
    client.page.keyboard.press("Escape")
    client.page.get_by_role("button", name=re.compile("^Session settings")).click()
    expect(client.page.locator("dialog[open]")).to_contain_text("Temperature")


def _busy(client: Client, session: str) -> None:
    """An answer that runs, with a message and a dozen attachments on the way, two of which failed."""
    fork = client.daemon.ask(f"/v1/sessions/{session}/fork", {"title": BUSY})["id"]
    client.page.goto(f"{client.daemon.url}/#/s/{fork}")
    expect(client.answers).to_have_count(3)
    client.send("!slow 8tps\n!tokens 4000")
    expect(client.page.locator(".answer[aria-busy=true] .prose")).to_be_visible()
    texts = [file_payload(f"notes-{number}.md", b"# Notes", "text/markdown") for number in range(10)]
    broken = [file_payload(f"broken-{number}.png", b"\x89PNG\r\n\x1a\nnot an image") for number in range(2)]
    client.paste_files(*texts, *broken)
    client.message_box.fill("Look at these, too")
    expect(client.page.locator(".failed-attachment")).to_have_count(2)


def _steerable(client: Client, _: str) -> None:
    for _ in range(2):
        client.page.locator(".failed-attachment").first.get_by_role("button", name="Remove").click()
    expect(client.page.get_by_role("button", name="Steer")).to_be_visible()
    expect(client.attachments).to_have_count(10)


def _stopped_with_draft(client: Client, _: str) -> None:
    client.page.get_by_role("button", name="Stop", exact=True).click()
    expect(client.page.get_by_role("note", name="Answer status")).to_be_visible()
    _clear(client)


def _login(client: Client, _: str) -> None:
    client.page.context.clear_cookies()
    client.page.reload()
    expect(client.page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()


def _clear(client: Client) -> None:
    """Back to the conversation: nothing open, nothing drafted."""
    for _ in range(3):
        client.page.keyboard.press("Escape")
    for name in ("Close inspector", "Close branches", "Close"):
        button = client.page.get_by_role("button", name=name, exact=True)
        if button.is_visible():
            button.click()
    for _ in range(client.attachments.count()):
        client.attachments.last.get_by_role("button", name=re.compile("^Remove")).click()
    client.message_box.fill("")


SCREENS = {
    "start": _start,
    "chat": _chat,
    "composer": _composer,
    "inspector": _inspector,
    "text-alternative": _text_alternative,
    "branches": _branches,
    "models": _models,
    "lightbox": _lightbox,
    "settings": _settings,
    "palette": _palette,
    "shortcuts": _shortcuts,
    "sessions": _sessions,
    "approval": _approval,
    "failure": _failure,
    "stopped": _stopped,
    "busy": _busy,
    "steerable": _steerable,
    "stopped-with-draft": _stopped_with_draft,
    "general": _tab("General", "Signed-in browsers"),
    "server": _tab("Server", "Default model"),
    "users": _tab("Users", "New key"),
    "usage": _more("Usage and cost", "By session"),
    "prompts": _more("Prompts", "Delete"),
    "import": _more("Import conversations", "drop them here"),
    "share": _share,
    "session": _session_settings,
    "login": _login,
}
UNILLUSTRATED = [name for name in list(SCREENS)[list(SCREENS).index("busy") :] if name != "login"]
