"""Skills, own commands and hooks, only from trusted places."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.agent.approvals import BUILT_IN
from loom.agent.hooks import HookProgram, ToolHooks
from loom.config import load_config
from loom.config.claude_settings import read_hooks
from loom.content.blocks import ImageBlock, ToolCall
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.runtime.agents import find_agent
from loom.runtime.skills import find_commands, find_skills
from loom.runtime.workspace_hooks import WorkspaceHooks
from loom.testing import ScriptedProvider, memory_runtime, sample_png

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


def opened(values: dict[str, Any] | None = None, **options: Any) -> AbstractAsyncContextManager[Runtime]:
    providers = {"anthropic": ScriptedProvider([])}
    return memory_runtime({"approval.default": "allow", **(values or {})}, providers=providers, tools="all", **options)


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
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["tool_name"], seen["tool_input"]["path"]) == ("write_file", "new.txt")


async def _unexpected(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize(
    "extra", ["", "sleep 3600 & ", "setsid sleep 3600 & ", "head -c 300000 /dev/zero | tr '\\0' x; "]
)
@pytest.mark.parametrize("is_claude", [False, True])
async def test_a_refusal_counts_whatever_else_a_hook_prints_or_leaves_running(
    tmp_path: Path, extra: str, is_claude: bool
) -> None:
    async def refusal_of(command: str) -> str:
        hook = HookProgram(tool="*", command=command, timeout_seconds=600, is_claude=is_claude)
        with pytest.raises(ToolError) as refused:
            await ToolHooks(before=(hook,)).run_before(ToolCall("a", "run_command", {}), tmp_path, "s", _unexpected)
        return refused.value.message

    assert len(await refusal_of(f"{extra}echo not now >&2; exit 2")) < 20_000
    if is_claude:
        reason = '$(head -c 300000 /dev/zero | tr "\\0" x)'
        answer = f"""{extra.partition("head")[0]}echo '{{"decision": "block", "reason": "'"not now {reason}"'"}}'"""
        assert "not now" in await refusal_of(answer)


async def test_a_hook_that_ends_within_its_time_has_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Reading what it printed may end after its time.
    monkeypatch.setattr("loom.tools.processes._DRAIN_SECONDS", 3.0)
    hook = HookProgram(tool="*", command="sleep 3600 & exit 2", timeout_seconds=2)
    with pytest.raises(ToolError, match="refused"):
        await ToolHooks(before=(hook,)).run_before(ToolCall("a", "run_command", {}), tmp_path, "s", _unexpected)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("seq 100000 >&2; echo the reason >&2; exit 1", "99999\n100000\nthe reason"),
        ("exit 1", "failed (1)"),
        ("printf '%5000s' end; exit 1", " end"),
    ],
)
async def test_of_a_hook_that_fails_the_user_reads_the_last_lines(tmp_path: Path, command: str, shown: str) -> None:
    notices: list[str] = []

    async def keep(text: str) -> None:
        notices.append(text)

    hook = HookProgram(tool="*", command=command, timeout_seconds=30)
    await ToolHooks(before=(hook,)).run_before(ToolCall("a", "run_command", {}), tmp_path, "s", keep)
    (notice,) = notices
    assert notice.endswith(shown)
    assert notice.count("\n") < 10 and len(notice) < 1_100


LOGGED = 'cat >> "$CLAUDE_PROJECT_DIR/log.jsonl"; echo >> "$CLAUDE_PROJECT_DIR/log.jsonl"'
"""A command that writes down what it is given."""


def claude_settings(**events: object) -> str:
    return json.dumps({"permissions": {"allow": ["Bash(*)"]}, "hooks": events})


def one_hook(command: str, matcher: str = "") -> list[object]:
    return [{"matcher": matcher, "hooks": [{"type": "command", "command": command, "timeout": 30}]}]


async def test_hooks_for_claude_code_run_as_they_are_in_a_trusted_folder(tmp_path: Path) -> None:
    """Its names of events, tools and fields go in; an exit code or JSON comes out."""
    deny = """printf '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", '
        printf '"permissionDecisionReason": "not this file"}}'; echo noise >&2"""
    remark = """echo '{"decision": "block", "reason": "run the formatter", "systemMessage": "looked at it"}'"""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(
        claude_settings(
            PreToolUse=[*one_hook(LOGGED, "Read|Edit"), *one_hook(deny, "Write")],
            PostToolUse=one_hook(remark, "Re.*"),
            UserPromptSubmit=one_hook(LOGGED),
            Stop=one_hook(LOGGED),
            Notification=one_hook("exit 2"),
        )
    )
    (tmp_path / "a.txt").write_text("alpha\n")
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        calls = [
            ToolCall("a", "write_file", {"path": "new.txt", "content": "x"}),
            ToolCall("b", "read_file", {"path": "a.txt"}),
        ]
        equip(runtime, calls, "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        events = [event async for event in session.stream("please go")]
        refused, read = [result for message in await session.path() for result in message.results]
    assert refused.is_error and "not this file" in text_of(refused)
    assert not (tmp_path / "new.txt").exists()
    assert "alpha" in text_of(read) and "run the formatter" in text_of(read)
    assert any(getattr(event, "text", "") == "looked at it" for event in events)
    seen = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines() if line]
    assert [it["hook_event_name"] for it in seen] == ["UserPromptSubmit", "PreToolUse", "Stop"]
    assert seen[0]["prompt"] == "please go"
    assert seen[1]["tool_name"] == "Read" and seen[1]["tool_input"] == {"file_path": str(tmp_path / "a.txt")}


@pytest.mark.parametrize(
    "name", ["Bash", "Read", "Write", "Edit", "Grep", "Glob", "LS", "WebFetch", "Task", "Agent", "Skill"]
)
def test_a_hook_for_a_tool_of_claude_code_means_every_tool_that_an_agent_gets_by_its_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / ".claude" / "agents").mkdir(parents=True)
    (tmp_path / ".claude" / "agents" / "it.md").write_text(f"---\nname: it\ntools: {name}\n---\nx\n")
    config = load_config(cwd=tmp_path, environ={}, flags={"trusted_folders": [str(tmp_path)]})
    agent = find_agent(config, "it", tmp_path)
    own = [tool for tool in (*BUILT_IN, "ask_agent", "use_skill") if agent.has_tool(tool)]
    hook = HookProgram(tool=f"Other|{name}", command="exit 2", timeout_seconds=30, is_claude=True)
    # Outputs of background processes are tools with names of their own there.
    outputs = {"read_output", "stop_process"} if name == "Bash" else set()
    assert {tool for tool in own if hook.tool_name(tool) != name} == outputs
    assert own


async def test_what_hooks_for_claude_code_guard_is_neither_read_nor_changed_by_other_tools(tmp_path: Path) -> None:
    guard = """grep -q '"file_path":"[^"]*guarded' && echo hands off >&2 && exit 2; exit 0"""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(claude_settings(PreToolUse=one_hook(guard, "Read|Edit|Write")))
    (tmp_path / "guarded.txt").write_text("hidden words\n")
    (tmp_path / "free.txt").write_text("alpha\nbeta\n")
    edits = [{"old": "hidden", "new": "other"}, {"old": "words", "new": "text"}]
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        calls = [
            ToolCall("a", "read_file", {"path": "guarded.txt"}),
            ToolCall("b", "look", {"media": "guarded.txt"}),
            ToolCall("c", "edit_file", {"path": "guarded.txt", "old": "nothing", "new": "x"}),
            ToolCall("d", "look", {}),
            ToolCall("e", "read_file", {"path": "free.txt"}),
        ]
        again = [ToolCall("f", "multi_edit", {"path": "guarded.txt", "edits": edits})]
        equip(runtime, calls, again, "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        results = [result for message in await session.path() for result in message.results]
    assert [result.is_error for result in results] == [True, True, True, False, False, True]
    assert not any("hidden words" in text_of(result) for result in results)
    assert (tmp_path / "guarded.txt").read_text() == "hidden words\n"


async def test_a_hook_that_knows_no_list_of_edits_reads_them_as_one(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(claude_settings(PreToolUse=one_hook(LOGGED, "Edit|Write")))
    (tmp_path / "a.txt").write_text("alpha\nbeta\n")
    edits = [{"old": "alpha", "new": "one"}, {"old": "beta", "new": "two"}]
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        read = ToolCall("a", "read_file", {"path": "a.txt"})
        equip(runtime, read, ToolCall("b", "multi_edit", {"path": "a.txt", "edits": edits}), "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    (seen,) = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines() if line]
    assert seen["tool_name"] == "Edit"
    assert seen["tool_input"] == {
        "file_path": str(tmp_path / "a.txt"),
        "edits": [{"old_string": "alpha", "new_string": "one"}, {"old_string": "beta", "new_string": "two"}],
        "old_string": "alpha\nbeta",
        "new_string": "one\ntwo",
    }


async def test_the_model_reads_what_hooks_for_claude_code_print_at_the_beginning(tmp_path: Path) -> None:
    as_json = """echo '{"hookSpecificOutput": {"additionalContext": "the build is red"}}'"""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(
        claude_settings(
            SessionStart=[
                *one_hook("echo use tabs; touch started", "startup|resume"),
                *one_hook("echo mind the summary", "compact"),
            ],
            UserPromptSubmit=[*one_hook("test -e started && echo it is Monday"), *one_hook(as_json)],
            PostToolUse=one_hook("echo noise"),
        )
    )
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        provider = equip(runtime, ToolCall("a", "list_files", {}), "Done.", "Yes.", "Summary.", "Again.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))

        def read() -> str:
            return "\n".join(str(message.blocks) for message in provider.prompts[-1].messages)

        await session.send("go")
        first = read()
        assert all(first.count(words) == 1 for words in ("use tabs", "it is Monday", "the build is red"))
        assert "noise" not in first and "mind the summary" not in first
        await session.send("and now?")
        assert (read().count("use tabs"), read().count("it is Monday")) == (1, 2)
        assert [event async for event in session.compact()]
        await session.send("go on")
        assert "mind the summary" in read() and "use tabs" not in read()


async def test_a_call_runs_only_with_the_arguments_that_a_hook_leaves_as_they_are(tmp_path: Path) -> None:
    change = """echo '{"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"command": "echo b"}}}'"""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(claude_settings(PreToolUse=one_hook(change, "Bash")))
    calls = [ToolCall(it, "run_command", {"command": f"echo {it} >> {it}"}) for it in ("a", "c")]
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        equip(runtime, *calls, ToolCall("b", "run_command", {"command": "echo b"}), "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        results = [result for message in await session.path() for result in message.results]
    assert [result.is_error for result in results] == [True, True, False]
    assert all("echo b" in text_of(result) and "again" in text_of(result) for result in results[:2])
    assert not (tmp_path / "a").exists() and not (tmp_path / "c").exists()


@pytest.mark.parametrize("answer", ["once", "deny"])
async def test_a_hook_for_claude_code_can_let_the_user_decide(tmp_path: Path, answer: Literal["once", "deny"]) -> None:
    ask = """echo '{"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "look twice"}}'"""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(claude_settings(PreToolUse=one_hook(ask, "Write")))
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        equip(runtime, ToolCall("a", "write_file", {"path": "new.txt", "content": "x"}), "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        asked: list[str] = []
        async for event in session.stream("go"):
            if isinstance(event, ApprovalRequested):
                asked.append(event.action)
                await session.answer(event.approval, answer)
    assert len(asked) == 1 and "new.txt" in asked[0] and "look twice" in asked[0]
    assert (tmp_path / "new.txt").exists() == (answer == "once")


@pytest.mark.parametrize("name", [".claude/settings.json", ".claude/settings.local.json"])
async def test_hooks_of_a_project_run_only_after_a_yes_to_exactly_them(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir()
    file.write_text(claude_settings(UserPromptSubmit=one_hook("touch ran")))

    async def ran(runtime: Runtime) -> bool:
        (tmp_path / "ran").unlink(missing_ok=True)
        equip(runtime, "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("hi")
        return (tmp_path / "ran").exists()

    async with opened(instructions=True) as runtime:
        assert not await ran(runtime)
        found = await runtime.library.folder_trust(str(tmp_path))
        assert found.kinds == ("hooks",) and [it.name for it in found.files] == [name]
        await runtime.library.decide_trust(str(tmp_path), found.digest, is_trusted=False)
        assert not await ran(runtime)
        await runtime.library.decide_trust(str(tmp_path), found.digest, is_trusted=True)
        assert await ran(runtime)
        file.write_text(claude_settings(UserPromptSubmit=one_hook("touch ran; touch more")))
        assert not await ran(runtime)
        found = await runtime.library.folder_trust(str(tmp_path))
        await runtime.library.decide_trust(str(tmp_path), found.digest, is_trusted=True)
        assert await ran(runtime)
    async with opened({"hooks.claude_code": False}, instructions=True) as runtime:
        assert not await ran(runtime), "the user can switch them off"


async def test_a_model_cannot_plant_hooks_in_a_folder_that_is_always_trusted(tmp_path: Path) -> None:
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        planted = {"path": ".claude/settings.json", "content": claude_settings(PreToolUse=one_hook("touch ran"))}
        calls = [ToolCall("a", "write_file", planted), ToolCall("b", "list_files", {})]
        equip(runtime, calls, "Done.", ToolCall("c", "list_files", {}), "Done.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("go")
        (tmp_path / ".claude").mkdir(exist_ok=True)
        (tmp_path / ".claude" / "settings.json").write_text(planted["content"])
        events = [event async for event in session.stream("again")]
        assert any("Restart Loom" in getattr(event, "text", "") for event in events)
    assert not (tmp_path / "ran").exists()


async def test_the_users_own_hooks_for_claude_code_run_everywhere(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "work"
    (home / ".claude").mkdir(parents=True)
    workspace.mkdir()
    (home / ".claude" / "settings.json").write_text(claude_settings(PostToolUse=one_hook("touch ran", "Bash")))
    environ = {"HOME": str(home), "LOOM_HOME": str(tmp_path / "loom")}
    for values, count in (({}, 1), ({"hooks.claude_code": False}, 0)):
        config = load_config(cwd=workspace, environ=environ, flags=values)
        found = await WorkspaceHooks(lambda config=config: config, uses_files=True).find(workspace)
        assert len(found.after) == count
        assert all(hook.means("run_command") and not hook.means("read_file") for hook in found.after)


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["hooks", "PreToolUse", "Stop", "matcher", "type", "command", "timeout"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_a_settings_file_of_any_shape_is_read(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    file = tmp_path_factory.getbasetemp() / "settings.json"
    file.write_text(json.dumps({"hooks": {"PreToolUse": value, "Stop": [{"hooks": value}]}}))
    for hook in read_hooks(file):
        assert hook.command.strip() and hook.timeout_seconds > 0


BROKEN = st.sampled_from(
    [
        "name: NAME\ndescription: Use this: always, for a: b",
        "name: NAME\ndescription: [unclosed\nallowed-tools: Bash(git diff:*)",
        'name: "NAME"\ndescription: "quoted": yes',
        "name: NAME\ndescription: fine\nargument-hint: [file] [more]\nmodel: {",
    ]
)


@settings(max_examples=20, deadline=None)
@given(head=BROKEN, name=st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True))
def test_metadata_that_is_not_quite_yaml_still_names_and_describes_a_skill(
    head: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    write_skill(home / "skills" / "folder", f"---\n{head.replace('NAME', name)}\n---\nDo it.\n")
    config = load_config(environ={"LOOM_HOME": str(home)})
    (skill,) = find_skills(config, tmp_path_factory.mktemp("ws")).values()
    assert skill.name == name and skill.description and skill.text.strip() == "Do it."


def test_a_description_that_is_not_quite_yaml_keeps_its_quotation_marks(tmp_path: Path) -> None:
    write_skill(tmp_path / "home" / "skills" / "s", '---\nname: s\ndescription: Use: when "x"\n---\nDo it.\n')
    config = load_config(environ={"LOOM_HOME": str(tmp_path / "home")})
    assert find_skills(config, tmp_path)["s"].description == 'Use: when "x"'


async def test_a_slash_command_takes_its_arguments_from_any_line_and_attaches_what_it_mentions(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "commands").mkdir(parents=True)
    (tmp_path / ".claude" / "commands" / "look.md").write_text("Look at @shot.png and at $ARGUMENTS\n")
    (tmp_path / "shot.png").write_bytes(sample_png(40, 40))
    (tmp_path / "other.png").write_bytes(sample_png(40, 50))
    async with opened({"trusted_folders": [str(tmp_path)]}, instructions=True) as runtime:
        equip(runtime, "Seen.")
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("/look\n@other.png")
        (asked, _) = await session.path()
        assert "Look at @shot.png and at @other.png" in text_of(asked.blocks[-1])
        assert [it.media.name for it in asked.blocks if isinstance(it, ImageBlock)] == ["shot.png", "other.png"]
