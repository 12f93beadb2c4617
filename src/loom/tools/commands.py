"""run_command: run a shell command in the workspace, after the user has approved it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.content.blocks import ToolResult, clean_text
from loom.errors import ToolError
from loom.tools.base import KeepsPartialResult, Tool, ToolContext, text_result
from loom.tools.number_text import count_text
from loom.tools.processes import RunningProgram, collect_output, end_all, kill_group, start_program, wait_exit
from loom.tools.sandbox import Sandbox

DEFAULT_SECONDS: Final = 120
MAX_SECONDS: Final = 3_600
MAX_KEPT_BYTES: Final = 1_000_000
GRACE_SECONDS: Final = 2.0
SHELL: Final = shutil.which("bash") or "/bin/sh"
"""The shell that models write commands for."""
_PROGRESS_SECONDS: Final = 1.0
_SHOWN_BYTES: Final = 1_024
_QUIET: Final = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Output(msgspec.Struct):
    """The beginning and the end of a program's output; the bytes between them are counted."""

    head: bytearray = msgspec.field(default_factory=bytearray)
    tail: bytearray = msgspec.field(default_factory=bytearray)
    left_out: int = 0

    def add(self, chunk: bytes) -> None:
        room = MAX_KEPT_BYTES // 2 - len(self.head)
        self.head += chunk[:room] if room > 0 else b""
        self.tail += chunk[room:] if room > 0 else chunk
        over = len(self.tail) - MAX_KEPT_BYTES // 2
        if over > 0:
            del self.tail[:over]
            self.left_out += over

    def text(self) -> str:
        if not self.left_out:
            return _plain_output(bytes(self.head + self.tail))
        between = f"\n[… {self.left_out} bytes of output were not kept …]\n"
        return _plain_output(bytes(self.head)) + between + _plain_output(bytes(self.tail))


def command_tool(sandbox: Sandbox, variables: Sequence[str] = ()) -> Tool:
    """Return the tool with its sandbox. `variables` are names of environment variables that commands get besides the
    usual ones."""

    async def run_command(
        context: ToolContext,
        command: str,
        timeout: int = DEFAULT_SECONDS,  # noqa: ASYNC109  the name that models use
        network: bool = False,
        unsandboxed: bool = False,
    ) -> ToolResult:
        """Run a shell command in the workspace and get its output and exit code. It has no input, and
        processes that it leaves running are stopped when it ends. In a sandbox it can write only to the workspace and
        /tmp, and has no network access unless you ask for it.

        command: the command line
        timeout: seconds after which it is stopped
        network: with access to the network
        unsandboxed: outside the sandbox, if it must write or read elsewhere
        """
        check_command(command)
        if not 1 <= timeout <= MAX_SECONDS:
            raise ToolError(f"timeout is between 1 and {MAX_SECONDS} seconds")
        output = Output()
        began = time.monotonic()
        left = LeftoverProcesses()
        fenced = sandbox.wrap(
            left.counting(command)
            if sandbox.state.kind == "bubblewrap" and not unsandboxed
            else (SHELL, "-c", command),
            context.workspace,
            network=network,
            unsandboxed=unsandboxed,
        )
        try:
            async with start_program(
                fenced.argv,
                folder=context.workspace,
                extra={**quiet_variables(variables), **fenced.environment},
                descriptors=(*fenced.descriptors, *left.descriptors),
            ) as running:
                ended = await _run_until_end(running, output, timeout, context)
                behind = end_all(running) if ended else 0
            behind = max(behind, left.count()) if ended else 0
        except asyncio.CancelledError:
            if isinstance(context, KeepsPartialResult) and (text := output.text().strip()):
                context.keep_partial(f"Its output until then:\n{text}")
            raise
        finally:
            fenced.close()
            left.close()
        return _answer(running, output, time.monotonic() - began, behind, ended=ended, timeout=timeout)

    def preview(_workspace: Path, arguments: dict[str, Any]) -> str:
        network, unsandboxed = bool(arguments.get("network")), bool(arguments.get("unsandboxed"))
        return f"{arguments['command']}\n\n({sandbox.describe(network=network, unsandboxed=unsandboxed)})"

    return Tool(run_command, danger="ask", preview=preview)


