"""A key that is configured, or in the environment, reaches no model, no event and no history through a tool."""

from __future__ import annotations

import pytest

from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.events import ToolFinished
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.base import tool

KEY = "sk-far-away-0123456789"


@tool
def print_keys() -> dict[str, str]:
    """Print what a command could find."""
    return {"found": f"export OPENAI_API_KEY={KEY}"}


@pytest.mark.parametrize("place", ["configuration", "environment"])
async def test_a_key_in_the_output_of_a_tool_is_masked(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"keys": {"openai": KEY}} if place == "configuration" else {}
    if place == "environment":
        monkeypatch.setenv("SOME_API_KEY", KEY)
    provider = ScriptedProvider([ToolCall("a", "print_keys"), "Done."])
    async with memory_runtime(settings, providers={"anthropic": provider}, tools=[print_keys]) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        events = [event async for event in session.stream("go")]
        (finished,) = [event for event in events if isinstance(event, ToolFinished)]
        shown = text_of(finished.result)
        assert "OPENAI_API_KEY=" in shown and "[secret" in shown
        for said in (shown, str(await session.path()), str(provider.prompts), str(events)):
            assert KEY not in said
