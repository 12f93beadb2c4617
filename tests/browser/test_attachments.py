"""Attachments: every file that Loom reads, long pastes, and failures that stay visible."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from browser.client import Client, OpenClient
from browser.samples import draw_image, file_payload
from formats import made_pdfs

CANARY = "quokka"
TEXT_FILES = {
    "notes.md": ("text/markdown", f"# Notes\n\nthe {CANARY} is here\n"),
    "plain.txt": ("text/plain", f"the {CANARY} is here\n"),
    "table.csv": ("text/csv", f"animal,count\n{CANARY},3\n"),
    "script.py": ("text/x-python", f"animal = '{CANARY}'\n"),
    "data.json": ("application/json", json.dumps({"url": f"http://127.0.0.1:9/{CANARY}"})),
    "digest.json": ("application/json", json.dumps({"digest": "sha256:" + "0" * 64, "animal": CANARY})),
    "unknown.zzz": ("", f"the {CANARY} is here\n"),
}


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_text_file_is_attached_and_reaches_the_model(client: Client, name: str) -> None:
    media_type, content = TEXT_FILES[name]
    client.paste_files(file_payload(name, content.encode(), media_type))
    expect(client.attachments).to_contain_text(name)
    expect(client.attachments).to_contain_text(" B")
    client.send_and_wait("!echo What is in it?")
    card = client.user_messages.last.locator("details.text-file")
    expect(card).to_contain_text(name)
    card.locator("summary").click()
    expect(card.locator("pre")).to_contain_text(CANARY)
    request = client.daemon.ask(f"/v1/sessions/{client.session}/wire?model=ollama/llama3.2")
    assert f"[file: {name}]" in str(request)
    assert CANARY in str(request)


def test_a_page_is_attached_as_a_document_and_its_text_reaches_the_model(client: Client) -> None:
    client.paste_files(file_payload("page.html", f"<p>the {CANARY}</p>".encode(), "text/html"))
    expect(client.attachments).to_contain_text("page.html")
    client.send_and_wait("!echo What is in it?")
    request = client.daemon.ask(f"/v1/sessions/{client.session}/wire?model=ollama/llama3.2")
    assert CANARY in str(request)


def _paste_text(client: Client, text: str) -> None:
    client.page.evaluate(
        """(text) => { const data = new DataTransfer(); data.setData('text/plain', text);
        document.querySelector('#message').dispatchEvent(
          new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }""",
        text,
    )


def test_a_long_paste_becomes_an_attachment_and_comes_back_when_the_message_is_edited(client: Client) -> None:
    first, second = f"{CANARY} " * 800, "another text. " * 400
    _paste_text(client, first)
    _paste_text(client, second)
    expect(client.attachments).to_have_count(2)
    expect(client.attachments.first).to_contain_text("pasted.txt")
    expect(client.attachments.last).to_contain_text("pasted-2.txt")
    expect(client.attachments.last).to_contain_text("KB")
    client.page.reload()
    expect(client.attachments).to_have_count(2)
    client.send_and_wait("!echo read it")
    # A model with a large context: in a small one, tools and two long texts leave no room for earlier turns.
    assert first.strip() in str(client.daemon.ask(f"/v1/sessions/{client.session}/wire?model=openai/gpt-4o"))
    client.message_box.press("ArrowUp")
    expect(client.message_box).to_have_value("!echo read it")
    expect(client.attachments).to_have_count(2)
    client.message_box.fill("!echo read it again")
    client.send_button.click()
    expect(client.answers.last).to_contain_text("read it again")
    expect(client.user_messages.last.locator("details.text-file")).to_have_count(2)


@pytest.mark.parametrize("kind", ["image", "paste", "refused"])
def test_a_file_that_was_not_uploaded_yet_survives_a_reload(client: Client, kind: str) -> None:
    release = client.hold("**/v1/media*")
    match kind:
        case "image":
            client.paste_files(file_payload("shot.png", draw_image("shot")))
        case "paste":
            _paste_text(client, f"{CANARY} " * 800)
        case _:
            client.paste_files(file_payload("broken.png", b"\x89PNG\r\n\x1a\nnot an image"))
    expect(client.attachments.get_by_role("progressbar")).to_have_count(1)
    is_saved = """() => Object.values(localStorage).some((one) => one.includes('"attachments":[{'))"""
    client.page.wait_for_function(is_saved)
    client.page.reload()
    expect(client.attachments.get_by_role("progressbar")).to_have_count(1)
    release()

    if kind == "refused":
        failed = client.page.locator(".failed-attachment")
        expect(failed).to_contain_text("broken.png")
        expect(failed).not_to_contain_text("was not uploaded")
        failed.get_by_role("button", name="Remove").click()
        client.page.reload()
        expect(client.attachments).to_have_count(0)
        return
    client.send_and_wait("!echo it is here")
    expect(client.user_messages.last.locator("figcaption, details.text-file")).to_have_count(1)
    client.page.reload()
    expect(client.attachments).to_have_count(0)


def test_a_failed_attachment_stays_says_why_and_keeps_the_message_from_being_sent(client: Client) -> None:
    client.paste_files(file_payload("broken.png", b"\x89PNG\r\n\x1a\nnot an image"))
    client.paste_files(file_payload("good.png", draw_image("good")))
    failed = client.page.locator(".failed-attachment")
    expect(failed).to_contain_text("broken.png")
    expect(failed).to_contain_text(re.compile(r"\w+ \w+ \w+"))
    client.message_box.fill("!echo look")
    expect(client.attachments.last).to_contain_text("640×400")
    expect(client.send_button).to_be_disabled()
    client.message_box.press("Enter")
    expect(client.page.get_by_role("status")).to_contain_text("Retry or remove the failed attachment")
    expect(client.attachments).to_have_count(2)
    client.page.reload()
    expect(client.attachments).to_have_count(2)
    expect(failed).to_contain_text("broken.png")
    failed.get_by_role("button", name="Remove").click()
    expect(client.attachments).to_have_count(1)
    client.send_button.click()
    expect(client.user_messages.last.locator("figcaption")).to_contain_text("good.png")


def test_a_paste_that_could_not_be_uploaded_can_be_retried_or_inserted(client: Client) -> None:
    def fail(route: Route) -> None:
        route.abort()

    client.page.route("**/v1/media*", fail)
    words = f"{CANARY} " * 800
    _paste_text(client, words)
    failed = client.page.locator(".failed-attachment")
    expect(failed).to_contain_text("pasted.txt")
    client.page.unroute("**/v1/media*", fail)
    failed.get_by_role("button", name="Retry").click()
    expect(failed).to_have_count(0)
    expect(client.attachments).to_contain_text("KB")
    client.attachments.get_by_role("button", name="Remove pasted.txt").click()
    client.page.route("**/v1/media*", fail)
    _paste_text(client, words + "once more")
    failed.get_by_role("button", name="Insert as text").click()
    expect(client.attachments).to_have_count(0)
    expect(client.message_box).to_have_value(words + "once more")


def test_a_locked_pdf_asks_for_its_password_and_is_attached_with_it(client: Client) -> None:
    locked = made_pdfs.encrypted_pdf("open sesame").read_bytes()
    client.paste_files(file_payload("plan.pdf", locked, "application/pdf"))
    failed = client.page.locator(".failed-attachment")
    expect(failed).to_contain_text("needs a password")
    failed.get_by_label("Password of plan.pdf").fill("wrong")
    failed.get_by_role("button", name="Unlock").click()
    expect(failed).to_contain_text("a different password")
    failed.get_by_label("Password of plan.pdf").fill("open sesame")
    failed.get_by_label("Password of plan.pdf").press("Enter")

    expect(client.attachments).to_contain_text("plan.pdf")
    expect(failed).to_have_count(0)
    expect(client.page.locator(".notice")).to_contain_text("was unlocked")


def _schedule(client: Client, *names: str, text: str = "!echo it arrived") -> Callable[[], None]:
    """Send a message whose files are still being uploaded; the function that this returns lets the uploads end."""
    release = client.hold("**/v1/media*")
    for name in names:
        client.paste_files(file_payload(name, draw_image(name)))
    client.message_box.fill(text)
    client.message_box.press("Enter")
    expect(client.page.locator(".editing").filter(has_text="Sends when")).to_be_visible()
    return release


@pytest.mark.parametrize("names", [("first.png",), ("first.png", "second.png")])
def test_a_message_is_sent_once_when_its_uploads_have_ended(client: Client, names: tuple[str, ...]) -> None:
    release = _schedule(client, *names)
    client.message_box.press("Enter")  # impatience changes nothing
    expect(client.message_box).to_have_value("!echo it arrived")
    expect(client.user_messages).to_have_count(0)
    release()
    expect(client.answers.last).to_contain_text("it arrived")
    expect(client.user_messages).to_have_count(1)
    expect(client.user_messages.last.locator("img")).to_have_count(len(names))
    expect(client.message_box).to_have_value("")
    expect(client.attachments).to_have_count(0)


def test_a_touch_on_send_waits_for_the_uploads_too(open_client: OpenClient) -> None:
    client = open_client(phone=True)
    release = client.hold("**/v1/media*")
    client.paste_files(file_payload("first.png", draw_image("first")))
    client.message_box.fill("!echo it arrived")
    client.send_button.tap()
    expect(client.page.locator(".editing")).to_contain_text("Sends when the upload has finished")
    release()
    expect(client.answers.last).to_contain_text("it arrived")
    expect(client.user_messages.last.locator("img")).to_have_count(1)


def _press_cancel(client: Client) -> None:
    client.page.locator(".editing").get_by_role("button", name="Cancel").click()


def _press_escape(client: Client) -> None:
    client.message_box.press("Escape")


def _type_on(client: Client) -> None:
    client.message_box.press_sequentially("!")


@pytest.mark.parametrize("cancel", [_press_cancel, _press_escape, _type_on])
def test_a_scheduled_message_can_be_canceled_and_keeps_its_files(
    client: Client, cancel: Callable[[Client], None]
) -> None:
    release = _schedule(client, "first.png", text="!echo not yet")
    cancel(client)
    expect(client.page.locator(".editing")).to_have_count(0)
    release()
    expect(client.attachments).to_contain_text("640×400")
    expect(client.message_box).to_have_value(re.compile("^!echo not yet"))
    expect(client.send_button).to_be_enabled()
    assert client.user_messages.count() == 0
    client.send_button.click()
    expect(client.user_messages.last.locator("img")).to_have_count(1)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_scheduled_message_is_sent_to_its_own_session_while_another_one_is_open(client: Client, is_new: bool) -> None:
    client.send_and_wait("!echo the other one")
    other = client.session
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    if not is_new:
        client.send_and_wait("!echo its own")
    release = _schedule(client, f"away {is_new}.png")
    client.page.evaluate(f"location.hash = '#/s/{other}'")
    expect(client.answers.last).to_contain_text("the other one")
    expect(client.page.locator(".editing")).to_have_count(0)
    client.message_box.fill("a draft of the other one")
    release()
    row = client.page.locator(".session").filter(has_text="!echo it arrived" if is_new else "!echo its own").first
    if is_new:
        expect(row).to_be_visible()
    else:
        client.page.wait_for_function("() => !Object.values(localStorage).some((one) => one.includes('it arrived'))")
    assert client.session == other
    expect(client.message_box).to_have_value("a draft of the other one")
    expect(client.user_messages).to_have_count(1)
    row.locator("a, button").first.click()
    expect(client.answers.last).to_contain_text("it arrived")
    expect(client.user_messages).to_have_count(1 if is_new else 2)
    expect(client.user_messages.last.locator("img")).to_have_count(1)
    expect(client.message_box).to_have_value("")
    expect(client.attachments).to_have_count(0)


def test_a_scheduled_message_stays_scheduled_when_its_session_is_opened_again(client: Client) -> None:
    client.send_and_wait("!echo hello")
    release = _schedule(client, "back.png")
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    client.page.go_back()
    expect(client.page.locator(".editing")).to_contain_text("Sends when")
    expect(client.message_box).to_have_value("!echo it arrived")
    release()
    expect(client.answers.last).to_contain_text("it arrived")
    expect(client.user_messages).to_have_count(2)
    expect(client.message_box).to_have_value("")


def test_a_scheduled_message_is_sent_while_an_earlier_one_is_edited(client: Client) -> None:
    client.send_and_wait("!echo hello")
    release = _schedule(client, "beside.png")
    client.user_messages.last.hover()
    client.user_messages.last.get_by_role("button", name="Edit and resend").click()
    expect(client.page.locator(".editing")).to_contain_text("creates a new branch")
    release()
    expect(client.answers.last).to_contain_text("it arrived")
    expect(client.message_box).to_have_value("!echo hello")
    client.page.get_by_role("button", name="Cancel editing").click()
    expect(client.message_box).to_have_value("")
    expect(client.attachments).to_have_count(0)


def test_a_scheduled_edit_is_sent_while_another_session_is_open(client: Client) -> None:
    client.send_and_wait("!echo hello")
    client.user_messages.last.hover()
    client.user_messages.last.get_by_role("button", name="Edit and resend").click()
    release = _schedule(client, "edited.png")
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    release()
    client.page.wait_for_function("() => !Object.values(localStorage).some((one) => one.includes('it arrived'))")
    client.page.go_back()
    expect(client.answers.last).to_contain_text("it arrived")
    expect(client.user_messages).to_have_count(1)
    expect(client.user_messages.last.locator("img")).to_have_count(1)


def test_a_scheduled_message_whose_upload_fails_elsewhere_says_so_and_is_a_draft(client: Client) -> None:
    client.send_and_wait("!echo hello")
    release = client.hold("**/v1/media*")
    client.paste_files(file_payload("broken.png", b"\x89PNG\r\n\x1a\nnot an image, and away"))
    client.message_box.fill("!echo look")
    client.message_box.press("Enter")
    expect(client.page.locator(".editing")).to_contain_text("Sends when")
    client.page.evaluate("location.hash = '#/'")
    expect(client.page.locator("button.sample")).to_have_count(4)
    release()
    expect(client.page.locator(".bar.refused")).to_contain_text("broken.png could not be attached")
    client.page.go_back()
    expect(client.message_box).to_have_value("!echo look")
    expect(client.attachments).to_have_text([re.compile("broken.png.*Not attached")])
    expect(client.user_messages).to_have_count(1)


def test_a_failed_upload_cancels_the_scheduled_message_and_loses_nothing(client: Client) -> None:
    release = client.hold("**/v1/media*")
    client.paste_files(file_payload("broken.png", b"\x89PNG\r\n\x1a\nnot an image"))
    client.paste_files(file_payload("good.png", draw_image("good")))
    client.message_box.fill("!echo look")
    client.message_box.press("Enter")
    release()
    expect(client.page.locator(".editing")).to_have_count(0)
    expect(client.page.locator(".attached")).to_contain_text("To send the message, retry or remove this attachment")
    expect(client.attachments).to_have_text([re.compile("broken.png.*Not attached"), re.compile("good.png.*640×400")])
    expect(client.message_box).to_have_value("!echo look")
    assert client.user_messages.count() == 0
    client.page.locator(".failed-attachment").get_by_role("button", name="Remove").click()
    client.message_box.press("Enter")
    expect(client.user_messages.last.locator("img")).to_have_count(1)


def test_nothing_is_sent_before_the_code_of_uploads_is_loaded(client: Client) -> None:
    release = client.hold("**/assets/deferred-*.js")
    client.paste_files(file_payload("first.png", draw_image("first")))
    client.paste_files(file_payload("second.png", draw_image("second")))
    client.message_box.fill("!echo both arrived")
    client.message_box.press("Enter")
    expect(client.send_button).to_be_disabled()
    expect(client.message_box).to_have_value("!echo both arrived")
    release()
    expect(client.answers.last).to_contain_text("both arrived")
    expect(client.user_messages.last.locator("img")).to_have_count(2)


def test_an_attachment_whose_upload_could_not_begin_says_so(client: Client) -> None:
    client.page.route("**/assets/deferred-*.js", lambda route: route.abort())
    client.paste_files(file_payload("first.png", draw_image("first")))
    client.message_box.fill("!echo look")
    client.message_box.press("Enter")
    expect(client.page.get_by_role("status").filter(has_text="Retry or remove the failed attachment")).to_be_attached()
    expect(client.send_button).to_be_disabled()
    expect(client.message_box).to_have_value("!echo look")


DROP_FOLDERS = """(folders) => {
  const file = (name) => ({ isFile: true, isDirectory: false, name, file: (take) => take(new File([name], name)) });
  const folder = ([name, inner]) => ({ isFile: false, isDirectory: true, name, createReader: () => {
    const batches = [inner.map((one) => (typeof one === "string" ? file(one) : folder(one)))];
    return { readEntries: (take) => take(batches.pop() ?? []) };
  } });
  const items = folders.map((one) => ({ kind: "file", webkitGetAsEntry: () => folder(one), getAsFile: () => null }));
  const event = new Event("drop", { bubbles: true, cancelable: true });
  document.body.dispatchEvent(Object.assign(event, { dataTransfer: { items, types: ["Files"] } }));
}"""
"""What a drop of folders looks like: pages cannot make one, so the entries are simulated."""


def test_the_files_of_a_folder_are_attached_with_their_paths_and_a_folder_without_files_says_so(client: Client) -> None:
    client.page.evaluate(DROP_FOLDERS, [["project", ["a.txt", ["src", ["b.txt"]], ["none", []]]]])
    expect(client.attachments).to_have_text([re.compile("project/a.txt"), re.compile("project/src/b.txt")])
    expect(client.page.locator(".bars")).to_be_empty()
    client.page.evaluate(DROP_FOLDERS, [["photos", [["2026", []]]]])
    expect(client.page.get_by_text("photos contains no files.")).to_be_visible()
    expect(client.attachments).to_have_count(2)
