"""Shell commands in command files: !`COMMAND` in a slash command stands for the command's output.

They run before the message is sent, as calls of `run_command`: with its sandbox and environment, the user's rules and
hooks, a timeout and an output limit. No turn runs yet, so no approval can be requested: a command that needs one is
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.agent.approvals import Action, Approvals, ExplicitRules, Rule
from loom.agent.calls import CallContext, CallServices, approve_call, run_approved
from loom.agent.ingest import Prerender
from loom.agent.services import Services
from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.errors import LoomError, ToolError
from loom.events import ApprovalRequested, Event
from loom.models import Capabilities
from loom.session import PARENT_SESSION
from loom.tools.base import Tool
from loom.tools.file_records import FileRecords
from loom.tools.secret_mask import mask_secrets
from loom.work_types import FileChange

RUN_COMMAND: Final = "run_command"
COMMAND_SECONDS: Final = 60
"""The timeout of each command. The sender of the message waits for it."""
MAX_COMMANDS: Final = 20
MAX_PARALLEL: Final = 4

FileRule = Callable[[str, str], bool]
"""(tool, subject) → whether the front matter of the file allows it."""


class ExpandedMessage(msgspec.Struct, frozen=True):
    """The content of a message. `typed` is its text without the output of commands: only this can mention files."""

    content: list[Content]
    typed: str


class _NeedsApproval(ToolError):
    """The command may run only after an approval."""


class _FileRules:
    """The user's rules; where they leave the decision to the tool, a file may allow the call."""

    def __init__(self, rule: Rule, allows: FileRule) -> None:
        self._rule = rule
        self._allows = allows

    def __call__(self, tool: str, subject: str) -> Action | None:
        decided = self._rule(tool, subject)
        return "allow" if decided is None and self._allows(tool, subject) else decided

    def explicit(self, tool: str, subject: str) -> Action | None:
        return (
            self._rule.explicit(tool, subject) if isinstance(self._rule, ExplicitRules) else self._rule(tool, subject)
        )

    def restricts(self, tool: str) -> bool:
        return self._rule.restricts(tool) if isinstance(self._rule, ExplicitRules) else True


class FileCommandRunner:
    """Runs the shell commands of a command file for one message of a session. `tools` are those that the session
    offers: without `run_command`, no command runs."""

    def __init__(
        self,
        services: Services,
        session_id: str,
        settings: Mapping[str, Any],
        workspace: Path,
        tools: Mapping[str, Tool],
        *,
        seconds: int = COMMAND_SECONDS,
    ) -> None:
        self._services = services
        self._session_id = session_id
        self._settings = settings
        self._workspace = workspace
        self._tools = {name: it for name, it in tools.items() if name == RUN_COMMAND}
        self._seconds = seconds

    async def run(self, commands: Sequence[str], allows: FileRule, file: Path) -> dict[str, str]:
        """Return the output of each command; a failed command's output contains its exit code. Equal commands run once,
        and none runs unless all may. Raise `ToolError` if one may not run; `file` is where they are written."""
        distinct = list(dict.fromkeys(commands))
        if not distinct:
            return {}
        if len(distinct) > MAX_COMMANDS:
            raise ToolError(f"{file} has {len(distinct)} shell commands; the limit is {MAX_COMMANDS}")
        if RUN_COMMAND not in self._tools:
            raise ToolError(
                f"The message was not sent: {file} runs shell commands, and this session may not use {RUN_COMMAND}",
                hint="Enable the tool (`loom ask`: -T all), leave plan mode, or remove the commands from the file.",
            )
        services = await self._call_services(allows)
        approved: list[tuple[ToolCall, CallContext, bool]] = []
        for at, command in enumerate(distinct):
            call = ToolCall(f"command-{at}", RUN_COMMAND, {"command": command, "timeout": self._seconds})
            context = CallContext(services, call, Capabilities())
            try:
                checked = await approve_call(call, services, context)
            except LoomError as error:
                raise _refusal(command, file, error) from error
            approved.append((checked, context, checked is not call))
        slots = asyncio.Semaphore(MAX_PARALLEL)

        async def output(command: str, call: ToolCall, context: CallContext, is_changed: bool) -> str:
            async with slots:
                try:
                    result = await run_approved(call, services, context, is_changed=is_changed)
                except _NeedsApproval as error:
                    raise _refusal(command, file, error) from error
                except LoomError as error:
                    return mask_secrets(f"(failed: {error})", services.secrets)
            return "\n".join(block.text for block in result.blocks if isinstance(block, TextBlock))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(output(command, *call)) for command, call in zip(distinct, approved, strict=True)
                ]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return {command: task.result() for command, task in zip(distinct, tasks, strict=True)}

    async def _call_services(self, allows: FileRule) -> CallServices:
        services = self._services
        # A file's permission is for the user who sends the command. It counts neither against a program's own `approve`
        # function, nor in the session of a sub-agent, where a model wrote the message.
        is_users = services.approve is None and not self._settings.get(PARENT_SESSION)
        rule: Rule = _FileRules(services.rule, allows) if is_users else services.rule
        approvals = Approvals(rule, _refuse_request, approve=services.approve)
        approvals.always = {(tool, pattern) for tool, pattern in self._settings.get("always", ())}
        return CallServices(
            tools=self._tools,  # without `look`: the rest of a long output is not kept
            workspace=self._workspace,
            media=services.media,
            limits=services.limits,
            prerender=Prerender((), services.keep_rendition),
            approvals=approvals,
            emit=_ignore,
            emit_now=_ignore,
            store_changes=_ignore_changes,
            messages=_no_messages,
            on_finished=_ignore_result,
            session_id=self._session_id,
            model="",
            hooks=await services.hooks(self._workspace),
            background=services.background(self._session_id),
            records=FileRecords(),
            text_cap_bytes=services.tool_output_bytes,
            secrets=services.secrets,
        )


def _refusal(command: str, file: Path, error: LoomError) -> ToolError:
    if isinstance(error, _NeedsApproval):
        return ToolError(
            f"The message was not sent: the command `{command}` in {file} needs approval",
            hint="Allow it with a rule in loom.toml ([[approval.rules]] with tool, pattern and action), "
            f"or, if none of your rules asks for it, with `allowed-tools: Bash({command.split(maxsplit=1)[0]}:*)`"
            " in the file.",
        )
    return ToolError(
        f"The message was not sent: the command `{command}` in {file} may not run: {error.message}",
        hint=error.hint or "Change your approval rules, or remove the command from the file.",
    )


async def _refuse_request(event: Event) -> None:
    if isinstance(event, ApprovalRequested):
        raise _NeedsApproval("it needs approval")


async def _ignore(_event: Event) -> None:
    pass


async def _ignore_changes(_call_id: str, _changes: Sequence[FileChange]) -> None:
    pass


async def _ignore_result(_call: ToolCall, _result: ToolResult) -> None:
    pass


async def _no_messages() -> Sequence[Message]:
    return ()
