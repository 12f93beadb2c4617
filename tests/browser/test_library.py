"""Keeping sessions in order, saved prompts, importing and sharing."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from browser.accessibility import violations
from browser.client import Client, OpenClient
from importers import product_samples

PLACES: list[dict[str, Any]] = [{}, {"scheme": "dark", "phone": True}]


def more(client: Client, item: str) -> None:
    """Choose from the menu below the list of sessions."""
    if client.is_phone:
        client.page.get_by_role("button", name="Sessions", exact=True).click()
    client.page.get_by_role("button", name="More", exact=True).click()
    client.page.get_by_role("menuitem", name=item).click()


def test_a_pinned_session_stands_above_the_days(client: Client) -> None:
    client.send_and_wait("!echo keep me in sight")
    session = client.session
    client.choose_in_list("Pin")
    client.page.get_by_role("button", name="New session").click()
    client.send_and_wait("!echo a newer one")
    first = client.page.locator(".sessions-list section").first
    expect(first.get_by_role("heading")).to_have_text("Pinned")
    expect(first.locator(f"a[href='#/s/{session}']")).to_be_visible()
    client.page.reload()
    first.locator(f"a[href='#/s/{session}']").click()
    client.choose_in_list("Unpin")
    expect(client.page.get_by_role("heading", name="Pinned")).to_have_count(0)


def test_folders_and_tags_narrow_the_list(client: Client) -> None:
    client.send_and_wait("!echo an invoice from March")
    session = client.session
    client.choose_in_list("Folder and tags")
    dialog = client.page.get_by_role("dialog", name="Folder and tags")
    dialog.get_by_label("Folder").fill("Work / Invoices")
    dialog.get_by_label("Tags").fill("paid, #march, paid")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(client.page.locator(".session.here")).to_contain_text("#march #paid")
    found = client.daemon.ask(f"/v1/sessions/{session}")
    assert (found["folder"], found["tags"]) == ("Work/Invoices", ["march", "paid"])

    client.page.get_by_role("button", name="New session").click()
    client.send_and_wait("!echo something else")
    rows = client.page.locator(".sessions-list .session")
    client.page.get_by_role("button", name="Folders").click()
    client.page.get_by_role("button", name=re.compile(r"Invoices \d")).click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("invoice from March")
    client.page.get_by_role("button", name=re.compile(r"#paid \d")).click()
    expect(client.page.locator(".filter")).to_contain_text("#paid")
    expect(rows).to_have_count(1)
    client.page.get_by_role("button", name="Show all sessions").click()
    expect(rows.nth(1)).to_be_visible()


@pytest.mark.parametrize("place", PLACES)
def test_a_prompt_is_written_filled_in_and_sent(open_client: OpenClient, place: dict[str, Any]) -> None:
    client = open_client(**place)
    name = "bird-" + ("phone" if place else "wide")
    more(client, "Prompts")
    dialog = client.page.locator("dialog[open]")
    dialog.get_by_role("button", name="New prompt").click()
    dialog.get_by_label("Name").fill("not a name!")
    dialog.get_by_label("Text").fill("!echo $$5 for a ${bird} that says $input")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not a valid template name")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("$bird")
    assert violations(client) == []
    client.page.keyboard.press("Escape")

    client.message_box.fill(f"/{name}")
    client.page.get_by_role("option", name=f"/{name}").click()
    dialog.get_by_label("bird").fill("heron")
    dialog.get_by_role("button", name="Use").click()
    expect(client.message_box).to_have_value("!echo $5 for a heron that says ")
    client.message_box.fill("kraak")
    more(client, "Prompts")
    dialog.get_by_role("button", name=f"Use {name}").click()
    dialog.get_by_label("bird").fill("stork")
    dialog.get_by_role("button", name="Use").click()
    expect(client.message_box).to_have_value("!echo $5 for a stork that says kraak")
    client.message_box.fill("")
    more(client, "Prompts")
    dialog.get_by_role("button", name=f"Delete {name}").click()
    expect(dialog.get_by_role("button", name=f"Delete {name}")).to_have_count(0)


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ("chatgpt", "Something blue."),
        ("claude_ai", ""),
        ("open_webui", ""),
        ("librechat", ""),
        ("jsonl", ""),
    ],
)
def test_exports_of_other_products_are_imported_in_the_page(client: Client, product: str, words: str) -> None:
    data = getattr(product_samples, product)()
    more(client, "Import conversations")
    dialog = client.page.get_by_role("dialog", name="Import conversations")
    client.page.locator("input[data-pick=import]").set_input_files(
        {"name": f"{product}.zip", "mimeType": "application/zip", "buffer": data}
    )
    first = dialog.locator(".keys a").first
    expect(first).to_be_visible()
    assert violations(client) == []
    first.click()
    expect(client.user_messages.first).to_be_visible()
    if words:
        expect(client.page.locator(".chat")).to_contain_text(words)
        expect(client.page.locator(".chat img").first).to_be_visible()


def test_a_file_that_holds_no_conversation_says_so(client: Client) -> None:
    more(client, "Import conversations")
    dialog = client.page.get_by_role("dialog", name="Import conversations")
    client.page.locator("input[data-pick=import]").set_input_files(
        {"name": "noise.json", "mimeType": "application/json", "buffer": b'{"url": "http://127.0.0.1/"}'}
    )
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert len(dialog.get_by_role("alert").inner_text()) > 20


@pytest.mark.parametrize("place", PLACES)
def test_a_session_is_shared_by_a_link_that_can_be_withdrawn(open_client: OpenClient, place: dict[str, Any]) -> None:
    client = open_client(**place)
    client.send_and_wait("!echo the heron is patient")
    client.message_box.fill("/share")
    client.page.get_by_role("option", name="/share").click()
    dialog = client.page.get_by_role("dialog", name=re.compile("Share"))
    dialog.get_by_label("Link works for").select_option("1 day")
    dialog.get_by_role("button", name="Create link").click()
    link = dialog.get_by_role("textbox", name="Link").input_value()
    assert violations(client) == []
    with urllib.request.urlopen(link) as answer:  # without a cookie
        page = answer.read().decode()
    assert "the heron is patient" in page and "<script" not in page
    expect(dialog.get_by_role("list", name="Links").get_by_role("listitem")).to_have_count(1)
    dialog.get_by_role("button", name=re.compile("Delete the link")).click()
    expect(dialog.get_by_role("list", name="Links")).to_have_count(0)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(link)


def test_a_session_is_exported_in_every_form_and_comes_back(client: Client, tmp_path: Path) -> None:
    client.send_and_wait("!echo take me with you")
    session = client.session
    client.choose_in_list("Share or export")
    dialog = client.page.get_by_role("dialog", name=re.compile("Share"))
    files: dict[str, Path] = {}
    for name, suffix in (("Web page", "html"), ("Markdown", "md"), ("Zip", "zip"), ("JSON", "json")):
        with client.page.expect_download() as got:
            dialog.get_by_role("link", name=f"Download as {name}").click()
        files[suffix] = tmp_path / got.value.suggested_filename
        got.value.save_as(files[suffix])
        assert files[suffix].name == f"{session}.{suffix}"
    assert "take me with you" in files["md"].read_text() and "take me with you" in files["html"].read_text()
    assert "conversation.json" in zipfile.ZipFile(files["zip"]).namelist()
    assert str(client.daemon.home) not in json.dumps(json.loads(files["json"].read_text()))
    client.page.keyboard.press("Escape")
    more(client, "Import conversations")
    for suffix in ("zip", "json"):
        client.page.locator("input[data-pick=import]").set_input_files(files[suffix])
    found = client.page.get_by_role("dialog", name="Import conversations").locator(".keys li")
    expect(found).to_have_count(2)
    expect(found.first).to_contain_text("already here")
