"""The list of sessions: searching, renaming, deleting."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.client import Client, Daemon, OpenClient
from browser.samples import draw_image, file_payload


def test_search_finds_words_inside_messages(client: Client) -> None:
    client.send_and_wait("!echo the heron is a patient bird")
    client.page.get_by_role("searchbox", name=re.compile("Search sessions")).fill("heron")
    found = client.page.get_by_role("navigation", name="Sessions").locator(".found")
    expect(found.first).to_contain_text("heron")
    client.page.keyboard.press("Control+k")
    palette = client.page.get_by_role("dialog", name="Search")
    palette.get_by_role("combobox").fill("patient bird")
    expect(palette.get_by_role("option", name=re.compile("message.*patient")).first).to_be_visible()
    palette.get_by_role("option", name=re.compile("message.*patient")).first.click()
    expect(palette).to_have_count(0)
    expect(client.page.locator(".linked")).to_contain_text("heron")


def test_a_search_result_opens_the_session_at_the_message_even_far_up_or_on_another_branch(client: Client) -> None:
    client.send_and_wait("!echo the bittern hides in the reeds")
    session = client.session
    client.edit_last("the other branch")
    for number in range(14):
        client.send_and_wait(f"!echo filler {number}\n" + "more\n" * 12)
    client.page.get_by_role("button", name="New session").click()
    client.page.get_by_role("searchbox", name=re.compile("Search sessions")).fill("bittern")
    client.page.locator(".found a").first.click()
    expect(client.page.locator(".linked")).to_contain_text("bittern")
    expect(client.page.locator(".linked")).to_be_in_viewport()
    assert session in client.page.url
    client.page.goto(f"{client.daemon.url}/#/s/{session}/nonsense")
    expect(client.page.get_by_text("Not a message id")).to_be_visible()


def test_a_link_to_a_message_far_up_shows_it_when_the_page_loads_and_after_a_reload(
    open_client: OpenClient, daemon: Daemon
) -> None:
    session = daemon.ask("/v1/sessions", {"title": "a long one"})["id"]
    for number in range(60):
        daemon.ask(f"/v1/sessions/{session}/messages", {"text": f"!echo message {number}"})
    while daemon.ask(f"/v1/sessions/{session}")["state"] != "idle":
        pass
    messages = daemon.ask(f"/v1/sessions/{session}/messages?limit=200")["messages"]
    assert len(messages) == 120
    client = open_client(path=f"/#/s/{session}/{messages[10]['node']}")
    for _ in range(2):
        expect(client.page.locator(".linked")).to_contain_text("message 5")
        expect(client.page.locator(".linked")).to_be_in_viewport()
        client.page.wait_for_timeout(300)  # what is loaded and measured later does not move it away
        expect(client.page.locator(".linked")).to_be_in_viewport()
        client.page.reload()


def test_an_archived_session_leaves_the_list_and_comes_back(client: Client) -> None:
    client.send_and_wait("!echo put me away")
    expect(client.choose_in_list("Archive")).to_have_count(0)
    client.page.get_by_role("button", name="Archived").click()
    row = client.choose_in_list("Unarchive")
    expect(row).to_have_count(0)
    client.page.get_by_role("button", name="Archived").click()
    expect(row).to_contain_text("put me away")


def test_a_session_is_renamed_in_its_row(client: Client) -> None:
    client.send_and_wait("!echo rename me")
    row = client.choose_in_list("Rename")
    client.page.get_by_role("textbox", name="Title").fill("Herons")
    client.page.get_by_role("textbox", name="Title").press("Enter")
    expect(row).to_contain_text("Herons")
    expect(client.page.get_by_role("heading", level=1)).to_have_text("Herons")


def test_a_session_is_deleted_after_a_question(client: Client) -> None:
    client.send_and_wait("!echo delete me")
    session = client.session
    client.choose_in_list("Delete")
    dialog = client.page.get_by_role("dialog", name=re.compile("Delete"))
    dialog.get_by_role("button", name="Delete").click()
    expect(client.page.get_by_role("heading", name=re.compile("Drop an image"))).to_be_visible()
    expect(client.page.locator(f"a[href='#/s/{session}']")).to_have_count(0)
    assert session not in [one["id"] for one in client.daemon.ask("/v1/sessions")["sessions"]]


def test_a_session_that_is_deleted_elsewhere_says_so_and_leaves_the_draft(client: Client, daemon: Daemon) -> None:
    client.send_and_wait("!echo soon gone")
    session = client.session
    client.paste_files(file_payload("plot.png", draw_image("kept")))
    expect(client.attachments).to_have_count(1)
    client.message_box.fill("half a thought")
    daemon.ask(f"/v1/sessions/{session}", method="DELETE")
    expect(client.page.get_by_text("This session was deleted. Your draft is kept for a new session.")).to_be_visible()
    expect(client.page.locator("button.sample")).to_have_count(4)
    expect(client.message_box).to_have_value("half a thought")
    expect(client.attachments).to_have_count(1)
    client.page.reload()
    expect(client.message_box).to_have_value("half a thought")
    client.message_box.press("Enter")
    expect(client.user_messages).to_have_count(1)
    expect(client.page.locator(".user-message img")).to_have_count(1)


def test_what_is_typed_while_the_search_is_being_loaded_is_searched(client: Client) -> None:
    client.send_and_wait("!echo a needle in the hay")
    expect(client.message_box).to_be_focused()
    release = client.hold("**/assets/deferred-*.js")
    client.page.reload()
    expect(client.message_box).to_be_focused()
    client.page.keyboard.press("Control+k")
    client.page.keyboard.type("neeedle")
    client.page.keyboard.press("Backspace")
    for _ in range(3):
        client.page.keyboard.press("Backspace")
    client.page.keyboard.type("dle")
    release()
    search = client.page.get_by_role("combobox", name="Search everything")
    expect(search).to_have_value("needle")
    expect(search).to_be_focused()
    expect(client.page.get_by_role("option", name=re.compile("needle in the hay")).first).to_be_visible()
    expect(client.message_box).to_have_value("")
    client.page.keyboard.press("Escape")
    expect(client.message_box).to_be_focused()


def test_the_address_of_a_session_that_is_gone_leads_to_the_start_and_says_why(client: Client) -> None:
    client.page.goto(f"{client.daemon.url}/#/s/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    expect(client.page.get_by_text("Session not found.")).to_be_visible()
    expect(client.page.get_by_text("It was deleted, or the link is incomplete.")).to_be_visible()
    expect(client.page.locator("button.sample")).to_have_count(4)
    client.send_and_wait("!echo a new one")
    expect(client.user_messages).to_have_count(1)
