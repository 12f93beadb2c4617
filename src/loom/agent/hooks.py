"""Hooks: programs of the user that run before and after tool calls, turns and summaries. Those in settings files of
Claude Code are spoken to in its words (`claude_hooks`)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.agent.claude_hooks import NO_REASON, HookAnswer, claude_input, claude_tool, read_answer
from loom.content.blocks import ToolCall, clean_text
from loom.errors import ToolError
from loom.tools.commands import SHELL
from loom.tools.processes import collect_output, start_program

REFUSES: Final = 2
"""The exit code with which a hook refuses a call, or passes its output to the model."""
MAX_OUTPUT_BYTES: Final = 1_000_000
"""The output that is read: an answer as JSON must not be cut."""
MAX_SHOWN_CHARS: Final = 10_000
"""The output of a hook that the model or the user reads."""

_END_LINES: Final = 10
_END_CHARS: Final = 1_000

HookMoment: TypeAlias = Literal["session_start", "turn_start", "turn_end", "before_compact", "after_compact"]
HookNotice: TypeAlias = Callable[[str], Awaitable[None]]


class HookProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that runs for the tools whose name matches the pattern `tool`. With `is_claude`, it was written
    for Claude Code, and `tool` is a regular expression."""

    tool: str
    command: str
    timeout_seconds: float
    is_claude: bool = False

    def means(self, tool: str) -> bool:
        return self.tool_name(tool) is not None

    def tool_name(self, tool: str) -> str | None:
        """Return what the program calls a tool of ours; None if it is not meant for the tool."""
        if self.is_claude:
            return claude_tool(self.tool, tool)
        return tool if fnmatchcase(tool, self.tool) else None


class ToolHooks(msgspec.Struct, frozen=True, kw_only=True):
    before: tuple[HookProgram, ...] = ()
    after: tuple[HookProgram, ...] = ()
    moments: Mapping[HookMoment, tuple[HookProgram, ...]] = msgspec.field(
        default_factory=dict["HookMoment", tuple["HookProgram", ...]]
    )
    notices: tuple[str, ...] = ()
    """About hooks that are there and do not run."""

    async def run_moment(self, moment: HookMoment, facts: Mapping[str, Any], notice: HookNotice) -> HookAnswer:
        """Run the hooks of a session, a turn or a summary; `facts` holds `session_id`, `cwd` and other details, such as
        the `source` of a session."""
        given = {"hook_event_name": moment, **facts}
        return await _run(self.moments.get(moment, ()), str(facts.get("source", "")), given, notice)

    async def run_before(self, call: ToolCall, workspace: Path, session_id: str, notice: HookNotice) -> HookAnswer:
        """Run the hooks for a call that is about to run; return what they say. Raise `ToolError` if one of them refuses
        it."""
        found = await _run(self.before, call.name, _input("before_tool", call, workspace, session_id), notice)
        if found.refusal:
            raise ToolError(f"the user's hook refused this call: {found.refusal}")
        return found

    async def run_after(
        self, call: ToolCall, response: str, workspace: Path, session_id: str, notice: HookNotice
    ) -> str:
        """Run the hooks for a call that has succeeded with `response`; return what the model should read."""
        given = _input("after_tool", call, workspace, session_id) | {"tool_response": {"text": response}}
        found = await _run(self.after, call.name, given, notice)
        return "\n".join(part for part in (found.refusal, found.context) if part)


def _input(event: str, call: ToolCall, workspace: Path, session_id: str) -> dict[str, Any]:
    return {
        "hook_event_name": event,
        "session_id": session_id,
        "cwd": str(workspace),
        "tool_name": call.name,
        "tool_input": call.arguments,
    }


async def _run(hooks: Sequence[HookProgram], matched: str, given: dict[str, Any], notice: HookNotice) -> HookAnswer:
    """Run the hooks that match the tool or the beginning `matched`, and return what all of them say. A failure is only
    shown as a notice, like a message for the user."""
    answers: list[HookAnswer] = []
    for hook in hooks:
        tool = hook.tool_name(matched)
        if tool is None:
            continue
        own = claude_input(given, tool) if hook.is_claude else given
        code, output, errors = await _run_program(hook, own)
        if code == REFUSES:
            answers.append(HookAnswer(refusal=errors or output or NO_REASON))
        elif code:
            await notice(f"The hook {hook.command!r} failed ({code}){_end_of(errors or output)}")
        elif hook.is_claude:
            answers.append(read_answer(output, own))
    for answer in answers:
        if answer.message:
            await notice(answer.message[:MAX_SHOWN_CHARS])

    def join(parts: Iterable[str]) -> str:
        return "\n".join(part[:MAX_SHOWN_CHARS] for part in parts if part)

    return HookAnswer(
        refusal=join(answer.refusal for answer in answers),
        question=join(answer.question for answer in answers),
        context=join(answer.context for answer in answers),
    )


async def _run_program(hook: HookProgram, given: Mapping[str, Any]) -> tuple[int, str, str]:
    """Return the exit code and what was printed: of a hook for Claude Code each stream, of others both in the first.
    The hook has answered when it ends, whatever it leaves running."""
    printed = bytearray()

    def add(chunk: bytes) -> None:
        printed.extend(chunk[: MAX_OUTPUT_BYTES - len(printed)])

    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(msgspec.json.encode(given))
        stdin.seek(0)
        async with start_program(
            (SHELL, "-c", hook.command),
            folder=Path(given["cwd"]),
            extra={"CLAUDE_PROJECT_DIR": given["cwd"]} if hook.is_claude else None,
            stdin=stdin.fileno(),
            stderr=stderr.fileno() if hook.is_claude else None,
        ) as running:
            try:
                # Its time is over when it ends, not when its output is read.
                async with collect_output(running.output, add), asyncio.timeout(hook.timeout_seconds):
                    code = await running.process.wait()
            except TimeoutError:
                return os.EX_TEMPFAIL, f"timed out after {hook.timeout_seconds:g} s", ""
        stderr.seek(0)
        return code, _text(bytes(printed)), _text(stderr.read(MAX_OUTPUT_BYTES))


def _text(data: bytes) -> str:
    return clean_text(data.decode("utf-8", "replace")).strip()


def _end_of(text: str) -> str:
    """Return the last lines, which name the error."""
    lines = text.strip().splitlines()[-_END_LINES:]
    return ": " + "\n".join(lines)[-_END_CHARS:] if lines else ""
