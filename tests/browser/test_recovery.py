"""Nothing is lost: reloads, lost connections, a daemon that is killed under the page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from browser.client import Client, Daemon, OpenClient
from browser.samples import draw_image, file_payload


def test_a_reload_in_mid_turn_loses_nothing(client: Client) -> None:
    client.send("!slow 20tps\n!echo the very first words\n!tokens 2000")
    expect(client.answers.last).to_contain_text("the very first words")
    client.page.reload()
    expect(client.answers.last).to_contain_text("the very first words")
    expect(client.page.locator(".answer[aria-busy=true]")).to_have_count(1)
    client.page.keyboard.press("Escape")
    client.wait_idle()
    live = client.answers.last.locator(".prose").inner_text()
    client.page.reload()
    expect(client.answers.last.locator(".prose")).to_have_text(live, use_inner_text=True)
    expect(client.answers).to_have_count(1)


def test_a_draft_with_its_pictures_survives_a_reload(client: Client) -> None:
    client.send_and_wait("!echo hello")
    client.paste_files(file_payload("kept.png", draw_image("kept")))
    expect(client.attachments).to_contain_text("640×400")
    client.message_box.fill("not yet sent")
    client.page.reload()
    expect(client.message_box).to_have_value("not yet sent")
    expect(client.attachments).to_contain_text("kept.png")


def test_a_killed_daemon_comes_back_and_nothing_is_lost(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    client.send_and_wait("!echo before the kill")
    client.send("!slow 20tps\n!echo half of it\n!tokens 300")
    expect(client.answers.last).to_contain_text("half of it")
    own_daemon.kill()
    expect(client.page.get_by_text("Reconnecting… Your work is saved.")).to_be_visible()
    client.send("!echo sent while it was away")
    expect(client.page.get_by_text("Sending…")).to_be_visible()
    own_daemon.start()
    expect(client.page.get_by_text("Reconnecting… Your work is saved.")).to_have_count(0)
    expect(client.answers.last).to_contain_text("sent while it was away")
    client.wait_idle()
    expect(client.page.get_by_text("Sending…")).to_have_count(0)
    assert client.user_messages.all_inner_texts().__str__().count("sent while it was away") == 1
    client.page.reload()
    expect(client.answers.last).to_contain_text("sent while it was away")
    expect(client.page.locator(".chat")).to_contain_text("half of it")
    expect(client.user_messages).to_have_count(3)


def test_what_could_not_be_loaded_without_the_server_is_there_when_it_is_back(
    open_client: OpenClient, own_daemon: Daemon
) -> None:
    client = open_client(on=own_daemon)
    client.send_and_wait("!echo before the kill")
    own_daemon.kill()
    client.page.get_by_role("button", name="Branches").click()
    expect(client.page.get_by_text("Cannot reach the Loom server.")).to_be_visible()
    own_daemon.start()
    expect(client.page.get_by_role("complementary", name="Branches").get_by_role("treeitem")).to_have_count(3)
    expect(client.page.get_by_text("Cannot reach the Loom server.")).to_have_count(0)


def test_words_that_were_read_stay_when_the_daemon_is_killed(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    client.send("!slow 20tps\n!echo a sentence that was read\n!tokens 300")
    answer = client.page.locator(".answer .prose")
    expect(answer.first).to_contain_text("a sentence that was read")
    own_daemon.kill()
    expect(client.page.get_by_text("Reconnecting…")).to_be_visible()
    expect(answer.first).to_contain_text("a sentence that was read")
    own_daemon.start()
    expect(client.page.get_by_text("Reconnecting…")).to_have_count(0)
    client.wait_idle()
    expect(answer.first).to_contain_text("a sentence that was read")


def test_a_turn_continues_under_the_eyes_of_the_reader_after_kill_9(
    open_client: OpenClient, own_daemon: Daemon
) -> None:
    """The words that were shown stay in place at every moment, and the rest of the answer arrives in the open page."""
    client = open_client(on=own_daemon)
    client.send("!slow 25tps\n!echo the words before the kill\n!tokens 60\n!echo the very last words")
    answer = client.answers.last
    expect(answer).to_contain_text("the words before the kill")
    client.page.evaluate(
        """window.lost = 0; new MutationObserver(() => {
          if (!document.querySelector('.chat').textContent.includes('the words before the kill')) window.lost += 1;
        }).observe(document.querySelector('.chat'), { subtree: true, childList: true, characterData: true })"""
    )
    own_daemon.kill()
    expect(client.page.get_by_text("Reconnecting…")).to_be_visible()
    expect(answer).to_contain_text("the words before the kill")
    own_daemon.start()
    expect(client.page.locator(".chat")).to_contain_text("the very last words")
    client.wait_idle()
    assert client.page.evaluate("window.lost") == 0
    expect(client.page.get_by_role("note")).to_contain_text(["Continued"])
    words = client.page.locator(".chat").inner_text()
    assert words.count("the words before the kill") == 2, "in the question and once in the answer"
    assert words.index("the words before the kill") < words.index("the very last words")
    client.page.reload()
    expect(client.page.locator(".chat")).to_contain_text("the very last words")
    expect(client.user_messages).to_have_count(1)


def test_two_pages_on_one_session_show_the_same(open_client: OpenClient) -> None:
    first = open_client()
    first.send_and_wait("!echo hello")
    second = open_client(path=f"/#/s/{first.session}")
    first.send("!slow 60tps\n!tokens 40")
    expect(second.page.locator(".answer[aria-busy=true]")).to_have_count(1)
    first.wait_idle()
    second.wait_idle()
    expect(second.answers.last.locator(".prose")).to_have_text(first.answers.last.locator(".prose").inner_text())


_ENDS = {
    "finished": "!echo hello",
    "noticed": "!echo hello @missing.txt",
    "continued": "!echo half of it\n!fail cut",
    "failed": "!fail 400 the provider's own words",
    "cancelled": "!slow 5tps\n!tokens 400",
    "cancelled early": "!think 60s",
    "interrupted": "!slow 5tps\n!tokens 400",
    "interrupted early": "!think 60s",
}


@pytest.mark.parametrize("end", _ENDS)
def test_a_page_that_loads_at_any_time_shows_how_the_last_turn_ended(
    open_client: OpenClient, own_daemon: Daemon, end: str
) -> None:
    (own_daemon.home / "loom.toml").write_text('[turn]\nafter_crash = "stop"\n')
    before = open_client(on=own_daemon)
    before.send_and_wait("!echo before")
    at = f"/#/s/{before.session}"
    before.send(_ENDS[end])
    during = open_client(on=own_daemon, path=at)
    if end.startswith(("cancelled", "interrupted")):
        expect(before.page.locator(".answer[aria-busy=true]")).to_be_visible()
        if not end.endswith("early"):
            expect(before.page.locator(".answer[aria-busy=true] .prose")).to_be_visible()
        if end.startswith("cancelled"):
            before.page.keyboard.press("Escape")
        else:
            own_daemon.kill()
            own_daemon.start()
    note = before.page.get_by_role("note", name="Answer status")
    card = before.page.get_by_role("alert", name="Answer failed")
    expect(card).to_have_count(1 if end in ("continued", "failed") else 0)
    before.wait_idle()
    expect(note).to_have_count(1 if end.startswith(("cancelled", "interrupted")) else 0)
    if end == "noticed":
        expect(before.page.locator(".chat .notices")).to_contain_text("missing.txt")
    after = open_client(on=own_daemon, path=at)
    expect(after.user_messages).to_have_count(2)
    shown = after.page.locator(".chat").inner_text()
    # How long a model thought is measured by each page.
    alike = re.compile(re.sub("Thought[^\n]*", r"Thought[^\n]*", re.escape(shown)))
    for client in (before, during):
        expect(client.page.locator(".chat")).to_have_text(alike, use_inner_text=True)
    before.page.reload()
    expect(before.page.locator(".chat")).to_have_text(alike, use_inner_text=True)
    before.edit_last("the next turn")
    for client in (before, during, after):
        expect(client.answers.last).to_contain_text("the next turn")
        expect(client.page.get_by_role("alert", name="Answer failed")).to_have_count(0)


def test_without_the_cookie_the_page_says_how_to_get_in(open_client: OpenClient) -> None:
    client = open_client()
    client.page.context.clear_cookies()
    client.page.reload()
    expect(client.page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()
    expect(client.page.locator("body")).to_contain_text("loom web")


def test_a_page_behind_a_proxy_without_web_sockets_is_live(open_client: OpenClient) -> None:
    client = open_client()
    client.send_and_wait("!echo hello")
    other = open_client(path=f"/#/s/{client.session}")
    other.page.route_web_socket("**/*", lambda socket: socket.close())
    other.page.reload()
    expect(other.answers.last).to_contain_text("hello")
    with other.page.expect_response("**/socket.io/?*transport=polling*"):
        pass
    client.send_and_wait("!echo seen from elsewhere")
    expect(other.answers.last).to_contain_text("seen from elsewhere")
    expect(other.page.locator(".bar.offline")).to_have_count(0)
