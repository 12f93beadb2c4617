"""The `agents` keyword of `Loom` and `AsyncLoom`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loom
from loom.config import load_config
from loom.errors import LoomError
from loom.testing import ScriptedProvider


def test_agents_of_a_program_are_used_by_name_and_mistakes_are_named(tmp_path: Path) -> None:
    """Both worlds take the same keyword; own and built-in tools mix by name."""

    @loom.tool
    def measure() -> str:
        """Measure it."""
        return "41.5 cm"

    provider = ScriptedProvider(["Nothing is wrong.", "Fine."])
    agents: dict[str, dict[str, Any]] = {
        "critic": {"system": "Find faults.", "tools": ["measure", "read_file"], "model": "anthropic/claude-opus-5"},
        "writer": {"system": "Write.", "tools": []},
    }
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    with loom.Loom(
        tools=[measure, "read_file", "list_files"], agents=agents, config=config, providers={"anthropic": provider}
    ) as lm:
        assert lm.session(agent="critic").send("look").text == "Nothing is wrong."
        (prompt,) = provider.prompts
        assert "Find faults." in prompt.system and prompt.model.name == "claude-opus-5"
        assert sorted(tool.name for tool in prompt.tools) == ["measure", "read_file"]
        with pytest.raises(LoomError, match="Agent 'nobody' not found"):
            lm.session(agent="nobody")
    with pytest.raises(LoomError, match="color is not a known field"):
        loom.AsyncLoom(agents={"x": {"color": "red"}}, config=config)
