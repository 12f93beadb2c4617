"""What a person does first: show something, ask, and read the answer."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from browser.desk import Desk, OpenDesk
from browser.samples import carried, manual, picture


def test_one_click_on_a_sample_gives_an_answer_without_any_form(desk: Desk) -> None:
    desk.page.get_by_role("button", name="A screenshot").click()
    expect(desk.answers.last).to_contain_text("900×500")
    expect(desk.page.get_by_role("button", name=re.compile("^Open login.png"))).to_be_visible()
    expect(desk.page.get_by_role("navigation", name="Sessions")).to_contain_text("What is wrong here?")
    assert desk.foreign == []


def test_a_picture_from_the_clipboard_is_attached_sent_and_seen(desk: Desk) -> None:
    desk.paste_files(carried("image.png", picture("pasted", colour="#0b6b5d")))
    expect(desk.attachments).to_have_count(1)
    expect(desk.attachments).to_contain_text("pasted.png")
    expect(desk.attachments).to_contain_text("640×400")
    desk.say("What do you see?")
    expect(desk.answers.last).to_contain_text("640×400")
    thumbnail = desk.asked.last.get_by_role("img")
    expect(thumbnail).to_be_visible()
    assert thumbnail.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 100
    expect(desk.asked.last).to_contain_text("full")


def test_the_same_picture_is_not_uploaded_twice(desk: Desk) -> None:
    shot = carried("image.png", picture("only once", colour="#444444"))
    desk.paste_files(shot)
    expect(desk.attachments).to_contain_text("640×400")
    uploads = [url for url in desk.requests if "/v1/media?name=" in url]
    desk.paste_files(shot)
    expect(desk.attachments).to_have_count(2)
    expect(desk.attachments.last).to_contain_text("640×400")
    assert len(uploads) == 1
    assert [url for url in desk.requests if "/v1/media?name=" in url] == uploads


def test_two_files_dropped_anywhere_are_both_sent_in_order(desk: Desk) -> None:
    first = carried("first.png", picture("first", colour="#7a4d00"))
    second = carried("second.jpg", picture("second", colour="#a3271b", form="JPEG"), "image/jpeg")
    desk.drop_files(first, second)
    expect(desk.attachments).to_have_count(2)
    expect(desk.attachments.last).to_contain_text("640×400")
    desk.say("Compare them")
    expect(desk.asked.last.locator("figcaption")).to_have_count(2)
    assert [words.split(" ·")[0] for words in desk.asked.last.locator("figcaption").all_inner_texts()] == [
        "first.png",
        "second.jpg",
    ]


def test_a_citation_names_its_page_and_opens_it(desk: Desk) -> None:
    desk.page.get_by_role("button", name=re.compile("^A leaflet")).click()
    source = desk.answers.last.get_by_role("list", name="Sources").get_by_role("button").first
    expect(source).to_have_text(re.compile(r"^leaflet.pdf p. \d$"))
    name = source.inner_text()
    source.click()
    page = desk.page.get_by_role("dialog", name=name).get_by_role("img")
    assert page.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 300


def test_pages_of_a_pdf_are_shown_and_a_range_of_them_is_sent(desk: Desk) -> None:
    desk.page.locator("[data-pick=files]").set_input_files(manual())
    expect(desk.attachments).to_contain_text("pages 1–20 of 32")
    desk.attachments.get_by_role("button", name=re.compile("pages 1–20")).click()
    strip = desk.page.get_by_role("list", name=re.compile("Pages of manual"))
    expect(strip.get_by_role("button")).to_have_count(32)
    last = desk.page.get_by_role("slider", name="Last page")
    last.focus()
    for _ in range(15):
        last.press("ArrowLeft")
    desk.page.get_by_role("slider", name="First page").press("ArrowRight")
    expect(desk.attachments).to_contain_text("pages 2–5 of 32")
    expect(strip.locator("li.in")).to_have_count(4)
    image = strip.get_by_role("button", name="Open page 2", exact=True).locator("img")
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 50
    desk.say("What is this about?")
    expect(desk.asked.last).to_contain_text("pages 2–5 of 32")
    expect(desk.asked.last.locator(".page-row li")).to_have_count(4)


def test_an_upload_can_be_cancelled_and_a_refused_one_says_why(desk: Desk) -> None:
    desk.page.route("**/v1/media?name=*", lambda _: None)
    desk.paste_files(carried("slow.png", picture("slow")))
    expect(desk.send_button).to_be_disabled()
    desk.attachments.get_by_role("button", name="Cancel slow.png").click()
    expect(desk.attachments).to_have_count(0)
    desk.page.unroute_all(behavior="ignoreErrors")
    desk.paste_files(carried("broken.png", b"\x89PNG\r\n\x1a\nnot a picture"))
    expect(desk.attachments.locator("..")).to_contain_text(re.compile("broken.png"))
    expect(desk.attachments).to_have_class(re.compile("failed"))


def test_an_answer_streams_in_and_the_markdown_before_its_tail_stays_put(desk: Desk) -> None:
    desk.say("!slow 60tps\n!think 300ms\n!echo # Title\n!tokens 90")
    answer = desk.answers.last
    expect(answer.get_by_role("heading", name="Title")).to_be_visible()
    answer.get_by_role("heading", name="Title").evaluate("(heading) => (heading.seen = true)")
    expect(answer.locator("details.thinking")).to_contain_text("Thought")
    desk.quiet()
    assert answer.get_by_role("heading", name="Title").evaluate("(heading) => heading.isConnected")
    expect(answer.locator(".facts")).to_contain_text(re.compile(r" s · .* in · \d+ out · free"))


def test_a_tool_shows_its_card_and_its_picture(desk: Desk) -> None:
    desk.say("!tool read_file shots/login.png")
    card = desk.page.get_by_role("region", name="Tool read_file")
    expect(card.get_by_role("img")).to_be_visible()
    desk.quiet()
    expect(card).to_contain_text("shots/login.png")
    card.locator("summary").click()
    expect(card.locator("dl")).to_contain_text("path")


def test_a_failed_turn_says_what_happened_and_offers_a_next_step(desk: Desk) -> None:
    desk.say("!fail 400 the provider's own words")
    failure = desk.page.get_by_role("alert", name="The turn failed")
    expect(failure).to_be_visible()
    expect(failure).to_contain_text("the provider's own words")
    expect(failure.get_by_role("button", name="Try again")).to_be_visible()


def test_messages_wait_in_line_while_an_answer_runs(desk: Desk) -> None:
    desk.say("!slow 30tps\n!tokens 200")
    expect(desk.page.locator(".answer[aria-busy=true]")).to_be_visible()
    desk.paste_files(carried("shot.png", picture("shot")))
    expect(desk.attachments).to_contain_text("640×400")
    desk.say("!echo second")
    queue = desk.page.get_by_role("region", name="Queued messages")
    expect(queue).to_contain_text("!echo second")
    desk.say("!echo third")
    expect(queue.get_by_role("listitem")).to_have_count(2)
    queue.get_by_role("button", name=re.compile("^Take .*third")).click()
    expect(queue.get_by_role("listitem")).to_have_count(1)
    queue.get_by_role("button", name=re.compile("^Edit .*second")).click()
    expect(queue).to_have_count(0)
    expect(desk.box).to_have_value("!echo second")
    expect(desk.attachments).to_contain_text("shot.png")
    desk.say("!echo second, better")
    desk.page.get_by_role("button", name="Stop").click()
    expect(desk.answers.last).to_contain_text("second, better", timeout=20_000)
    desk.quiet()
    expect(desk.asked).to_have_count(2)


def test_escape_stops_an_answer(desk: Desk) -> None:
    desk.say("!slow 5tps\n!tokens 400")
    expect(desk.page.locator(".answer[aria-busy=true] .prose")).to_be_visible()
    desk.page.keyboard.press("Escape")
    desk.quiet()


def test_an_approval_shows_the_real_command_and_takes_the_answer(desk: Desk) -> None:
    desk.say('!tool run_command {"command": "echo out > made.txt"}')
    card = desk.page.get_by_role("form", name="Approve run_command?")
    expect(card).to_contain_text("echo out > made.txt")
    assert not (desk.daemon.workspace / "made.txt").exists()
    card.get_by_role("button", name="Allow once").click()
    desk.quiet()
    expect(card).to_have_count(0)
    assert (desk.daemon.workspace / "made.txt").read_text() == "out\n"


def test_a_refusal_carries_its_reason(desk: Desk) -> None:
    desk.say('!tool run_command {"command": "echo no > never.txt"}')
    card = desk.page.get_by_role("form", name="Approve run_command?")
    card.get_by_role("button", name="No, because").click()
    desk.page.get_by_role("textbox", name="Why not?").fill("too risky")
    card.get_by_role("button", name="Refuse").click()
    desk.quiet()
    assert not (desk.daemon.workspace / "never.txt").exists()
    expect(desk.page.get_by_role("region", name="Tool run_command")).to_contain_text("too risky")


def test_an_approval_can_be_answered_on_another_page(open_desk: OpenDesk) -> None:
    first = open_desk()
    first.say('!tool run_command {"command": "echo two > second.txt"}')
    expect(first.page.get_by_role("form", name="Approve run_command?")).to_be_visible()
    second = open_desk(phone=True, path=f"/#/s/{first.session}")
    second.page.get_by_role("button", name="Allow once").click()
    first.quiet()
    assert (first.daemon.workspace / "second.txt").exists()


def test_files_of_the_workspace_are_offered_behind_an_at_sign_and_sent(desk: Desk) -> None:
    desk.say_and_hear("!echo hello")
    desk.box.press_sequentially("look at @dep")
    option = desk.page.get_by_role("option", name="deploy.log")
    expect(option).to_be_visible()
    desk.box.press("Enter")
    expect(desk.box).to_have_value("look at @deploy.log ")
    desk.box.press("Enter")
    expect(desk.asked.last).to_contain_text("deploy.log")
    desk.quiet()


def test_slash_offers_commands(desk: Desk) -> None:
    desk.box.press_sequentially("/set")
    expect(desk.page.get_by_role("option", name="/settings keys, models, limits")).to_be_visible()
    desk.box.press("Enter")
    expect(desk.page.get_by_role("dialog", name="Settings")).to_be_visible()
    expect(desk.box).to_have_value("")


def test_a_phone_offers_its_camera(open_desk: OpenDesk) -> None:
    phone = open_desk(phone=True)
    camera = phone.page.locator("[data-pick=camera]")
    expect(phone.page.get_by_role("button", name="Take a photo")).to_be_visible()
    assert camera.get_attribute("capture") == "environment"
    camera.set_input_files({"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": picture("photo", form="JPEG")})
    expect(phone.attachments).to_contain_text("640×400")
    phone.send_button.click()
    expect(phone.answers.last).to_contain_text("640×400")


def test_everything_can_be_reached_and_left_by_keyboard(desk: Desk) -> None:
    desk.box.press("Tab")
    desk.page.locator("body").press("?")
    dialog = desk.page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    desk.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    desk.page.keyboard.press("m")
    expect(desk.page.get_by_role("dialog", name="Whom to ask")).to_be_visible()
    desk.page.keyboard.press("Escape")
    desk.page.keyboard.press("/")
    expect(desk.box).to_be_focused()


def test_screen_readers_hear_of_the_answer_apart_from_the_stream(desk: Desk) -> None:
    desk.say("!echo one two three")
    status = desk.page.get_by_role("status")
    expect(status).to_have_text(re.compile("^Done, 3 words"))
    assert desk.page.locator(".chat [aria-live]").count() == 0


def test_targets_are_large_enough_for_a_finger(open_desk: OpenDesk) -> None:
    desk = open_desk()
    desk.say_and_hear("!echo hello")
    small = desk.page.evaluate(
        """[...document.querySelectorAll('button, a[href], input:not([hidden])')]
          .filter((one) => one.checkVisibility() && !one.closest('.prose') && !one.matches('.skip'))
          .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0 && (box.width < 24 || box.height < 24)).map(([html]) => html)"""
    )
    assert small == []
