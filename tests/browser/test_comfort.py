"""Tab title, times, notifications, speech, branch counts and zoom, model preview on touch, continued turns."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from browser.client import Client, OpenClient


def test_the_tab_title_names_the_session_and_pending_approvals(client: Client) -> None:
    expect(client.page).to_have_title("Loom")
    client.send_and_wait("!echo a title to find")
    expect(client.page).to_have_title(re.compile(r"a title to find · Loom$"))
    client.send('!tool run_command {"command": "true"}')
    expect(client.page).to_have_title(re.compile(r"^\(1\) .*· Loom$"))
    client.page.get_by_role("button", name="Allow once").click()
    client.wait_idle()
    expect(client.page).to_have_title(re.compile(r"^!echo"))


def test_messages_have_a_time_that_stays_after_a_reload(client: Client) -> None:
    client.send_and_wait("!echo what time is it")
    for _ in range(2):
        for place in (client.user_messages.last, client.answers.last):
            time = place.locator("time")
            expect(time).to_have_text(re.compile(r"\d\d?:\d\d"))
            assert (time.get_attribute("datetime") or "").endswith("Z")
        client.page.reload()


NOTIFICATIONS = """window.shown = [];
window.Notification = class {
  static permission = 'granted';
  static requestPermission() { return Promise.resolve('granted'); }
  constructor(title, options) { shown.push([title, options.body]); }
};
Object.defineProperty(document, 'hidden', { get: () => window.isAway === true });"""


def test_a_hidden_tab_notifies_if_the_user_wants_it(open_client: OpenClient) -> None:
    client = open_client()
    client.page.context.add_init_script(NOTIFICATIONS)
    client.page.reload()
    client.send_and_wait("!echo first")
    client.page.evaluate("window.isAway = true")
    client.send_and_wait("!echo unasked")
    assert client.page.evaluate("window.shown") == []
    client.page.get_by_role("button", name="Settings", exact=True).click()
    client.page.get_by_role("checkbox", name=re.compile("Notify me")).check()
    client.page.keyboard.press("Escape")
    client.send('!tool run_command {"command": "true"}')
    expect(client.page.get_by_role("button", name="Allow once")).to_be_visible()
    assert _eventually(client, "Approval pending")
    client.page.get_by_role("button", name="Allow once").click()
    client.wait_idle()
    assert _eventually(client, "Answer finished")
    client.page.reload()
    client.page.get_by_role("button", name="Settings", exact=True).click()
    expect(client.page.get_by_role("checkbox", name=re.compile("Notify me"))).to_be_checked()


def _eventually(client: Client, title: str) -> bool:
    """Whether a notification with this title is shown within the patience of the page."""
    return client.page.evaluate(
        """(title) => new Promise((done) => {
          const look = (left) => shown.some(([one]) => one === title) ? done(true)
            : left ? setTimeout(() => look(left - 1), 50) : done(false);
          look(200); })""",
        title,
    )


def test_an_answer_is_read_aloud_without_its_markup(open_client: OpenClient) -> None:
    client = open_client()
    client.page.context.add_init_script(
        "window.spoken = []; speechSynthesis.speak = (one) => spoken.push(one.text); speechSynthesis.cancel = () => 0"
    )
    client.page.reload()
    answer = client.send_and_wait("!echo **Bold** and [a link](https://example.org) with `code`")
    answer.get_by_role("button", name="More actions").click()
    client.page.get_by_role("menuitem", name="Read aloud").click()
    expect(client.page.get_by_role("status")).to_have_text("Reading aloud")
    assert client.page.evaluate("window.spoken") == ["Bold and a link with code"]
    answer.get_by_role("button", name="More actions").click()
    client.page.get_by_role("menuitem", name="Stop reading").click()
    answer.get_by_role("button", name="More actions").click()
    expect(client.page.get_by_role("menuitem", name="Read aloud")).to_be_visible()


RECOGNITION = """window.SpeechRecognition = class {
  start() { window.recognition = this; }
  stop() { this.onend(); }
};"""


def test_speech_becomes_text_behind_the_text_that_is_there(open_client: OpenClient) -> None:
    client = open_client()
    client.page.context.add_init_script(RECOGNITION)
    client.page.reload()
    client.message_box.fill("typed")
    button = client.page.get_by_role("button", name="Voice input")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    client.page.evaluate("recognition.onresult({ results: [[{ transcript: 'and spoken' }]] })")
    expect(client.message_box).to_have_value("typed and spoken")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")


def test_the_badge_and_the_panel_count_the_same_branches(client: Client) -> None:
    client.send_and_wait("!echo trunk")
    client.send_and_wait("!echo first end")
    badge = client.page.get_by_role("button", name="Branches").locator(".count")
    expect(badge).to_have_count(0)
    for number in range(2, 5):
        client.edit_last(f"end {number}")
        expect(badge).to_have_text(str(number))
    client.page.get_by_role("button", name="Branches").click()
    expect(client.page.get_by_role("complementary", name="Branches")).to_contain_text("4 branches")


def _tree(count: int) -> dict[str, Any]:
    """A tree with a fork at every third message."""
    nodes = []
    for at in range(count):
        parent = None if at == 0 else f"n{max(0, at - (3 if at % 3 == 0 else 1))}"
        role = "system" if at == 0 else "user" if at % 2 else "assistant"
        nodes.append(
            {
                "node": f"n{at}", "parent": parent, "role": role, "source": "", "label": f"message {at}", "media": [],
                "model": "", "created_at": at, "bookmark": "", "tags": [], "depth": at,
            }
        )  # fmt: skip
    return {"root": "n0", "head": f"n{count - 1}", "nodes": nodes}


@pytest.mark.parametrize("phone", [False, True])
def test_two_hundred_messages_can_be_zoomed_and_seen_at_a_glance(open_client: OpenClient, phone: bool) -> None:
    client = open_client(phone=phone)
    client.send_and_wait("!echo root")
    client.page.route("**/tree", lambda route: route.fulfill(json=_tree(200)))
    client.page.get_by_role("button", name="Branches").click()
    panel = client.page.get_by_role("complementary", name="Branches")
    expect(panel.get_by_role("treeitem").nth(60)).to_be_attached()
    field = panel.locator(".branches-field")
    overview = panel.locator(".overview svg")
    expect(overview).to_be_visible()
    assert field.evaluate("(one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight")
    before = field.evaluate("(one) => [one.scrollLeft, one.scrollTop]")
    overview.click(position={"x": 4, "y": 4})
    assert field.evaluate("(one) => [one.scrollLeft, one.scrollTop]") != before
    panel.get_by_role("button", name="Fit").click()
    expect(panel.locator(".zoom")).not_to_contain_text("100 %")
    if not phone:
        fits = "(one) => one.scrollWidth <= one.clientWidth + 1 && one.scrollHeight <= one.clientHeight + 1"
        assert field.evaluate(fits)
    small = panel.locator(".zoom").text_content() or ""
    panel.get_by_role("button", name="Zoom in").click()
    expect(panel.locator(".zoom")).not_to_have_text(small)


def test_on_touch_the_first_tap_previews_and_the_second_chooses(open_client: OpenClient) -> None:
    phone = open_client(phone=True)
    phone.send_and_wait("!echo hello")
    phone.page.locator("button.model").tap()
    dialog = phone.page.get_by_role("dialog", name="Choose a model")
    dialog.get_by_role("searchbox").fill("l")
    row = dialog.get_by_role("option", name=re.compile("llama3.2"))
    row.tap()
    expect(dialog).to_be_visible()
    preview = dialog.get_by_role("region", name="What would change")
    expect(preview).to_contain_text("With llama3.2")
    expect(preview.get_by_role("button", name="Use llama3.2")).to_be_in_viewport()
    assert phone.daemon.ask(f"/v1/sessions/{phone.session}")["model"] != "ollama/llama3.2"
    row.tap()
    expect(dialog).to_have_count(0)
    expect(phone.page.locator("button.model")).to_contain_text("llama3.2")


def test_a_turn_that_continues_after_a_restart_shows_its_words_and_the_notice(client: Client) -> None:
    client.send_and_wait("!echo hello")

    def running(route: Route) -> None:
        """The snapshot of a session whose turn was continued: words, the notice, more words."""
        history = json.loads(route.fetch().text())
        events = [
            {"type": "turn_started", "data": {"turn": "t", "model": "loom/spark"}},
            {"type": "text", "data": {"text": "the first half", "index": 0}},
            {"type": "notice", "data": {"text": "Continued after a restart", "code": "turn.continued"}},
            {"type": "step_started", "data": {"step": 1, "model": "loom/spark"}},
            {"type": "text", "data": {"text": "the second half", "index": 0}},
        ]
        history["running"] = {"turn": "t", "model": "loom/spark", "partial": events}
        route.fulfill(json=history)

    client.page.route("**/messages?*", running)
    client.page.reload()
    answer = client.page.locator(".answer[aria-busy=true]")
    expect(answer).to_contain_text("the first half")
    expect(answer.get_by_role("note")).to_have_text("Continued after a restart")
    expect(answer).to_contain_text("the second half")
    parts = answer.inner_text()
    assert parts.index("the first half") < parts.index("Continued") < parts.index("the second half")
