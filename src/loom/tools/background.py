"""start_process, read_output, stop_process: programs that run in the background during a conversation, such as a
server.

A session owns its processes (`OwnsProcesses`); a context without processes of its own uses those of the tool set.
Either way they end with their owner, at the latest with this process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from loom.content.blocks import ToolResult
from loom.errors import ToolError
from loom.tools.base import Tool, ToolContext, text_result
from loom.tools.commands import SHELL, Output, check_command, quiet_variables
from loom.tools.processes import RunningProgram, collect_output, end_all, kill_group, members, start_program
from loom.tools.sandbox import Sandbox, SandboxedCommand

MAX_PROCESSES: Final = 16
START_SECONDS: Final = 3.0
MAX_WAIT_SECONDS: Final = 60
_FOREGROUND: Final = "and with it all that it started. To keep a server running, start it in the foreground."
ENDED: Final = "Processes end when Loom exits; start them again with start_process if they are needed."
_POLL_SECONDS: Final = 0.1
_LISTENING: Final = "0A"
_INODE: Final = re.compile(r"socket:\[(\d+)\]")


class BackgroundProcess:
    """One program: its output since the last read, whether it runs, and the ports that it listens on."""

    def __init__(self, name: str, command: str) -> None:
        self.name = name
        self.command = command
        self.began = time.monotonic()
        self.ports: tuple[int, ...] = ()
        self.exit_code: int | None = None
        self.error = ""
        self.was_stopped = False
        self.changed = asyncio.Event()
        self._unread = Output()
        self._running: RunningProgram | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, fenced: SandboxedCommand, folder: Path, extra: dict[str, str]) -> None:
        self._task = asyncio.create_task(self._supervise(fenced, folder, extra), name=f"background {self.name}")

    async def _supervise(self, fenced: SandboxedCommand, folder: Path, extra: dict[str, str]) -> None:
        """Run the process inside this task: when the task ends, the process and everything that it started end too."""
        try:
            async with start_program(
                fenced.argv, folder=folder, extra=extra, descriptors=fenced.descriptors
            ) as running:
                self._running = running
                fenced.close()
                stopping = asyncio.create_task(self._stopping.wait())
                ending = asyncio.create_task(running.process.wait())
                try:
                    async with collect_output(running.output, self._add_output):
                        await asyncio.wait([stopping, ending], return_when=asyncio.FIRST_COMPLETED)
                        if not ending.done():
                            kill_group(running.process, signal.SIGTERM)
                            await asyncio.wait([ending], timeout=2.0)
                        end_all(running)
                finally:
                    for task in (stopping, ending):
                        task.cancel()
            self.exit_code = running.process.returncode
        except ToolError as error:
            self.error = error.message
        finally:
            self._running = None
            self.changed.set()

    def _add_output(self, chunk: bytes) -> None:
        self._unread.add(chunk)
        self.changed.set()

    def look(self) -> None:
        """Update the ports that the process listens on."""
        running = self._running
        if running is not None:
            self.ports = listening_ports(members(running.mark, running.groups) | {running.process.pid})

    def kill(self) -> None:
        """Kill the process without waiting, when this process ends."""
        if self._running is not None:
            end_all(self._running)

    async def stop(self) -> None:
        self.was_stopped = self.was_stopped or self.is_running
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    def take_output(self) -> str:
        """Return the output since the last call."""
        text, self._unread = self._unread.text().rstrip("\n"), Output()
        self.changed.clear()
        return text

    def describe(self) -> str:
        seconds = time.monotonic() - self.began
        if self.error:
            return f"{self.name} could not be started: {self.error}"
        if not self.is_running:
            how = "was stopped" if self.was_stopped else f"ended with exit code {self.exit_code}"
            return f"{self.name} {how}"
        answers = "".join(f", listening on http://localhost:{port}/" for port in self.ports)
        return f"{self.name} runs for {seconds:.0f} s{answers}"


class BackgroundProcesses:
    """All background processes of one owner."""

    def __init__(self) -> None:
        self._found: dict[str, BackgroundProcess] = {}
        self._numbers = itertools.count(1)
        self._is_registered = False

    def add(self, command: str) -> BackgroundProcess:
        """Create a process entry. Raise ToolError if too many are running."""
        if sum(process.is_running for process in self._found.values()) >= MAX_PROCESSES:
            raise ToolError(f"{MAX_PROCESSES} processes are already running", hint="Stop one with stop_process.")
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._kill_all)
        process = BackgroundProcess(f"p{next(self._numbers)}", command)
        self._found[process.name] = process
        return process

    def get(self, name: str) -> BackgroundProcess:
        """Return the process. Raise a ToolError that lists the existing ones if there is none."""
        found = self._found.get(name)
        if found is None:
            known = ", ".join(self._found) or "none"
            raise ToolError(f"Process {name[:40]!r} not found; known: {known}", hint=ENDED)
        return found

    def list_processes(self) -> tuple[BackgroundProcess, ...]:
        return tuple(self._found.values())

    async def close(self) -> None:
        """End all processes, because their owner ends."""
        await asyncio.gather(*(process.stop() for process in self._found.values()))
        self._found.clear()

    def _kill_all(self) -> None:
        for process in self._found.values():
            process.kill()


@runtime_checkable
class OwnsProcesses(Protocol):
    """A context whose session owns the processes that its calls start."""

    @property
    def background(self) -> BackgroundProcesses: ...


def background_tools(
    sandbox: Sandbox, variables: Sequence[str] = (), shared: BackgroundProcesses | None = None
) -> tuple[Tool, ...]:
    """Return the three tools. `shared` has the processes of sessions that own none."""
    common = shared or BackgroundProcesses()

    def owner(context: ToolContext) -> BackgroundProcesses:
        return context.background if isinstance(context, OwnsProcesses) else common

    async def start_process(
        context: ToolContext, command: str, network: bool = False, unsandboxed: bool = False
    ) -> ToolResult:
        """Start a program that keeps running in the background, such as a development server, and get its id and first
        output. read_output shows more, stop_process ends it; it ends with the session. A server that is to be reached
        from outside (by screenshot, for instance) needs network.

        command: the command line
        network: with access to the network, and reachable at localhost
        unsandboxed: outside the sandbox, if it must write or read elsewhere
        """
        check_command(command)
        process = owner(context).add(command)
        fenced = sandbox.wrap((SHELL, "-c", command), context.workspace, network=network, unsandboxed=unsandboxed)
        process.start(fenced, context.workspace, {**quiet_variables(variables), **fenced.environment})
        await _settle(process, START_SECONDS, until_port=True)
        has_ended = not process.is_running and process.exit_code == 0
        return _report(process, hint=f", {_FOREGROUND}" if has_ended else "")

    async def read_output(context: ToolContext, process: str = "", wait: int = 0) -> ToolResult:
        """See what a background process printed since the last call, and whether it still runs. Without an id: list
        all of them.

        process: its id, as returned by start_process
        wait: seconds to wait for new output at most
        """
        if not 0 <= wait <= MAX_WAIT_SECONDS:
            raise ToolError(f"wait is between 0 and {MAX_WAIT_SECONDS} seconds")
        if not process:
            every = owner(context).list_processes()
            for each in every:
                await asyncio.to_thread(each.look)
            return text_result(
                "\n".join(f"{each.describe()}: {each.command}" for each in every) or f"No background processes. {ENDED}"
            )
        found = owner(context).get(process)
        await _settle(found, wait, until_port=False)
        return _report(found)

    async def stop_process(context: ToolContext, process: str) -> ToolResult:
        """Stop a background process and its children, and get its last output.

        process: its id, as returned by start_process
        """
        found = owner(context).get(process)
        await found.stop()
        return _report(found)

    def preview(_workspace: Path, arguments: dict[str, Any]) -> str:
        network, unsandboxed = bool(arguments.get("network")), bool(arguments.get("unsandboxed"))
        reach = sandbox.describe(network=network, unsandboxed=unsandboxed)
        return f"{arguments['command']}\n\n(In the background, until the session ends. {reach})"

    return (
        Tool(start_process, danger="ask", preview=preview),
        Tool(read_output),
        Tool(stop_process, repeatable=True),
    )


async def _settle(process: BackgroundProcess, seconds: float, *, until_port: bool) -> None:
    """Wait for an event: the process ends, listens on a port, or (while waiting for output) prints something."""
    until = time.monotonic() + seconds
    while process.is_running:
        await asyncio.to_thread(process.look)
        left = until - time.monotonic()
        if left <= 0 or (until_port and process.ports) or (not until_port and process.changed.is_set()):
            return
        if until_port:
            process.changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.changed.wait(), min(left, _POLL_SECONDS))


def _report(process: BackgroundProcess, *, hint: str = "") -> ToolResult:
    text = process.take_output()
    state = f"{process.describe()}{hint}"
    data = {
        "kind": "process",
        "process": process.name,
        "command": process.command,
        "running": process.is_running,
        "exit_code": process.exit_code,
        "ports": list(process.ports),
    }
    return text_result(f"{text}\n({state})" if text.strip() else f"({state})", data=data)


def listening_ports(pids: set[int]) -> tuple[int, ...]:
    """Return the TCP ports on which these processes listen, as seen on this machine (Linux)."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    found: set[int] = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(OSError):  # this protocol does not exist here
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[9] in inodes:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return tuple(sorted(found))


def _sockets(pid: int) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError):  # it ended meanwhile
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if match := _INODE.fullmatch(os.readlink(entry.path)):  # noqa: PTH115  called very often: a Path is slow
                    found.add(match[1])
    return found
