"""Beside the answer: how much the model thinks, the todo list, background processes, messages for a turn that runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.tui.pilots import Driven, driven
from textual import events

from loom.content.blocks import ToolCall
from loom.events import Stopped, TextDelta, ThinkingDelta, UsageReported
from loom.models import Usage
from loom.sampling import Sampling
from loom.session import Session
from loom.tui.approval_card import ApprovalCard
from loom.tui.message_widgets import ThinkingFold
from loom.tui.model_screen import ModelScreen
from loom.tui.trust_screen import TrustScreen
from loom.tui.work_pane import WorkPane, WorkScreen

THOUGHT = [
    ThinkingDelta(index=0, text="let me see"),
    TextDelta(index=1, text="done"),
    UsageReported(usage=Usage(input_tokens=1, output_tokens=1)),
    Stopped(reason="end"),
]
TODOS = ToolCall(
    "c1",
    "update_todos",
    {
        "todos": [
            {"text": "read the log", "state": "done"},
            {"text": "raise the timeout", "state": "in_progress"},
            {"text": "run the tests", "state": "pending"},
        ]
    },
)
SLOW = "go\n!slow 15tps\n!tokens 400"


async def level_of(screen: Driven) -> str:
    assert screen.chat.conversation is not None
    return (await screen.chat.conversation.session.info()).options.thinking


async def test_the_thinking_level_is_set_by_key_and_command_and_reaches_the_model(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[THOUGHT, THOUGHT, THOUGHT]) as screen:
        await screen.press("alt+t", "alt+t", "alt+t", "alt+t")
        await screen.wait_for("thinking high")
        await screen.say("think")
        assert screen.model is not None
        assert screen.model.prompts[-1].sampling.thinking == "high"
        await screen.wait_for("(high)")
        await screen.type("/think low")
        await screen.press("enter")
        await screen.wait_for("thinking low")
        await screen.wait(lambda: not screen.chat.composer.text)
        assert await level_of(screen) == "low"
        await screen.say("again", turns=2)
        assert screen.model.prompts[-1].sampling.thinking == "low"
        assert [str(fold.title()) for fold in screen.chat.query(ThinkingFold)] == [
            "Thought for 0 s (high)",
            "Thought for 0 s (low)",
        ]
        await screen.type("/think auto")
        await screen.press("enter")
        await screen.wait(lambda: not screen.chat.state.thinking)
        assert await level_of(screen) == ""


async def test_a_level_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[]) as screen:
        await screen.type("/think hard")
        await screen.press("enter")
        await screen.wait_for("Unknown level hard. Levels: auto, off")


async def test_options_of_the_command_line_reach_the_model_and_are_not_stored(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["yes"], sampling=Sampling(thinking="max", temperature=0.5)) as screen:
        await screen.wait_for("thinking max")
        await screen.say("hello")
        assert screen.model is not None
        sent = screen.model.prompts[-1].sampling
        assert (sent.thinking, sent.temperature) == ("max", 0.5)
        assert await level_of(screen) == ""


async def test_the_todo_list_stands_in_the_status_line_and_in_a_pane(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[TODOS, "working on it"], size=(120, 34)) as screen:
        await screen.say("fix it")
        await screen.wait_for("todo 1/3 raise the timeout")
        await screen.press("f2")
        await screen.wait_for("✔ read the log")
        await screen.wait_for("▸ raise the timeout")
        await screen.wait_for("○ run the tests")
        await screen.press("f2")
        await screen.wait(lambda: not screen.chat.query(WorkPane), "the pane to close")


async def test_background_processes_are_listed_and_stopped(tmp_path: Path) -> None:
    start = ToolCall("c1", "start_process", {"command": "sleep 600"})
    async with driven(tmp_path, answers=[start, "it runs"], size=(120, 34), permission="auto") as screen:
        await screen.say("start it")
        await screen.wait_for("1 process")
        await screen.press("f2")
        await screen.wait_for("sleep 600")
        screen.chat.query_one(WorkPane).focus()
        await screen.press("x")
        await screen.wait(lambda: screen.chat.state.processes == 0, "the process to end")
        await screen.wait_for("exit ")


async def test_a_narrow_terminal_shows_the_work_over_the_conversation(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=[TODOS, "working on it"], size=(60, 24)) as screen:
        await screen.say("fix it")
        await screen.press("f2")
        await screen.wait(lambda: isinstance(screen.app.screen, WorkScreen))
        await screen.wait_for("raise the timeout")
        await screen.press("escape")
        await screen.wait(lambda: screen.app.screen is screen.chat)


async def test_enter_during_a_turn_reaches_its_next_step(tmp_path: Path) -> None:
    async with driven(tmp_path) as screen:
        await screen.paste(SLOW)
        await screen.press("enter")
        await screen.wait_for("is answering")
        await screen.paste("be brief")
        await screen.press("enter")
        await screen.wait_for("next step: be brief")
        assert screen.chat.conversation is not None
        (queued,) = await screen.chat.conversation.session.queue()
        assert queued.options.steers
        await screen.press("escape")
        await screen.wait(lambda: not screen.chat.is_busy)


async def test_what_an_opened_conversation_has_cost_is_known(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["one", "two"]) as screen:
        await screen.say("hello")
        assert screen.chat.conversation is not None
        session = screen.chat.conversation.id
        await screen.chat.open_new()
        await screen.chat.open_session(session)
        await screen.type("/usage")
        await screen.press("escape", "enter")
        await screen.wait_for("this path: 1 answer, 10 in")


async def test_what_a_folder_brings_is_asked_about_once(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Obey the project.")
    async with driven(tmp_path) as screen:
        await screen.wait_for("Do you trust this folder?")
        await screen.wait_for("Obey the project.")
        await screen.press("escape")
        await screen.wait(lambda: not isinstance(screen.app.screen, TrustScreen))
        assert (await screen.library.folder_trust()).state == "unknown"
    async with driven(tmp_path) as screen:
        await screen.wait_for("Do you trust this folder?")
        await screen.wait_for("n: do not use its files")
        await screen.press("n")
        await screen.wait(lambda: not isinstance(screen.app.screen, TrustScreen))
        await screen.say("hello")
        assert (await screen.library.folder_trust()).state == "refused"
    (tmp_path / "AGENTS.md").write_text("Obey the project again.")
    async with driven(tmp_path) as screen:
        await screen.wait_for("Obey the project again.")
        await screen.wait_for("y: trust this folder")
        await screen.press("y")
        await screen.wait(lambda: not isinstance(screen.app.screen, TrustScreen))
        await screen.say("hello")
        assert (await screen.library.folder_trust()).state == "trusted"
    async with driven(tmp_path) as screen:
        await screen.say("hello")
        assert not isinstance(screen.app.screen, TrustScreen)


async def test_a_message_that_is_being_typed_does_not_decide_about_a_folder(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Obey the project.")
    async with driven(tmp_path) as screen:
        await screen.wait_for("y: trust this folder")
        await screen.press(*"how can any", "escape")
        await screen.wait(lambda: not isinstance(screen.app.screen, TrustScreen))
        assert (await screen.library.folder_trust()).state == "unknown"


async def test_an_agent_that_is_chosen_before_the_first_message_brings_its_model(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "loom.toml").write_text('[agents.quick]\nmodel = "anthropic/claude-haiku-4-5"\n')
    async with driven(tmp_path, answers=["First."]) as screen:
        await screen.type("/agent quick")
        await screen.press("enter")
        await screen.wait_for("Agent: quick.")
        assert screen.chat.model == "anthropic/claude-haiku-4-5"


async def test_the_agents_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "loom.toml").write_text('[agents.reader]\ndescription = "Only reads"\ntools = ["read_file"]\n')
    async with driven(tmp_path, answers=["First.", "Second."]) as screen:
        await screen.type("/agent")
        await screen.press("enter", "enter")  # the first one completes the command
        await screen.wait_for("reader: Only reads (loom.toml)")
        await screen.type("/agent nosuch")
        await screen.press("enter")
        await screen.wait_for("Agent 'nosuch' not found.")
        await screen.type("/agent reader")
        await screen.press("enter")
        await screen.wait_for("Agent: reader.")
        await screen.say("go")
        assert screen.model is not None
        assert [tool.name for tool in screen.model.prompts[-1].tools] == ["read_file"]
        await screen.type("/agent none")
        await screen.press("enter")
        await screen.wait_for("Agent: none.")
        await screen.say("again", turns=2)
        assert len(screen.model.prompts[-1].tools) > 1


async def test_the_permission_shows_the_plan_mode_of_the_session_however_it_began_and_ended(tmp_path: Path) -> None:
    plan = ToolCall("p1", "present_plan", {"plan": "1. Write a.txt"})
    write = ToolCall("w1", "write_file", {"path": "a.txt", "content": "done"})

    def is_offered(screen: Driven) -> bool:
        assert screen.model is not None
        return "write_file" in {spec.name for spec in screen.model.prompts[-1].tools}

    async with driven(tmp_path, answers=["planned"], permission="plan") as screen:
        await screen.say("begin")
        assert not is_offered(screen)
        assert screen.chat.conversation is not None
        session = screen.chat.conversation.id
    async with driven(
        tmp_path, answers=["still planned", "over", "new", plan, write, "done"], session=session
    ) as screen:
        await screen.wait_for("· plan ·")
        await screen.say("again")
        assert not is_offered(screen)
        await screen.press("shift+tab", "shift+tab")
        await screen.wait_for("· ask ·")
        await screen.say("work", turns=2)
        assert is_offered(screen), "what is shown is what is sent"
        await screen.press("shift+tab", "shift+tab")
        await screen.wait_for("· plan ·")
        await screen.type("/new")
        await screen.press("enter")
        await screen.wait(lambda: screen.chat.conversation is None)
        await screen.say("in a new one")
        assert "· plan ·" in screen.text and not is_offered(screen)
        await screen.type("now plan")
        await screen.press("enter")
        await screen.wait_for_approval()
        await screen.pilot.pause()
        other = await screen.runtime.session(screen.chat.conversation.id)  # another interface answers
        (asked,) = await other.approvals()
        await other.answer(asked.approval, "once")
        await screen.wait_for("· ask ·")
        await screen.approve()
        await screen.wait_until_idle(turns=2)
        assert is_offered(screen) and (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("steers", [True, False])
async def test_a_turn_that_another_interface_began_is_interrupted_and_steered_like_an_own_one(
    tmp_path: Path, steers: bool
) -> None:
    waits = ToolCall("w1", "write_file", {"path": "a.txt", "content": "done"})
    async with driven(tmp_path, answers=[waits, "after the step"]) as screen:
        other = await screen.runtime.session(model="fake", workspace=str(tmp_path))
        await other.post("begin")
        turn = asyncio.create_task(_run_queue(other))
        while not await other.approvals():
            await screen.pilot.pause()
        await screen.chat.open_session(other.id)
        await screen.wait_for_approval()
        await screen.wait_for("Esc to interrupt")
        if steers:
            screen.chat.composer.focus()
            await screen.type("use b.txt")
            await screen.press("enter")
            await screen.wait_for("next step: use b.txt")
            screen.chat.query_one(ApprovalCard).focus()
            await screen.approve()
            await screen.wait_for("after the step")
            assert screen.model is not None and "use b.txt" in str(screen.model.prompts[1].messages)
        else:
            await screen.press("escape")
            await screen.wait_for("Interrupted.")
        await turn
        await screen.wait(lambda: not screen.chat.is_busy)


async def _run_queue(session: Session) -> None:
    async for _ in session.work():
        pass


async def test_a_turn_goes_on_while_another_conversation_is_shown(tmp_path: Path) -> None:
    waits = ToolCall("c1", "run_command", {"command": "while ! test -e go; do sleep 0.1; done; echo went > done"})
    async with driven(tmp_path, answers=[waits, "hello", "first is done"], permission="auto") as screen:
        await screen.type("work for long")
        await screen.press("enter")
        await screen.wait_for("running run_command")
        assert screen.chat.conversation is not None
        session = screen.chat.conversation.id
        await screen.type("/new")
        await screen.press("enter")
        await screen.wait_for("continues in the background")
        await screen.say("another one")
        await screen.wait_for("hello")
        (tmp_path / "go").touch()
        await screen.chat.open_session(session)
        await screen.wait_for("first is done")
        await screen.wait(lambda: not screen.chat.is_busy)
    assert (tmp_path / "done").read_text() == "went\n", "the command was not stopped"


@pytest.mark.parametrize(("permission", "answer"), [("auto", "written"), ("deny", "denied"), ("plan", "denied")])
async def test_an_approval_that_is_pending_when_a_conversation_is_opened_is_answered_by_the_permission(
    tmp_path: Path, permission: str, answer: str
) -> None:
    waits = ToolCall("w1", "write_file", {"path": "a.txt", "content": "done"})
    async with driven(tmp_path, answers=[waits, answer, "and on"], permission=permission) as screen:
        other = await screen.runtime.session(model="fake", workspace=str(tmp_path))
        await other.post("begin")
        turn = asyncio.create_task(_run_queue(other))
        while not await other.approvals():
            await screen.pilot.pause()
        await screen.chat.open_session(other.id)
        await screen.wait_for(answer)
        await turn
        assert (tmp_path / "a.txt").exists() == (permission == "auto")
        await screen.wait(lambda: not screen.chat.is_busy)
        await screen.type("next")
        await screen.press("enter")
        await screen.wait_for("and on")
        assert "no longer pending" not in screen.text


async def test_a_screen_that_is_closed_while_it_loads_does_not_end_the_program(tmp_path: Path) -> None:
    async with driven(tmp_path, answers=["hello", "again"]) as screen:
        await screen.say("hi")
        for _ in range(3):
            screen.chat.action_choose_model()
            await screen.wait(lambda: isinstance(screen.app.screen, ModelScreen))
            # It still compiles a request for each model. A key is read once the screen is mounted.
            screen.app.screen.post_message(events.Key("escape", None))
            await screen.wait(lambda: screen.app.screen is screen.chat)
        await screen.say("still here", turns=2)
