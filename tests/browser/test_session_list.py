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
    before = desk.page.url
    palette.get_by_role("combobox").press("Enter")
    expect(palette).to_have_count(0)
    assert desk.page.url == before


def test_a_session_is_renamed_in_its_row(desk: Desk) -> None:
    desk.say_and_hear("!echo rename me")
    row = desk.page.locator(".session.here")
    row.hover()
    row.get_by_role("button", name=re.compile("More about")).click()
    desk.page.get_by_role("menuitem", name="Rename").click()
    desk.page.get_by_role("textbox", name="Title").fill("Herons")
    desk.page.get_by_role("textbox", name="Title").press("Enter")
    expect(row).to_contain_text("Herons")
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("Herons")


def test_a_session_is_deleted_after_a_question(desk: Desk) -> None:
    desk.say_and_hear("!echo delete me")
    session = desk.session
    row = desk.page.locator(".session.here")
    row.hover()
    row.get_by_role("button", name=re.compile("More about")).click()
    desk.page.get_by_role("menuitem", name="Delete").click()
    dialog = desk.page.get_by_role("dialog", name=re.compile("Delete"))
    dialog.get_by_role("button", name="Delete").click()
    expect(desk.page.get_by_role("heading", name=re.compile("Drop a picture"))).to_be_visible()
    expect(desk.page.locator(f"a[href='#/s/{session}']")).to_have_count(0)
    assert session not in [one["id"] for one in desk.daemon.ask("/v1/sessions")["sessions"]]
