"""Settings of the configuration that a turn keeps to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.events import TurnFailed
from loom.testing import ScriptedAnswer, ScriptedProvider, memory_runtime
from loom.tools.base import tool
from tools.server import page, serving

MODEL = "anthropic/claude-opus-5"


@tool
def nothing() -> str:
    """Do nothing."""
    return "done"


async def test_a_turn_ends_at_the_configured_number_of_steps_and_at_the_configured_price() -> None:
    for settings, calls in (({"turn.max_steps": 2}, 2), ({"turn.max_usd": 0.000_000_1}, 1)):
        answers: list[ScriptedAnswer] = [ToolCall(f"c{number}", "nothing") for number in range(5)]
        async with memory_runtime(
            settings, providers={"anthropic": ScriptedProvider(answers)}, tools=[nothing]
        ) as runtime:
            session = await runtime.session(model=MODEL)
            events = [event async for event in session.stream("go")]
            assert isinstance(events[-1], TurnFailed)
            assert events[-1].code == "turn.limit"
            assert sum(bool(message.calls) for message in await session.path()) == calls


async def test_a_turn_ends_after_the_configured_time() -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    async with memory_runtime(
        {"turn.max_seconds": 1}, providers={"anthropic": ScriptedProvider([ToolCall("a", "wait")])}, tools=[wait]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFailed)
        assert "1 seconds" in events[-1].text


async def test_files_that_auto_context_matches_are_told_and_others_are_not(tmp_path: Path) -> None:
    """Row 87."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rules.md").write_text("Always say please.")
    (tmp_path / "docs" / "other.txt").write_text("Never say this.")
    provider = ScriptedProvider(["please", "please again"])
    async with memory_runtime({"context.auto_context": ["docs/*.md"]}, providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("hello")
        assert "Always say please." in str(provider.prompts[0].messages)
        assert "Never say this." not in str(provider.prompts[0].messages)
        (tmp_path / "docs" / "rules.md").write_text("Always say thank you.")
        await session.send("hello again")
        assert "+Always say thank you." in str(provider.prompts[1].messages)


async def test_tools_reach_private_hosts_only_where_the_user_allows_them() -> None:
    with serving({"/": page("<p>inside words")}) as server:
        url, place = f"http://127.0.0.1:{server.port}/", f"127.0.0.1:{server.port}"
        for settings, expected in (
            ({}, "not on the public internet"),
            ({"tools.allow_hosts": [place]}, "inside words"),
        ):
            async with memory_runtime(
                {**settings, "approval.default": "allow"},
                providers={"anthropic": ScriptedProvider([ToolCall("a", "fetch_url", {"url": url}), "seen"])},
                tools=["fetch_url"],
            ) as runtime:
                session = await runtime.session(model=MODEL)
                await session.send("what is there?")
                (result,) = (await session.path())[2].results
                assert expected in text_of(result)


async def test_a_configured_model_answers_as_its_entry_says() -> None:
    settings = {"models.short.provider": "openai-chat", "models.short.model": "gpt-4.1", "models.short.max_tokens": 77}
    provider = ScriptedProvider(["brief", "free"])
    async with memory_runtime(
        {**settings, "models.short.temperature": 0.5}, providers={"openai-chat": provider}
    ) as runtime:
        session = await runtime.session(model="short")
        await session.send("hello")
        sampling = provider.prompts[0].sampling
        assert (sampling.max_tokens, sampling.temperature) == (77, 0.5)
        await session.send("hello", model="openai-chat/gpt-4.1")
        assert provider.prompts[1].sampling.max_tokens is None
