"""What a model sees: the inspector, the switcher, the lightbox."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from browser.client import Client, Daemon, OpenClient
from browser.echo_server import BILLED, echo_server
from browser.samples import draw_image, file_payload


def row_of(drawer: Locator, name: str) -> Locator:
    """The line of a picture: the one that has a thumbnail of it."""
    return drawer.locator("tbody tr", has=drawer.page.get_by_role("button", name=re.compile(f"^Open {name}")))


def shown(client: Client) -> None:
    client.paste_files(file_payload("shot.png", draw_image("Error 502", size=(1200, 800))))
    expect(client.attachments).to_contain_text("1200×800")
    client.send_and_wait("What is this?")


def test_pinning_a_block_in_the_inspector_changes_the_plan(client: Client) -> None:
    shown(client)
    client.page.locator(".chat").focus()
    client.page.keyboard.press("i")
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    row = row_of(drawer, "shot.png")
    expect(row.locator(".cell").first).to_contain_text("full")
    before = drawer.locator(".columns li.main strong").inner_text()
    row.get_by_role("button", name=re.compile("full, .* tokens. Change")).first.click()
    client.page.get_by_role("menuitem", name="Send as text").click()
    expect(row.locator(".cell").first).to_contain_text("text")
    expect(drawer.locator(".columns li.main strong")).not_to_have_text(before)
    expect(client.user_messages.last.locator("figcaption")).to_contain_text("text")
    drawer.get_by_role("button", name="Reasons").click()
    expect(row).to_contain_text("chosen by the user")
    row.get_by_role("button", name=re.compile("Change")).first.click()
    client.page.get_by_role("menuitem", name=re.compile("^Automatic")).click()
    expect(row.locator(".cell").first).to_contain_text("full")


def test_your_words_for_a_picture_are_what_a_blind_model_reads(client: Client) -> None:
    shown(client)
    client.page.get_by_role("button", name="Context", exact=True).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    row = row_of(drawer, "shot.png")
    row.get_by_role("button", name=re.compile("text, .* tokens. Change")).click()
    client.page.get_by_role("menuitem", name=re.compile("^Edit text alternative")).click()
    dialog = client.page.get_by_role("dialog", name="Text alternative")
    dialog.get_by_role("button", name="Describe with a model").click()
    client.page.get_by_role("menuitem", name=re.compile("^spark")).click()
    expect(dialog.get_by_role("status")).to_have_text("Description by loom/spark")
    expect(dialog.get_by_role("textbox", name="Text alternative")).to_have_value(
        re.compile("1200×800|screenshot|picture|landscape")
    )
    dialog.get_by_role("textbox", name="Text alternative").fill("The login form with a red line: Error 502")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("The login form with a red line")
    drawer.get_by_role("button", name="Reasons").click()
    expect(row).to_contain_text("described by the user")
    wire = client.daemon.ask(f"/v1/sessions/{client.session}/wire?model=ollama/llama3.2")
    assert "The login form with a red line: Error 502" in str(wire)
    client.page.get_by_role("button", name=re.compile("^Open shot.png")).first.click()
    lightbox = client.page.get_by_role("dialog", name="shot.png")
    expect(lightbox.locator("footer")).to_contain_text("The login form with a red line")
    lightbox.get_by_role("button", name="Edit text alternative").click()
    dialog.get_by_role("button", name="Remove my description").click()
    expect(row).not_to_contain_text("The login form")


def test_the_diff_says_what_is_new_changed_and_gone_since_the_last_request(client: Client) -> None:
    shown(client)
    client.page.get_by_role("button", name="Context", exact=True).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    row = row_of(drawer, "shot.png")
    drawer.get_by_role("button", name="Diff with last request").click()
    since = drawer.get_by_text("Since the last request to spark")
    expect(since).to_contain_text("0 changed · 0 removed · 2 unchanged")
    row.get_by_role("button", name=re.compile("full, .* tokens. Change")).first.click()
    client.page.get_by_role("menuitem", name="Send as text").click()
    expect(since).to_contain_text("1 changed · 0 removed · 1 unchanged")
    expect(row).to_contain_text("changed")
    expect(row.locator(".was")).to_have_text("full")
    row.get_by_role("button", name=re.compile("text, .* tokens. Change")).first.click()
    client.page.get_by_role("menuitem", name="Do not send").click()
    expect(since).to_contain_text("0 changed · 1 removed · 1 unchanged")
    client.message_box.fill("and a draft")
    expect(drawer.locator("tr.added", has_text="and a draft")).to_be_visible()


def test_several_marked_models_answer_the_last_message_as_siblings(client: Client) -> None:
    client.send_and_wait("!echo one of several")
    client.page.locator("button.model").click()
    dialog = client.page.get_by_role("dialog", name="Choose a model")
    dialog.get_by_role("searchbox").fill("spark")
    dialog.get_by_role("searchbox").press("Space")
    expect(dialog.get_by_role("option", name=re.compile("selected"))).to_have_count(1)
    dialog.get_by_role("searchbox").fill("llama")
    dialog.get_by_role("searchbox").press("Space")
    dialog.get_by_role("button", name="Send the last message to 2 models").click()
    expect(client.page.get_by_role("alert", name="Answer failed")).to_be_visible()
    expect(client.page.get_by_role("alert", name="Answer failed")).to_contain_text(re.compile("ollama"))
    tree = client.daemon.ask(f"/v1/sessions/{client.session}")
    assert tree["model"] == "loom/spark", "the model of the session stays the same"


def test_a_smaller_budget_shows_what_would_have_to_go(client: Client) -> None:
    shown(client)
    client.page.get_by_role("button", name="Context", exact=True).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    slider = drawer.get_by_role("slider")
    expect(row_of(drawer, "shot.png").locator(".cell").first).to_contain_text("full")
    slider.press("Home")
    expect(row_of(drawer, "shot.png").locator(".cell").first).not_to_contain_text("full")


def test_the_draft_counts_before_it_is_sent(client: Client) -> None:
    client.send_and_wait("!echo hello")
    meter = client.page.get_by_role("button", name=re.compile("Next request"))
    expect(meter).to_contain_text(" / ")
    before = meter.inner_text()
    client.message_box.fill("many words " * 300)
    expect(meter).not_to_have_text(before)


def test_switching_the_model_says_first_what_it_would_not_see(client: Client) -> None:
    shown(client)
    client.page.locator("button.model").click()
    dialog = client.page.get_by_role("dialog", name="Choose a model")
    preview = dialog.get_by_role("region", name="What would change")
    expect(preview).to_contain_text("is the current model")
    dialog.get_by_role("searchbox").fill("llama")
    expect(preview).to_contain_text("shot.png")
    expect(preview.locator(".badge").first).to_contain_text("text")
    dialog.get_by_role("button", name=re.compile("^Use llama")).click()
    expect(client.page.locator("button.model")).to_contain_text("llama3.2")
    expect(client.user_messages.last.locator("figcaption")).to_contain_text("text")
    assert client.daemon.ask(f"/v1/sessions/{client.session}")["model"] == "ollama/llama3.2"


def test_each_place_of_an_image_shows_what_the_model_gets_there(client: Client) -> None:
    image = draw_image("twice")
    for words in ("!echo first", "!echo second"):
        client.paste_files(file_payload("shot.png", image))
        client.send_and_wait(words)
    path = f"/v1/sessions/{client.session}"
    plan = client.daemon.ask(f"{path}/plan", {"models": ["loom/spark"]}, "POST")
    keys = [row["key"] for row in plan["rows"] if row["kind"] == "image"]
    assert len(keys) == 2

    client.daemon.ask(f"{path}/overrides", {keys[0]: "omitted"}, "PUT")
    client.page.reload()
    badges = client.user_messages.locator("figcaption .badge")
    expect(badges).to_have_text([re.compile("omitted"), re.compile("full")])
    client.user_messages.first.get_by_role("button", name=re.compile("^Open shot.png")).click()
    lightbox = client.page.get_by_role("dialog")
    expect(lightbox).to_contain_text("1 of 2")
    client.page.keyboard.press("Escape")
    client.user_messages.last.get_by_role("button", name=re.compile("^Open shot.png")).click()
    expect(lightbox).to_contain_text("2 of 2")


def test_the_lightbox_zooms_pans_and_flips_to_what_the_model_gets(client: Client) -> None:
    shown(client)
    opener = client.page.get_by_role("button", name=re.compile("^Open shot.png"))
    opener.click()
    box = client.page.get_by_role("dialog", name="shot.png")
    image = box.get_by_role("img")
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1200
    expect(box.locator("footer")).to_contain_text("1200×800")
    image.hover()
    client.page.mouse.wheel(0, -400)
    expect(box.locator("footer")).to_contain_text("%")
    before = image.bounding_box()
    client.page.mouse.down()
    client.page.mouse.move(500, 300)
    client.page.mouse.up()
    assert image.bounding_box() != before
    client.page.keyboard.press("0")
    expect(box.get_by_role("button", name=re.compile("As sent to spark"))).to_have_attribute("aria-pressed", "true")
    assert "v=sent%3Aloom%2Fspark" in (image.get_attribute("src") or "")
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    client.page.keyboard.press("0")
    client.page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    expect(opener).to_be_focused()


def test_keys_are_saved_and_removed_and_never_shown(client: Client) -> None:
    client.page.get_by_role("button", name="Settings", exact=True).click()
    dialog = client.page.get_by_role("dialog", name="Settings")
    dialog.get_by_role("tab", name="Models").click()
    dialog.get_by_role("button", name="Add the key for mistral").click()
    dialog.get_by_label("API key for mistral").fill("sk-not-a-real-key-7788")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("ends in 7788")
    assert "sk-not-a-real-key" not in client.page.content()
    dialog.get_by_role("button", name="Remove the key for mistral").click()
    expect(dialog.get_by_role("button", name="Add the key for mistral")).to_be_visible()
    dialog.get_by_role("tab", name="Server").click()
    expect(dialog).to_contain_text("Images per message")


def test_the_theme_can_be_chosen_and_stays(client: Client) -> None:
    client.page.get_by_role("button", name="Settings", exact=True).click()
    client.page.get_by_role("radio", name="dark").check()
    client.page.reload()
    assert client.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"


def test_a_long_conversation_is_inspected_page_by_page(open_client: OpenClient, daemon: Daemon) -> None:
    def text(number: int) -> dict[str, object]:
        role = "assistant" if number % 2 else "user"
        return {"role": role, "blocks": [{"type": "text", "text": f"message number {number}"}]}

    messages = [text(number) for number in range(400)]
    session = daemon.ask("/v1/import", {"messages": messages, "model": "loom/spark"})["session"]["id"]
    client = open_client(path=f"/#/s/{session}")
    client.page.get_by_role("button", name="Context", exact=True).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    expect(drawer.get_by_role("row").filter(has_text="message number 399")).to_be_visible()
    expect(drawer.get_by_role("row").filter(has_text="message number 0")).to_have_count(0)
    count = drawer.get_by_role("row").count()
    assert count < 80
    drawer.get_by_role("button", name="Show earlier blocks (340 more)").click()
    expect(drawer.get_by_role("row")).to_have_count(count + 60)


def test_a_plan_with_many_photographs_is_shown_at_once_and_becomes_exact(client: Client) -> None:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Which is the best?"}]
    for number in range(8):
        photo = base64.b64encode(draw_image(f"photo {number}", size=(2600, 1700), form="JPEG")).decode()
        parts.append({"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{photo}"}})
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "The first."}]
    file: Any = {"name": "talk.jsonl", "mimeType": "text/plain", "buffer": json.dumps({"messages": messages}).encode()}
    url = f"{client.daemon.url}/v1/import/file"
    report = client.page.request.post(url, multipart={"file": file}, headers={"X-Loom": "1"}).json()
    session = report["sessions"][0]["session"]
    first = client.daemon.ask(f"/v1/sessions/{session}/plan", {"models": ["anthropic/claude-opus-5"], "limit": 5})
    assert first["models"]["anthropic/claude-opus-5"]["is_preparing"]
    client.page.goto(f"{client.daemon.url}/#/s/{session}")
    expect(client.answers).to_have_count(1)
    client.page.get_by_role("button", name=re.compile("Next request")).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    expect(drawer.locator("tbody .row-thumb").first).to_be_visible()
    expect(drawer.get_by_text("Images are being prepared")).to_have_count(0)
    exact = client.daemon.ask(f"/v1/sessions/{session}/plan", {"models": ["anthropic/claude-opus-5"], "limit": 5})
    assert not exact["models"]["anthropic/claude-opus-5"]["is_preparing"]


BILLED_MODELS = """
[models.{name}]
provider = "deepseek"
model = "{model}"
base_url = "{url}"
api_key = "sk-0123456789"
price = {{ input = {usd}, output = {usd}, cache_read = {cached} }}
"""


@pytest.fixture
def billed(built: Path, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with models whose prompts are cached and whose requests have a price."""
    with echo_server() as settings:
        (url,) = re.findall(r'base_url = "(.*)"', settings)
        running = Daemon(tmp_path / "home")
        models = [
            BILLED_MODELS.format(name="dear", model=BILLED, url=url, usd=100, cached=10),
            BILLED_MODELS.format(name="modest", model="other", url=url, usd=1, cached=1),
            BILLED_MODELS.format(name="steep", model="third", url=url, usd=500, cached=500),
        ]
        (running.home / "loom.toml").write_text('model = "dear"\n[prompt]\ndefault = false\n' + "".join(models))
        running.start()
        yield running
        running.stop()


