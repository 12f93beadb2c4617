"""Nothing is overwritten: edits, new answers and other ends stay reachable."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.desk import Desk


def test_editing_a_message_makes_a_sibling_and_the_picker_goes_back(desk: Desk) -> None:
    desk.say_and_hear("!echo one")
    desk.say_and_hear("!echo two")
    for words in ("two, better", "two, best"):
        desk.asked.last.hover()
        desk.asked.last.get_by_role("button", name="Edit and resend").click()
        expect(desk.page.get_by_text("the old one stays")).to_be_visible()
        desk.box.fill(f"!echo {words}")
        desk.send_button.click()
        expect(desk.answers.last).to_contain_text(words)
        desk.quiet()
    picker = desk.asked.last.get_by_role("group", name="Version 3 of 3")
    expect(picker).to_contain_text("3/3")
    picker.get_by_role("button", name="Previous version").click()
    expect(desk.answers.last).to_contain_text("two, better")
    expect(desk.asked.last).to_contain_text("2/3")
    desk.page.keyboard.press("Escape")
    desk.page.locator(".chat").focus()
    desk.page.keyboard.press("[")
    expect(desk.asked.last).to_contain_text("1/3")
    expect(desk.asked).to_have_count(2)


def test_answering_again_keeps_the_old_answer(desk: Desk) -> None:
    desk.say('!tool run_command {"command": "date +%N"}')
    desk.page.get_by_role("button", name=re.compile("^Always")).click()
    desk.quiet()
    first = desk.answers.last.locator(".prose").last.inner_text()
    desk.answers.last.get_by_role("button", name="Answer again").click()
    expect(desk.answers.last.get_by_role("group", name="Version 2 of 2")).to_be_visible()
    desk.quiet()
    expect(desk.answers.last.locator(".prose").last).not_to_have_text(first)
    desk.answers.last.get_by_role("button", name="Previous version").click()
    expect(desk.answers.last.locator(".prose").last).to_have_text(first)
    expect(desk.asked).to_have_count(1)


def test_arrow_up_edits_the_last_message(desk: Desk) -> None:
    desk.say_and_hear("!echo again")
    desk.box.press("ArrowUp")
    expect(desk.box).to_have_value("!echo again")
    desk.box.press("Escape")
    expect(desk.box).to_have_value("")


def test_the_forest_goes_names_branches_and_compares(desk: Desk) -> None:
    desk.say_and_hear("!echo trunk")
    desk.say_and_hear("!echo left end")
    desk.edit_last("right end")
    desk.page.get_by_role("button", name="Branches").click()
    forest = desk.page.get_by_role("complementary", name="Branches")
    left = forest.get_by_role("treeitem", name=re.compile("spark.*left end"))
    right = forest.get_by_role("treeitem", name=re.compile("spark.*right end"))
    expect(right).to_contain_text("you are here")
    expect(forest).to_contain_text("2 ends")

    left.click()
    forest.get_by_role("button", name="Mark").click()
    right.click()
    forest.get_by_role("button", name="Mark").click()
    forest.get_by_role("button", name="Compare the two").click()
    compared = desk.page.get_by_role("dialog", name="Side by side")
    expect(compared.locator(".side").first).to_contain_text("left end")
    expect(compared.locator(".side").last).to_contain_text("right end")
    compared.get_by_role("button", name="Close").click()

    left.click()
    forest.get_by_role("button", name="Name").click()
    forest.get_by_role("textbox", name="Name of this place").fill("shipped")
    forest.get_by_role("button", name="Keep").click()
    expect(left).to_contain_text("shipped")

    left.focus()
    desk.page.keyboard.press("Enter")
    expect(left).to_contain_text("you are here")
    desk.page.keyboard.press("ArrowLeft")
    expect(forest.get_by_role("treeitem", selected=True)).to_contain_text("!echo left end")
    desk.page.keyboard.press("ArrowLeft")
    desk.page.keyboard.press("n")
    expect(forest).to_have_count(0)
    expect(desk.box).to_be_focused()
    expect(desk.answers).to_have_count(1)
    desk.say_and_hear("!echo third end")
    expect(desk.asked.last).to_contain_text("3/3")


def test_a_fork_is_a_new_session_with_the_same_past(desk: Desk) -> None:
    desk.say_and_hear("!echo shared past")
    before = desk.session
    desk.answers.last.get_by_role("button", name="More about this answer").click()
    desk.page.get_by_role("menuitem", name="Fork into a new session").click()
    desk.page.wait_for_function("(old) => !location.hash.endsWith(old) && location.hash.length > 5", arg=before)
    expect(desk.answers.last).to_contain_text("shared past")
