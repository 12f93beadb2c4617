"""run_command: real processes, and none of them left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loom.content.blocks import ToolCall, ToolResult
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.testing import ScriptedProvider, memory_runtime
from loom.tools.background import BackgroundProcesses
from loom.tools.builtin import builtin_tools
from loom.tools.commands import SHELL, run_command
from loom.tools.mcp.specs import ServerSpec
from loom.tools.processes import run_typed_command
from patience import PATIENCE_SECONDS
from tools.world import Context, said


async def run(workspace: Path, command: str, **more: object) -> str:
    return await said(run_command, Context(workspace), command=command, **more)


def alive(marker: str) -> list[str]:
    """Command lines of living processes that hold a word. The dead (zombies of others) have none."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if marker in line and int(folder.name) != os.getpid():
                found.append(line)
    return found


def zombies() -> list[str]:
    """Children of ours that nobody has waited for."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after = (folder / "stat").read_text().rpartition(")")[2].split()
            if after[0] == "Z" and int(after[1]) == os.getpid():
                found.append(folder.name)
    return found


def wait_for(happened: Callable[[], bool]) -> None:
    while not happened():
        time.sleep(0.01)


def test_it_asks_first() -> None:
    assert run_command.danger == "ask"


async def test_both_streams_come_in_their_order_with_the_exit_code(tmp_path: Path) -> None:
    result = await run_command.run(Context(tmp_path), {"command": "echo one; echo two >&2; echo three; exit 3"})
    assert isinstance(result, ToolResult)
    assert text_of(result) == "one\ntwo\nthree\n(exit code 3)"
    assert result.data["exit_code"] == 3
    assert await run(tmp_path, "true") == "(no output, exit code 0)"
    assert await run(tmp_path, "pwd") == str(tmp_path)
    assert await run(tmp_path, "kill -9 $$") == "(exit code 137: ended by SIGKILL)"
    assert "127" in await run(tmp_path, "no-such-program")


async def test_it_has_no_input(tmp_path: Path) -> None:
    assert await run(tmp_path, "cat; echo done", timeout=10) == "done"


async def test_the_environment_holds_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "LOOM_HOME", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "MY_OWN"):
        monkeypatch.setenv(name, "sentinel-value")
    monkeypatch.setenv("LC_MESSAGES", "C")
    shown = await run(tmp_path, "env; cat /proc/$$/environ")
    assert "sentinel-value" not in shown
    assert "PATH=" in shown
    assert "LC_MESSAGES=C" in shown


PASSED = {
    "HTTPS_PROXY": "http://proxy.example:3128",
    "no_proxy": "localhost",
    "SSL_CERT_FILE": "/etc/ssl/own.pem",
    "REQUESTS_CA_BUNDLE": "/etc/ssl/own.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/ssl/own.pem",
}


async def test_proxies_and_certificates_pass_to_commands_processes_and_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PASSED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@proxy.example:3128")
    background = BackgroundProcesses()
    tools = builtin_tools(background=background)
    shown = text_of(await tools["run_command"].run(Context(tmp_path), {"command": "env"}))
    started = await tools["start_process"].run(Context(tmp_path), {"command": "env; sleep 60"})
    printed = text_of(started) + text_of(await tools["read_output"].run(Context(tmp_path), {"process": "p1"}))
    await background.close()
    server = ServerSpec(name="x", command="x").environment()
    for name, value in PASSED.items():
        assert f"{name}={value}" in shown
        assert f"{name}={value}" in printed
        assert server[name] == value
    assert "secret" not in shown + printed + str(server), "a password stays here"


async def test_the_setting_widens_the_environment_of_commands_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_OWN", "passed")
    monkeypatch.setenv("MY_OTHER", "sentinel-value")
    call = ToolCall("c1", "run_command", {"command": "env"})
    settings = {"tools.environment": ["MY_OWN"], "approval.default": "allow"}
    async with memory_runtime(
        settings, providers={"anthropic": ScriptedProvider([call, "Ok."])}, tools="all"
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-sonnet-4-5", workspace=str(tmp_path))
        await session.send("go")
        (result,) = [result for message in await session.path() for result in message.results]
    assert "MY_OWN=passed" in text_of(result)
    assert "sentinel-value" not in text_of(result)


@pytest.mark.parametrize(
    "command",
    [
        "sleep {marker}",
        "sleep {marker} & sleep {marker}",
        "trap '' TERM; sleep {marker} & wait",
        "(setsid sleep {marker} &) ; setsid sh -c 'sleep {marker} & sleep {marker}'; sleep {marker}",
        "nohup sleep {marker} >/dev/null 2>&1 & sleep {marker}",
    ],
)
async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path, command: str) -> None:
    marker = f"7{time.time_ns() % 10**8}"
    shown = await run(tmp_path, command.format(marker=marker), timeout=1)
    assert "(stopped after 1 s: it took too long)" in shown
    assert alive(marker) == []
    assert zombies() == []


async def test_what_it_leaves_in_the_background_is_ended_and_said(tmp_path: Path) -> None:
    marker = f"8{time.time_ns() % 10**8}"
    began = time.monotonic()
    shown = await run(tmp_path, f"sleep {marker} & (setsid sleep {marker} &); echo started", timeout=60)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert shown == "started\n(ended with it: 2 processes that it left in the background)"
    assert alive(marker) == []


async def test_cancelling_ends_it_at_once(tmp_path: Path) -> None:
    marker = f"9{time.time_ns() % 10**8}"
    task = asyncio.create_task(run(tmp_path, f"trap '' TERM; sleep {marker} & wait", timeout=600))
    await asyncio.to_thread(wait_for, lambda: bool(alive(f"sleep {marker}")))
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(PATIENCE_SECONDS):  # it was killed; a busy machine takes a moment to let go of it
        while alive(marker):  # noqa: ASYNC110  a process of the system tells nobody
            await asyncio.sleep(0.01)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert zombies() == []


async def test_cancelling_while_it_starts_leaves_nothing_either(tmp_path: Path) -> None:
    marker = f"4{time.time_ns() % 10**8}"
    for steps in range(8):
        task = asyncio.create_task(run(tmp_path, f"sleep {marker} & wait", timeout=600))
        for _ in range(steps):
            await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251  nothing else goes on meanwhile: the program starts its own
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(PATIENCE_SECONDS):
        while alive(marker):  # noqa: ASYNC110  a process of the system tells nobody
            await asyncio.sleep(0.01)
    assert zombies() == []


@pytest.mark.parametrize("times", [1, 2])
async def test_a_typed_command_is_ended_however_often_it_is_cancelled(tmp_path: Path, times: int) -> None:
    printed = bytearray()
    is_running = asyncio.Event()

    def add(chunk: bytes) -> None:
        printed.extend(chunk)
        is_running.set()

    marker = f"typed{os.getpid()}x{times}"
    script = f"trap 'echo stopping' TERM; echo {marker}; while true; do sleep 0.05; done"
    typing = asyncio.create_task(run_typed_command((SHELL, "-c", script), tmp_path, add))
    await is_running.wait()
    for _ in range(times):
        typing.cancel()
        await asyncio.sleep(0.7)
    await asyncio.wait([typing])
    assert typing.cancelled()
    wait_for(lambda: not alive(marker))
    assert zombies() == []
    assert b"stopping" in printed


async def test_a_fork_bomb_is_put_out(tmp_path: Path) -> None:
    """A gentle one: it forks as fast as it can, but only so many times."""
    marker = f"6{time.time_ns() % 10**8}"
    bomb = f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid sh -c 'sleep {marker} & sleep {marker}' &) ; done; sleep 9"
    assert "too long" in await run(tmp_path, bomb, timeout=1)
    assert alive(marker) == []


async def test_endless_output_is_kept_at_both_ends(tmp_path: Path) -> None:
    shown = await run(tmp_path, "seq 1 1000000; echo the end", timeout=60)
    assert len(shown.encode()) < 1_100_000
    assert shown.startswith("1\n2\n3\n")
    assert shown.endswith("1000000\nthe end")
    assert "bytes of output were not kept" in shown


async def test_colors_and_progress_bars_are_taken_out_and_broken_text_is_marked(tmp_path: Path) -> None:
    command = r"printf '\033[31mred\033[0m\n 10%%\r 90%%\r100%%\ndos\r\n\377\n\033]0;title\007x\001y\n'"
    assert await run(tmp_path, command) == "red\n100%\ndos\n\ufffd\nxy"


async def test_the_newest_line_is_reported_even_if_the_program_is_silent_after_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    context = Context(tmp_path)
    running = asyncio.create_task(
        run_command.run(context, {"command": "echo one; echo two; cat gate; echo three; cat gate", "timeout": 300})
    )
    for line in ("two", "three"):
        while line not in context.told:
            assert not running.done()
            await asyncio.sleep(0.05)
        await asyncio.to_thread(gate.write_text, "")
    await running
    assert context.told == ["two", "three"]


@pytest.mark.parametrize(("command", "seconds"), [("", 5), ("   ", 5), ("a\0b", 5), ("true", 0), ("true", 99_999)])
async def test_odd_arguments_get_an_explanation(tmp_path: Path, command: str, seconds: int) -> None:
    with pytest.raises(ToolError):
        await run(tmp_path, command, timeout=seconds)


async def test_a_workspace_that_is_gone_gives_an_answer(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be started"):
        await run(tmp_path / "gone", "true")
