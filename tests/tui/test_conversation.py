"""A conversation on the screen: streaming, tools, approvals, interrupts, branches, queue."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.tui.pilots import Driven, driven
from textual.widgets import Static

from loom.content.blocks import TextBlock, ToolCall
from loom.events import Stopped, TextDelta, ThinkingDelta, TurnFailed, UsageReported
from loom.models import Usage
from loom.testing import sample_pdf, sample_png
from loom.tui.approval_card import ApprovalCard
from loom.tui.fold import Foldable
from loom.tui.message_widgets import ThinkingFold
from loom.tui.pictures import Picture
from loom.tui.status_line import StatusLine
from loom.tui.tool_card import ToolCard

TABLE = "| a | b |\n|---|---|\n| one | two |\n\n```python\nprint('hi')\n```\n"
SLOW = "go\n!slow 15tps\n!tokens 400"


def run_command(command: str) -> ToolCall:
    return ToolCall("c1", "run_command", {"command": command})


async def test_markdown_is_drawn_with_tables_and_code(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[f"# Title\n\n{TABLE}"]) as screen:
        await screen.say("show me")
        await screen.wait_for("one")
        assert "| a | b |" not in screen.text
        await screen.wait_for("print('hi')")
        await screen.wait_for("Title")


async def test_thinking_is_folded_and_opens(tmp_path: Path) -> None:
    thought = [
        ThinkingDelta(index=0, text="let me see"),
        TextDelta(index=1, text="done"),
        UsageReported(usage=Usage(input_tokens=1, output_tokens=1)),
        Stopped(reason="end"),
    ]
    async with driven(tmp_path, answers=[thought]) as screen:
        await screen.say("think")
        fold = screen.chat.query_one(ThinkingFold)
        await screen.wait_for("Thought for")
        assert "let me see" not in screen.text
        await screen.press("ctrl+o")
        await screen.wait_for("let me see")
        await screen.press("ctrl+o")
        await screen.wait(lambda: "let me see" not in screen.text)
        assert not fold.is_open


async def test_escapes_in_an_answer_stay_harmless(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["\x1b]0;owned\x07 [bold]x[/bold] \x1b[2J"]) as screen:
        await screen.say("attack")
        assert "\x1b" not in screen.text
        await screen.wait_for("[bold]x[/bold]")


async def test_notifications_show_names_as_they_are(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["yes"]) as screen:
        await screen.say("hi")
        await screen.paste("/export a[b][/b]c.md\x1b[2J")
        await screen.press("enter")
        await screen.wait_for("a[b][/b]c.md")
        screen.chat.notify("agent: \x1b]0;owned\x07")
        await screen.wait_for("agent: ␛]0;owned␇")
        assert "\x1b" not in screen.text


async def test_a_picture_and_its_rendition_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample_png(200, 100))
    async with driven(tmp_path, answers=["blue"], protocol="halfcell") as screen:
        await screen.paste(str(tmp_path / "a.png"))
        await screen.say("what is it?")
        await screen.wait(lambda: any(len(it.children) > 1 for it in screen.chat.query(Picture)), "the picture")
        await screen.wait_for("● a.png, 200×100")
        await screen.wait(lambda: "▀" in screen.text or "▄" in screen.text, "half blocks")
        await screen.wait_for("media 1●")


async def test_a_tool_call_is_approved(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[run_command("echo allowed > made.txt"), "finished"]) as screen:
        await screen.paste("make it")
        await screen.press("enter")
        await screen.wait_for_approval()
        await screen.wait_for("echo allowed > made.txt")
        reach = str(screen.chat.query_one(ApprovalCard).query_one(".reach", Static).content)
        assert reach.startswith(("Sandboxed: it writes only to the workspace", "Not sandboxed ("))
        await screen.approve()
        await screen.wait_until_idle()
        assert not screen.chat.query(ApprovalCard)
        card = screen.chat.query_one(ToolCard)
        assert card.result is not None and not card.result.is_error
        await screen.wait_for("✔ run_command")
        await screen.wait_for("finished")


async def test_a_denial_carries_its_reason_to_the_model(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[run_command("rm -rf x"), "I will not"]) as screen:
        await screen.paste("delete it")
        await screen.press("enter")
        await screen.wait_for_approval()
        await screen.pilot.pause(0.4)
        await screen.press("r")
        await screen.type("keep it\n")
        await screen.wait_until_idle()
        await screen.wait_for("✖ run_command")
        assert screen.model is not None
        assert "keep it" in str(screen.model.prompts[1].messages[-1])


async def test_invisible_characters_of_a_command_are_shown(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[run_command("echo a\u200bb"), "ok"]) as screen:
        await screen.paste("go")
        await screen.press("enter")
        await screen.wait_for_approval()
        await screen.wait_for("\\u200b")
        await screen.pilot.pause(0.4)
        await screen.press("n")
        await screen.wait_until_idle()


async def test_a_key_that_was_on_its_way_answers_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[run_command("echo x"), "ok"]) as screen:
        await screen.paste("go")
        await screen.press("enter")
        await screen.wait_for_approval()
        card = screen.chat.query_one(ApprovalCard)
        card._since = time.monotonic()
        card.action_choose("once")
        await screen.pilot.pause()
        assert screen.chat.query(ApprovalCard)
        await screen.press("escape")
        await screen.wait(lambda: not screen.chat.is_busy)


@pytest.mark.parametrize("draft", ["", "and then"])
async def test_tab_goes_to_a_pending_approval_whatever_is_in_between_and_back_to_the_message(
    tmp_path: Path, draft: str
) -> None:
    async with driven(tmp_path, answers=[run_command("true"), "first", run_command("echo x"), "done"]) as screen:
        await screen.paste("go")
        await screen.press("enter")
        await screen.approve()
        await screen.wait_until_idle()  # the card of this call can have the keys, too
        await screen.paste("again")
        await screen.press("enter")
        await screen.wait_for_approval()
        await screen.press("tab")
        await screen.paste("be brief")  # steer while the approval is pending
        await screen.press("enter")
        await screen.wait_for("next step: be brief")
        await screen.wait_for("Tab: go to these keys")
        await screen.paste(draft)
        await screen.press("tab")
        assert isinstance(screen.chat.focused, ApprovalCard)
        assert "Tab: go to these keys" not in screen.text
        await screen.press("tab")
        assert screen.chat.focused is screen.chat.composer
        assert screen.chat.composer.text == draft, "it is not sent"
        await screen.press("tab")
        await screen.approve()
        await screen.wait_for("done")


async def test_the_permission_is_changed_by_a_key_and_obeyed(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[run_command("echo x"), "done"]) as screen:
        await screen.press("shift+tab")
        await screen.wait_for("auto")
        assert screen.chat.state.permission == "auto"
        await screen.say("go")
        await screen.wait_for("✔ run_command")


async def test_escape_interrupts_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        await screen.paste(SLOW)
        await screen.press("enter")
        await screen.wait_for("is answering")
        await screen.press("escape")
        await screen.wait(lambda: not screen.chat.is_busy)
        await screen.say("still there?\n!echo still here")
        await screen.wait_for("still here")


async def test_a_message_during_an_answer_is_queued_and_can_be_edited(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        await screen.paste(SLOW)
        await screen.press("enter")
        await screen.wait_for("is answering")
        await screen.paste("later")
        await screen.press("tab")
        await screen.wait_for("queued: later")
        await screen.press("up")
        await screen.wait(lambda: screen.chat.composer.text == "later")
        await screen.wait(lambda: "queued: later" not in screen.text)
        await screen.paste(" please\n!echo second answer")
        await screen.press("tab")
        await screen.wait_for("queued: later please")
        await screen.press("escape")
        await screen.wait_for("second answer")


async def test_paused_messages_are_shown_edited_and_sent(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        await screen.say("hello\n!echo first")
        assert screen.chat.conversation is not None
        session = screen.chat.conversation.session
        queued = await session.post("!echo later on")
        await session.pause_queue(queued.id)
        await screen.wait_for("paused: !echo later on")
        await screen.press("up")
        await screen.wait(lambda: screen.chat.composer.text == "!echo later on")
        assert await session.queue() == ()
        screen.chat.composer.clear()
        queued = await session.post("!echo at last")
        await session.pause_queue(queued.id)
        await screen.wait_for("paused: !echo at last")
        await screen.press("enter")
        await screen.wait(lambda: "paused:" not in screen.text and not screen.chat.is_busy)
        assert [message.text for message in await session.path()][-2:] == ["!echo at last", "at last"]


async def two_answers(screen: Driven) -> None:
    await screen.say("first question")
    await screen.say("second question", turns=2)


async def test_escape_twice_edits_an_earlier_message_and_destroys_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["one", "two", "three"]) as screen:
        await two_answers(screen)
        await screen.press("escape", "escape")
        await screen.wait_for("Edit an earlier message")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.composer.text == "second question")
        await screen.paste(", edited")
        await screen.press("enter")
        await screen.wait_until_idle(3)
        assert screen.chat.conversation is not None
        texts = [message.label for message in await screen.chat.conversation.tree()]
        assert sorted(texts) == sorted(
            ["first question", "one", "second question", "two", "second question, edited", "three"]
        )
        await screen.wait(lambda: screen.chat.state.branches == 2)


async def test_the_branch_pane_goes_to_any_message(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["one", "two"], size=(120, 34)) as screen:
        await two_answers(screen)
        await screen.press("ctrl+t")
        await screen.wait_for("◉ fake two")
        await screen.press("up", "up", "enter")
        await screen.wait(lambda: len(screen.chat.query("UserMessage")) == 1)
        assert screen.chat.conversation is not None
        assert (await screen.chat.conversation.path())[-1].message.text == "one"


async def test_another_answer_is_a_sibling(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["one", "other"]) as screen:
        await screen.say("question")
        await screen.type("/retry ")
        await screen.press("enter")
        await screen.wait_until_idle(2)
        await screen.wait(lambda: screen.chat.state.branches == 2)
        await screen.wait_for("other")


async def test_a_fork_is_a_session_of_its_own(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["one", "two"]) as screen:
        await screen.say("question")
        assert screen.chat.conversation is not None
        before = screen.chat.conversation.id
        await screen.type("/fork")
        await screen.press("escape", "enter")
        await screen.wait(lambda: screen.chat.conversation is not None and screen.chat.conversation.id != before)
        await screen.say("more", turns=1)
        await screen.wait_for("question")
        await screen.wait_for("two")
        old = await screen.library.open(before)
        assert [it.message.text for it in await old.path()] == ["question", "one"]


async def test_a_failed_turn_says_what_to_do(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        await screen.paste("go\n!fail 401 bad key")
        await screen.press("enter")
        await screen.wait_for("bad key")
        await screen.wait(lambda: not screen.chat.is_busy)


async def test_a_session_is_opened_with_the_error_of_its_last_turn(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        failed = await screen.library.create(title="failed")
        async with aclosing(failed.session.stream("go\n!fail 401 bad key")) as events:
            assert [event.code for event in [event async for event in events] if isinstance(event, TurnFailed)]
        await screen.chat.open_session(failed.id)
        await screen.wait_for("!fail 401 bad key")
        await screen.wait_for("Check the key")


async def test_a_conversation_with_a_failed_call_opens(tmp_path: Path) -> None:
    call = ToolCall("c1", "read_file", {"path": "missing.txt"})
    async with driven(tmp_path, answers=[call, "it is not there"]) as screen:
        await screen.say("read it")
        card = screen.chat.query_one(ToolCard)
        assert re.search(r"\d\.\d s$", str(card.title()))
        assert screen.chat.conversation is not None
        session = screen.chat.conversation.id
        await screen.chat.open_new()
        await screen.chat.open_session(session)
        await screen.wait_for("▎ File not found: missing.txt")
        again = screen.chat.query_one(ToolCard)
        assert again is not card
        assert not re.search(r"\d s$", str(again.title())), "how long it took is not stored"


async def test_a_conversation_of_many_messages_opens_at_its_end_and_scrolls_back(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        from loom.content.messages import assistant, user

        conversation = await screen.library.create(title="long", model="fake")
        roles = (("question", user), ("answer", assistant))
        messages = [make(f"{name} {n}") for n in range(100) for name, make in roles]
        await screen.runtime.stores.sessions.append_to_head(conversation.id, messages)
        await screen.chat.open_session(conversation.id)
        await screen.wait_for("answer 99")
        assert len(screen.chat.query("UserMessage")) < 40
        shown = len(screen.chat.query("UserMessage"))
        await screen.press("ctrl+home")
        await screen.wait(lambda: len(screen.chat.query("UserMessage")) > shown)
        assert "answer 99" not in screen.text


async def test_all_folds_open_with_tool_results(tmp_path: Path) -> None:
    call = ToolCall("c1", "list_files", {"path": "."})
    async with driven(tmp_path, answers=[call, "listed"]) as screen:
        await screen.say("list")
        assert screen.chat.query_one(ToolCard).result is not None
        await screen.press("ctrl+o")
        await screen.wait(lambda: all(fold.is_open for fold in screen.chat.query(Foldable)))


async def test_a_document_is_paged_as_picture_and_text(tmp_path: Path) -> None:
    (tmp_path / "r.pdf").write_bytes(sample_pdf("alpha page", "beta page", "gamma page"))
    async with driven(tmp_path, answers=["read"], protocol="halfcell") as screen:
        await screen.paste(str(tmp_path / "r.pdf"))
        await screen.wait(lambda: "[r.pdf]" in screen.chat.composer.text)
        await screen.press("enter")
        await screen.wait_until_idle()
        document = screen.chat.query_one("DocumentLine")
        document.focus()
        await screen.press("enter")
        await screen.wait_for("page 1 of 3 (image)")
        await screen.press("t")
        await screen.wait_for("alpha page")
        await screen.press("right")
        await screen.wait_for("beta page")
        await screen.press("end")
        await screen.wait_for("gamma page")
        await screen.press("right", "left")
        await screen.wait_for("page 2 of 3 (text)")
        await screen.press("escape")
        assert screen.app.screen is screen.chat


async def test_the_last_user_blocks_are_text(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["hi"]) as screen:
        await screen.say("hello")
        assert screen.chat.conversation is not None
        assert (await screen.chat.conversation.path())[0].message.blocks == (TextBlock("hello"),)


async def test_what_the_agent_changed_in_files_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = ToolCall("c1", "write_file", {"path": "made.txt", "content": "new"})
    async with driven(tmp_path, answers=[call, "written"], permission="auto") as screen:
        await screen.say("write it")
        assert (tmp_path / "made.txt").read_text() == "new"
        await screen.type("/undo ")
        await screen.press("enter")
        await screen.wait(lambda: not (tmp_path / "made.txt").exists(), "the undo")


async def test_work_that_still_runs_when_the_program_ends_is_stopped_before_its_widgets_are_removed(
    tmp_path: Path,
) -> None:
    async with driven(tmp_path) as screen:
        await screen.wait(lambda: screen.chat.query(StatusLine))

        async def refresh_forever() -> None:
            while True:
                screen.chat.query_one(StatusLine)
                await asyncio.sleep(0)

        screen.chat.run_worker(refresh_forever())
        await screen.pilot.pause()