class LeftoverProcesses:
    """Counts the processes that a command leaves in a process namespace that ends with it: the shell around the command
    reads its own /proc, which contains only processes of the command."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._writing,)

    def counting(self, command: str) -> tuple[str, ...]:
        """Return the command that runs `command` in a shell, counts, and exits with its exit code."""
        script = (
            # messages of the outer shell about a killed command are not the command's output
            f'exec 8>&2 2>/dev/null; (exec 2>&8 8>&-; exec {SHELL} -c "$1"); code=$?; count=0; '
            "for folder in /proc/[0-9]*; do "
            'read -r facts 2>/dev/null < "$folder/stat" || continue; '
            'case "$facts" in *") Z "*) ;; *) count=$((count + 1)) ;; esac; done; '
            f'echo $((count - 2)) > /proc/self/fd/{self._writing}; exit "$code"'
        )
        return ("/bin/sh", "-c", script, "sh", command)

    def count(self) -> int:
        try:
            return max(int(os.read(self._reading, 32) or 0), 0)
        except (BlockingIOError, ValueError):  # it was killed before it could count
            return 0

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def quiet_variables(names: Sequence[str]) -> dict[str, str]:
    """Return variables besides the usual environment: those that make output plain, and those that the user
    configured."""
    return {**_QUIET, **{name: os.environ[name] for name in names if name in os.environ}}


def check_command(command: str) -> None:
    """Raise ToolError for a command line that cannot be passed to a shell."""
    if not command.strip():
        raise ToolError("command is empty")
    if "\0" in command or clean_text(command) != command:
        raise ToolError("command contains characters that cannot be passed to a program (NUL, or a lone surrogate)")


async def _run_until_end(running: RunningProgram, output: Output, seconds: float, context: ToolContext) -> bool:
    """Collect the output until the program ends. Return False if it had to be ended."""
    newest = _NewestLine()

    def add(chunk: bytes) -> None:
        output.add(chunk)
        newest.tail = chunk[-_SHOWN_BYTES:]

    reporting = asyncio.create_task(_report_progress(newest, context))
    try:
        async with collect_output(running.output, add):
            return await _wait_for_end(running, seconds)
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])


async def _wait_for_end(running: RunningProgram, seconds: float) -> bool:
    """Return whether the program ended by itself; after `seconds` it is ended."""
    try:
        async with asyncio.timeout(seconds):
            await running.process.wait()
        return True
    except TimeoutError:
        kill_group(running.process, signal.SIGTERM)
        await wait_exit(running.process, GRACE_SECONDS)  # a program that ignores SIGTERM is killed
        return False
    except asyncio.CancelledError:
        kill_group(running.process, signal.SIGKILL)
        raise


class _NewestLine:
    """The end of the newest output; decoded only when it is shown."""

    tail = b""

    def text(self) -> str:
        return _plain_output(self.tail).rstrip().rpartition("\n")[2][:200]


async def _report_progress(newest: _NewestLine, context: ToolContext) -> None:
    """Report the newest line at most once in `_PROGRESS_SECONDS`, also if the program is silent after it."""
    shown = ""
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        if (line := newest.text()) and line != shown:
            shown = line
            await context.emit(line)


def _answer(
    running: RunningProgram, output: Output, seconds: float, behind: int, *, ended: bool, timeout: int
) -> ToolResult:
    code = running.process.returncode
    said: list[str] = []
    if not ended:
        said.append(f"stopped after {timeout} s: it took too long")
    elif code is not None and code < 0:
        said.append(f"ended by {signal.Signals(-code).name}")
    elif code:
        said.append(f"exit code {code}{_signal_name(code)}")
    if behind:
        said.append(f"ended with it: {count_text(behind, 'process', 'processes')} that it left in the background")
    text = output.text().rstrip("\n")
    facts = {"exit_code": code, "seconds": round(seconds, 3), "timed_out": not ended}
    shown = "\n".join([*([text] if text.strip() else []), *(f"({sentence})" for sentence in said)])
    return text_result(shown or "(no output, exit code 0)", data=facts)


def _signal_name(code: int) -> str:
    """Return the name of the signal that a shell reports by an exit code over 128."""
    names = {number.value: number.name for number in signal.Signals}
    return f": ended by {names[code - 128]}" if code - 128 in names else ""


def _plain_output(data: bytes) -> str:
    """Return the output without colors and cursor movements; of a line that was overwritten, only its last content."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))


run_command: Final = command_tool(Sandbox())
"""The tool with default settings."""