def test_the_price_is_named_before_a_message_a_hidden_block_a_switch_and_a_compaction(
    open_client: OpenClient, billed: Daemon
) -> None:
    client = open_client(on=billed)
    client.page.locator("button.model").click()
    client.page.get_by_role("option", name=re.compile("^dear|^billed")).click()
    client.send_and_wait("The kettle is on the stove. " * 300)
    client.page.get_by_role("button", name="Context", exact=True).click()
    drawer = client.page.get_by_role("complementary", name="Context inspector")
    share = drawer.locator(".share")
    cached = re.compile(r"Next request: .*k tokens \(.*k cached, .*\) · \$")
    expect(share).to_contain_text(cached)
    expect(share).to_contain_text(re.compile(r"Cheaper: modest costs \$.* tokens\) and loses nothing"))
    expect(share).to_contain_text(re.compile(r"Last request: estimated .*k tokens, billed .*k"))
    expect(client.page.locator("button.meter")).to_have_attribute("aria-label", re.compile("of them cached"))
    discards = re.compile(r"This discards about .*k cached tokens \(≈ \$.* more\)\.")

    drawer.get_by_role("button", name=re.compile("tokens. Change")).first.click()
    client.page.get_by_role("menuitem", name="Do not send").click()
    expect(drawer.get_by_role("alert")).to_contain_text("This discards about")
    drawer.get_by_role("alert").get_by_role("button", name="Cancel").click()
    assert client.daemon.ask(f"/v1/sessions/{client.session}/overrides") in ({}, {"overrides": {}})

    client.page.locator("button.model").click()
    dialog = client.page.get_by_role("dialog", name="Choose a model")
    dialog.get_by_role("searchbox").fill("steep")
    preview = dialog.get_by_role("region", name="What would change")
    expect(preview).to_contain_text(discards)
    client.page.keyboard.press("Escape")

    client.page.keyboard.press("Control+k")
    client.page.get_by_role("combobox", name="Search everything").fill("Compact")
    client.page.keyboard.press("Enter")
    confirm = client.page.get_by_role("dialog", name="Compact the conversation")
    expect(confirm).to_contain_text(re.compile(r"Request: .*k tokens.* · \$"))
    expect(confirm).to_contain_text(re.compile(r"This discards about .*k cached tokens"))
    confirm.get_by_role("button", name="Cancel").click()
    assert len(client.daemon.ask(f"/v1/sessions/{client.session}/messages")["messages"]) == 2

    client.user_messages.last.get_by_role("button", name="Edit and resend").click()
    expect(client.page.get_by_text("Editing creates a new branch.")).to_contain_text("This discards about")
    client.page.keyboard.press("Escape")

    client.page.get_by_role("button", name=re.compile("^Session settings")).click()
    settings = client.page.get_by_role("dialog", name="Session settings")
    settings.get_by_label("System prompt").fill("Answer at length.")
    expect(settings.get_by_role("status")).to_contain_text("This discards about")
