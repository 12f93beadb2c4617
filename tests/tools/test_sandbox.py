"""The fence around commands, under both of its builders: what a command must not reach, it does not reach."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from loom.agent.approvals import subject_of
from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.tools.base import Tool
from loom.tools.commands import command_tool
from loom.tools.mcp import McpServers
from loom.tools.mcp.specs import ServerSpec
from loom.tools.sandbox import Sandbox, SandboxKind, SandboxSettings, SandboxState, sandbox_state
from patience import PATIENCE_SECONDS
from tools.mcp_world import Context as McpContext
from tools.world import Context, said

KINDS: tuple[SandboxKind, ...] = ("bubblewrap", "landlock")

SYSTEM_PYTHON = getattr(sys, "_base_executable", sys.executable)
"""The interpreter behind a virtual environment, which may lie in /tmp, where a sandboxed command sees only its own."""


@pytest.fixture(params=KINDS)
def state(request: pytest.FixtureRequest) -> SandboxState:
    return SandboxState(request.param, "")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


def tool(state: SandboxState, **settings: object) -> Tool:
    return command_tool(Sandbox(SandboxSettings(**settings), state=state))  # type: ignore[arg-type]


async def run(found: Tool, workspace: Path, command: str, **more: object) -> str:
    return await said(found, Context(workspace), command=command, **more)


def test_this_machine_has_the_better_fence() -> None:
    assert sandbox_state().kind == "bubblewrap", f"run tests/packages.sh: {sandbox_state().detail}"


def test_a_program_that_is_installed_later_is_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        assert sandbox_state().kind != "bubblewrap"
    assert sandbox_state().kind == "bubblewrap"


async def test_the_workspace_and_temporary_files_can_be_written_and_nothing_else(
    state: SandboxState, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("as it was")
    shown = await run(
        tool(state),
        workspace,
        f"echo new > inside.txt; echo t > $TMPDIR/t && cat $TMPDIR/t; echo bad > {outside};"
        f" echo bad > ~/.loom-test-bad; rm -f {outside}; echo bad > /etc/loom-test-bad; mkdir {tmp_path}/made",
    )
    assert (workspace / "inside.txt").read_text() == "new\n"
    assert shown.startswith("t\n")
    assert outside.read_text() == "as it was"
    assert not (tmp_path / "made").exists()
    planted = [Path.home() / ".loom-test-bad", Path("/etc/loom-test-bad")]
    assert not any(os.access(path, os.F_OK) for path in planted)


async def test_keys_tokens_and_looms_own_folders_cannot_be_read(
    state: SandboxState, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, own = tmp_path / "home", tmp_path / "loom"
    for folder in (home / ".ssh", home / ".aws", own):
        folder.mkdir(parents=True)
        (folder / "secret").write_text("SENTINEL-KEY")
    (home / ".netrc").write_text("SENTINEL-KEY")
    monkeypatch.setenv("HOME", str(home))
    found = tool(state, hidden=(own,))
    shown = await run(
        found, workspace, f"cat ~/.ssh/* ~/.aws/secret ~/.netrc {own}/secret {own}/../loom/*; cat /etc/passwd"
    )
    assert "SENTINEL-KEY" not in shown
    assert "root:" in shown, "what is no secret can be read"
    link = workspace / "link"
    link.symlink_to(own / "secret")
    assert "SENTINEL-KEY" not in await run(found, workspace, "cat link; cp link copy; cat copy")


async def test_hidden_places_may_have_thousands_of_neighbours(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home folder or a folder for temporary files that is full: the list of what may be read grows with it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("SENTINEL-KEY")
    for number in range(3_000):
        (home / f"{number:04}-a-file-with-a-rather-long-name-such-as-downloads-have.txt").touch()
    (home / "0001-a-file-with-a-rather-long-name-such-as-downloads-have.txt").write_text("a neighbour")
    monkeypatch.setenv("HOME", str(home))
    shown = await run(tool(SandboxState("landlock", "")), workspace, "cat ~/.ssh/id; cat ~/0001*; ls -l /proc/self/fd")
    assert "SENTINEL-KEY" not in shown
    assert "a neighbour" in shown, "bubblewrap is not tried: it has a /tmp of its own, where this home folder lies"
    assert "pipe:" in shown and "memfd" not in shown, "no descriptor of the sandbox reaches the command"


async def test_nothing_of_this_process_is_in_proc(
    state: SandboxState, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment that a process was started with is what /proc shows, so the key is given to a new one."""
    script = (
        "import asyncio, sys; sys.path.insert(0, 'tests'); from tools.test_sandbox import *;"
        f"print(asyncio.run(run(tool(SandboxState('{state.kind}', '')), Path(sys.argv[1]), sys.argv[2])))"
    )
    reading = "for folder in /proc/[0-9]*; do tr '\\0' '\\n' < $folder/environ; done 2>/dev/null; ls -l /proc/*/cwd"
    environ = {**os.environ, "ANTHROPIC_API_KEY": "sk-SENTINEL"}
    command = [sys.executable, "-c", script, str(workspace), reading]
    ran = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True)
    assert "PATH=" in ran.stdout, ran.stderr
    assert "sk-SENTINEL" not in ran.stdout


