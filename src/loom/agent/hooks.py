"""Hooks: programs of the user that run before and after tool calls, turns and summaries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.content.blocks import ToolCall, clean_text
from loom.errors import ToolError
from loom.tools.commands import SHELL
from loom.tools.processes import start_program

REFUSES: Final = 2
"""The exit code with which a hook refuses a call, or passes its output to the model."""
MAX_OUTPUT_BYTES: Final = 10_000

HookMoment: TypeAlias = Literal["turn_start", "turn_end", "before_compact", "after_compact"]
HookNotice: TypeAlias = Callable[[str], Awaitable[None]]


class HookProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that runs for the tools whose name matches the pattern `tool`."""

    tool: str
    command: str
    timeout_seconds: float


class ToolHooks(msgspec.Struct, frozen=True, kw_only=True):
    before: tuple[HookProgram, ...] = ()
    after: tuple[HookProgram, ...] = ()
    moments: Mapping[HookMoment, tuple[HookProgram, ...]] = msgspec.field(
        default_factory=dict["HookMoment", tuple["HookProgram", ...]]
    )

    async def run_moment(self, moment: HookMoment, facts: Mapping[str, Any], notice: HookNotice) -> str:
        """Run the hooks of a turn or of a summary; `facts` holds `session_id`, `cwd` and other details. Return the
        output of the hooks that exited with `REFUSES`."""
        given = {"hook_event_name": moment, **facts}
        return await _run(self.moments.get(moment, ()), "", given, notice)

    async def run_before(self, call: ToolCall, workspace: Path, session_id: str, notice: HookNotice) -> None:
        """Run the hooks for a call that is about to run; raise `ToolError` if one of them refuses it."""
        refused = await _run(self.before, call.name, _input("before_tool", call, workspace, session_id), notice)
        if refused:
            raise ToolError(f"the user's hook refused this call: {refused}")

    async def run_after(self, call: ToolCall, workspace: Path, session_id: str, notice: HookNotice) -> str:
        """Run the hooks for a call that has succeeded; return their output for the model."""
        return await _run(self.after, call.name, _input("after_tool", call, workspace, session_id), notice)


def _input(event: str, call: ToolCall, workspace: Path, session_id: str) -> dict[str, Any]:
    return {
        "hook_event_name": event,
        "session_id": session_id,
        "cwd": str(workspace),
        "tool_name": call.name,
        "tool_input": call.arguments,
    }


async def _run(hooks: Sequence[HookProgram], tool: str, given: dict[str, Any], notice: HookNotice) -> str:
    """Return the output of the hooks that exited with `REFUSES`. Any other failure is only shown as a notice."""
    workspace = Path(given["cwd"])
    said: list[str] = []
    for hook in hooks:
        if not fnmatchcase(tool, hook.tool):
            continue
        code, printed = await _run_program(hook, given, workspace)
        if code == REFUSES:
            said.append(printed or "no reason given")
        elif code:
            await notice(f"the hook {hook.command!r} failed ({code}): {printed}")
    return "\n".join(said)


async def _run_program(hook: HookProgram, given: dict[str, Any], workspace: Path) -> tuple[int, str]:
    with tempfile.TemporaryFile() as stdin:
        stdin.write(msgspec.json.encode(given))
        stdin.seek(0)
        async with start_program((SHELL, "-c", hook.command), folder=workspace, stdin=stdin.fileno()) as running:
            try:
                async with asyncio.timeout(hook.timeout_seconds):
                    printed = await _read(running.output)
                    code = await running.process.wait()
            except TimeoutError:
                return os.EX_TEMPFAIL, f"timed out after {hook.timeout_seconds:g} s"
    return code, clean_text(printed.decode("utf-8", "replace")).strip()


async def _read(output: asyncio.StreamReader) -> bytes:
    kept = b""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while chunk := await output.read(65_536):
            kept = (kept + chunk)[:MAX_OUTPUT_BYTES]
    return kept
