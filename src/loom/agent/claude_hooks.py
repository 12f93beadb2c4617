"""How hooks that were written for Claude Code are spoken to: its names of tools and fields, and answers as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.content.json_values import get_object

NO_REASON: Final = "it gave no reason"
OTHER_ARGUMENTS: Final = "it wants other arguments: {}. Call the tool again with these, under its own parameter names"
_EVENTS: Final = {
    "session_start": "SessionStart",
    "before_tool": "PreToolUse",
    "after_tool": "PostToolUse",
    "turn_start": "UserPromptSubmit",
    "turn_end": "Stop",
    "before_compact": "PreCompact",
}
_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "run_command": ("Bash",),
    "start_process": ("Bash",),
    "read_output": ("BashOutput", "TaskOutput"),
    "stop_process": ("KillShell", "KillBash", "TaskStop"),
    "read_file": ("Read",),
    "look": ("Read",),
    "render_slides": ("Read",),
    "write_file": ("Write",),
    "edit_file": ("Edit",),
    "multi_edit": ("MultiEdit", "Edit"),
    "search_files": ("Grep",),
    "list_files": ("Glob", "LS"),
    "fetch_url": ("WebFetch",),
    "screenshot": ("WebFetch",),
    "ask_agent": ("Task", "Agent"),
    "update_todos": ("TodoWrite",),
    "use_skill": ("Skill",),
}
"""What the versions of Claude Code call a tool that does the same as ours."""
_CONTEXT_EVENTS: Final = (_EVENTS["session_start"], _EVENTS["turn_start"])
"""Events whose hooks tell the model something by printing it."""
_FIELDS: Final = {
    "path": "file_path",
    "media": "file_path",
    "old": "old_string",
    "new": "new_string",
    "all": "replace_all",
}
_TEXTS: Final = ("old_string", "new_string")
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


def claude_tool(matcher: str, tool: str) -> str | None:
    """Return what a hook with this matcher calls a tool of ours; None if it does not mean the tool. A matcher is a
    regular expression for the whole name, or for the way in which a session began; `tool` is empty at other moments.
    One that cannot be read means every tool: a guard does not open because of a typing error."""
    names = _names(tool)
    if matcher in ("", "*") or not tool:
        return names[0]
    try:
        return next((name for name in names if re.fullmatch(matcher, name) is not None), None)
    except re.error:
        return names[0]


def _names(tool: str) -> tuple[str, ...]:
    """Return the names of a tool in Claude Code; those of MCP servers are `mcp__SERVER__TOOL`."""
    if (known := _TOOLS.get(tool)) is not None:
        return known
    return (f"mcp__{tool}" if "__" in tool else tool,)


def claude_input(given: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """Return the input of a hook in the words of Claude Code, which calls the tool `tool`."""
    fields = {**given, "hook_event_name": _EVENTS[given["hook_event_name"]], "transcript_path": ""}
    if "tool_name" in given:
        fields |= {"tool_name": tool, "tool_input": _tool_input(tool, given["tool_input"], Path(given["cwd"]))}
    return fields


def _tool_input(tool: str, arguments: Mapping[str, Any], workspace: Path) -> dict[str, Any]:
    if tool not in _PATHS:
        return dict(arguments)
    renamed = {_FIELDS.get(name, name): value for name, value in arguments.items()}
    if isinstance(file := renamed.get("file_path", ""), str):  # a list of all media has none
        renamed["file_path"] = str(workspace / file)
    if isinstance(edits := renamed.get("edits"), list):
        several = [
            {_FIELDS.get(name, name): value for name, value in cast("dict[str, Any]", edit).items()}
            for edit in cast("list[object]", edits)
            if isinstance(edit, dict)
        ]
        renamed["edits"] = several
        if tool == "Edit":  # a hook that knows no list of edits reads them as one
            renamed |= {key: "\n".join(str(edit.get(key, "")) for edit in several) for key in _TEXTS}
    return renamed


def read_answer(output: str, given: Mapping[str, Any]) -> HookAnswer:
    """Return what a hook with the input `given` has printed if it succeeded: JSON, or at the beginning of sessions and
    turns any text for the model. At other moments, what is not JSON says nothing.

    A hook that changes the arguments (`updatedInput`) refuses the call: what it would not let run as it is must not
    run, and what it makes of it needs the same approval as any call.
    """
    try:
        found: object = msgspec.json.decode(output)
    except (msgspec.DecodeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return HookAnswer(context=output if given["hook_event_name"] in _CONTEXT_EVENTS else "")
    answer = get_object(found)
    own = get_object(answer.get("hookSpecificOutput"))
    refusal = question = ""
    reason = str(own.get("permissionDecisionReason") or NO_REASON)
    if own.get("permissionDecision") == "deny":
        refusal = reason
    elif answer.get("decision") == "block":
        refusal = str(answer.get("reason") or NO_REASON)
    elif answer.get("continue") is False:
        refusal = str(answer.get("stopReason") or NO_REASON)
    elif own.get("updatedInput") not in (None, given.get("tool_input")):
        refusal = OTHER_ARGUMENTS.format(msgspec.json.encode(own["updatedInput"]).decode())
    elif own.get("permissionDecision") == "ask":
        question = reason
    return HookAnswer(
        refusal=refusal,
        question=question,
        context=str(own.get("additionalContext") or ""),
        message=str(answer.get("systemMessage") or ""),
    )
