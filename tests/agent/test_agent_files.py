"""Agents that were written for Claude Code and OpenCode, in Markdown files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.config import Config, load_config
from loom.config.approval import ApprovalPolicy
from loom.config.schema import ApprovalSettings
from loom.content.blocks import ToolCall
from loom.errors import ConfigError
from loom.events import NoticeRaised, ToolProgressed
from loom.runtime.agent_files import split_calls
from loom.runtime.agents import find_agent, list_agents
from loom.testing import ScriptedProvider, memory_runtime

MODEL = "anthropic/claude-opus-5"
CLAUDE = """---
name: reviewer
description: Use this: when code changed
tools: Read, Grep, WebSearch
model: sonnet
---
You review code.
"""
OPENCODE = """---
description: Explains
mode: subagent
tools:
  write: false
  edit: false
permission:
  bash:
    "*": deny
    "git *": allow
---
You explain.
"""


def write(workspace: Path, name: str, text: str) -> None:
    file = workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def config(workspace: Path, *trusted: Path) -> Config:
    environ = {"LOOM_HOME": str(workspace.parent / "loom"), "HOME": str(workspace.parent / "home")}
    return load_config(cwd=workspace, environ=environ, flags={"trusted_folders": [str(it) for it in trusted]})


@pytest.mark.parametrize("name", [".claude/agents/x.md", ".opencode/agent/x.md", ".opencode/agents/x.md"])
def test_an_agent_of_a_project_is_used_only_in_a_trusted_folder(tmp_path: Path, name: str) -> None:
    workspace = tmp_path / "ws"
    write(workspace, name, OPENCODE)
    with pytest.raises(ConfigError, match="not found") as refused:
        find_agent(config(workspace), "x", workspace)
    assert "loom trust add" in str(refused.value.hint)
    assert config(workspace).folder_trust(workspace).kinds == ("agents",)
    assert find_agent(config(workspace, workspace), "x", workspace).origin == str(workspace / name)


@pytest.mark.parametrize("folder", [".claude/agents", ".config/opencode/agent"])
def test_the_agents_of_the_user_are_found_everywhere_and_loom_toml_wins(tmp_path: Path, folder: str) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    write(tmp_path / "home", f"{folder}/x.md", OPENCODE)
    assert find_agent(config(workspace), "x", workspace).system == "You explain."
    (workspace / "loom.toml").write_text('[agents.x]\ndescription = "mine"\n')
    assert list_agents(config(workspace), workspace)["x"].entry.description == "mine"


def test_of_two_files_with_one_name_the_used_one_names_the_other(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    for place in ("home/.claude/agents", "ws/.claude/agents", "ws/.opencode/agent"):
        write(tmp_path, f"{place}/x.md", OPENCODE)
    ours = find_agent(config(workspace, workspace), "x", workspace)
    others = [notice for notice in ours.notices if "same name" in notice]
    assert len(others) == 1 and "home" not in others[0] and ours.origin not in others[0]
    assert not any("same name" in notice for notice in find_agent(config(workspace), "x", workspace).notices)


async def test_unknown_tools_and_models_are_named_and_widen_nothing(tmp_path: Path) -> None:
    write(tmp_path, ".claude/agents/any.md", CLAUDE)
    provider = ScriptedProvider(["Done."])
    values = {"trusted_folders": [str(tmp_path)], "model": MODEL}
    async with memory_runtime(values, providers={"anthropic": provider}, tools="all", instructions=True) as runtime:
        session = await runtime.session(workspace=str(tmp_path), agent="reviewer")
        notices = [event.text async for event in session.stream("go") if isinstance(event, NoticeRaised)]
        (view,) = await runtime.library.agents(str(tmp_path))
    (prompt,) = provider.prompts
    assert {tool.name for tool in prompt.tools} <= {"read_file", "look", "render_slides", "search_files"}
    assert "read_file" in {tool.name for tool in prompt.tools}
    assert prompt.system.startswith("You review code.")
    assert any("WebSearch" in it for it in notices) and any("'sonnet' is not available" in it for it in notices)
    assert view.origin.endswith(".claude/agents/any.md") and set(view.notices) <= set(notices)


async def test_permissions_only_make_the_users_rules_stricter(tmp_path: Path) -> None:
    write(tmp_path, ".opencode/agent/explain.md", OPENCODE)
    calls = [
        ToolCall("a", "run_command", {"command": "touch made"}),
        ToolCall("b", "run_command", {"command": "git --version"}),
        ToolCall("c", "run_command", {"command": "git push"}),
    ]
    provider = ScriptedProvider([calls, "Done."])
    rule = {"tool": "run_command", "pattern": "git push*", "action": "deny"}
    values = {"trusted_folders": [str(tmp_path)], "approval.default": "allow", "approval.rules": [rule]}
    async with memory_runtime(values, providers={"anthropic": provider}, tools="all", instructions=True) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path), agent="explain")
        await session.send("go")
        results = [result for message in await session.path() for result in message.results]
    assert [it.is_error for it in results] == [True, False, True]
    assert not (tmp_path / "made").exists()
    assert {"write_file", "edit_file", "multi_edit"}.isdisjoint(tool.name for tool in provider.prompts[0].tools)


FIELDS = """---
name: limited
description: Does little
tools: Read, Edit, Bash(git:*), Task
disallowedTools: Edit
permissionMode: {mode}
maxTurns: 7
temperature: 0.3
mode: primary
---
Be brief.
"""


@pytest.mark.parametrize("mode", ["default", "plan", "bypassPermissions"])
def test_every_field_limits_the_agent(tmp_path: Path, mode: str) -> None:
    write(tmp_path, ".claude/agents/limited.md", FIELDS.replace("{mode}", mode))
    found = find_agent(config(tmp_path, tmp_path), "limited", tmp_path)
    assert found.has_tool("read_file") and found.has_tool("run_command") and found.has_tool("ask_agent")
    assert not found.has_tool("edit_file") and not found.has_tool("write_file") and not found.has_tool("fetch_url")
    rules = ApprovalPolicy(ApprovalSettings(default="allow"), found.limits)
    actions = [rules("run_command", command) for command in ("git status", "git", "gitk", "rm -r x")]
    assert actions == ["allow", "allow", "deny", "deny"]
    assert (found.reads_only, found.is_subagent) == (mode == "plan", False)
    assert (found.entry.max_steps, found.temperature) == (7, 0.3)
    assert any("permissionMode" in notice for notice in found.notices) == (mode == "bypassPermissions")


def test_every_call_of_an_agent_whose_hooks_do_not_run_needs_approval(tmp_path: Path) -> None:
    write(tmp_path, ".claude/agents/guarded.md", "---\nname: guarded\nhooks:\n  PreToolUse: [{}]\n---\nGo.\n")
    found = find_agent(config(tmp_path, tmp_path), "guarded", tmp_path)
    rules = ApprovalPolicy(ApprovalSettings(default="allow"), found.limits)
    assert rules("read_file", "a.txt") == "ask"
    assert any("hooks do not run" in notice for notice in found.notices)


async def test_the_temperature_of_an_agent_reaches_the_model(tmp_path: Path) -> None:
    write(tmp_path, ".claude/agents/limited.md", FIELDS.replace("{mode}", "default"))
    provider = ScriptedProvider(["Done."])
    values = {"trusted_folders": [str(tmp_path)], "model": MODEL}
    async with memory_runtime(values, providers={"anthropic": provider}, tools="all", instructions=True) as runtime:
        session = await runtime.session(workspace=str(tmp_path), agent="limited")
        await session.send("go")
    assert provider.prompts[0].sampling.temperature == 0.3


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_agents_from_other_editors_are_read(tmp_path: Path, encoding: str, end: str) -> None:
    file = tmp_path / ".claude" / "agents" / "x.md"
    file.parent.mkdir(parents=True)
    file.write_bytes(CLAUDE.replace("\n", end).encode(encoding))
    found = find_agent(config(tmp_path, tmp_path), "reviewer", tmp_path)
    assert found.system == "You review code."
    assert found.has_tool("read_file") and not found.has_tool("write_file")


NAMES = st.sampled_from(["Read", "Edit", "Bash", "Grep", "Unknown"])
PATTERNS = st.sampled_from(["", "(git:*)", '(git log --format="%h, (%an)":*)', "(a, b)"])


@given(items=st.lists(st.tuples(NAMES, PATTERNS), max_size=6), brackets=st.sampled_from(["{}", "[{}]", "[{}", '"{}"']))
def test_a_list_is_split_at_the_commas_between_its_tools(items: list[tuple[str, str]], brackets: str) -> None:
    written = [name + pattern for name, pattern in items]
    assert split_calls(brackets.format(", ".join(written))) == (written or [""])


def test_a_list_of_any_length_is_split_at_once() -> None:
    assert len(split_calls("a," * 200_000)) == 200_001
    assert split_calls("Read, Bash(git, Write") == ["Read", "Bash(git", "Write"]
    assert split_calls("x), Bash, (y") == ["x)", "Bash", "(y"]


@pytest.mark.parametrize(
    "value", ["true", "7", "[Bash, Write", "{Bash: 1, Write: 1}", "Bash, Write(", "'Bash','Write'"]
)
def test_a_list_of_forbidden_tools_that_is_written_badly_still_forbids(tmp_path: Path, value: str) -> None:
    write(tmp_path, ".claude/agents/it.md", f"---\nname: it\ndisallowedTools: {value}\n---\nGo.\n")
    found = find_agent(config(tmp_path, tmp_path), "it", tmp_path)
    assert not found.has_tool("run_command") and not found.has_tool("write_file")


@pytest.mark.parametrize(
    ("permission", "is_offered", "action"),
    [
        ('task: {"*": allow, "evil": deny}', False, "deny"),
        ('task: {"*": deny, "good": allow}', False, "deny"),
        ('task: {"*": allow, "odd": ask}', True, "ask"),
        ("task: allow", True, "allow"),
        ('skill: {"internal-*": deny}', True, "allow"),
    ],
)
def test_patterns_that_cannot_be_told_apart_count_for_every_call(
    tmp_path: Path, permission: str, is_offered: bool, action: str
) -> None:
    write(tmp_path, ".opencode/agent/it.md", f"---\ndescription: it\npermission:\n  {permission}\n---\nGo.\n")
    found = find_agent(config(tmp_path, tmp_path), "it", tmp_path)
    rules = ApprovalPolicy(ApprovalSettings(default="allow"), found.limits)
    assert found.has_tool("ask_agent") == is_offered
    assert rules("ask_agent", '{"agent":"evil","tasks":["x"]}') == action
    assert any("patterns" in notice for notice in found.notices) == ("{" in permission)
    assert found.has_tool("use_skill") == ("skill" not in permission)


def test_patterns_for_commands_leave_the_output_of_processes_readable(tmp_path: Path) -> None:
    write(tmp_path, ".opencode/agent/x.md", OPENCODE)
    found = find_agent(config(tmp_path, tmp_path), "x", tmp_path)
    rules = ApprovalPolicy(ApprovalSettings(default="allow"), found.limits)
    assert found.has_tool("read_output") and rules("read_output", '{"process":"p1"}') == "allow"


@pytest.mark.parametrize("is_file", [True, False])
async def test_an_agent_does_not_get_around_its_rules_by_handing_work_to_another(tmp_path: Path, is_file: bool) -> None:
    rules = [{"tool": "run_command", "action": "deny"}, {"tool": "run_command", "pattern": "git *", "action": "allow"}]
    values: dict[str, Any] = {
        "trusted_folders": [str(tmp_path)],
        "approval.default": "allow",
        "agents.free.description": "may do anything",
    }
    if is_file:
        write(tmp_path, ".opencode/agent/lead.md", OPENCODE)
    else:
        values["agents.lead.rules"] = rules
    commands = [
        ToolCall("b", "run_command", {"command": "touch made"}),
        ToolCall("c", "run_command", {"command": "git --version"}),
    ]
    ask = ToolCall("a", "ask_agent", {"agent": "free", "tasks": ["make it"]})
    provider = ScriptedProvider([ask, commands, "Sub done.", "Done."])
    async with memory_runtime(values, providers={"anthropic": provider}, tools="all", instructions=True) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path), agent="lead")
        await session.send("go")
        (asked,) = [result for message in await session.path() for result in message.results]
        assert isinstance(asked.data, dict)
        below = await runtime.session(str(asked.data["sessions"][0]))
        results = [result for message in await below.path() for result in message.results]
    assert [it.is_error for it in results] == [True, False]
    assert not (tmp_path / "made").exists()


async def test_what_the_file_of_a_sub_agent_cannot_have_here_is_shown(tmp_path: Path) -> None:
    write(tmp_path, ".claude/agents/any.md", CLAUDE)
    ask = ToolCall("a", "ask_agent", {"agent": "reviewer", "tasks": ["look"]})
    provider = ScriptedProvider([ask, "Sub done.", "Done."])
    values = {"trusted_folders": [str(tmp_path)], "approval.default": "allow"}
    async with memory_runtime(values, providers={"anthropic": provider}, tools="all", instructions=True) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        shown = [event.text async for event in session.stream("go") if isinstance(event, ToolProgressed)]
    assert [sum(words in text for text in shown) for words in ("WebSearch", "'sonnet' is not available")] == [1, 1]
    assert any("the model of the calling agent is used" in text for text in shown)
