"""Approvals as code: asked once for every call, with the whole call, in any of its forms."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.agent.gate import Verdict
from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.events import ApprovalRequested, NoticeRaised
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.base import ToolContext, tool

MODEL = "anthropic/claude-opus-5"


@tool
def add(one: int, two: int) -> str:
    """Add two numbers."""
    return str(one + two)


@tool
async def ask_twice(context: ToolContext) -> str:
    """Ask for two things on the way."""
    await context.approve("the first thing", why="it is far away")
    await context.approve("the second thing", why="it is farther away")
    return "both"


async def results(approve: Any, *calls: ToolCall, tools: Any = (add, ask_twice)) -> tuple[list[str], list[Any]]:
    provider = ScriptedProvider([list(calls), "Done."])
    async with memory_runtime(providers={"anthropic": provider}, tools=list(tools), approve=approve) as runtime:
        session = await runtime.session(model=MODEL)
        events: list[Any] = []
        async for event in session.stream("go"):
            events.append(event)
            if isinstance(event, ApprovalRequested):
                await session.answer(event.approval, "deny", "not today")
        return [text_of(result) for message in await session.path() for result in message.results], events


@pytest.mark.parametrize("is_async", [False, True])
async def test_it_is_asked_exactly_once_for_a_call_and_gets_all_of_it(is_async: bool) -> None:
    asked: list[loom.ApprovalRequest] = []

    def decide(request: loom.ApprovalRequest) -> Verdict:
        asked.append(request)
        return loom.Allow()

    async def decide_later(request: loom.ApprovalRequest) -> Verdict:
        await asyncio.sleep(0)
        return decide(request)

    calls = [ToolCall("a", "add", {"one": 1, "two": 2}), ToolCall("b", "ask_twice")]
    found, _ = await results(decide_later if is_async else decide, *calls)
    assert found == ["3", "both"]
    assert [(request.tool, request.call) for request in asked] == [("add", "a"), ("ask_twice", "b")]
    assert asked[0].arguments == {"one": 1, "two": 2}
    assert asked[0].workspace == Path.cwd()
    assert "one: 1" in asked[0].action
    assert asked[0].session


async def test_it_may_change_the_arguments_and_the_model_reads_so() -> None:
    found, _ = await results(
        lambda request: loom.Allow({**request.arguments, "two": 40}), ToolCall("a", "add", {"one": 2, "two": 2})
    )
    assert found == ['(The user changed the arguments of this call: {"one":2,"two":40})\n42']
    found, _ = await results(lambda _: loom.Allow({"one": "x"}), ToolCall("a", "add", {"one": 2, "two": 2}))
    assert "does not accept these arguments" in found[0]


async def test_a_denial_has_a_reason_and_ask_asks_a_person() -> None:
    found, events = await results(lambda _: loom.Deny("never"), ToolCall("a", "add", {"one": 1, "two": 2}))
    assert found == ["add was denied: never"]
    assert not any(isinstance(event, ApprovalRequested) for event in events)
    found, events = await results(lambda _: loom.Ask(), ToolCall("a", "add", {"one": 1, "two": 2}))
    assert found == ["the user denied it: not today"]
    assert sum(isinstance(event, ApprovalRequested) for event in events) == 1


async def test_one_that_fails_or_decides_nothing_runs_nothing() -> None:
    def broken(request: loom.ApprovalRequest) -> Verdict:
        raise KeyError(request.tool)

    found, events = await results(broken, ToolCall("a", "add", {"one": 1, "two": 2}))
    assert found == ["the approval function failed, and add was not run"]
    assert any("KeyError" in event.text for event in events if isinstance(event, NoticeRaised))
    found, _ = await results(lambda _: None, ToolCall("a", "add", {"one": 1, "two": 2}))
    assert "approve returned NoneType" in found[0]


@pytest.mark.parametrize("answer", ["no", "allow", "", None, True])
async def test_an_answer_that_is_none_of_the_three_is_refused_and_the_approval_stays_pending(answer: Any) -> None:
    provider = ScriptedProvider([ToolCall("a", "add", {"one": 1, "two": 2}), "Done."])
    providers = {"anthropic": provider}
    async with memory_runtime(providers=providers, tools=[add], approve=lambda _: loom.Ask()) as runtime:
        session = await runtime.session(model=MODEL)
        async for event in session.stream("go"):
            if isinstance(event, ApprovalRequested):
                with pytest.raises(loom.errors.ContentError, match='Answer with "once", "always" or "deny"'):
                    await session.answer(event.approval, answer)
                await session.answer(event.approval, "deny", "not today")
        found = [text_of(result) for message in await session.path() for result in message.results]
    assert found == ["the user denied it: not today"]


async def test_the_old_form_still_works_and_says_what_to_write() -> None:
    with pytest.warns(DeprecationWarning, match="ApprovalRequest"):
        found, _ = await results(lambda _tool, _action: "deny", ToolCall("a", "add", {"one": 1, "two": 2}))
    assert "does not allow" in found[0]


def test_both_constructors_take_the_same_keywords() -> None:
    here, there = (list(inspect.signature(cls).parameters.values()) for cls in (loom.Loom, loom.AsyncLoom))
    assert [parameter for parameter in here if parameter.name != "provider"] == there


async def test_own_functions_and_built_in_tools_mix_by_name(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello\n")

    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    script = [[ToolCall("a", "double", {"number": 4}), ToolCall("b", "read_file", {"path": "note.txt"})], "Done."]
    provider = ScriptedProvider([*script, *script, "no tools"])
    config = {"store": "sqlite://:memory:", "media": str(tmp_path / "media")}
    async with loom.AsyncLoom(
        model=MODEL, providers={"anthropic": provider}, tools=["read_file", double], **config
    ) as lm:
        session = await lm.session(workspace=str(tmp_path))
        await session.send("go")
        first, second = [text_of(found) for message in await session.path() for found in message.results]
        assert first == "8"
        assert "hello" in second
    async with loom.AsyncLoom(model=MODEL, providers={"anthropic": provider}, **config) as lm:
        session = await lm.session(workspace=str(tmp_path), tools=["read_file", double])
        await session.send("go")
        assert {spec.name for spec in provider.prompts[2].tools} == {"read_file", "double"}
        assert (await lm.ask("hi", system="Be brief.")).text == "no tools"
        assert provider.prompts[-1].tools == ()
        assert "Be brief." in provider.prompts[-1].system


async def test_a_stream_gives_words_and_a_reply_and_leaving_it_cancels() -> None:
    provider = ScriptedProvider(["one\ntwo\n", "three", "four\nfive\nsix", "seven"])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL)
        stream = session.stream("go")
        with pytest.raises(loom.LoomError, match="not ended"):
            _ = stream.reply
        assert [words async for words in stream.text()] == ["one\n", "two\n"]
        assert stream.reply.text == "one\ntwo\n"
        assert (await session.stream("go").finish()).text == "three"
        async for _ in session.stream("go").text():
            break
        assert (await session.send("still there?")).text in ("four\nfive\nsix", "seven")


def test_the_blocking_stream_has_them_too(tmp_path: Path) -> None:
    provider = ScriptedProvider(["one\ntwo", "three"])
    with loom.Loom(
        model=MODEL, providers={"anthropic": provider}, store="sqlite://:memory:", media=str(tmp_path)
    ) as lm:
        session = lm.session()
        stream = session.stream("go")
        assert "".join(stream.text()) == "one\ntwo"
        assert stream.reply.text == "one\ntwo"
        with session.stream("go") as events:
            assert [event.text for event in events if event.type == "text"] == ["three"]
            assert events.reply.text == "three"
