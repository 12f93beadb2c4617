"""Nothing is overwritten: edits, new answers and other ends stay reachable."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.client import Client


def test_editing_a_message_makes_a_sibling_and_the_picker_goes_back(client: Client) -> None:
    client.send_and_wait("!echo one")
    client.send_and_wait("!echo two")
    for words in ("two, better", "two, best"):
        client.user_messages.last.hover()
        client.user_messages.last.get_by_role("button", name="Edit and resend").click()
        expect(client.page.get_by_text("The original message is kept")).to_be_visible()
        client.message_box.fill(f"!echo {words}")
        client.send_button.click()
        expect(client.answers.last).to_contain_text(words)
        client.wait_idle()
    picker = client.user_messages.last.get_by_role("group", name="Version 3 of 3")
    expect(picker).to_contain_text("3/3")
    picker.get_by_role("button", name="Previous version").click()
    expect(client.answers.last).to_contain_text("two, better")
    expect(client.user_messages.last).to_contain_text("2/3")
    client.page.keyboard.press("Escape")
    client.page.locator(".chat").focus()
    client.page.keyboard.press("[")
    expect(client.user_messages.last).to_contain_text("1/3")
    expect(client.user_messages).to_have_count(2)


def test_answering_again_keeps_the_old_answer(client: Client) -> None:
    client.send('!tool run_command {"command": "date +%N"}')
    client.page.get_by_role("button", name=re.compile("^Always allow")).click()
    client.wait_idle()
    first = client.answers.last.locator(".prose").last.inner_text()
    client.answers.last.get_by_role("button", name="Regenerate answer").click()
    expect(client.answers.last.get_by_role("group", name="Version 2 of 2")).to_be_visible()
    client.wait_idle()
    expect(client.answers.last.locator(".prose").last).not_to_have_text(first)
    client.answers.last.get_by_role("button", name="Previous version").click()
    expect(client.answers.last.locator(".prose").last).to_have_text(first)
    expect(client.user_messages).to_have_count(1)


def test_arrow_up_edits_the_last_message(client: Client) -> None:
    client.send_and_wait("!echo again")
    client.message_box.press("ArrowUp")
    expect(client.message_box).to_have_value("!echo again")
    client.message_box.press("Escape")
    expect(client.message_box).to_have_value("")


def test_branches_are_switched_bookmarked_and_compared(client: Client) -> None:
    client.send_and_wait("!echo trunk")
    client.send_and_wait("!echo left end")
    client.edit_last("right end")
    client.page.get_by_role("button", name="Branches").click()
    panel = client.page.get_by_role("complementary", name="Branches")
    left = panel.get_by_role("treeitem", name=re.compile("spark.*left end"))
    right = panel.get_by_role("treeitem", name=re.compile("spark.*right end"))
    expect(right).to_contain_text("current")
    expect(panel).to_contain_text("2 branches")

    left.click()
    panel.get_by_role("button", name="Select").click()
    right.click()
    panel.get_by_role("button", name="Select").click()
    panel.get_by_role("button", name="Compare 2").click()
    compared = client.page.get_by_role("dialog", name="Side by side")
    expect(compared.locator(".side").first).to_contain_text("left end")
    expect(compared.locator(".side").last).to_contain_text("right end")
    compared.get_by_role("button", name="Close").click()

    left.click()
    panel.get_by_role("button", name="Bookmark").click()
    panel.get_by_role("textbox", name="Bookmark name").fill("shipped")
    panel.get_by_role("button", name="Save").click()
    expect(left).to_contain_text("shipped")

    left.focus()
    client.page.keyboard.press("Enter")
    expect(left).to_contain_text("current")
    client.page.keyboard.press("ArrowLeft")
    expect(panel.get_by_role("treeitem", selected=True)).to_contain_text("!echo left end")
    client.page.keyboard.press("ArrowLeft")
    client.page.keyboard.press("n")
    expect(panel).to_have_count(0)
    expect(client.message_box).to_be_focused()
    expect(client.answers).to_have_count(1)
    client.send_and_wait("!echo third end")
    expect(client.user_messages.last).to_contain_text("3/3")


def test_a_fork_is_a_new_session_with_the_same_past(client: Client) -> None:
    client.send_and_wait("!echo shared past")
    before = client.session
    client.answers.last.get_by_role("button", name="More actions").click()
    client.page.get_by_role("menuitem", name="Fork into a new session").click()
    client.page.wait_for_function("(old) => !location.hash.endsWith(old) && location.hash.length > 5", arg=before)
    expect(client.answers.last).to_contain_text("shared past")
