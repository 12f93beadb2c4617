"""Plan mode, hooks of turns and summaries, budgets, and the facts that a session begins with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.errors import LoomError
from loom.events import ApprovalRequested, NoticeRaised
from loom.runtime.git_facts import read_git_facts
from loom.session import Session
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.sandbox import Sandbox
from made import run

MODEL = "anthropic/claude-sonnet-4-5"
PLAN = ToolCall("p1", "present_plan", {"plan": "1. Write a.txt"})
WRITE = ToolCall("w1", "write_file", {"path": "a.txt", "content": "done"})


async def answer_all(session: Session, text: str, *answers: tuple[str, str]) -> list[str]:
    """Send a message and give these answers in order; return what was asked."""
    asked: list[str] = []
    async with session.stream(text) as events:
        async for event in events:
            if isinstance(event, ApprovalRequested):
                verdict, reason = answers[len(asked)]
                asked.append(f"{event.call.name}: {event.action}")
                await session.answer(event.approval, verdict, reason)  # type: ignore[arg-type]
    return asked


def names(provider: ScriptedProvider, at: int) -> set[str]:
    return {spec.name for spec in provider.prompts[at].tools}


async def test_work_begins_when_the_plan_is_approved(tmp_path: Path) -> None:
    provider = ScriptedProvider([PLAN, WRITE, "Done."])
    async with memory_runtime(providers={"anthropic": provider}, tools="all") as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        view = await session.change(plan_mode=True)
        assert view.plan_mode
        preview = await session.previews.next_request(content=["write a file"])
        asked = await answer_all(session, "write a file", ("once", ""), ("once", ""))
        assert asked[0] == "present_plan: 1. Write a.txt (the plan)"
        assert asked[1].startswith("write_file: ")
        assert "write_file" not in names(provider, 0)
        assert {"read_file", "search_files", "present_plan"} <= names(provider, 0)
        assert names(provider, 0) == {spec.name for spec in preview.prompt.tools}, "what is shown is what is sent"
        assert "write_file" in names(provider, 1)
        assert "present_plan" not in names(provider, 1)
        assert not (await session.info()).plan_mode
    assert (tmp_path / "a.txt").read_text() == "done"


async def test_a_plan_that_is_refused_keeps_the_session_planning_and_the_model_reads_why(tmp_path: Path) -> None:
    provider = ScriptedProvider([PLAN, WRITE, "I cannot."])
    async with memory_runtime(providers={"anthropic": provider}, tools="all") as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.change(plan_mode=True)
        await answer_all(session, "write a file", ("deny", "use b.txt"))
        refused, unknown = [result for message in await session.path() for result in message.results]
        assert "use b.txt" in "".join(map(text_of, refused.blocks))
        assert "Tool 'write_file' not found" in "".join(map(text_of, unknown.blocks))
        assert (await session.info()).plan_mode
    assert not (tmp_path / "a.txt").exists()


async def test_hooks_run_when_turns_and_summaries_begin_and_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hook = {"command": f"cat >> {log}; echo >> {log}"}
    settings = {f"hooks.{name}": [hook] for name in ("turn_start", "turn_end", "before_compact", "after_compact")}
    provider = ScriptedProvider(["Hello.", "A summary."])
    async with memory_runtime(settings, providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("hi")
        async with session.compact() as events:
            notices = [event.text async for event in events if isinstance(event, NoticeRaised)]
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(one["hook_event_name"], one["state"]) for one in told] == [
        ("turn_start", "running"),
        ("turn_end", "finished"),
        ("before_compact", "running"),
        ("after_compact", "finished"),
    ]
    assert all(one["session_id"] and one["cwd"] == str(tmp_path) for one in told)
    (receipt,) = notices
    assert receipt.startswith("Condensed 2 messages (1 from the user, 1 from the model; about ")
    assert "all messages stay as a branch" in receipt


async def test_a_hook_can_refuse_a_turn_and_a_summary(tmp_path: Path) -> None:
    refuse = [{"command": "echo not today; exit 2"}]
    provider = ScriptedProvider(["Hello."])
    async with memory_runtime({"hooks.before_compact": refuse}, providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("hi")
        async with session.compact() as events:
            ended = [event async for event in events][-1]
        assert "Your hook refused the turn: not today" in ended.text  # type: ignore[union-attr]
        assert len(await session.path()) == 2
    async with memory_runtime({"hooks.turn_start": refuse}, providers={"anthropic": ScriptedProvider([])}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        with pytest.raises(LoomError, match="Your hook refused the turn: not today"):
            await session.send("hi")


async def test_the_prompt_tells_the_state_of_the_repository_once(tmp_path: Path) -> None:
    run("git", "init", "-q", "-b", "main", tmp_path)
    (tmp_path / "a.txt").write_text("x")
    run("git", "-C", tmp_path, "add", ".")
    run("git", "-C", tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "Begin the work")
    (tmp_path / "a.txt").write_text("y")
    (tmp_path / "b.txt").write_text("z")
    facts = await read_git_facts(tmp_path, Sandbox(), is_trusted=True)
    assert facts.startswith("1 changed file, 1 new file; last commit ")
    assert facts.endswith(" Begin the work")
    provider = ScriptedProvider(["a", "b"])
    async with memory_runtime(
        {"trusted_folders": [str(tmp_path)]}, providers={"anthropic": provider}, tools="all", instructions=True
    ) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("1")
        (tmp_path / "c.txt").write_text("new")
        await session.send("2")
    assert "1 changed file, 1 new file" in provider.prompts[0].system
    assert provider.prompts[0].system == provider.prompts[1].system, "caches live"


async def test_a_repository_that_configures_programs_runs_none_outside_the_fence(tmp_path: Path) -> None:
    run("git", "init", "-q", tmp_path)
    trap = tmp_path.parent / "trapped"
    run("git", "-C", tmp_path, "config", "core.fsmonitor", f"touch {trap}")
    await read_git_facts(tmp_path, Sandbox(), is_trusted=False)
    assert not trap.exists()


async def test_use_skill_is_offered_only_where_there_are_skills(tmp_path: Path) -> None:
    provider = ScriptedProvider(["a", "b"])
    settings = {"trusted_folders": [str(tmp_path)]}
    async with memory_runtime(settings, providers={"anthropic": provider}, tools="all") as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("1")
        skill = tmp_path / ".agents" / "skills" / "bake" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: bake\ndescription: Bread.\n---\nMix.\n")
        await session.send("2")
    assert ["use_skill" in names(provider, at) for at in (0, 1)] == [False, True]


async def test_an_agent_has_a_budget_of_its_own(tmp_path: Path) -> None:
    reads = [ToolCall(f"r{number}", "list_files", {"path": "."}) for number in range(5)]
    provider = ScriptedProvider([*reads, "Done."])
    settings = {"agents.short.max_steps": 2}
    async with memory_runtime(settings, providers={"anthropic": provider}, tools="all") as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path), agent="short")
        with pytest.raises(LoomError, match="2 steps"):
            await session.send("go")
    assert len(provider.prompts) == 2
