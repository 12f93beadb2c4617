"""Calls: whatever a model writes and whatever a tool does, every call has one answer and the turn goes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flow.judge import problems
from loom.compile.policy import DetachedMessage
from loom.compile.request import RequestInput
from loom.content.blocks import ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.messages import broken_pairs, text_of
from loom.errors import Full, ToolError
from loom.events import (
    ApprovalRequested,
    CallDelta,
    CallFinished,
    CallStarted,
    DecoderEvent,
    Stopped,
    ToolFinished,
    ToolProgressed,
    TurnFailed,
    TurnFinished,
)
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import ToolContext, tool

MODEL = "anthropic/claude-opus-5"
EVERY_WIRE = (MODEL, "openai-chat/gpt-5.5", "openai/gpt-5.5", "gemini/gemini-4-argon", "ollama/gemma3")


@tool
def double(number: int, *, word: str = "") -> str:
    """Double a number."""
    return f"{number * 2}{word}"


def written(*calls: tuple[str, str, str]) -> list[DecoderEvent]:
    """Calls as a model writes them: (id, name, the text of the arguments)."""
    events: list[DecoderEvent] = []
    for at, (call_id, name, arguments) in enumerate(calls):
        events += [CallStarted(index=at, id=call_id, name=name), CallDelta(index=at, arguments=arguments)]
        events.append(CallFinished(index=at))
    return [*events, Stopped(reason="tool_calls")]


async def valid_everywhere(runtime: Runtime, session: Any) -> None:
    path = await session.path()
    assert broken_pairs(path) == ()
    placed = [DetachedMessage(str(at), message) for at, message in enumerate(path)]
    for reference in EVERY_WIRE:
        model = runtime.models.resolve(reference)
        prepared = await runtime.settler.settle(RequestInput(path=tuple(placed), model=model), "preview")
        assert problems(prepared) == [], reference


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"number": "many"}', "Expected `int`"),
        ('{"nummer": 3}', "unknown field `nummer`"),
        ("{}", "missing required field `number`"),
        ('{"number": [1]}', "Expected `int`"),
        ("[1, 2]", "were not a JSON object"),
        ('{"number": 1', "were not a JSON object"),
        ('{"number": ' + "[" * 1_000 + "]" * 1_000 + "}", "double"),
        ('{"number": 1, "word": "' + "x" * 10_000_000 + '"}', ""),
        ('{"number": 1, "word": ' + "9" * 10_000_000, "were not a JSON object"),
        ('{"number": 1e999}', "double"),
        ('{"number": 1, "word": "\\ud800"}', ""),
        ("\u0000\ufffe", "were not a JSON object"),
        (
            '{"number": 18446744073709551616}',
            "of double contain an integer beyond 64 bits: send it as a string",
        ),
    ],
    ids=[
        "type",
        "name",
        "missing",
        "list",
        "array",
        "cut",
        "deep",
        "long",
        "long cut",
        "huge",
        "surrogate",
        "garbage",
        "64 bits",
    ],
)
async def test_arguments_that_make_no_sense_are_answered_and_the_history_stays_valid(
    arguments: str, words: str
) -> None:
    """44."""
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([written(("c1", "double", arguments)), "I see."])}, tools=[double]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFinished), events[-1]
        (result,) = (await session.path())[2].results
        assert words in text_of(result)
        assert len(text_of(result).encode()) < 31_000
        await valid_everywhere(runtime, session)


class Todo(msgspec.Struct):
    text: str
    note: str = ""


@tool
def plan_work(todos: list[Todo], *, title: str = "none", limit: int | None = 3) -> str:
    """Plan."""
    return f"{[todo.text for todo in todos]} {title} {limit}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"todos": "[{\\"text\\": \\"a\\"}]"}', "['a'] none 3"),
        ('{"todos": [{"text": "a", "note": null}], "title": null, "limit": null}', "['a'] none None"),
        ('{"todos": ["{\\"text\\": \\"a\\"}"], "title": "[1]"}', "['a'] [1] 3"),
        ('{"todos": [], "limit": "4"}', "[] none 4"),
        ('{"todos": "a"}', "Expected `array`"),
        ('{"todos": null}', "Expected `array`"),
    ],
)
async def test_null_for_an_optional_argument_and_json_text_for_a_list_are_understood(
    arguments: str, words: str
) -> None:
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([written(("c1", "plan_work", arguments)), "I see."])},
        tools=[plan_work],
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("go")
        (result,) = (await session.path())[2].results
        assert words in text_of(result)


async def test_unknown_tools_and_ids_that_come_twice_are_answered_one_by_one() -> None:
    """44."""
    calls = written(
        ("same", "double", '{"number": 1}'),
        ("same", "double", '{"number": 2}'),
        ("", "double", '{"number": 3}'),
        ("c4", "no such tool!", "{}"),
        ("c5", "", "{}"),
    )
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([calls, calls, "I see."])}, tools=[double]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("go")
        path = await session.path()
        for at in (2, 4):
            texts = [text_of(result) for result in path[at].results]
            assert texts[:3] == ["2", "4", "6"]
            assert "Tool 'no such tool!' not found; available: double" in texts[3]
        await valid_everywhere(runtime, session)


class Odd:
    """Something that no JSON knows."""


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (ToolError("not here", hint="Look there."), "not here. Look there."),
        (ZeroDivisionError("no luck"), "fails failed: ZeroDivisionError: no luck"),
        (SystemExit(2), "fails failed: SystemExit: 2"),
        (asyncio.CancelledError(), "fails failed: CancelledError"),
        (RuntimeError(f"{object()!r}"), "<object object>"),
        (RuntimeError("\ud800"), "RuntimeError"),
        (ExceptionGroup("many", [ValueError("one")]), "many"),
        (RuntimeError("x" * 100_000), "bytes are left out here"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_tool_raises_is_an_answer_to_the_model(raised: BaseException, words: str) -> None:
    @tool
    async def fails() -> str:
        """Fail."""
        raise raised

    async with memory_runtime(
        providers={
            "anthropic": ScriptedProvider([[ToolCall("a", "fails"), ToolCall("b", "double", {"number": 4})], "I see."])
        },
        tools=[fails, double],
    ) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFinished)
        first, second = (await session.path())[2].results
        assert first.is_error
        assert words in text_of(first)
        assert " at 0x" not in text_of(first)
        assert text_of(second) == "8", "the other call is not disturbed"


async def test_a_tool_in_a_thread_that_ends_the_program_does_not() -> None:
    @tool
    def leave() -> str:
        """Leave."""
        sys.exit("usage: leave")

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "leave"), "Still here."])}, tools=[leave]
    ) as runtime:
        assert (await (await runtime.session(model=MODEL)).send("go")).text == "Still here."


async def test_what_a_tool_puts_into_the_conversation_stands_behind_its_result() -> None:
    """Row 66."""

    @tool
    async def explore(context: ToolContext) -> str:
        """Look around."""
        await context.emit("half way", fraction=0.5)
        await context.inject("on the wall:", sample_png(31, 17))
        return "done"

    provider = ScriptedProvider([ToolCall("a", "explore"), "Seen."])
    async with memory_runtime(providers={"anthropic": provider}, tools=[explore]) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert [event.fraction for event in events if isinstance(event, ToolProgressed)] == [0.5]
        path = await session.path()
        assert [message.role for message in path] == ["user", "assistant", "tool", "user", "assistant"]
        assert path[3].text == "on the wall:"
        assert isinstance(path[3].blocks[1], ImageBlock)
        assert (provider.prompts[1].media()[0].width, provider.prompts[1].media()[0].height) == (31, 17)


async def test_a_store_that_is_full_ends_the_turn_and_whoever_watches_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(work: Any, *, repeatable: bool = False) -> Any:
        raise Full("No space is left.", hint="Make room.")

    @tool
    def fill() -> str:
        """Fill the disk."""
        monkeypatch.setattr(runtime.stores.database, "write", full)
        return "full"

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "fill"), "Room again.", "Hello."])}, tools=[fill]
    ) as runtime:
        write = runtime.stores.database.write
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFailed)
        assert events[-1].hint == "Make room."
        monkeypatch.setattr(runtime.stores.database, "write", write)
        assert (await session.send("and now?")).text == "Hello.", "the turn that could not be written goes on first"
        assert "Room again." in [message.text for message in await session.path()]
        assert broken_pairs(await session.path()) == ()


async def test_long_output_is_cut_at_the_configured_size_and_says_so() -> None:
    """Row 13."""

    @tool
    def much() -> str:
        """Say much."""
        return "\n".join(f"line {at}" for at in range(10_000))

    async with memory_runtime(
        {"context.tool_output_bytes": 5_000},
        providers={"anthropic": ScriptedProvider([ToolCall("a", "much"), "I see."])},
        tools=[much],
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("go")
        (result,) = (await session.path())[2].results
        assert len(text_of(result).encode()) < 5_200
        assert "bytes are left out here" in text_of(result)
        assert text_of(result).endswith("line 9999")


async def test_parallel_calls_wait_for_their_own_approval_each() -> None:
    @tool(danger="ask")
    async def push(to: str) -> str:
        """Push."""
        return f"pushed to {to}"

    calls = [ToolCall("a", "push", {"to": "one"}), ToolCall("b", "push", {"to": "two"})]
    async with memory_runtime(providers={"anthropic": ScriptedProvider([calls, "Done."])}, tools=[push]) as runtime:
        session = await runtime.session(model=MODEL)
        asked: list[ApprovalRequested] = []
        results: list[ToolResult] = []
        async for event in session.stream("go"):
            match event:
                case ApprovalRequested():
                    asked.append(event)
                    if len(asked) == 1:
                        await session.answer(event.approval, "deny", "not there")
                    else:
                        await session.answer(event.approval, "once")
                case ToolFinished():
                    results.append(event.result)
                case _:
                    pass
        assert isinstance(event, TurnFinished)
        assert {text_of(result) for result in results} == {"pushed to two", "the user denied it: not there"}


async def test_a_path_is_taken_from_the_workspace_not_from_where_the_process_stands(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(sample_png(12, 34))

    @tool
    def shoot() -> list[Any]:
        """Take a picture."""
        return ["here:", Path("shot.png"), TextBlock("there")]

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "shoot"), "Seen."])}, tools=[shoot]
    ) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        (result,) = (await session.path())[2].results
        picture = result.blocks[1]
        assert isinstance(picture, ImageBlock)
        assert (picture.media.name, picture.media.width) == ("shot.png", 12)
