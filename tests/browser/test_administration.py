"""Settings of the server in the page: defaults, budgets, model servers with a test, users; usage with a plot."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from browser.accessibility import violations
from browser.client import Client, Daemon, OpenClient
from browser.echo_server import echo_server


def _settings(client: Client, tab: str) -> Locator:
    client.page.get_by_role("button", name="Settings", exact=True).click()
    dialog = client.page.get_by_role("dialog", name="Settings")
    dialog.get_by_role("tab", name=tab).click()
    return dialog


def test_a_server_is_tested_added_and_used(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    with echo_server() as settings:
        url = settings.split('base_url = "')[1].split('"')[0]
        dialog = _settings(client, "Models")
        dialog.get_by_role("button", name="Add a server").click()
        form = dialog.get_by_role("form", name="Add a server")
        form.get_by_label("Address").fill("http://127.0.0.1:9/v1")
        form.get_by_role("button", name="Test this server").click()
        expect(form.get_by_role("status")).to_contain_text("cannot be reached")
        form.get_by_label("Address").fill(url)
        form.get_by_role("button", name="Test this server").click()
        expect(form.get_by_role("status")).to_contain_text("Works: 1 model")
        form.get_by_label("Name").fill("parrot")
        form.get_by_label("Model").fill("echo")
        assert violations(client) == []
        form.get_by_role("button", name="Save server").click()
        expect(dialog.get_by_role("listitem").filter(has_text="parrot")).to_contain_text(url)
        client.page.keyboard.press("Escape")
        client.page.locator("button.model").click()
        models = client.page.get_by_role("dialog", name="Choose a model")
        models.get_by_role("searchbox").fill("parrot")
        models.get_by_role("searchbox").press("Enter")
        expect(client.send_and_wait("said by a new server")).to_contain_text("said by a new server")
        dialog = _settings(client, "Models")
        dialog.get_by_role("button", name="Remove parrot").click()
        expect(dialog.get_by_role("listitem").filter(has_text="parrot")).to_have_count(0)


def test_settings_apply_at_once_or_say_that_a_restart_is_needed(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    dialog = _settings(client, "Server")
    dialog.get_by_label("Steps per turn").fill("0")
    dialog.get_by_label("Steps per turn").press("Tab")
    expect(dialog.get_by_role("alert")).to_contain_text("turn.max_steps")
    dialog.get_by_label("Steps per turn").fill("9")
    dialog.get_by_label("Budget per day ($)").fill("0")
    dialog.get_by_label("Budget per day ($)").press("Tab")
    expect(dialog.get_by_role("alert")).to_have_count(0)
    dialog.get_by_label("Server port").fill("7070")
    dialog.get_by_label("Server port").press("Tab")
    expect(dialog.get_by_role("status")).to_have_text("Restart Loom to apply: Server port.")
    expect(dialog.get_by_label("Default model")).to_have_value("loom/spark")
    expect(dialog).to_contain_text("Set by environment LOOM_MODEL")
    assert violations(client) == []
    client.page.keyboard.press("Escape")
    client.send("!echo too late")
    expect(client.page.get_by_role("alert", name="Answer failed")).to_contain_text("Budget exceeded")
    kept = {one["key"]: one["value"] for one in own_daemon.ask("/v1/settings")["settings"]}
    assert (kept["turn.max_steps"], kept["budget.day_usd"]) == (9, 0)


def test_what_is_typed_stays_while_another_setting_is_saved(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    dialog = _settings(client, "Server")
    release = client.hold("**/v1/settings/turn.max_steps")
    steps, budget = dialog.get_by_label("Steps per turn"), dialog.get_by_label("Budget per day ($)")
    steps.fill("9")
    budget.fill("4.5")
    release()
    expect(client.page.get_by_text("Steps per turn saved")).to_be_attached()
    expect(budget).to_have_value("4.5")
    with client.page.expect_response("**/v1/settings/budget.day_usd"):
        budget.press("Tab")
    kept = {one["key"]: one["value"] for one in own_daemon.ask("/v1/settings")["settings"]}
    assert (kept["turn.max_steps"], kept["budget.day_usd"]) == (9, 4.5)


def test_users_are_added_and_their_key_is_shown_once(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    dialog = _settings(client, "Users")
    form = dialog.get_by_role("form", name="Add a user")
    form.get_by_label("Name of the user").fill("ada")
    form.get_by_label("Role").select_option("viewer")
    form.get_by_role("button", name="Add user").click()
    expect(dialog.get_by_role("status")).to_contain_text(re.compile("Key for ada, shown once: loom_"))
    dialog.get_by_label("Role of ada").select_option("admin")
    expect(dialog.get_by_label("Role of ada")).to_have_value("admin")
    assert violations(client) == []
    dialog.get_by_role("button", name="Remove ada").click()
    expect(dialog.get_by_label("Role of ada")).to_have_count(0)
    assert own_daemon.ask("/v1/users") == {"users": []}


def test_a_new_user_is_no_admin_and_sees_what_is_shared_with_them(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    client.send_and_wait("!echo for ada")
    session = client.session
    dialog = _settings(client, "Users")
    form = dialog.get_by_role("form", name="Add a user")
    form.get_by_label("Name of the user").fill("ada")
    form.get_by_role("button", name="Add user").click()
    key = dialog.get_by_role("status").locator("code").inner_text()
    assert [(user["name"], user["role"]) for user in own_daemon.ask("/v1/users")["users"]] == [("ada", "user")]
    assert own_daemon.status(f"/v1/sessions/{session}", key) == 404
    client.page.keyboard.press("Escape")
    client.choose_in_list("Share or export")
    share = client.page.get_by_role("dialog", name=re.compile("^Share"))
    people = share.get_by_role("form", name="Share with a user")
    people.get_by_label("Name of the user").fill("nobody")
    people.get_by_role("button", name="Share").click()
    expect(client.page.locator(".bar, [role=alert], [role=status]").filter(has_text="nobody").first).to_be_visible()
    people.get_by_label("Name of the user").fill("ada")
    people.get_by_role("button", name="Share").click()
    expect(share.get_by_label("Access of ada")).to_have_value("view")
    assert own_daemon.status(f"/v1/sessions/{session}", key) == 200
    share.get_by_label("Access of ada").select_option("can write")
    expect(share.get_by_label("Access of ada")).to_have_value("edit")
    assert violations(client) == []
    share.get_by_role("button", name="Stop sharing with ada").click()
    expect(share.get_by_label("Access of ada")).to_have_count(0)
    assert own_daemon.status(f"/v1/sessions/{session}", key) == 404


def test_usage_is_plotted_and_listed_by_model_session_and_tool(open_client: OpenClient, own_daemon: Daemon) -> None:
    client = open_client(on=own_daemon)
    client.send_and_wait("!echo one")
    client.send_and_wait('!tool list_files {"path": "."}')
    client.message_box.fill("/usage")
    client.message_box.press("Enter")
    dialog = client.page.get_by_role("dialog", name="Usage and cost")
    expect(dialog.locator(".usage-total")).to_contain_text("3 answers")
    expect(dialog.get_by_role("img", name=re.compile("^Tokens per day"))).to_be_visible()
    assert dialog.locator(".plot rect").count() == 30
    assert dialog.locator(".plot rect").last.evaluate("(bar) => bar.getBoundingClientRect().height") > 50
    row = dialog.get_by_role("row").filter(has_text="spark")
    expect(row).to_contain_text("free")
    tools = dialog.get_by_role("group", name="By tool").get_by_role("row").filter(has_text="list_files")
    assert tools.get_by_role("cell").all_inner_texts()[:3] == ["1", "0", "0"]
    assert violations(client) == []
    dialog.get_by_role("radio", name="7 days").check()
    expect(dialog.locator(".plot rect")).to_have_count(7)
    session = client.session
    client.page.keyboard.press("Escape")
    client.page.goto(f"{own_daemon.url}/#/")
    client.page.keyboard.press("Control+k")
    client.page.get_by_role("combobox", name="Search everything").fill("usage")
    client.page.keyboard.press("Enter")
    dialog.get_by_role("button", name="!echo one").click()
    assert client.session == session
