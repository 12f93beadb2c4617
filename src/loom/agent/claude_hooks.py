"""How hooks that were written for Claude Code are spoken to: its names of tools and fields, and answers as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

NO_REASON: Final = "it gave no reason"
_EVENTS: Final = {
    "session_start": "SessionStart",
    "before_tool": "PreToolUse",
    "after_tool": "PostToolUse",
    "turn_start": "UserPromptSubmit",
    "turn_end": "Stop",
    "before_compact": "PreCompact",
}
_TOOLS: Final = {
    "run_command": "Bash",
    "start_process": "Bash",
    "read_file": "Read",
    "write_file": "Write",
    "edit_file": "Edit",
    "multi_edit": "MultiEdit",
    "search_files": "Grep",
    "list_files": "Glob",
    "fetch_url": "WebFetch",
    "ask_agent": "Task",
    "update_todos": "TodoWrite",
    "use_skill": "Skill",
}
_CONTEXT_EVENTS: Final = ("session_start", "turn_start")
"""Events whose hooks tell the model something by printing it."""
_FIELDS: Final = {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"}
_PATHS: Final = ("Read", "Write", "Edit", "MultiEdit")


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook that succeeded has said; each may be empty."""

    refusal: str = ""
    question: str = ""
    """Why the user should decide about the call."""
    context: str = ""
    """What the model should read."""
    message: str = ""
    """What the user should read."""


def claude_tool(name: str) -> str:
    """Return what Claude Code calls a tool; those of MCP servers are `mcp__SERVER__TOOL`."""
    known = _TOOLS.get(name)
    if known is not None:
        return known
    return f"mcp__{name}" if "__" in name else name


def is_match(matcher: str, tool: str) -> bool:
    """Return whether a matcher, a regular expression for the whole name, means this tool of ours, or the way in which a
    session began; `tool` is empty at other moments. One that cannot be read means every tool: a guard does not open
    because of a typing error."""
    if matcher in ("", "*") or not tool:
        return True
    try:
        return re.fullmatch(matcher, claude_tool(tool)) is not None
    except re.error:
        return True


def claude_input(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of a hook in the words of Claude Code."""
    fields = {**given, "hook_event_name": _EVENTS[given["hook_event_name"]], "transcript_path": ""}
    if "tool_name" in given:
        tool = claude_tool(given["tool_name"])
        fields |= {"tool_name": tool, "tool_input": _tool_input(tool, given["tool_input"], Path(given["cwd"]))}
    return fields


def _tool_input(tool: str, arguments: Mapping[str, Any], workspace: Path) -> dict[str, Any]:
    if tool not in _PATHS:
        return dict(arguments)
    renamed = {_FIELDS.get(name, name): value for name, value in arguments.items()}
    if isinstance(renamed.get("file_path"), str):
        renamed["file_path"] = str(workspace / renamed["file_path"])
    if isinstance(edits := renamed.get("edits"), list):
        renamed["edits"] = [
            {_FIELDS.get(name, name): value for name, value in cast("dict[str, Any]", edit).items()}
            for edit in cast("list[object]", edits)
            if isinstance(edit, dict)
        ]
    return renamed


def read_answer(output: str, event: str) -> HookAnswer:
    """Return what a hook for `event` that succeeded has printed: JSON, or at the beginning of sessions and turns any
    text for the model. At other moments, what is not JSON says nothing."""
    try:
        found: object = msgspec.json.decode(output)
    except (msgspec.DecodeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return HookAnswer(context=output if event in _CONTEXT_EVENTS else "")
    answer = _table(cast("object", found))
    own = _table(answer.get("hookSpecificOutput"))
    refusal = question = ""
    reason = str(own.get("permissionDecisionReason") or NO_REASON)
    if own.get("permissionDecision") == "deny":
        refusal = reason
    elif answer.get("decision") == "block":
        refusal = str(answer.get("reason") or NO_REASON)
    elif answer.get("continue") is False:
        refusal = str(answer.get("stopReason") or NO_REASON)
    elif own.get("permissionDecision") == "ask":
        question = reason
    return HookAnswer(
        refusal=refusal,
        question=question,
        context=str(own.get("additionalContext") or ""),
        message=str(answer.get("systemMessage") or ""),
    )


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
