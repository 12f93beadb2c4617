"""Skills, own commands and hooks, only from trusted places."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.runtime import Runtime
from loom.runtime.skills import find_commands, find_skills
from loom.testing import ScriptedProvider, memory_runtime

MODEL = "anthropic/claude-opus-5"
SKILL = """---
name: release
description: >
  How to release
  this project.
---
# Release

Run `make release`.
"""


def write_skill(folder: Path, text: str = SKILL) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)


def opened(settings: dict[str, Any], **options: Any) -> AbstractAsyncContextManager[Runtime]:
    providers = {"anthropic": ScriptedProvider([])}
    return memory_runtime({"approval.default": "allow", **settings}, providers=providers, tools="all", **options)


def equip(runtime: Runtime, *answers: Any) -> ScriptedProvider:
    provider = runtime.models.given_providers["anthropic"]
    assert isinstance(provider, ScriptedProvider)
    provider.add(*answers)
    return provider


def test_skills_of_a_project_count_only_in_a_trusted_folder(tmp_path: Path) -> None:
    workspace, home = tmp_path / "ws", tmp_path / "home"
    write_skill(workspace / ".claude" / "skills" / "release")
    write_skill(home / "skills" / "mine", "No facts here.\n")
    (workspace / ".claude" / "commands" / "git").mkdir(parents=True)
    (workspace / ".claude" / "commands" / "git" / "fix.md").write_text(
        "---\ndescription: Fix it\n---\nFix $ARGUMENTS now.\n"
    )
    environ = {"LOOM_HOME": str(home), "HOME": str(tmp_path / "elsewhere")}
    config = load_config(cwd=workspace, environ=environ)
    assert list(find_skills(config, workspace)) == ["mine"]
    assert find_commands(config, workspace) == {}
    trusting = load_config(cwd=workspace, environ=environ, flags={"trusted_folders": [str(tmp_path)]})
    skills = find_skills(trusting, workspace)
    assert {name: skill.description for name, skill in skills.items()} == {
        "mine": "",
        "release": "How to release this project.",
    }
    (command,) = find_commands(trusting, workspace).values()
    assert (command.name, command.fill("#7")) == ("git:fix", "Fix #7 now.")


@pytest.mark.parametrize(
    ("folder", "commands"),
    [(".claude", "commands"), (".codex", "prompts"), (".opencode", "command"), (".config/opencode", "commands")],
)
def test_skills_and_commands_of_other_agents_are_found_in_the_home_and_in_a_project(
    tmp_path: Path, folder: str, commands: str
) -> None:
    workspace, home = tmp_path / "ws", tmp_path / "home"
    root = (home if folder.startswith(".config") else workspace) / folder
    write_skill(root / "skills" / "release")
    (root / commands).mkdir(parents=True)
    (root / commands / "review.md").write_text("Review $1 for $2$3. $100 are left.\n")
    environ = {"LOOM_HOME": str(tmp_path / "loom"), "HOME": str(home)}
    config = load_config(cwd=workspace, environ=environ, flags={"trusted_folders": [str(workspace)]})
    assert list(find_skills(config, workspace)) == ["release"]
    (command,) = find_commands(config, workspace).values()
    assert command.fill('"my file.py" bugs') == "Review my file.py for bugs. $100 are left."
    assert command.fill("it's late") == "Review it's for late. $100 are left."


async def test_a_skill_is_listed_in_the_prompt_and_read_by_the_model(tmp_path: Path) -> None:
    write_skill(tmp_path / ".agents" / "skills" / "release")
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        calls = [ToolCall("a", "use_skill", {"name": "release"}), ToolCall("b", "use_skill", {"name": "x"})]
        provider = equip(runtime, calls, "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("release it")
        assert "- release: How to release this project." in (provider.prompts[0].system or "")
        read, missing = [text_of(result) for message in await session.path() for result in message.results]
        assert read.startswith("# Release")
        assert "available: release" in missing


async def test_hooks_run_beside_calls_and_can_refuse_them(tmp_path: Path) -> None:
    guard = "cat > seen.json; echo no new files here >&2; exit 2"
    hooks = {
        "hooks.before_tool": [{"tool": "write_*", "command": guard}, {"command": "exit 7"}],
        "hooks.after_tool": [{"tool": "read_file", "command": "echo two lines too long; exit 2"}],
    }
    (tmp_path / "a.txt").write_text("alpha\n")
    async with opened(hooks) as runtime:
        calls = [
            ToolCall("a", "write_file", {"path": "new.txt", "content": "x"}),
            ToolCall("b", "read_file", {"path": "a.txt"}),
        ]
        equip(runtime, calls, "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        refused, read = [result for message in await session.path() for result in message.results]
        assert refused.is_error
        assert "no new files here" in text_of(refused)
        assert not (tmp_path / "new.txt").exists()
        assert "alpha" in text_of(read)
        assert "two lines too long" in text_of(read)
    given = json.loads((tmp_path / "seen.json").read_text())
    assert (given["tool_name"], given["tool_input"]["path"]) == ("write_file", "new.txt")
