"""What a model sees: the inspector, the switcher, the lightbox."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from browser.desk import Desk
from browser.samples import carried, picture


def row_of(drawer: Locator, name: str) -> Locator:
    """The line of a picture: the one that has a thumbnail of it."""
    return drawer.locator("tbody tr", has=drawer.page.get_by_role("button", name=re.compile(f"^Open {name}")))


def shown(desk: Desk) -> None:
    desk.paste_files(carried("shot.png", picture("Error 502", size=(1200, 800))))
    expect(desk.attachments).to_contain_text("1200×800")
    desk.say_and_hear("What is this?")


def test_pinning_a_block_in_the_inspector_changes_the_plan(desk: Desk) -> None:
    shown(desk)
    desk.page.locator(".chat").focus()
    desk.page.keyboard.press("i")
    drawer = desk.page.get_by_role("complementary", name="Context inspector")
    row = row_of(drawer, "shot.png")
    expect(row.locator(".cell").first).to_contain_text("full")
    before = drawer.locator(".columns li.main strong").inner_text()
    row.get_by_role("button", name=re.compile("full, .* tokens. Change")).first.click()
    desk.page.get_by_role("menuitem", name="send as text").click()
    expect(row.locator(".cell").first).to_contain_text("text")
    expect(drawer.locator(".columns li.main strong")).not_to_have_text(before)
    expect(desk.asked.last.locator("figcaption")).to_contain_text("text")
    drawer.get_by_role("button", name="Reasons").click()
    expect(row).to_contain_text("chosen by the user")
    row.get_by_role("button", name=re.compile("Change")).first.click()
    desk.page.get_by_role("menuitem", name=re.compile("^auto")).click()
    expect(row.locator(".cell").first).to_contain_text("full")


def test_your_words_for_a_picture_are_what_a_blind_model_reads(desk: Desk) -> None:
    shown(desk)
    desk.page.get_by_role("button", name="Context", exact=True).click()
    drawer = desk.page.get_by_role("complementary", name="Context inspector")
    row = row_of(drawer, "shot.png")
    row.get_by_role("button", name=re.compile("text, .* tokens. Change")).click()
    desk.page.get_by_role("menuitem", name=re.compile("^edit the words")).click()
    dialog = desk.page.get_by_role("dialog", name="What the blind will read")
    dialog.get_by_role("button", name="Describe it with a model").click()
    desk.page.get_by_role("menuitem", name=re.compile("^spark")).click()
    expect(dialog.get_by_role("status")).to_have_text("Description by loom/spark")
    expect(dialog.get_by_role("textbox", name="Words")).to_have_value(
        re.compile("1200×800|screenshot|picture|landscape")
    )
    dialog.get_by_role("textbox", name="Words").fill("The login form with a red line: Error 502")
    dialog.get_by_role("button", name="Keep").click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("The login form with a red line")
    drawer.get_by_role("button", name="Reasons").click()
    expect(row).to_contain_text("in the user's words")
    wire = desk.daemon.ask(f"/v1/sessions/{desk.session}/wire?model=ollama/llama3.2")
    assert "The login form with a red line: Error 502" in str(wire)
    desk.page.get_by_role("button", name=re.compile("^Open shot.png")).first.click()
    lightbox = desk.page.get_by_role("dialog", name="shot.png")
    expect(lightbox.locator("footer")).to_contain_text("The login form with a red line")
    lightbox.get_by_role("button", name="Edit the words").click()
    dialog.get_by_role("button", name="Take my words back").click()
    expect(row).not_to_contain_text("The login form")


def test_the_diff_says_what_is_new_changed_and_gone_since_the_last_request(desk: Desk) -> None:
    shown(desk)
    desk.page.get_by_role("button", name="Context", exact=True).click()
    drawer = desk.page.get_by_role("complementary", name="Context inspector")
    row = row_of(drawer, "shot.png")
    drawer.get_by_role("button", name="Diff with last request").click()
    since = drawer.get_by_text("Since the last request to spark")
    expect(since).to_contain_text("0 changed · 0 gone · 2 as before")
    row.get_by_role("button", name=re.compile("full, .* tokens. Change")).first.click()
    desk.page.get_by_role("menuitem", name="send as text").click()
    expect(since).to_contain_text("1 changed · 0 gone · 1 as before")
    expect(row).to_contain_text("changed")
    expect(row.locator(".was")).to_have_text("full")
    row.get_by_role("button", name=re.compile("text, .* tokens. Change")).first.click()
    desk.page.get_by_role("menuitem", name="leave out").click()
    expect(since).to_contain_text("0 changed · 1 gone · 1 as before")
    desk.box.fill("and a draft")
    expect(drawer.locator("tr.added", has_text="and a draft")).to_be_visible()


def test_several_marked_models_answer_the_last_message_as_siblings(desk: Desk) -> None:
    desk.say_and_hear("!echo one of several")
    desk.page.locator("button.model").click()
    dialog = desk.page.get_by_role("dialog", name="Whom to ask")
    dialog.get_by_role("searchbox").fill("spark")
    dialog.get_by_role("searchbox").press("Space")
    expect(dialog.get_by_role("option", name=re.compile("marked"))).to_have_count(1)
    dialog.get_by_role("searchbox").fill("llama")
    dialog.get_by_role("searchbox").press("Space")
    dialog.get_by_role("button", name="Ask these 2 the last message").click()
    expect(desk.page.get_by_role("alert", name="The turn failed")).to_be_visible(timeout=20_000)
    tree = desk.daemon.ask(f"/v1/sessions/{desk.session}")
    assert tree["model"] == "loom/spark", "who is asked next stays the same"


def test_a_smaller_budget_shows_what_would_have_to_go(desk: Desk) -> None:
    shown(desk)
    desk.page.get_by_role("button", name="Context", exact=True).click()
    drawer = desk.page.get_by_role("complementary", name="Context inspector")
    slider = drawer.get_by_role("slider")
    expect(row_of(drawer, "shot.png").locator(".cell").first).to_contain_text("full")
    slider.press("Home")
    expect(row_of(drawer, "shot.png").locator(".cell").first).not_to_contain_text("full")


def test_the_draft_counts_before_it_is_sent(desk: Desk) -> None:
    desk.say_and_hear("!echo hello")
    meter = desk.page.get_by_role("button", name=re.compile("The next request"))
    expect(meter).to_contain_text(" / ")
    before = meter.inner_text()
    desk.box.fill("many words " * 300)
    expect(meter).not_to_have_text(before)


def test_switching_the_model_says_first_what_it_would_not_see(desk: Desk) -> None:
    shown(desk)
    desk.page.locator("button.model").click()
    dialog = desk.page.get_by_role("dialog", name="Whom to ask")
    preview = dialog.get_by_role("region", name="What would change")
    expect(preview).to_contain_text("is asked now")
    dialog.get_by_role("searchbox").fill("llama")
    expect(preview).to_contain_text("shot.png")
    expect(preview.locator(".badge").first).to_contain_text("text")
    dialog.get_by_role("button", name=re.compile("^Use llama")).click()
    expect(desk.page.locator("button.model")).to_contain_text("llama3.2")
    expect(desk.asked.last.locator("figcaption")).to_contain_text("text")
    assert desk.daemon.ask(f"/v1/sessions/{desk.session}")["model"] == "ollama/llama3.2"


def test_the_lightbox_zooms_pans_and_flips_to_what_the_model_gets(desk: Desk) -> None:
    shown(desk)
    opener = desk.page.get_by_role("button", name=re.compile("^Open shot.png"))
    opener.click()
    box = desk.page.get_by_role("dialog", name="shot.png")
    image = box.get_by_role("img")
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1200
    expect(box.locator("footer")).to_contain_text("1200×800")
    image.hover()
    desk.page.mouse.wheel(0, -400)
    expect(box.locator("footer")).to_contain_text("%")
    before = image.bounding_box()
    desk.page.mouse.down()
    desk.page.mouse.move(500, 300)
    desk.page.mouse.up()
    assert image.bounding_box() != before
    desk.page.keyboard.press("0")
    expect(box.get_by_role("button", name=re.compile("as spark gets it"))).to_have_attribute("aria-pressed", "true")
    assert "v=sent%3Aloom%2Fspark" in (image.get_attribute("src") or "")
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    desk.page.keyboard.press("0")
    desk.page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    expect(opener).to_be_focused()


def test_keys_are_set_and_forgotten_and_never_shown(desk: Desk) -> None:
    desk.page.get_by_role("button", name="Settings").click()
    dialog = desk.page.get_by_role("dialog", name="Settings")
    dialog.get_by_role("button", name="Set the key of mistral").click()
    dialog.get_by_label("Key for mistral").fill("sk-not-a-real-key-7788")
    dialog.get_by_role("button", name="Keep").click()
    expect(dialog).to_contain_text("ends in 7788")
    assert "sk-not-a-real-key" not in desk.page.content()
    dialog.get_by_role("button", name="Forget the key of mistral").click()
    expect(dialog.get_by_role("button", name="Set the key of mistral")).to_be_visible()
    expect(dialog).to_contain_text("Pictures in a message")


def test_the_theme_can_be_chosen_and_stays(desk: Desk) -> None:
    desk.page.get_by_role("button", name="Settings").click()
    desk.page.get_by_role("radio", name="dark").check()
    desk.page.reload()
    assert desk.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"
