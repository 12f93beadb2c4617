"""Control of a session: its settings, own commands, steering, todos, processes, undo, several models at once."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from browser.accessibility import violations
from browser.client import Client, OpenClient


def _open_settings(client: Client) -> Locator:
    client.page.get_by_role("button", name=re.compile("^Session settings")).click()
    return client.page.get_by_role("dialog", name="Session settings")


def _save(form: Locator) -> None:
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)


def test_thinking_temperature_agent_tools_and_prompt_are_set_for_a_session(client: Client) -> None:
    client.send_and_wait("!echo hello")
    form = _open_settings(client)
    form.get_by_label("Thinking").select_option("High")
    form.get_by_label("Temperature").fill("0.3")
    form.get_by_label("Agent", exact=True).select_option(label="reviewer: Reads, and changes nothing")
    form.locator(".tools summary").click()
    form.get_by_role("button", name="Allow none").click()
    form.get_by_role("checkbox", name=re.compile("^read_file")).check()
    form.get_by_label("System prompt").fill("Answer in rhymes.")
    assert violations(client) == []
    _save(form)
    expect(client.page.get_by_role("button", name="Session settings, thinking: high")).to_be_visible()
    found = client.daemon.ask(f"/v1/sessions/{client.session}")
    assert found["options"] == {"thinking": "high", "temperature": 0.3}
    assert (found["agent"], found["tools"]) == ("reviewer", ["read_file"])
    sent = client.daemon.ask(f"/v1/sessions/{client.session}/wire?model=anthropic/claude-sonnet-4-5")["request"]
    assert [tool["name"] for tool in sent["tools"]] == ["read_file"]
    assert "Answer in rhymes." in str(sent["system"])
    client.page.reload()
    form = _open_settings(client)
    expect(form.get_by_label("System prompt")).to_have_value("Answer in rhymes.")
    expect(form.get_by_label("Thinking")).to_have_value("high")
    form.get_by_label("System prompt").fill("")
    form.get_by_label("Temperature").fill("")
    _save(form)
    found = client.daemon.ask(f"/v1/sessions/{client.session}")
    assert found["options"] == {"thinking": "high"}
    system = client.daemon.ask(f"/v1/sessions/{client.session}/messages")["system"]
    assert "rhymes" not in system and system


def test_settings_made_before_the_first_message_hold_for_the_new_session(client: Client) -> None:
    form = _open_settings(client)
    form.get_by_label("Thinking").select_option("Low")
    form.get_by_label("System prompt").fill("Be brief.")
    _save(form)
    client.send_and_wait("!echo hello")
    found = client.daemon.ask(f"/v1/sessions/{client.session}")
    assert found["options"] == {"thinking": "low"}
    assert client.daemon.ask(f"/v1/sessions/{client.session}/messages")["system"].startswith("Be brief.")


def test_a_temperature_that_is_out_of_range_is_not_saved(client: Client) -> None:
    client.send_and_wait("!echo hello")
    form = _open_settings(client)
    form.get_by_label("Temperature").fill("7")
    form.get_by_role("button", name="Save").click()
    assert form.get_by_label("Temperature").evaluate("(field) => field.validity.rangeOverflow")
    assert client.daemon.ask(f"/v1/sessions/{client.session}")["options"] == {}


def test_own_commands_are_suggested_and_sent_with_their_arguments(client: Client) -> None:
    client.message_box.fill("/gre")
    option = client.page.get_by_role("option", name="/greet")
    expect(option).to_contain_text("Greet someone")
    client.message_box.press("Enter")
    expect(client.message_box).to_have_value("/greet ")
    client.message_box.press_sequentially("Ada")
    client.send_button.click()
    expect(client.answers.last).to_contain_text("Good day, Ada.")


def test_a_command_is_no_message_before_its_list_is_loaded(client: Client) -> None:
    release = client.hold("**/assets/deferred-*.js")
    client.message_box.fill("/usage")
    client.message_box.press("Enter")
    release()
    expect(client.page.get_by_role("dialog", name="Usage and cost")).to_be_visible()
    expect(client.message_box).to_have_value("")
    expect(client.user_messages).to_have_count(0)


def test_an_own_command_is_expanded_without_the_list_of_them(client: Client) -> None:
    client.page.route("**/v1/commands?*", lambda route: route.abort())
    client.message_box.fill("/greet Ada")
    client.message_box.press("Enter")
    expect(client.answers.last).to_contain_text("Good day, Ada.")


def test_a_message_steers_the_running_turn(client: Client) -> None:
    client.send('!tool write_file {"path": "steered.txt", "content": "x"}')
    allow = client.page.get_by_role("button", name="Allow once")
    expect(allow).to_be_visible()
    client.message_box.fill("!echo look at the log first")
    client.page.get_by_role("button", name="Steer", exact=True).click()
    queue = client.page.get_by_role("region", name="Queued messages")
    expect(queue).to_contain_text("read at the next step")
    allow.click()
    client.wait_idle()
    expect(queue).to_have_count(0)
    expect(client.user_messages).to_have_count(2)
    expect(client.user_messages.last).to_contain_text("look at the log first")
    roles = [one["role"] for one in client.daemon.ask(f"/v1/sessions/{client.session}/messages")["messages"]]
    assert roles[:4] == ["user", "assistant", "tool", "user"]


def test_todos_are_shown_while_the_agent_works(client: Client) -> None:
    todos = '[{"text": "read the log", "state": "done"}, {"text": "change the timeout", "state": "in_progress"}]'
    client.send_and_wait(f'!tool update_todos {{"todos": {todos}}}')
    bar = client.page.get_by_role("button", name=re.compile("1 of 2 todos done"))
    expect(bar).to_contain_text("change the timeout")
    bar.click()
    panel = client.page.get_by_role("complementary", name="Activity")
    expect(panel.get_by_role("listitem").filter(has_text="read the log")).to_contain_text("Done")
    assert violations(client) == []


def test_file_changes_are_undone_with_one_click(client: Client) -> None:
    file = client.daemon.workspace / "undo.txt"
    client.send('!tool write_file {"path": "undo.txt", "content": "new words"}')
    client.page.get_by_role("button", name="Allow once").click()
    client.wait_idle()
    assert file.read_text() == "new words"
    bar = client.page.locator(".activity-bar")
    expect(bar).to_contain_text("1 file changed")
    bar.get_by_role("button", name="Undo").click()
    expect(bar).to_have_count(0)
    assert not file.exists()


def test_an_undo_that_leaves_a_file_alone_says_why(client: Client) -> None:
    file = client.daemon.workspace / "edited.txt"
    client.send('!tool write_file {"path": "edited.txt", "content": "new words"}')
    client.page.get_by_role("button", name="Allow once").click()
    client.wait_idle()
    file.write_text("words of the user")
    client.page.locator(".activity-bar").get_by_role("button", name="Undo").click()
    expect(client.page.get_by_role("status", name="Undone")).to_contain_text("edited.txt")
    expect(client.page.locator("[aria-live=polite][role=status]")).to_have_text("Some changes were not undone")
    assert file.read_text() == "words of the user"


def test_a_background_process_is_listed_and_stopped(client: Client) -> None:
    client.send('!tool start_process {"command": "sleep 300"}')
    client.page.get_by_role("button", name="Allow once").click()
    client.wait_idle()
    client.page.get_by_role("button", name=re.compile("1 process running")).click()
    panel = client.page.get_by_role("complementary", name="Activity")
    expect(panel).to_contain_text("sleep 300")
    panel.get_by_role("button", name="Stop sleep 300").click()
    expect(panel).to_contain_text("Ended")


def _ask_two_models(client: Client) -> None:
    client.page.locator("button.model").click()
    dialog = client.page.get_by_role("dialog", name="Choose a model")
    for name in ("spark", "echo"):
        dialog.get_by_role("option", name=re.compile(f"^{name}")).hover()
        dialog.get_by_role("region", name="What would change").get_by_role("button", name="Add to comparison").click()
    dialog.get_by_role("button", name="Ask 2 models side by side").click()
    expect(client.page.get_by_text("Asks spark, echo side by side.")).to_be_visible()


def test_models_that_are_asked_side_by_side_are_those_of_one_session(client: Client) -> None:
    client.send_and_wait("!echo first")
    _ask_two_models(client)
    client.page.get_by_role("button", name="New session").click()
    expect(client.answers).to_have_count(0)
    expect(client.page.get_by_text("side by side")).to_have_count(0)


def test_several_models_answer_one_question_side_by_side(client: Client) -> None:
    _ask_two_models(client)
    client.send("!echo hello to both")
    compare = client.page.get_by_role("dialog", name="Side by side")
    expect(compare.get_by_role("article")).to_have_count(2)
    expect(compare).to_contain_text("hello to both")
    assert violations(client) == []
    messages = client.daemon.ask(f"/v1/sessions/{client.session}/messages")["messages"]
    children = client.daemon.ask(f"/v1/sessions/{client.session}/nodes/{messages[0]['node']}/children")["children"]
    assert sorted(one["model"] for one in children) == ["loom/spark", "openai-compatible/echo"]


def test_session_settings_fit_a_phone(open_client: OpenClient) -> None:
    phone = open_client(phone=True, scheme="dark")
    phone.send_and_wait("!echo hello")
    form = _open_settings(phone)
    expect(form.get_by_label("Thinking")).to_be_in_viewport()
    assert violations(phone) == []
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
