"""Agents of the configuration, and the default system prompt."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from loom.agent.system_prompt import EnvironmentFacts, default_prompt, read_environment
from loom.content.blocks import ToolCall
from loom.content.inputs import Attachment
from loom.content.messages import text_of
from loom.errors import ConfigError
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, memory_runtime, sample_png

MODEL = "anthropic/claude-opus-5"
SETTINGS: dict[str, Any] = {
    "model": MODEL,
    "agents": {
        "reviewer": {
            "system": "You review.",
            "model": "anthropic/claude-sonnet-5",
            "tools": ["read_file", "search_*", "run_command"],
            "rules": [
                {"tool": "run_command", "action": "deny"},
                {"tool": "run_command", "pattern": "git log*", "action": "allow"},
            ],
            "vision": False,
        }
    },
}


def opened(settings: dict[str, Any], **options: Any) -> AbstractAsyncContextManager[Runtime]:
    return memory_runtime(settings, providers={"anthropic": ScriptedProvider([])}, tools="all", **options)


def scripted(runtime: Runtime, *answers: Any) -> ScriptedProvider:
    provider = runtime.models.given_providers["anthropic"]
    assert isinstance(provider, ScriptedProvider)
    provider.add(*answers)
    return provider


async def test_an_agent_has_its_model_prompt_tools_rules_and_vision(tmp_path: Path) -> None:
    async with opened(SETTINGS) as runtime:
        calls = [
            ToolCall("a", "write_file", {"path": "x", "content": "y"}),
            ToolCall("b", "run_command", {"command": "echo no"}),
            ToolCall("c", "run_command", {"command": "git log --oneline; true"}),
        ]
        provider = scripted(runtime, calls, "Done.")
        session = await runtime.session(agent="reviewer", workspace=str(tmp_path))
        asked = [
            event
            async for event in session.stream("go", Attachment(source=sample_png(), name="a.png"))
            if isinstance(event, ApprovalRequested)
        ]
        prompt = provider.prompts[0]
        assert prompt.model.name == "claude-sonnet-5"
        assert prompt.system == "You review."
        assert {tool.name for tool in prompt.tools} == {"read_file", "search_files", "run_command"}
        assert not [ref for ref in prompt.media() if ref.media_type.startswith("image/")]
        results = [text_of(result) for message in await session.path() for result in message.results]
        assert "Tool 'write_file' not found" in results[0]
        assert "echo no" not in results[1]
        assert asked == []
        assert (await runtime.stores.sessions.get(session.id)).settings["agent"] == "reviewer"


async def test_an_agent_stays_with_its_session_and_one_that_was_removed_has_no_tools(tmp_path: Path) -> None:
    async with opened(SETTINGS) as runtime:
        provider = scripted(runtime, "One.", "Two.", "Three.")
        session = await runtime.session(workspace=str(tmp_path))
        await session.send("hello")
        again = await runtime.session(session.id, agent="reviewer")
        await again.send("hello")
        await (await runtime.session(session.id)).send("hello")
        offered = [len(prompt.tools) for prompt in provider.prompts]
        assert offered[1:] == [3, 3]
        assert offered[0] > 3
        await runtime.stores.sessions.update(session.id, settings={"agent": "gone"})
        provider = scripted(runtime, "Four.")
        await (await runtime.session(session.id)).send("hello")
        assert provider.prompts[-1].tools == ()


async def test_an_agent_that_is_not_configured_is_named_with_those_that_are() -> None:
    async with opened(SETTINGS) as runtime:
        with pytest.raises(ConfigError, match="Agent 'x' not found") as caught:
            await runtime.session(agent="x")
        assert "reviewer" in caught.value.hint


async def test_a_session_with_tools_begins_with_the_default_prompt_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
    (tmp_path / "AGENTS.md").write_text("Speak plainly.\n")

    async def system(settings: dict[str, Any], **options: Any) -> str:
        async with opened(settings, instructions=True) as runtime:
            provider = scripted(runtime, "One.")
            await (await runtime.session(model=MODEL, workspace=str(tmp_path), **options)).send("hello")
            return provider.prompts[0].system

    default = await system({})
    assert "branch topic" in default
    assert str(tmp_path) in default
    assert "- edit_file:" in default
    assert default.endswith("Speak plainly.")
    assert await system({}) == default
    assert await system({}, system="Mine.") == "Mine.\n\n[instructions: AGENTS.md]\nSpeak plainly."
    assert (await system({"prompt.system": "Ours."})).startswith("Ours.\n\n[instructions")
    extended = await system({"prompt.append": "More."})
    assert "- edit_file:" in extended
    assert "More.\n\n[instructions" in extended
    assert (await system({"prompt.default": False})).startswith("[instructions")
    assert (await system({}, tools=[])).startswith("[instructions")
    assert "- run_command:" not in await system({}, tools=["read_file"])


def test_the_prompt_mentions_only_tools_that_there_are(tmp_path: Path) -> None:
    facts = read_environment(tmp_path)
    assert facts.git == "not a repository"
    assert "Which tool when" not in default_prompt([], facts)
    one = EnvironmentFacts(workspace="/w", system="Linux", shell="bash", date="2026-01-01", git="branch main")
    assert default_prompt(["look"], one) == default_prompt({"look"}, one)
    assert "2026-01-01" in default_prompt([], one)
