"""Background processes: started, read, announced by their port, and ended with their owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from loom.content.blocks import ToolResult
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.tools.background import ENDED, BackgroundProcesses, background_tools
from loom.tools.base import Tool
from loom.tools.sandbox import Sandbox, SandboxSettings, SandboxState
from patience import PATIENCE_SECONDS
from tools.world import Context

STATES = {
    "bubblewrap": Sandbox(state=SandboxState("bubblewrap", "")),
    "landlock": Sandbox(state=SandboxState("landlock", "")),
    "none": Sandbox(SandboxSettings(mode="off")),
}
SYSTEM_PYTHON = getattr(sys, "_base_executable", sys.executable)
"""The interpreter behind a virtual environment, which may lie in /tmp, where a sandboxed command sees only its own."""
SERVER = (
    f"exec {SYSTEM_PYTHON} -u -c 'import http.server as h; "
    's = h.HTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler); s.serve_forever()\''
)


class Owner(Context):
    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace)
        self.background = BackgroundProcesses()


@pytest.fixture(params=STATES)
def tools(request: pytest.FixtureRequest) -> dict[str, Tool]:
    return {tool.name: tool for tool in background_tools(STATES[request.param])}


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncGenerator[Owner]:
    found = Owner(tmp_path)
    yield found
    await found.background.close()


async def call(tool: Tool, context: Context, **arguments: object) -> ToolResult:
    result = await tool.run(context, arguments)
    assert isinstance(result, ToolResult)
    return result


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


async def test_a_server_is_started_announced_reached_and_stopped(tools: dict[str, Tool], owner: Owner) -> None:
    (owner.workspace / "page.txt").write_text("served words")
    result = await call(tools["start_process"], owner, command=SERVER, network=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not result.data["ports"]:
            await asyncio.sleep(0)
            result = await call(tools["read_output"], owner, process="p1", wait=1)
    (port,) = result.data["ports"]
    assert f"listening on http://localhost:{port}/" in text_of(result)
    with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/page.txt") as answer:
        assert answer.read() == b"served words"
    listed = await call(tools["read_output"], owner)
    assert f"listening on http://localhost:{port}/: {SERVER[:20]}" in text_of(listed)
    stopped = await call(tools["stop_process"], owner, process="p1")
    assert "(p1 was stopped)" in text_of(stopped)
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/")
    assert "(p1 was stopped)" in text_of(await call(tools["stop_process"], owner, process="p1"))


async def test_output_comes_once_and_an_end_is_told(tools: dict[str, Tool], owner: Owner) -> None:
    command = "echo first; read line < go.fifo; echo $line; exit 3"
    os.mkfifo(owner.workspace / "go.fifo")
    seen = text_of(await call(tools["start_process"], owner, command=command))
    if "first" not in seen:
        seen = text_of(await call(tools["read_output"], owner, process="p1", wait=60))
    assert "first" in seen and "(p1 runs for" in seen
    assert "first" not in text_of(await call(tools["read_output"], owner, process="p1"))
    await asyncio.to_thread((owner.workspace / "go.fifo").write_text, "second\n")
    said = ""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "ended with exit code 3" not in said:
            said += text_of(await call(tools["read_output"], owner, process="p1", wait=5))
    assert "second" in said


async def test_a_server_that_moves_to_the_background_is_told_to_stay(tools: dict[str, Tool], owner: Owner) -> None:
    marker = f"3{time.time_ns() % 10**8}"
    said = text_of(await call(tools["start_process"], owner, command=f"setsid sleep {marker} & echo started"))
    assert "started\n(p1 ended with exit code 0, and with it all that it started" in said
    assert "start it in the foreground" in said
    await gone(marker)


async def test_they_end_with_their_owner_whatever_they_started(tools: dict[str, Tool], owner: Owner) -> None:
    marker = f"2{time.time_ns() % 10**8}"
    await call(tools["start_process"], owner, command=f"(setsid sleep {marker} &) ; sleep {marker}")
    assert alive(marker)
    await owner.background.close()
    await gone(marker)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_they_do_not_outlive_a_killed_runner(kind: str, tmp_path: Path) -> None:
    marker = f"1{time.time_ns() % 10**8}"
    script = (
        "import asyncio, sys; sys.path.insert(0, 'tests'); from tools.test_background import *\n"
        "async def main():\n"
        f"    tools = {{tool.name: tool for tool in background_tools(STATES['{kind}'])}}\n"
        "    await call(tools['start_process'], Context(Path(sys.argv[1])), command=sys.argv[2])\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", script, str(tmp_path), f"setsid -f env -i sleep {marker}; sleep {marker}"]
    runner = subprocess.Popen(command)  # noqa: ASYNC220  it is started, not waited for
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(alive(marker)) < 2:  # noqa: ASYNC110  a process of the system tells nobody
            await asyncio.sleep(0.01)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    await gone(marker)


async def test_what_is_not_there_and_what_is_too_much_is_said(tools: dict[str, Tool], owner: Owner) -> None:
    with pytest.raises(ToolError, match=r"Process 'p9' not found; known: none\. Processes end when Loom exits"):
        await call(tools["read_output"], owner, process="p9")
    with pytest.raises(ToolError, match="command is empty"):
        await call(tools["start_process"], owner, command=" ")
    assert text_of(await call(tools["read_output"], owner)) == f"No background processes. {ENDED}"
    ended = await call(tools["start_process"], owner, command="exit 7")
    assert text_of(ended) == "(p1 ended with exit code 7)"
    with pytest.raises(ToolError, match="wait is between"):
        await call(tools["read_output"], owner, process="p1", wait=999)


async def test_a_session_sees_only_its_own_processes(tools: dict[str, Tool], owner: Owner, tmp_path: Path) -> None:
    await call(tools["start_process"], owner, command="sleep 1000")
    other = Owner(tmp_path)
    with pytest.raises(ToolError, match="not found; known"):
        await call(tools["stop_process"], other, process="p1")
    assert tools["start_process"].danger == "ask"
    assert tools["start_process"].preview is not None
    assert "In the background" in tools["start_process"].preview(tmp_path, {"command": "x"})