class _Canary(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.hits += 1  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def canary():
    server = HTTPServer(("127.0.0.1", 0), _Canary)
    server.hits = 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_there_is_no_network_until_it_is_opened(state: SandboxState, workspace: Path, canary: HTTPServer) -> None:
    address = f"http://127.0.0.1:{canary.server_port}/"
    get = f"{SYSTEM_PYTHON} -c 'import urllib.request as u; u.urlopen(\"{address}\")' 2>&1 | tail -1"
    assert "rror" in await run(tool(state), workspace, get)
    assert canary.hits == 0  # type: ignore[attr-defined]
    await run(tool(state), workspace, get, network=True)
    assert canary.hits == 1  # type: ignore[attr-defined]
    await run(tool(state, network=True), workspace, get)
    assert canary.hits == 2  # type: ignore[attr-defined]


def alive(marker: str) -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"sleep\0{marker}\0".encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


async def gone(marker: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while alive(marker):  # noqa: ASYNC110  a process of the system tells nobody
            await asyncio.sleep(0.01)


async def test_what_unsets_its_mark_and_leaves_its_group_is_ended_too(state: SandboxState, workspace: Path) -> None:
    marker = f"5{time.time_ns() % 10**8}"
    await run(tool(state), workspace, f"unset LOOM_STARTED; setsid -f env -i sleep {marker}; echo left")
    await gone(marker)


async def test_no_command_outlives_its_killed_runner(state: SandboxState, workspace: Path) -> None:
    marker = f"3{time.time_ns() % 10**8}"
    script = (
        "import asyncio, sys; sys.path.insert(0, 'tests'); from tools.test_sandbox import *;"
        f"asyncio.run(run(tool(SandboxState('{state.kind}', '')), Path(sys.argv[1]), sys.argv[2]))"
    )
    command = f"unset LOOM_STARTED; setsid -f env -i sleep {marker}; sleep {marker}"
    runner = subprocess.Popen(  # noqa: ASYNC220  it is started, not waited for
        [sys.executable, "-c", script, str(workspace), command]
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(alive(marker)) < 2:  # noqa: ASYNC110  a process of the system tells nobody
            await asyncio.sleep(0.01)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    await gone(marker)


@pytest.mark.parametrize(
    "attack",
    [
        "echo evil > {0}/{1}",
        "rm -rf {0}; mkdir -p {0}; echo evil > {0}/{1}",
        "mv {0} aside; mkdir -p {0}; echo evil > {0}/{1}",
        "mv $(dirname {0}) aside; mkdir -p {0}; echo evil > {0}/{1}",
        "echo evil > made; mv -f made {0}/{1}",
        "echo evil > made; ln -sf $PWD/made {0}/{1}",
    ],
)
async def test_what_runs_outside_the_sandbox_later_cannot_be_planted(workspace: Path, attack: str) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".claude").mkdir()
    (workspace / "loom.toml").write_text("good")
    (workspace / ".claude" / "settings.json").write_text("good")
    (workspace / ".git" / "hooks" / "post-checkout").write_text("good")
    found = tool(SandboxState("bubblewrap", ""))
    for folder, name in ((".git/hooks", "post-checkout"), (".claude", "settings.json"), (".", "loom.toml")):
        if folder != "." or "dirname" not in attack:
            await run(found, workspace, attack.format(folder, name))
        assert (workspace / folder / name).read_text() == "good", (folder, name)
    await run(found, workspace, "echo ok > .git/x")
    assert (workspace / ".git" / "x").read_text() == "ok\n"


async def test_limits_hold(state: SandboxState, workspace: Path) -> None:
    found = tool(state, max_file_bytes=1_000_000, max_memory_bytes=300_000_000)
    shown = await run(found, workspace, "head -c 5000000 /dev/zero > big; wc -c < big")
    assert "1000000" in shown or "999936" in shown
    eating = f"{SYSTEM_PYTHON} -c 'x = bytes(500_000_000); print(len(x))'"
    assert "MemoryError" in await run(found, workspace, eating)


async def test_what_the_sandbox_opens_is_a_subject_of_its_own() -> None:
    plain = ToolCall("1", "run_command", {"command": "npm install"})
    online = ToolCall("1", "run_command", {"command": "npm install", "network": True})
    outside = ToolCall("1", "run_command", {"command": "npm install", "unsandboxed": True})
    assert subject_of(plain, Path("/w")).subjects == ("npm install",)
    assert subject_of(online, Path("/w")).subjects == ("npm install", "network: npm install")
    assert subject_of(outside, Path("/w")).subjects == ("npm install", "unsandboxed: npm install")
    assert (
        subject_of(plain, Path("/w")).pattern
        != subject_of(online, Path("/w")).pattern
        != subject_of(outside, Path("/w")).pattern
    )


def test_the_approval_says_what_the_sandbox_allows(workspace: Path) -> None:
    def shown(state: SandboxState, **more: object) -> str:
        found = tool(state)
        assert found.preview is not None
        return found.preview(workspace, {"command": "make", **more})

    fenced, bare = SandboxState("bubblewrap", ""), SandboxState("none", "bubblewrap is not installed")
    assert shown(fenced) == "make\n\n(Sandboxed: it writes only to the workspace, sees no keys, no network.)"
    assert shown(fenced, network=True).endswith("sees no keys, network access.)")
    assert "Outside the sandbox" in shown(fenced, unsandboxed=True)
    assert "Not sandboxed (bubblewrap is not installed)" in shown(bare)


async def test_a_sandbox_that_is_required_and_impossible_runs_nothing(workspace: Path) -> None:
    found = tool(SandboxState("none", "no kernel for it"), mode="require")
    with pytest.raises(ToolError, match=r"sandbox\.mode requires a sandbox, and none is available: no kernel for it"):
        await run(found, workspace, "touch ran")
    assert not (workspace / "ran").exists()


async def test_exit_codes_output_and_leftovers_are_those_of_the_command(state: SandboxState, workspace: Path) -> None:
    found = tool(state)
    assert await run(found, workspace, "echo one; echo two >&2; exit 3") == "one\ntwo\n(exit code 3)"
    assert await run(found, workspace, "kill -9 $$") == "(exit code 137: ended by SIGKILL)"
    assert await run(found, workspace, "pwd") == str(workspace)


async def test_variables_that_the_user_names_pass_and_no_others(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("UNWANTED", "no")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://user:password@proxy.example:3128")
    found = command_tool(Sandbox(), ("WANTED",))
    shown = await run(found, workspace, "env")
    assert "WANTED=yes" in shown and "UNWANTED" not in shown
    assert "https_proxy=http://proxy.example:3128" in shown and "password" not in shown


async def test_an_mcp_server_can_be_started_behind_the_same_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server of these tests gives a child its own sleep; behind the fence it dies with it, under another number."""
    folder = tmp_path / "project"
    folder.mkdir()
    hidden = tmp_path / "loom"
    hidden.mkdir()
    (hidden / "token").write_text("SENTINEL")
    server = folder / "server.py"
    server.write_text((Path(__file__).parent / "hostile_mcp.py").read_text())
    spec = ServerSpec(
        name="bad", command=SYSTEM_PYTHON, args=(str(server),), folder=folder, sandbox="offline", timeout_seconds=30
    )
    fence = Sandbox(SandboxSettings(hidden=(hidden,)), state=SandboxState("bubblewrap", ""))
    async with McpServers([spec], sandbox=fence) as servers:
        await servers.wait_ready(PATIENCE_SECONDS)
        assert "bad__child" in servers.tools, servers.status()
        answer = await servers.tools["bad__child"].run(McpContext(), {})
        assert int(text_of(answer.blocks[0])) < 20, "it counts its own processes"
        answer = await servers.tools["bad__environment"].run(McpContext(), {})
        assert "PATH" in text_of(answer.blocks[0])


async def test_sandboxes_of_one_workspace_share_a_folder_for_temporary_files(
    state: SandboxState, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon makes a sandbox for each new session; what it leaves behind must not grow with them."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for _ in range(3):
        assert await run(tool(state), workspace, "echo words > $TMPDIR/t; cat $TMPDIR/t") == "words"
    (folder,) = temporary.iterdir()
    assert (folder / "t").read_text() == "words\n"
    shutil.rmtree(folder)  # as systems do that empty /tmp
    assert await run(tool(state), workspace, "test -e $TMPDIR/t || echo words") == "words"
    assert len(list(temporary.iterdir())) == 1
