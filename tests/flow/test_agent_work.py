"""An agent at work: steering, the todo list, repeated failures, background processes, summaries, recall, sub-agents."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

from loom.compile.policy import override_key
from loom.content.blocks import TextBlock, ToolCall
from loom.content.inputs import Attachment
from loom.content.messages import text_of
from loom.errors import NotFound, Unavailable
from loom.events import ApprovalRequested, MessageStored, NoticeRaised, ToolFinished, ToolStarted, TurnStarted
from loom.prompt import Prompt
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import tool

MODEL = "anthropic/claude-opus-5"


def call(name: str, number: int = 1, **arguments: Any) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments)


def opened(settings: dict[str, Any] | None = None, **options: Any) -> AbstractAsyncContextManager[Runtime]:
    given = {"providers": {"anthropic": ScriptedProvider([])}, "tools": "all", **options}
    return memory_runtime({"approval.default": "allow", **(settings or {})}, **given)


def equip(runtime: Runtime, *answers: Any) -> ScriptedProvider:
    provider = runtime.models.given_providers["anthropic"]
    assert isinstance(provider, ScriptedProvider)
    provider.add(*answers)
    return provider


def words_in(prompt: Prompt) -> str:
    blocks = [block for message in prompt.messages for block in message.blocks]
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


async def test_a_message_sent_during_a_turn_reaches_the_model_at_the_next_step(tmp_path: Path) -> None:
    @tool
    async def wait() -> str:
        """Give the user time to write."""
        other = await runtime.session(session.id)
        await other.steer("use tabs")
        await other.post("a question of its own")
        return "waited"

    async with opened(tools=["all", wait]) as runtime:
        provider = equip(runtime, call("wait"), "As you wish.", "And now this.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("indent it")
        assert "use tabs" in words_in(provider.prompts[1])
        assert "a question of its own" not in words_in(provider.prompts[1])
        roles = [message.role for message in await session.path()]
        assert roles == ["user", "assistant", "tool", "user", "assistant"]
        started = [event async for event in session.work() if isinstance(event, TurnStarted)]
        assert len(started) == 1
        assert [text_of(message.blocks[0]) for message in await session.path()][-1] == "And now this."


async def test_a_steering_message_without_a_running_turn_is_answered(tmp_path: Path) -> None:
    async with opened() as runtime:
        equip(runtime, "Hello.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.steer("hello")
        stored = [event async for event in session.work() if isinstance(event, MessageStored)]
        assert [event.message.role for event in stored] == ["user", "assistant"]


async def test_the_todo_list_is_that_of_the_path(tmp_path: Path) -> None:
    async with opened() as runtime:
        first = call("update_todos", 1, todos=[{"text": "read"}, {"text": "write", "state": "in_progress"}])
        second = call("update_todos", 2, todos=[{"text": "read", "state": "done"}])
        wrong = call("update_todos", 3, todos=[{"text": " "}])
        equip(runtime, first, "One.", [second, wrong], "Two.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        reply = await session.send("plan")
        finished = [event async for event in session.stream("go on") if isinstance(event, ToolFinished)]
        assert finished[0].result.data["todos"] == [{"text": "read", "state": "done"}]
        assert finished[1].result.is_error
        assert [(todo.text, todo.state) for todo in await session.todos()] == [("read", "done")]
        await session.go(reply.node)
        assert [todo.state for todo in await session.todos()] == ["pending", "in_progress"]


async def test_a_call_that_keeps_failing_is_named(tmp_path: Path) -> None:
    async with opened() as runtime:
        calls = [call("read_file", number, path="missing.txt") for number in range(4)]
        equip(runtime, *calls, call("read_file", 9, path="other.txt"), "I give up.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        results = [text_of(result) for message in await session.path() for result in message.results]
        assert [re.findall(r"failed (\d+) times", text) for text in results] == [[], [], ["3"], ["4"], []]


async def test_a_command_that_keeps_failing_is_named_unless_something_was_changed_in_between(tmp_path: Path) -> None:
    check, write = "test -e made.txt && exit 5; exit 4", {"path": "made.txt", "content": "x"}
    async with opened({"sandbox.mode": "off", "approval.default": "allow"}) as runtime:
        before = [call("run_command", number, command=check) for number in range(3)]
        after = [call("run_command", number, command=check) for number in range(5, 8)]
        equip(runtime, *before, call("write_file", 4, **write), *after, "I give up.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        results = [text_of(result) for message in await session.path() for result in message.results]
        assert [re.findall(r"failed (\d+) times", text) for text in results] == [[], [], ["3"], [], [], [], ["3"]]


async def test_a_background_process_lives_as_long_as_its_session(tmp_path: Path) -> None:
    async with opened({"sandbox.mode": "off"}) as runtime:
        server = "exec python3 -u -m http.server 0 --bind 127.0.0.1"
        equip(runtime, call("start_process", command=server, network=True), "Started.", call("read_output", 2), "Seen.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        finished: list[ToolFinished] = []
        async for event in session.stream("serve"):
            if isinstance(event, ApprovalRequested):
                await session.answer(event.approval, "once")
            elif isinstance(event, ToolFinished):
                finished.append(event)
        (port,) = finished[0].result.data["ports"]
        assert f"http://localhost:{port}/" in text_of(finished[0].result)
        other = await runtime.session(session.id)
        (process,) = other.background_processes()
        assert process.is_running
        await other.send("look")
        results = [text_of(result) for message in await other.path() for result in message.results]
        assert "p1 runs" in results[-1]
        assert (await runtime.session(model=MODEL)).background_processes() == ()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with pytest.raises(NotFound, match="known: p1"):
            await other.stop_process("p9")
        await runtime.library.delete(session.id)
        assert not process.is_running
        with pytest.raises(OSError, match="onnect"):
            await asyncio.open_connection("127.0.0.1", port)


async def test_processes_end_with_the_runtime(tmp_path: Path) -> None:
    async with opened({"sandbox.mode": "off"}) as runtime:
        equip(runtime, call("start_process", command="exec sleep 1000"), "Started.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        (process,) = session.background_processes()
        assert process.is_running
    assert not process.is_running


async def test_a_screenshot_of_a_place_where_nothing_listens_says_so(tmp_path: Path) -> None:
    async with opened() as runtime:
        equip(runtime, call("screenshot", url="http://127.0.0.1:9/"), "Nothing there.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("look")
        (result,) = [text_of(result) for message in await session.path() for result in message.results]
        assert "nothing listens on 127.0.0.1:9" in result


SMALL = {
    "models.small": {"provider": "anthropic", "model": "claude-opus-5", "capabilities": {"context_tokens": 20_000}}
}


async def test_a_conversation_that_fills_the_window_is_summarized_by_itself_and_nothing_is_out_of_reach(
    tmp_path: Path,
) -> None:
    long = "All work and no play. " * 800
    async with opened({**SMALL, "context.compact_at": 0.1}) as runtime:
        equip(runtime, "Noted: the code is 7719.", *["Yes."] * 3)
        session = await runtime.session(model="small", workspace=str(tmp_path))
        first = await session.send("the code word is OSPREY-7719", sample_png())
        pinned = (await session.snapshot()).path[0].id
        for number in range(3):
            await session.send(f"{number} {long}")
        await runtime.stores.sessions.update(session.id, overrides={override_key(pinned, 0): "full"})
        before = await session.path()
        provider = equip(runtime, "The user pastes text.", call("recall", query="noted code"), "It is 7719.")
        events = [event async for event in session.stream("what was the code?")]
        assert [event.code for event in events if isinstance(event, NoticeRaised)][:1] == ["compacted"]
        path = await session.path()
        assert "The user pastes text." in text_of(path[0].blocks[0])
        assert "OSPREY-7719" in text_of(path[0].blocks[-1]), "what is pinned is never condensed"
        assert long not in words_in(provider.prompts[-2])
        (result,) = [text_of(result) for message in path for result in message.results]
        node = result.split()[0]
        assert "Noted: the code is 7719." in result
        assert first.node.endswith(node) or node in first.node
        kept = (await session.snapshot(first.node)).path
        assert kept[0].message == before[0], "the whole conversation stays as a branch"


async def test_with_the_default_settings_a_long_conversation_is_summarized_again_and_again(tmp_path: Path) -> None:
    long = "All work and no play. " * 800
    async with opened(SMALL) as runtime:
        provider = equip(runtime, *["Yes."] * 200)
        session = await runtime.session(model="small", workspace=str(tmp_path))
        lengths: list[int] = []
        for number in range(60):
            await session.send(f"{number} {long}")
            lengths.append(len(await session.path()))
        assert max(lengths) < 60, "it stays short"
        assert sum(after < before for before, after in pairwise(lengths)) >= 2
        assert len(provider.prompts) > 60


async def test_what_is_kept_of_a_request_does_not_grow_with_the_summaries_before_it(tmp_path: Path) -> None:
    async with opened() as runtime:
        equip(runtime, *["Yes."] * 40)
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        kept: list[int] = []
        for number in range(4):
            images = [Attachment(source=sample_png(40 + at, 40 + number), name=f"{number}.{at}.png") for at in range(5)]
            await session.send(*images, "look")
            async for _ in session.compact():
                pass
            await session.send("go on")
            (mark,) = (await runtime.stores.sessions.get(session.id)).watermark.values()
            wishes = json.loads(mark["sent_wishes"])
            nodes = {placed.id for placed in (await runtime.stores.forest.path(await session.head()))}
            assert {key.partition("/")[0] for key in wishes} <= nodes, "of this path alone"
            kept.append(len(wishes))
        assert kept[-1] <= 20, kept


async def test_a_conversation_is_not_summarized_where_the_user_does_not_want_it(tmp_path: Path) -> None:
    long = "All work and no play. " * 800
    async with opened({**SMALL, "context.compact_at": 0}) as runtime:
        provider = equip(runtime, *["Yes."] * 6)
        session = await runtime.session(model="small", workspace=str(tmp_path))
        for number in range(6):
            await session.send(f"{number} {long}")
        assert len(provider.prompts) == 6


AGENTS = {"agents": {"reader": {"system": "You read.", "tools": ["read_file", "write_file"], "model": MODEL}}}


async def test_sub_agents_work_in_sessions_of_their_own_and_can_be_continued(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    async with opened(AGENTS) as runtime:
        hand_over = call("ask_agent", tasks=["what is in a.txt?"], agent="reader")
        provider = equip(
            runtime, hand_over, call("read_file", 7, path="a.txt"), "It holds alpha.", "The file holds alpha."
        )
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("what is in a.txt? ask an agent")
        (result,) = [result for message in await session.path() for result in message.results]
        (child,) = result.data["sessions"]
        assert "It holds alpha." in text_of(result)
        theirs = provider.prompts[1]
        assert theirs.system == "You read."
        assert {spec.name for spec in theirs.tools} == {"read_file", "write_file"}
        assert "ask an agent" not in words_in(theirs)
        stored = await runtime.stores.sessions.get(child)
        assert (stored.settings["parent_session"], stored.workspace) == (session.id, str(tmp_path))

        again = call("ask_agent", 2, tasks=["how long is it?"], session=child)
        stranger = call("ask_agent", 3, tasks=["hello"], session=(await runtime.session(model=MODEL)).id)
        provider = equip(runtime, [again, stranger], "Six bytes.", "Done.")
        await session.send("ask it once more")
        assert "what is in a.txt?" in words_in(provider.prompts[1])
        results = [result for message in await session.path() for result in message.results]
        assert "Six bytes." in text_of(results[1])
        assert results[2].is_error


async def test_several_tasks_run_at_the_same_time_and_one_that_fails_says_so(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    class Meeting(ScriptedProvider):
        async def stream(self, prompt: Prompt) -> Any:
            if "task" in words_in(prompt) and len(prompt.messages) == 1 and "hand" not in words_in(prompt):
                await both.wait()
            async for event in super().stream(prompt):
                yield event

    tasks = call("ask_agent", tasks=["task one", "task two"])
    meeting = Meeting([tasks, "Done one.", "Done two.", "Both are done."])
    async with opened(AGENTS, providers={"anthropic": meeting}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        async with asyncio.timeout(60):
            await session.send("hand out two of them")
        (result,) = [result for message in await session.path() for result in message.results]
        assert len(result.data["sessions"]) == 2
        assert {"Done one.", "Done two."} <= set(text_of(result).splitlines())


async def test_a_sub_agent_has_no_tool_that_the_turn_that_asks_does_not_have(tmp_path: Path) -> None:
    async with opened(AGENTS) as runtime:
        provider = equip(runtime, call("ask_agent", tasks=["write it"], agent="reader"), "I cannot.", "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path), tools=["read_file", "ask_agent"])
        await session.send("go")
        assert [{spec.name for spec in prompt.tools} for prompt in provider.prompts[:2]] == [
            {"read_file", "ask_agent"},
            {"read_file"},
        ]


async def test_what_a_sub_agent_wants_to_do_is_asked_of_the_user(tmp_path: Path) -> None:
    async with opened({**AGENTS, "approval.default": "ask"}) as runtime:
        write = call("write_file", 7, path="new.txt", content="x")
        hand_over = call("ask_agent", tasks=["write it"], agent="reader")
        equip(runtime, hand_over, write, "It is written.", "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        asked: list[str] = []
        shown: list[str] = []
        async for event in session.stream("go"):
            if isinstance(event, ApprovalRequested):
                asked.append(event.action)
                await session.answer(event.approval, "once")
            elif isinstance(event, ToolStarted):
                shown.append(event.call.name)
        assert shown == ["ask_agent"]
        assert any("new.txt" in action for action in asked)
        assert (tmp_path / "new.txt").read_text() == "x"


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("answer", ["once", "always", "deny"])
async def test_the_approvals_of_sub_agents_can_be_answered_in_either_session(
    tmp_path: Path, here: bool, answer: Literal["once", "always", "deny"]
) -> None:
    """Both sessions list what is asked; an answer in one of them closes the request in the other."""
    asks = {"approval.rules": [{"tool": "write_file", "action": "ask"}]}
    async with opened({**AGENTS, **asks}) as runtime:
        write = [call("write_file", number, path="same.txt", content=f"{number}\n") for number in (7, 8)]
        equip(runtime, call("ask_agent", tasks=["write it"], agent="reader"), *write, "It is over.", "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        asked = 0
        async with asyncio.timeout(60):
            async for event in session.stream("go"):
                if isinstance(event, ApprovalRequested):
                    asked += 1
                    waiting = {it.session.id: it.approvals for it in await runtime.library.approvals()}
                    assert len(waiting) == 2
                    (there,) = set(waiting) - {session.id}
                    assert event.action.endswith(f"\n{waiting[there][0].action}"), "it is read as it was requested"
                    assert event.pattern == waiting[there][0].pattern, "always covers the same here and there"
                    if here:
                        await session.answer(event.approval, answer, "my reason")
                    else:
                        await (await runtime.session(there)).answer(waiting[there][0].approval, answer, "my reason")
        (result,) = [result for message in await session.path() for result in message.results]
        assert "It is over." in text_of(result)
        assert asked == (1 if answer == "always" else 2)
        assert (tmp_path / "same.txt").exists() == (answer != "deny")
        assert not [it for it in await runtime.library.approvals() if it.approvals]


async def test_a_sub_agent_that_cannot_start_does_not_stop_the_others(tmp_path: Path) -> None:
    class Partly(ScriptedProvider):
        async def stream(self, prompt: Prompt) -> Any:
            if "bad task" in words_in(prompt) and "hand" not in words_in(prompt):
                raise Unavailable("the model is away")
            async for event in super().stream(prompt):
                yield event

    tasks = call("ask_agent", tasks=["bad task", "good task"])
    async with opened(AGENTS, providers={"anthropic": Partly([tasks, "Good.", "Done."])}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        async with asyncio.timeout(60):
            await session.send("hand out two of them")
        (result,) = [result for message in await session.path() for result in message.results]
        assert "The agent could not finish: the model is away" in text_of(result)
        assert "Good." in text_of(result).splitlines()


async def test_the_last_session_is_one_of_the_user_even_if_an_agent_or_a_server_worked_later(tmp_path: Path) -> None:
    async with opened() as runtime:
        equip(runtime, call("ask_agent", tasks=["look"]), "Looked.", "Done.", "Looked again.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        listed = (await runtime.library.sessions()).sessions
        (made,) = [view for view in listed if view.parent_session]
        assert made.parent_session == session.id
        later = await runtime.session(made.id)
        await later.send("and now?")
        assert (await runtime.library.sessions()).sessions[0].id == made.id
        for workspace in ("", str(tmp_path)):
            assert (await runtime.library.find(workspace=workspace)).id == session.id
        forked = await later.fork()
        assert (await forked.info()).parent_session == "", "a fork is the user's"
        assert (await runtime.library.find()).id == forked.id
