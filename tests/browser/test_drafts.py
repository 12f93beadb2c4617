"""What a user writes and attaches stays theirs and whole while it is uploaded, sent or refused, wherever they go."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from browser.client import Client, Daemon, OpenClient
from browser.samples import draw_image, file_payload


def _paste_new_image(client: Client) -> None:
    """Paste an image that the daemon does not have yet: it has to be uploaded."""
    client.paste_files(file_payload("shot.png", draw_image(secrets.token_hex(8))))


def _edit_another(client: Client) -> Callable[[], object]:
    client.user_messages.last.hover()
    client.user_messages.last.get_by_role("button", name="Edit and resend").click()
    return client.page.get_by_role("button", name="Cancel editing").click


def _open_another(client: Client) -> Callable[[], object]:
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    return client.page.go_back


def _open_and_reload(client: Client) -> Callable[[], object]:
    back = _open_another(client)
    client.page.reload()
    return back


LEAVE = [_edit_another, _open_another, _open_and_reload]


@pytest.mark.parametrize("returns_early", [True, False])
@pytest.mark.parametrize("leave", LEAVE)
def test_an_upload_is_there_when_its_draft_is_shown_again(
    client: Client, leave: Callable[[Client], Callable[[], object]], returns_early: bool
) -> None:
    client.send_and_wait("!echo hello")
    release = client.hold("**/v1/media?*")
    client.message_box.fill("!echo it arrived")
    _paste_new_image(client)
    expect(client.attachments.get_by_role("progressbar")).to_have_count(1)
    client.page.wait_for_function("() => Object.values(localStorage).some((one) => one.includes('shot.png'))")
    come_back = leave(client)
    expect(client.attachments).to_have_count(0)
    if returns_early:
        come_back()
        expect(client.attachments.get_by_role("progressbar")).to_have_count(1)
        release()
    elif leave is _open_and_reload:
        client.page.unroute_all()
        come_back()
    else:
        with client.page.expect_response("**/v1/media?*"):
            release()
        come_back()
    expect(client.message_box).to_have_value("!echo it arrived")
    expect(client.attachments).to_contain_text("640×400")
    client.send_button.click()
    expect(client.user_messages.last.locator("img")).to_have_count(1)
    expect(client.answers.last).to_contain_text("it arrived")
    if leave is not _open_and_reload:
        assert sum("/v1/media?" in url for url in client.requests) == 1, "the file was uploaded once"


def test_a_file_attached_to_an_edit_is_gone_with_the_edit(client: Client) -> None:
    client.send_and_wait("!echo hello")
    stop_editing = _edit_another(client)
    release = client.hold("**/v1/media?*")
    _paste_new_image(client)
    expect(client.attachments.get_by_role("progressbar")).to_have_count(1)
    stop_editing()
    expect(client.attachments).to_have_count(0)
    release()
    client.send_and_wait("!echo without it")
    expect(client.user_messages.last.locator("img")).to_have_count(0)


def test_what_is_typed_while_a_session_is_created_stays_in_the_message_box(client: Client) -> None:
    release = client.hold("**/v1/sessions")
    client.send("!echo first")
    client.message_box.press_sequentially("typed ahead")
    release()
    expect(client.answers.last).to_contain_text("first")
    expect(client.message_box).to_have_value("typed ahead")
    client.page.reload()
    expect(client.message_box).to_have_value("typed ahead")
    client.page.evaluate("location.hash = '#/'")
    expect(client.message_box).to_have_value("")
    client.message_box.fill("of a new session")
    client.page.go_back()
    expect(client.message_box).to_have_value("typed ahead")


def test_messages_sent_while_a_session_is_created_are_in_it_and_in_order(client: Client) -> None:
    before = len(client.daemon.ask("/v1/sessions?limit=200")["sessions"])
    release = client.hold("**/v1/sessions")
    for number in range(3):
        client.send(f"!echo number {number}")
    release()
    expect(client.user_messages).to_contain_text([f"number {number}" for number in range(3)])
    assert len(client.daemon.ask("/v1/sessions?limit=200")["sessions"]) == before + 1


def test_a_message_whose_session_was_not_created_is_a_draft_after_a_reload(client: Client) -> None:
    client.hold("**/v1/sessions")
    client.send("this was not sent")
    client.message_box.fill("and this follows")
    client.page.reload()
    expect(client.message_box).to_have_value("this was not sent\n\nand this follows")


def _catch(client: Client, url: str) -> list[Route]:
    """Catch requests, to answer them later."""
    caught: list[Route] = []

    def keep(route: Route) -> None:
        caught.append(route)

    client.page.route(url, keep)
    return caught


@pytest.mark.parametrize(("follows", "comes_back"), [("", "not sent"), ("and this", "not sent\n\nand this")])
def test_a_message_whose_session_cannot_be_created_comes_back(client: Client, follows: str, comes_back: str) -> None:
    held = _catch(client, "**/v1/sessions")
    client.send("not sent")
    expect(client.message_box).to_have_value("")
    client.message_box.fill(follows)
    held[0].fulfill(status=409, body='{"error": {"code": "request.invalid", "message": "Not now."}}')
    expect(client.page.get_by_text("Not now.")).to_be_visible()
    expect(client.message_box).to_have_value(comes_back)


def test_a_session_that_was_opened_meanwhile_stays_open(client: Client) -> None:
    client.send_and_wait("!echo old")
    old = client.session
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    release = client.hold("**/v1/sessions")
    client.send("!echo new")
    client.page.evaluate(f"location.hash = '#/s/{old}'")
    expect(client.answers.last).to_contain_text("old")
    client.message_box.fill("a draft of the old one")
    release()
    row = client.page.locator(".session").filter(has_text="!echo new")
    expect(row).to_have_count(1)
    assert client.session == old
    expect(client.message_box).to_have_value("a draft of the old one")
    row.locator("a, button").first.click()
    expect(client.answers.last).to_contain_text("new")
    expect(client.message_box).to_have_value("")


def test_a_message_that_is_refused_while_another_session_is_open_says_so_in_its_own(client: Client) -> None:
    client.send_and_wait("!echo hello")
    held = _catch(client, "**/messages")
    client.send("this is refused")
    expect(client.page.get_by_text("Sending…")).to_be_visible()
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    held[0].fulfill(status=409, body='{"error": {"code": "request.invalid", "message": "Not now."}}')
    client.page.go_back()
    card = client.page.locator("article.refused")
    expect(card).to_contain_text(re.compile("this is refused.*Not now", re.DOTALL))
    client.page.unroute_all()
    client.page.reload()
    expect(card).to_contain_text(re.compile("this is refused.*Not now", re.DOTALL))
    card.get_by_role("button", name="Dismiss").click()
    expect(card).to_have_count(0)
    client.page.reload()
    expect(client.answers.last).to_contain_text("hello")
    expect(card).to_have_count(0)


@pytest.mark.parametrize("leaves", [True, False])
def test_messages_that_were_sent_without_a_connection_arrive_in_order(client: Client, leaves: bool) -> None:
    client.send_and_wait("!echo hello")
    client.page.context.set_offline(True)
    for number in range(4):
        client.send(f"!echo number {number}")
    if leaves:
        client.page.evaluate("location.hash = '#/'")
        expect(client.page.locator("button.sample")).to_have_count(4)
        client.page.go_back()
    else:
        expect(client.page.get_by_text("Sending…")).to_have_count(4)
    client.page.context.set_offline(False)
    expect(client.page.get_by_text("Sending…")).to_have_count(0)
    expect(client.user_messages).to_contain_text(["hello", *(f"number {number}" for number in range(4))])
    client.wait_idle()
    expect(client.page.locator("article.user-message")).to_have_count(5)


@pytest.mark.parametrize("signs_out", [True, False])
def test_another_user_of_the_browser_finds_and_sends_nothing_of_the_first(
    open_client: OpenClient, own_daemon: Daemon, signs_out: bool
) -> None:
    client = open_client(on=own_daemon)
    page = client.page
    client.message_box.fill("a secret of the owner")
    client.hold("**/v1/media?*")
    client.paste_files(file_payload("secret.png", draw_image("secret")))
    expect(client.attachments.get_by_role("progressbar")).to_have_count(1)
    page.wait_for_function("() => Object.values(localStorage).some((one) => one.includes('secret.png'))")
    key = own_daemon.ask("/v1/users", {"name": "ada", "role": "user"})["key"]
    if signs_out:
        page.get_by_role("button", name="Settings", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Sign out", exact=True).click()
    else:
        page.context.clear_cookies()
        page.reload()
    expect(page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()
    page.unroute_all()
    page.get_by_label("Password").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("button.sample")).to_have_count(4)
    expect(client.message_box).to_have_value("")
    expect(client.attachments).to_have_count(0)
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
    kept = """() => new Promise((resolve) => { const opening = indexedDB.open('loom'); opening.onsuccess = () => {
      const count = opening.result.transaction('pending_files').objectStore('pending_files').count();
      count.onsuccess = () => { opening.result.close(); resolve(count.result); } } })"""
    assert page.evaluate(kept) == 0


def _open_tab(client: Client) -> Client:
    """Open another tab of the same browser."""
    return Client(client.page.context.new_page(), client.daemon).enter()


def _copy_tab(client: Client) -> Client:
    """Open a tab that begins with the session storage of the first, as a duplicated one does."""
    with client.page.expect_popup() as opened:
        client.page.evaluate("void window.open(location.href)")
    return Client(opened.value, client.daemon)


@pytest.mark.parametrize("open_tab", [_open_tab, _copy_tab])
def test_each_tab_has_its_own_draft_for_a_new_session(client: Client, open_tab: Callable[[Client], Client]) -> None:
    client.message_box.fill("of the first tab")
    second = open_tab(client)
    expect(second.message_box).to_have_value("")
    second.message_box.fill("of the second tab")
    for one, words in ((client, "of the first tab"), (second, "of the second tab")):
        one.page.reload()
        expect(one.page.locator("button.sample")).to_have_count(4)
        expect(one.message_box).to_have_value(words)
    second.message_box.fill("!echo sent from the second tab")
    second.send_button.click()
    expect(second.answers.last).to_contain_text("sent from the second tab")
    expect(client.message_box).to_have_value("of the first tab")
    client.page.reload()
    expect(client.message_box).to_have_value("of the first tab")


def test_the_draft_of_a_closed_tab_is_in_the_next_tab_that_opens(client: Client) -> None:
    client.message_box.fill("of a tab that was closed")
    second = _open_tab(client)
    second.message_box.fill("of a tab that stays open")
    client.page.close()
    third = _open_tab(second)
    expect(third.message_box).to_have_value("of a tab that was closed")
    expect(second.message_box).to_have_value("of a tab that stays open")
    third.page.reload()
    expect(third.message_box).to_have_value("of a tab that was closed")
    second.page.close()
    third.message_box.fill("")
    fourth = _open_tab(third)
    expect(fourth.message_box).to_have_value("of a tab that stays open")


def test_the_drafts_of_a_user_are_there_after_their_login_has_expired(client: Client) -> None:
    client.message_box.fill("not sent yet")
    client.page.context.clear_cookies()
    client.page.reload()
    expect(client.page.get_by_role("heading", name="Sign in to Loom")).to_be_visible()
    client.page.goto(client.daemon.link())
    expect(client.message_box).to_have_value("not sent yet")
