"""The list of sessions: searching, renaming, deleting."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.desk import Desk


def test_search_finds_words_inside_messages(desk: Desk) -> None:
    desk.say_and_hear("!echo the heron is a patient bird")
    desk.page.get_by_role("searchbox", name=re.compile("Search sessions")).fill("heron")
    found = desk.page.get_by_role("navigation", name="Sessions").locator(".found")
    expect(found.first).to_contain_text("heron")
    desk.page.keyboard.press("Control+k")
    palette = desk.page.get_by_role("dialog", name="Search")
    palette.get_by_role("combobox").fill("patient bird")
    expect(palette.get_by_role("option", name=re.compile("message.*patient")).first).to_be_visible()
    palette.get_by_role("option", name=re.compile("message.*patient")).first.click()
    expect(palette).to_have_count(0)
    expect(desk.page.locator(".sought")).to_contain_text("heron")


def test_a_search_result_opens_the_session_at_the_message_even_far_up_or_on_another_branch(desk: Desk) -> None:
    desk.say_and_hear("!echo the bittern hides in the reeds")
    session = desk.session
    desk.edit_last("the other branch")
    for number in range(14):
        desk.say_and_hear(f"!echo filler {number}\n" + "more\n" * 12)
    desk.page.get_by_role("button", name="New session").click()
    desk.page.get_by_role("searchbox", name=re.compile("Search sessions")).fill("bittern")
    desk.page.locator(".found a").first.click()
    expect(desk.page.locator(".sought")).to_contain_text("bittern")
    expect(desk.page.locator(".sought")).to_be_in_viewport()
    assert session in desk.page.url
    desk.page.goto(f"{desk.daemon.url}/#/s/{session}/nonsense")
    expect(desk.page.get_by_text("That is not the id of a message")).to_be_visible()


def test_an_archived_session_leaves_the_list_and_comes_back(desk: Desk) -> None:
    desk.say_and_hear("!echo put me away")
    expect(desk.in_list("Archive")).to_have_count(0)
    desk.page.get_by_role("button", name="Archived").click()
    row = desk.in_list("Take out of the archive")
    expect(row).to_have_count(0)
    desk.page.get_by_role("button", name="Archived").click()
    expect(row).to_contain_text("put me away")


def test_a_session_is_renamed_in_its_row(desk: Desk) -> None:
    desk.say_and_hear("!echo rename me")
    row = desk.in_list("Rename")
    desk.page.get_by_role("textbox", name="Title").fill("Herons")
    desk.page.get_by_role("textbox", name="Title").press("Enter")
    expect(row).to_contain_text("Herons")
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("Herons")


def test_a_session_is_deleted_after_a_question(desk: Desk) -> None:
    desk.say_and_hear("!echo delete me")
    session = desk.session
    desk.in_list("Delete")
    dialog = desk.page.get_by_role("dialog", name=re.compile("Delete"))
    dialog.get_by_role("button", name="Delete").click()
    expect(desk.page.get_by_role("heading", name=re.compile("Drop a picture"))).to_be_visible()
    expect(desk.page.locator(f"a[href='#/s/{session}']")).to_have_count(0)
    assert session not in [one["id"] for one in desk.daemon.ask("/v1/sessions")["sessions"]]
