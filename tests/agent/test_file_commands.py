"""Shell commands in slash commands: !`COMMAND` in a file stands for its output."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.running import TOKEN, serving, until_true
from loom.agent.file_commands import FileCommandRunner
from loom.agent.gate import Allow, ApprovalRequest, Ask, Verdict
from loom.content.blocks import ToolResult
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.runtime.skills import OwnCommand
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.base import Tool, ToolContext, text_result
from loom.tools.shell_arguments import insert_arguments
from loom.tools.shell_syntax import parse_shell

MODEL = "anthropic/claude-opus-5"
ALLOWED = "---\nallowed-tools: Bash(echo:*), Read\n---\n"


def opened(folder: Path, values: dict[str, Any] | None = None, **options: Any) -> AbstractAsyncContextManager[Runtime]:
    options = {"tools": "all", **options}
    providers = {"anthropic": ScriptedProvider(["Done."] * 3)}
    return memory_runtime({"trusted_folders": [str(folder)], **(values or {})}, providers=providers, **options)


def write_command(folder: Path, text: str) -> None:
    (folder / ".claude" / "commands").mkdir(parents=True, exist_ok=True)
    (folder / ".claude" / "commands" / "go.md").write_text(text)


def rule(pattern: str, action: str) -> dict[str, str]:
    return {"tool": "run_command", "pattern": pattern, "action": action}


async def begin(runtime: Runtime, folder: Path) -> LocalSession:
    return await runtime.session(model=MODEL, workspace=str(folder))


async def sent(runtime: Runtime, folder: Path, message: str = "/go") -> str:
    session = await begin(runtime, folder)
    await session.send(message)
    return text_of((await session.path())[0].blocks[-1])


async def test_the_output_of_an_allowed_command_replaces_it_and_mentions_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    write_command(tmp_path, ALLOWED + "Say !`echo one $1 '!' @notes.txt` and !`echo one $1 '!' @notes.txt` to $1")
    async with opened(tmp_path) as runtime:
        said = await sent(runtime, tmp_path, "/go '$(id)' !`id`")
        assert said == "Say one $(id) ! @notes.txt and one $(id) ! @notes.txt to $(id)"


async def test_what_the_user_typed_is_never_a_command(tmp_path: Path) -> None:
    write_command(tmp_path, "Say $ARGUMENTS")
    async with opened(tmp_path, {"approval.default": "allow"}) as runtime:
        assert await sent(runtime, tmp_path, "/go !`echo one`") == "Say !`echo one`"
        assert await sent(runtime, tmp_path, "run !`echo one`") == "run !`echo one`"


@pytest.mark.parametrize(
    ("head", "rules", "error"),
    [
        ("", [], "needs approval"),
        ("", [rule("echo *", "allow")], ""),
        (ALLOWED, [rule("echo *", "ask")], "needs approval"),
        (ALLOWED, [rule("echo *", "deny")], "may not run"),
        (ALLOWED, [rule("rm *", "deny")], ""),
        ("---\nallowed-tools: Read, Bash(git:*)\n---\n", [], "needs approval"),
        ("---\nallowed-tools: [Read, Bash]\n---\n", [], ""),
    ],
)
async def test_rules_decide_before_the_file(tmp_path: Path, head: str, rules: list[dict[str, str]], error: str) -> None:
    write_command(tmp_path, head + "!`echo one`")
    async with opened(tmp_path, {"approval.rules": rules}) as runtime:
        if not error:
            assert await sent(runtime, tmp_path) == "one"
            return
        session = await begin(runtime, tmp_path)
        with pytest.raises(ToolError, match=error) as raised:
            await session.send("/go")
        assert "`echo one`" in str(raised.value) and "go.md" in str(raised.value)
        assert list(await session.path()) == []


@pytest.mark.parametrize("command", ["echo $(id)", "echo id | sh", "echo $X", "echo one > file"])
async def test_opaque_and_writing_commands_are_judged_like_calls(tmp_path: Path, command: str) -> None:
    write_command(tmp_path, f"{ALLOWED}!`echo allowed` !`{command}`")
    async with opened(tmp_path, {"approval.rules": [rule("rm *", "deny")]}) as runtime:
        with pytest.raises(ToolError, match="needs approval") as refused:
            await sent(runtime, tmp_path)
    assert f"`{command}`" in refused.value.message
    assert not (tmp_path / "file").exists()


async def test_no_command_runs_unless_all_may(tmp_path: Path) -> None:
    write_command(tmp_path, f"{ALLOWED}!`touch first` !`rm x`")
    rules = [rule("touch *", "allow"), rule("rm *", "deny")]
    async with opened(tmp_path, {"approval.rules": rules}) as runtime:
        with pytest.raises(ToolError, match="may not run"):
            await sent(runtime, tmp_path)
    assert not (tmp_path / "first").exists()


async def test_a_function_of_the_program_decides_instead_of_the_file(tmp_path: Path) -> None:
    write_command(tmp_path, ALLOWED + "!`echo one`")
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> Verdict:
        asked.append(request.arguments["command"])
        return Ask() if len(asked) == 1 else Allow()

    async with opened(tmp_path, approve=approve) as runtime:
        with pytest.raises(ToolError, match="needs approval"):
            await sent(runtime, tmp_path)
        assert await sent(runtime, tmp_path) == "one"
    assert asked == ["echo one", "echo one"]


async def test_without_the_tool_nothing_runs(tmp_path: Path) -> None:
    write_command(tmp_path, ALLOWED + "!`echo one`")
    async with opened(tmp_path, tools=()) as runtime:
        with pytest.raises(ToolError, match="may not use run_command"):
            await sent(runtime, tmp_path)


async def test_an_untrusted_folder_has_no_commands(tmp_path: Path) -> None:
    write_command(tmp_path, ALLOWED + "!`echo one > ran`")
    async with opened(tmp_path, {"trusted_folders": [], "approval.default": "allow"}) as runtime:
        assert await sent(runtime, tmp_path) == "/go"
    assert not (tmp_path / "ran").exists()


async def test_a_failed_command_inserts_its_exit_code_and_errors_and_runs_once(tmp_path: Path) -> None:
    write_command(tmp_path, "!`echo x >> log; echo bad >&2; exit 3` !`echo x >> log; echo bad >&2; exit 3`")
    async with opened(tmp_path, {"approval.default": "allow"}) as runtime:
        said = await sent(runtime, tmp_path)
    assert said == "bad\n(exit code 3) bad\n(exit code 3)"
    assert (tmp_path / "log").read_text() == "x\n"


async def test_a_long_output_is_cut_and_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "tok-0123456789abcdef")
    write_command(tmp_path, "!`echo tok-0123456789abcdef; seq 100000`")
    async with opened(tmp_path, {"approval.default": "allow"}) as runtime:
        said = await sent(runtime, tmp_path)
        limit = runtime.config.context.tool_output_bytes
    assert said.startswith("[secret …cdef]\n1\n2\n") and "tok-0123" not in said
    assert "bytes are left out here" in said and len(said) < limit + 1_000


async def test_a_slow_command_is_stopped(tmp_path: Path) -> None:
    async with opened(tmp_path, {"approval.default": "allow"}) as runtime:
        services = runtime.services()
        runner = FileCommandRunner(services, "s", {}, tmp_path, services.tools, seconds=1)
        found = await runner.run(["echo one; sleep 50"], lambda _tool, _subject: False, tmp_path)
        assert found == {"echo one; sleep 50": "one\n(stopped after 1 s: it took too long)"}


async def test_a_files_permission_does_not_count_where_a_model_writes_the_message(tmp_path: Path) -> None:
    async with opened(tmp_path) as runtime:
        services = runtime.services()
        runner = FileCommandRunner(services, "s", {"parent_session": "p"}, tmp_path, services.tools)
        with pytest.raises(ToolError, match="needs approval"):
            await runner.run(["echo one"], lambda _tool, _subject: True, tmp_path)


async def test_a_preview_runs_nothing(tmp_path: Path) -> None:
    write_command(tmp_path, "!`echo one > ran`")
    async with opened(tmp_path, {"approval.default": "allow"}) as runtime:
        (draft,) = await (await begin(runtime, tmp_path)).previews.draft(["/go"])
        assert text_of(draft.blocks[-1]) == "!`echo one > ran`"
    assert not (tmp_path / "ran").exists()


async def test_a_message_posted_to_a_daemon_contains_the_output(tmp_path: Path) -> None:
    write_command(tmp_path, ALLOWED + "Say !`echo one $1`")
    async with opened(tmp_path) as runtime, serving(runtime) as daemon:
        session = await begin(runtime, tmp_path)
        async with httpx2.AsyncClient(base_url=daemon.url, headers={"authorization": f"Bearer {TOKEN}"}) as api:
            path = f"/v1/sessions/{session.id}/messages"
            accepted = await api.post(path, json={"text": "/go two"})
            assert accepted.status_code == 202, accepted.text

            async def is_answered() -> bool:
                return len(await session.path()) == 2

            await until_true(is_answered)
            assert text_of((await session.path())[0].blocks[-1]) == "Say one two"
            write_command(tmp_path, "!`echo one`")
            refused = await api.post(path, json={"text": "/go"})
            assert refused.status_code == 400 and "needs approval" in refused.text
            assert len(await session.path()) == 2


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.lists(
    st.sampled_from(["'", '"', "$(id)", "`id`", ";", "|", "\n", "\\", "$1", "-x", "a", " ", "!`id`", "{a,b}", "*", "#"])
).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    TEXTS,
    st.sampled_from(
        [
            "git log $1",
            'git log "$1" $2',
            'echo "a $ARGUMENTS b" c/$1 | wc -l',
            'ls $ARGUMENTS && echo "$(git show $1)"',
            "for x in a b; do echo $x $1; done",
        ]
    ),
)
def test_no_argument_changes_which_command_runs(arguments: str, written: str) -> None:
    try:
        line = insert_arguments(written, arguments)
    except ToolError:
        return  # refused: nothing runs
    plain, filled = parse_shell(insert_arguments(written, "")), parse_shell(line)
    assert filled.is_parsed and filled.files == plain.files
    assert [it.words[:2] if it.words[0] == "git" else it.words[:1] for it in filled.commands] == [
        it.words[:2] if it.words[0] == "git" else it.words[:1] for it in plain.commands
    ]
    assert [[w for w in it.words if w.startswith("-")] for it in filled.commands] == [
        [w for w in it.words if w.startswith("-")] for it in plain.commands
    ]


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_no_argument_adds_a_command(arguments: str) -> None:
    command = OwnCommand(name="go", description="", text="Do $1 !`ls` $ARGUMENTS!`date`", file=Path("go.md"))
    assert command.shell_commands() == ("ls",)
    assert "<out>" in command.fill(arguments, {"ls": "<out>"})


@pytest.mark.parametrize(
    "written",
    [
        *("$1 x", "echo '$1'", "cat < $1", "X=$1 ls", 'sh -c "ls $1"', "eval $1", "xargs $1", "timeout 9 $1 rm x"),
        *("git $1", "find . $1", "sed $1 file", 'python3 -c "$1"', 'awk "$1" file', "cat <<E\n$1\nE"),
    ],
)
@pytest.mark.parametrize("arguments", ["x", ""])
def test_arguments_that_could_be_code_are_refused(written: str, arguments: str) -> None:
    with pytest.raises(ToolError, match="cannot be inserted"):
        insert_arguments(written, arguments)


async def test_a_replaced_tool_is_the_one_that_runs(tmp_path: Path) -> None:
    async def run_command(context: ToolContext, command: str, timeout: int = 9) -> ToolResult:  # noqa: ASYNC109
        """Run it elsewhere."""
        return text_result(f"elsewhere: {command}")

    write_command(tmp_path, "!`echo one`")
    async with opened(tmp_path, {"approval.default": "allow"}, tools=[Tool(run_command)]) as runtime:
        assert await sent(runtime, tmp_path) == "elsewhere: echo one"
