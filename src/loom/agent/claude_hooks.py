"""How hooks that were written for Claude Code are spoken to: its names of tools and fields, and answers as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

NO_REASON: Final = "it gave no reason"
_EVENTS: Final = {
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
_FIELDS: Final = {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"}
_PATHS: Final = ("Read", "Write", "Edit", "MultiEdit")


def claude_tool(name: str) -> str:
    """Return what Claude Code calls a tool; those of MCP servers are `mcp__SERVER__TOOL`."""
    known = _TOOLS.get(name)
    if known is not None:
        return known
    return f"mcp__{name}" if "__" in name else name


def is_match(matcher: str, tool: str) -> bool:
    """Return whether a matcher, a regular expression for the whole name, means this tool of ours; `tool` is empty at
    other moments. One that cannot be read means every tool: a guard does not open because of a typing error."""
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


def read_answer(output: str) -> tuple[str, str, str]:
    """Return what a hook that succeeded has printed as JSON: why it refuses, what the model should read, and what the
    user should. Each may be empty; what is not JSON says nothing."""
    try:
        found = msgspec.json.decode(output)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "", "", ""
    answer = _table(found)
    own = _table(answer.get("hookSpecificOutput"))
    refusal = ""
    if own.get("permissionDecision") == "deny":
        refusal = str(own.get("permissionDecisionReason") or NO_REASON)
    elif answer.get("decision") == "block":
        refusal = str(answer.get("reason") or NO_REASON)
    elif answer.get("continue") is False:
        refusal = str(answer.get("stopReason") or NO_REASON)
    return refusal, str(own.get("additionalContext") or ""), str(answer.get("systemMessage") or "")


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
