"""run_command: a shell command in the workspace, after the user has agreed to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from typing import Final

import msgspec

from loom.content.blocks import ToolResult, clean_text
from loom.errors import ToolError
from loom.tools.base import ToolContext, answered, tool
from loom.tools.processes import Started, end_all, kill_group, started
from loom.tools.words import counted

DEFAULT_SECONDS: Final = 120
MAX_SECONDS: Final = 3_600
MAX_KEPT_BYTES: Final = 1_000_000
GRACE_SECONDS: Final = 2.0
_PROGRESS_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 0.5
_READ_BYTES: Final = 65_536
_QUIET: Final = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Output(msgspec.Struct):
    """The beginning and the end of what a program prints; what is between is counted."""

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
            return _readable(bytes(self.head + self.tail))
        between = f"\n[… {self.left_out} bytes of output were not kept …]\n"
        return _readable(bytes(self.head)) + between + _readable(bytes(self.tail))


@tool(danger="ask")
async def run_command(context: ToolContext, command: str, timeout: int = DEFAULT_SECONDS) -> ToolResult:  # noqa: ASYNC109  the name that models know
    """Run a shell command (/bin/sh) in the workspace and get its output and exit code. It has no input, and what it
    leaves running in the background is ended with it.

    command: the command line
    timeout: seconds after which it is ended
    """
    if not command.strip():
        raise ToolError("command is empty")
    if "\0" in command or clean_text(command) != command:
        raise ToolError("command holds characters that cannot be passed on (NUL, or half of a pair)")
    if not 1 <= timeout <= MAX_SECONDS:
        raise ToolError(f"timeout is between 1 and {MAX_SECONDS} seconds")
    output = Output()
    began = time.monotonic()
    async with started(["/bin/sh", "-c", command], folder=context.workspace, extra=_QUIET) as running:
        ended = await _watched(running, output, timeout, context)
        behind = end_all(running) if ended else 0
    return _answer(running, output, time.monotonic() - began, behind, ended=ended, timeout=timeout)


async def _watched(running: Started, output: Output, seconds: float, context: ToolContext) -> bool:
    """Collect what it prints until it ends; False when it had to be ended."""
    reading = asyncio.create_task(_read(running, output, context))
    try:
        async with asyncio.timeout(seconds):
            await running.process.wait()
        return True
    except TimeoutError:
        kill_group(running.process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):  # who does not listen is killed
            async with asyncio.timeout(GRACE_SECONDS):
                await running.process.wait()
        return False
    except asyncio.CancelledError:
        kill_group(running.process, signal.SIGKILL)
        raise
    finally:
        # what it has printed is in the pipe; what it left running may hold the pipe open for ever
        await asyncio.wait([reading], timeout=_DRAIN_SECONDS)
        reading.cancel()
        await asyncio.wait([reading])


async def _read(running: Started, output: Output, context: ToolContext) -> None:
    said = time.monotonic()
    while chunk := await running.output.read(_READ_BYTES):
        output.add(chunk)
        last = _readable(chunk[-_READ_BYTES // 64 :]).rstrip().rpartition("\n")[2]
        if last and time.monotonic() - said > _PROGRESS_SECONDS:
            said = time.monotonic()
            await context.emit(last[:200])


def _answer(running: Started, output: Output, seconds: float, behind: int, *, ended: bool, timeout: int) -> ToolResult:
    code = running.process.returncode
    said: list[str] = []
    if not ended:
        said.append(f"ended after {timeout} s: it took too long")
    elif code is not None and code < 0:
        said.append(f"ended by {signal.Signals(-code).name}")
    elif code:
        said.append(f"exit code {code}")
    if behind:
        said.append(f"ended with it: {counted(behind, 'process', 'processes')} that it left in the background")
    text = output.text().rstrip("\n")
    facts = {"exit_code": code, "seconds": round(seconds, 3), "timed_out": not ended}
    shown = "\n".join([*([text] if text.strip() else []), *(f"({sentence})" for sentence in said)])
    return answered(shown or "(no output, exit code 0)", data=facts)


def _readable(data: bytes) -> str:
    """Without colours and cursor movements; of a line that was drawn over itself, what stood there last."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))
