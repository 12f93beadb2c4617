"""What a person does first: show something, ask, and read the answer."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from browser.client import Client, OpenClient
from browser.samples import draw_image, file_payload, manual_pdf


def test_one_click_on_a_sample_gives_an_answer_without_any_form(client: Client) -> None:
    client.page.get_by_role("button", name="A screenshot").click()
    expect(client.answers.last).to_contain_text("900×500")
    expect(client.page.get_by_role("button", name=re.compile("^Open login.png"))).to_be_visible()
    expect(client.page.get_by_role("navigation", name="Sessions")).to_contain_text("What is wrong here?")
    assert client.foreign == []


def test_a_picture_from_the_clipboard_is_attached_sent_and_seen(client: Client) -> None:
    client.paste_files(file_payload("image.png", draw_image("pasted", color="#0b6b5d")))
    expect(client.attachments).to_have_count(1)
    expect(client.attachments).to_contain_text("pasted.png")
    expect(client.attachments).to_contain_text("640×400")
    client.send("What do you see?")
    expect(client.answers.last).to_contain_text("640×400")
    thumbnail = client.user_messages.last.get_by_role("img")
    expect(thumbnail).to_be_visible()
    assert thumbnail.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 100
    expect(client.user_messages.last).to_contain_text("full")


def test_the_same_picture_is_not_uploaded_twice(client: Client) -> None:
    shot = file_payload("image.png", draw_image("only once", color="#444444"))
    client.paste_files(shot)
    expect(client.attachments).to_contain_text("640×400")
    uploads = [url for url in client.requests if "/v1/media?name=" in url]
    client.paste_files(shot)
    expect(client.attachments).to_have_count(2)
    expect(client.attachments.last).to_contain_text("640×400")
    assert len(uploads) == 1
    assert [url for url in client.requests if "/v1/media?name=" in url] == uploads


def test_two_files_dropped_anywhere_are_both_sent_in_order(client: Client) -> None:
    first = file_payload("first.png", draw_image("first", color="#7a4d00"))
    second = file_payload("second.jpg", draw_image("second", color="#a3271b", form="JPEG"), "image/jpeg")
    client.drop_files(first, second)
    expect(client.attachments).to_have_count(2)
    expect(client.attachments.last).to_contain_text("640×400")
    client.send("Compare them")
    expect(client.user_messages.last.locator("figcaption")).to_have_count(2)
    assert [words.split(" ·")[0] for words in client.user_messages.last.locator("figcaption").all_inner_texts()] == [
        "first.png",
        "second.jpg",
    ]


def test_a_citation_names_its_page_and_opens_it(client: Client) -> None:
    client.page.get_by_role("button", name=re.compile("^A leaflet")).click()
    source = client.answers.last.get_by_role("list", name="Sources").get_by_role("button").first
    expect(source).to_have_text(re.compile(r"^leaflet.pdf p. \d$"))
    name = source.inner_text()
    source.click()
    page = client.page.get_by_role("dialog", name=name).get_by_role("img")
    assert page.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 300


def test_pages_of_a_pdf_are_shown_and_a_range_of_them_is_sent(client: Client) -> None:
    client.page.locator("[data-pick=files]").set_input_files(manual_pdf())
    expect(client.attachments).to_contain_text("pages 1–20 of 32")
    client.attachments.get_by_role("button", name=re.compile("pages 1–20")).click()
    strip = client.page.get_by_role("list", name=re.compile("Pages of manual"))
    expect(strip.get_by_role("button")).to_have_count(32)
    last = client.page.get_by_role("slider", name="Last page")
    last.focus()
    for _ in range(15):
        last.press("ArrowLeft")
    client.page.get_by_role("slider", name="First page").press("ArrowRight")
    expect(client.attachments).to_contain_text("pages 2–5 of 32")
    expect(strip.locator("li.in")).to_have_count(4)
    image = strip.get_by_role("button", name="Open page 2", exact=True).locator("img")
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 50
    client.send("What is this about?")
    expect(client.user_messages.last).to_contain_text("pages 2–5 of 32")
    expect(client.user_messages.last.locator(".page-row li")).to_have_count(4)


def test_an_upload_can_be_cancelled_and_a_refused_one_says_why(client: Client) -> None:
    client.page.route("**/v1/media?name=*", lambda _: None)
    client.paste_files(file_payload("slow.png", draw_image("slow")))
    client.attachments.get_by_role("button", name="Cancel slow.png").click()
    expect(client.attachments).to_have_count(0)
    client.page.unroute_all(behavior="ignoreErrors")
    client.paste_files(file_payload("broken.png", b"\x89PNG\r\n\x1a\nnot a picture"))
    expect(client.attachments.locator("..")).to_contain_text(re.compile("broken.png"))
    expect(client.attachments).to_have_class(re.compile("failed"))


def test_an_answer_streams_in_and_the_markdown_before_its_tail_stays_put(client: Client) -> None:
    client.send("!slow 60tps\n!think 300ms\n!echo # Title\n!tokens 90")
    answer = client.answers.last
    expect(answer.get_by_role("heading", name="Title")).to_be_visible()
    answer.get_by_role("heading", name="Title").evaluate("(heading) => (heading.seen = true)")
    expect(answer.locator("details.thinking")).to_contain_text("Thought")
    client.wait_idle()
    assert answer.get_by_role("heading", name="Title").evaluate("(heading) => heading.isConnected")
    expect(answer.locator(".facts")).to_contain_text(re.compile(r" s · .* in · \d+ out · free"))


def test_a_tool_shows_its_card_and_its_picture(client: Client) -> None:
    client.send("!tool read_file shots/login.png")
    card = client.page.get_by_role("group", name="Tool read_file")
    expect(card.get_by_role("img")).to_be_visible()
    client.wait_idle()
    expect(card).to_contain_text("shots/login.png")
    card.locator("summary").click()
    expect(card.locator("dl")).to_contain_text("path")


def test_a_failed_tool_call_says_so_at_once_and_after_a_reload(client: Client) -> None:
    client.send_and_wait('!tool read_file {"path": "missing.txt"}')
    tool = client.page.get_by_role("group", name="Tool read_file").locator("summary")
    expect(tool).to_contain_text(re.compile(r"failed · \d"))
    client.page.reload()
    expect(tool).to_contain_text("failed")


def test_a_failed_turn_says_what_happened_and_offers_a_next_step(client: Client) -> None:
    client.send("!fail 400 the provider's own words")
    failure = client.page.get_by_role("alert", name="Answer failed")
    expect(failure).to_be_visible()
    expect(failure).to_contain_text("the provider's own words")
    expect(failure.get_by_role("button", name="Try again")).to_be_visible()


def test_messages_wait_in_line_while_an_answer_runs(client: Client) -> None:
    client.send("!slow 30tps\n!tokens 200")
    expect(client.page.locator(".answer[aria-busy=true]")).to_be_visible()
    client.paste_files(file_payload("shot.png", draw_image("shot")))
    expect(client.attachments).to_contain_text("640×400")
    client.send("!echo second")
    queue = client.page.get_by_role("region", name="Queued messages")
    expect(queue).to_contain_text("!echo second")
    client.send("!echo third")
    expect(queue.get_by_role("listitem")).to_have_count(2)
    queue.get_by_role("button", name=re.compile("^Remove .*third")).click()
    expect(queue.get_by_role("listitem")).to_have_count(1)
    queue.get_by_role("button", name=re.compile("^Edit .*second")).click()
    expect(queue).to_have_count(0)
    expect(client.message_box).to_have_value("!echo second")
    expect(client.attachments).to_contain_text("shot.png")
    client.send("!echo second, better")
    expect(queue).to_contain_text("second, better")
    client.wait_idle()
    expect(client.answers.last).to_contain_text("second, better")
    expect(client.user_messages).to_have_count(2)


def test_stop_pauses_the_queue_and_asks_on_every_device(client: Client, open_client: OpenClient) -> None:
    client.send("!slow 10tps\n!tokens 400")
    expect(client.page.locator(".answer[aria-busy=true] .prose")).to_be_visible()
    client.paste_files(file_payload("shot.png", draw_image("shot")))
    expect(client.attachments).to_contain_text("640×400")
    client.send("!echo second")
    client.send("!echo third")
    expect(client.page.get_by_role("region", name="Queued messages").get_by_role("listitem")).to_have_count(2)
    client.page.get_by_role("button", name="Stop").click()
    paused = client.page.get_by_role("region", name="Paused messages")
    expect(paused.get_by_role("listitem")).to_have_count(2)
    expect(client.page.get_by_role("note", name="Answer status")).to_contain_text("Stopped")
    assert [one["paused"] for one in client.daemon.ask(f"/v1/sessions/{client.session}/queue")["queue"]] == [True, True]
    phone = open_client(path=f"/#/s/{client.session}", phone=True)
    elsewhere = phone.page.get_by_role("region", name="Paused messages")
    expect(elsewhere.get_by_role("listitem")).to_have_count(2)
    client.page.evaluate("localStorage.clear()")
    client.page.reload()
    expect(paused.get_by_role("listitem")).to_have_count(2)
    expect(client.page.get_by_role("note", name="Answer status")).to_contain_text("Stopped. The answer is incomplete.")
    expect(client.answers.last.locator(".facts")).not_to_contain_text("0 out")
    expect(client.user_messages).to_have_count(1)
    paused.get_by_role("button", name="Send 2 messages").click()
    expect(client.answers.last).to_contain_text("third")
    expect(client.user_messages).to_have_count(3)
    expect(client.user_messages.nth(1).locator("figcaption")).to_contain_text("shot.png")
    expect(paused).to_have_count(0)
    expect(elsewhere).to_have_count(0)
    earlier = client.page.get_by_role("note", name="Answer status")
    expect(earlier).to_contain_text("Stopped")
    expect(earlier.get_by_role("button")).to_have_count(0)  # it would continue after the last message, not here


def test_messages_that_an_earlier_version_kept_in_the_browser_become_a_draft(client: Client) -> None:
    client.send_and_wait("!echo hello")
    kept = json.dumps([{"key": str(at), "blocks": [{"type": "text", "text": f"!echo kept {at}"}]} for at in range(2)])
    client.page.evaluate("([name, kept]) => localStorage.setItem(name, kept)", [f"loom.held.{client.session}", kept])
    client.page.reload()
    expect(client.message_box).to_have_value("!echo kept 0\n\n!echo kept 1")
    assert client.page.evaluate("Object.keys(localStorage).filter((name) => name.startsWith('loom.held'))") == []


def test_escape_stops_an_answer(client: Client) -> None:
    client.send("!slow 5tps\n!tokens 400")
    expect(client.page.locator(".answer[aria-busy=true] .prose")).to_be_visible()
    client.page.keyboard.press("Escape")
    client.wait_idle()
    note = client.page.get_by_role("note", name="Answer status")
    expect(note).to_contain_text("Stopped. The answer is incomplete.")
    expect(client.page.get_by_role("alert", name="Answer failed")).to_have_count(0)
    note.get_by_role("button", name="Continue").click()
    expect(client.user_messages.last).to_contain_text("Continue where you stopped.")


def test_an_approval_shows_the_real_command_and_takes_the_answer(client: Client) -> None:
    client.send('!tool run_command {"command": "echo out > made.txt"}')
    card = client.page.get_by_role("form", name="Approve run_command?")
    expect(card).to_contain_text("echo out > made.txt")
    assert not (client.daemon.workspace / "made.txt").exists()
    card.get_by_role("button", name="Allow once").click()
    client.wait_idle()
    expect(card).to_have_count(0)
    assert (client.daemon.workspace / "made.txt").read_text() == "out\n"


def test_a_refusal_carries_its_reason(client: Client) -> None:
    client.send('!tool run_command {"command": "echo no > never.txt"}')
    card = client.page.get_by_role("form", name="Approve run_command?")
    card.get_by_role("button", name="Deny…").click()
    client.page.get_by_role("textbox", name="Reason").fill("too risky")
    card.get_by_role("button", name="Deny", exact=True).click()
    client.wait_idle()
    assert not (client.daemon.workspace / "never.txt").exists()
    expect(client.page.get_by_role("group", name="Tool run_command")).to_contain_text("too risky")


def test_an_approval_can_be_answered_on_another_page(open_client: OpenClient) -> None:
    first = open_client()
    first.send('!tool run_command {"command": "echo two > second.txt"}')
    expect(first.page.get_by_role("form", name="Approve run_command?")).to_be_visible()
    second = open_client(phone=True, path=f"/#/s/{first.session}")
    second.page.get_by_role("button", name="Allow once").click()
    first.wait_idle()
    assert (first.daemon.workspace / "second.txt").exists()


def test_files_of_the_workspace_are_offered_behind_an_at_sign_and_sent(client: Client) -> None:
    client.send_and_wait("!echo hello")
    client.message_box.press_sequentially("look at @dep")
    option = client.page.get_by_role("option", name="deploy.log")
    expect(option).to_be_visible()
    client.message_box.press("Enter")
    expect(client.message_box).to_have_value("look at @deploy.log ")
    client.message_box.press("Enter")
    expect(client.user_messages.last).to_contain_text("deploy.log")
    client.wait_idle()


def test_slash_offers_commands(client: Client) -> None:
    client.message_box.press_sequentially("/set")
    expect(client.page.get_by_role("option", name="/settings API keys, models, limits")).to_be_visible()
    client.message_box.press("Enter")
    expect(client.page.get_by_role("dialog", name="Settings")).to_be_visible()
    expect(client.message_box).to_have_value("")


def test_a_phone_offers_its_camera(open_client: OpenClient) -> None:
    phone = open_client(phone=True)
    camera = phone.page.locator("[data-pick=camera]")
    expect(phone.page.get_by_role("button", name="Take a photo")).to_be_visible()
    assert camera.get_attribute("capture") == "environment"
    camera.set_input_files({"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": draw_image("photo", form="JPEG")})
    expect(phone.attachments).to_contain_text("640×400")
    phone.send_button.click()
    expect(phone.answers.last).to_contain_text("640×400")


def test_everything_can_be_reached_and_left_by_keyboard(client: Client) -> None:
    client.message_box.press("Tab")
    client.page.locator("body").press("?")
    dialog = client.page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    client.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    client.page.keyboard.press("m")
    expect(client.page.get_by_role("dialog", name="Choose a model")).to_be_visible()
    client.page.keyboard.press("Escape")
    client.page.keyboard.press("/")
    expect(client.message_box).to_be_focused()


def test_screen_readers_hear_of_the_answer_apart_from_the_stream(client: Client) -> None:
    client.send("!echo one two three")
    status = client.page.get_by_role("status")
    expect(status).to_have_text(re.compile("^Done, 3 words"))
    assert client.page.locator(".chat [aria-live]").count() == 0


def test_targets_are_large_enough_for_a_finger(open_client: OpenClient) -> None:
    client = open_client()
    client.send_and_wait("!echo hello")
    small = client.page.evaluate(
        """[...document.querySelectorAll('button, a[href], input:not([hidden])')]
          .filter((one) => one.checkVisibility() && !one.closest('.prose') && !one.matches('.skip'))
          .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0 && (box.width < 24 || box.height < 24)).map(([html]) => html)"""
    )
    assert small == []


@pytest.mark.parametrize("ending", ["cancel", "send", "refused"])
def test_a_draft_comes_back_after_another_message_was_edited(client: Client, ending: str) -> None:
    client.send_and_wait("!echo one")
    client.message_box.fill("not finished yet")
    client.paste_files(file_payload("shot.png", draw_image("shot")))
    expect(client.attachments).to_contain_text("640×400")
    client.user_messages.last.hover()
    client.user_messages.last.get_by_role("button", name="Edit and resend").click()
    expect(client.message_box).to_have_value("!echo one")
    expect(client.attachments).to_have_count(0)
    client.message_box.fill("!echo two")
    if ending == "refused":
        refusal = '{"error": {"code": "request.invalid", "message": "Not now."}}'
        client.page.route("**/messages", lambda route: route.fulfill(status=409, body=refusal))
        client.send_button.click()
        expect(client.page.get_by_text("Not now.")).to_be_visible()
        expect(client.message_box).to_have_value("!echo two")
        client.page.unroute("**/messages")
    if ending == "cancel":
        client.page.get_by_role("button", name="Cancel editing").click()
    else:
        client.send_button.click()
        expect(client.answers.last).to_contain_text("two")
        expect(client.user_messages).to_have_count(1)
        expect(client.page.get_by_role("group", name="Version 2 of 2").first).to_be_visible()
    expect(client.message_box).to_have_value("not finished yet")
    expect(client.attachments).to_contain_text("shot.png")
    client.page.reload()
    expect(client.message_box).to_have_value("not finished yet")


def test_a_message_is_sent_also_if_the_storage_of_the_browser_is_full(client: Client) -> None:
    client.send_and_wait("!echo one")
    client.page.evaluate("""() => {
      let piece = 'x'.repeat(1 << 20);
      for (let at = 0; piece; at++) {
        try { localStorage.setItem(`filler.${at}`, piece); } catch { piece = piece.slice(piece.length >> 1 || 1); }
      }
    }""")
    assert client.send_and_wait(f"!echo two {'word ' * 500}").inner_text().count("word") == 500
    client.message_box.fill("the page still works")
    expect(client.send_button).to_be_enabled()


def test_a_message_of_the_user_can_be_copied(open_client: OpenClient) -> None:
    client = open_client(permissions=["clipboard-read", "clipboard-write"])
    client.send_and_wait("!echo copy me")
    client.user_messages.last.hover()
    client.user_messages.last.get_by_role("button", name="Copy message").click()
    expect(client.user_messages.last.get_by_role("button", name="Copied")).to_be_visible()
    assert client.page.evaluate("navigator.clipboard.readText()") == "!echo copy me"
