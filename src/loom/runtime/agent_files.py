"""Agents in Markdown files: those of Claude Code (`.claude/agents`), of OpenCode (`.opencode/agent`) and of Loom.

The front matter names tools, a model and permissions in the words of those programs. What Loom does not know never
widens what an agent may do, and a notice names it. Files of a project are used only in a trusted folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from loom.agent.approvals import BUILT_IN
from loom.config import Config
from loom.config.approval import ProjectApproval, strictest
from loom.config.front_matter import read_front_matter
from loom.config.schema import AgentEntry, ApprovalAction, ApprovalRule
from loom.config.trust import AGENT_FOLDERS
from loom.runtime.skills import shared_folders

MAX_AGENTS: Final = 100
INHERIT: Final = "inherit"
_EDITS: Final = ("edit_file", "multi_edit")
_SHELL: Final = ("run_command", "start_process", "read_output", "stop_process")
_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "read": ("read_file", "look", "render_slides"),
    "notebookread": ("read_file",),
    "edit": _EDITS,
    "multiedit": _EDITS,
    "write": ("write_file",),
    "patch": _EDITS,
    "apply_patch": _EDITS,
    "bash": _SHELL,
    "shell": _SHELL,
    "bashoutput": ("read_output",),
    "taskoutput": ("read_output",),
    "killshell": ("stop_process",),
    "killbash": ("stop_process",),
    "taskstop": ("stop_process",),
    "grep": ("search_files",),
    "glob": ("list_files",),
    "ls": ("list_files",),
    "list": ("list_files",),
    "webfetch": ("fetch_url", "screenshot"),
    "todowrite": ("update_todos",),
    "todoread": ("update_todos",),
    "task": ("ask_agent",),
    "agent": ("ask_agent",),
    "subagent": ("ask_agent",),
    "skill": ("use_skill",),
}
"""Tools of other programs, in lower case, and what they are here."""
_PERMISSIONS: Final[Mapping[str, tuple[str, ...]]] = {**_TOOLS, "edit": (*_EDITS, "write_file")}
"""A permission for `edit` is one for everything that writes files."""
_UNUSED: Final = ("hooks", "mcpServers", "memory", "isolation", "skills", "prompt", "variant")
"""Fields that change what an agent does there, and have no effect here."""
_WITH_SUBJECT: Final = BUILT_IN - {"read_output", "stop_process", "update_todos"}
"""Tools whose calls have something that a pattern can name: a command, a path or a URL."""
_OF_PROCESSES: Final = ("read_output", "stop_process")
"""Tools for processes that `start_process` was allowed to start: patterns are for commands."""
_CALL: Final = re.compile(r"\s*(?P<name>[^()\s]+)\s*(?:\((?P<pattern>.*)\))?\s*", re.DOTALL)
_ACTIONS: Final[Mapping[str, ApprovalAction]] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_MARK: Final = re.compile(r"[(),]")
Switch: TypeAlias = tuple[str, bool]
"""A pattern for names of tools, and whether they are available; of several that match, the last counts."""


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and what limits it. `entry` has the fields of `[agents.NAME]`."""

    entry: AgentEntry
    origin: str
    """The file, or `loom.toml`."""
    system: str = ""
    """The system prompt of an agent that comes from a Markdown file."""
    is_file: bool = False
    is_subagent: bool = True
    """Whether other agents may hand tasks to it."""
    switches: tuple[tuple[Switch, ...], ...] = ()
    """A tool must be available in each."""
    limits: ProjectApproval = ProjectApproval()
    """Rules that can only be stricter than the user's."""
    reads_only: bool = False
    temperature: float | None = None
    notices: tuple[str, ...] = ()

    def has_tool(self, name: str) -> bool:
        """Return whether the agent's file makes a tool available."""
        return all(_is_on(switches, name) for switches in self.switches)


def read_agent_files(config: Config, workspace: Path) -> dict[str, AgentDefinition]:
    """Return the agents in files of the user, and in those of a trusted workspace, which take precedence. Of
    several files that name the same agent in one of both, the last counts, with a notice."""
    found: dict[str, AgentDefinition] = {}
    for place in shared_folders(config, workspace, AGENT_FOLDERS):
        for file in sorted(place.rglob("*.md"))[:MAX_AGENTS]:
            if not file.is_file():
                continue
            fields, text = read_front_matter(file)
            if not fields or fields.get("disable") is True or fields.get("disabled") is True:
                continue  # a README, or switched off
            made = _AgentReader(fields).read("/".join(file.relative_to(place).with_suffix("").parts), text, file)
            name = made.entry.id
            if name in found and _is_in(workspace, found[name]) == _is_in(workspace, made):
                notice = f"Agent {name!r}: {found[name].origin} has the same name and is not used."
                made = msgspec.structs.replace(made, notices=(*made.notices, notice))
            found[name] = made
    return found


def _is_in(folder: Path, agent: AgentDefinition) -> bool:
    return Path(agent.origin).is_relative_to(folder)


class _AgentReader:
    """Reads the fields of one file."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self._unknown: list[str] = []
        self._notices: list[str] = []
        self._rules: list[ApprovalRule] = []

    def read(self, stem: str, text: str, file: Path) -> AgentDefinition:
        fields = self._fields
        name = str(fields.get("name") or stem).strip()
        switches = [*self._tool_switches(), *self._deny_switches(), *self._permission_switches()]
        mode = str(fields.get("permissionMode") or "")
        if mode not in ("", "default", "plan"):
            self._notices.append(f"permissionMode {mode} is ignored: your approval rules apply")
        if fields.get("hooks"):  # a hook may be a guard that does not run here
            self._rules.append(ApprovalRule(tool="*", action="ask"))
            self._notices.append("its hooks do not run, so every call needs approval")
        if ignored := [field for field in _UNUSED if field in fields and field != "hooks"]:
            self._notices.append(f"ignored: {', '.join(ignored)}")
        if self._unknown:
            unknown = ", ".join(dict.fromkeys(self._unknown))
            self._notices.insert(0, f"Loom has no tool for {unknown}")
        steps = next((fields[key] for key in ("maxTurns", "maxSteps", "steps") if key in fields), None)
        heat: Any = fields.get("temperature")
        model = str(fields.get("model") or "").strip()
        return AgentDefinition(
            entry=AgentEntry(
                id=name,
                description=" ".join(str(fields.get("description") or "").split())[:1_024],
                model="" if model == INHERIT else model,
                max_steps=steps if type(steps) is int and steps > 0 else None,
            ),
            origin=str(file),
            system=text.strip(),
            is_file=True,
            is_subagent=fields.get("mode") != "primary",
            switches=tuple(switches),
            limits=ProjectApproval(rules=tuple(self._rules)),
            reads_only=mode == "plan",
            temperature=float(heat) if type(heat) in (int, float) and 0 <= heat <= 2 else None,
            notices=tuple(f"Agent {name!r}: {notice}." for notice in self._notices),
        )

    def _tool_switches(self) -> Iterator[tuple[Switch, ...]]:
        """Yield the switches of `tools`: a list of all that there are, or a table of true and false."""
        if "tools" not in self._fields:
            return
        value = self._fields["tools"]
        if isinstance(value, Mapping):
            table = cast("Mapping[str, object]", value)
            yield tuple((it, is_on is True) for name, is_on in table.items() for it in self._names(name, _TOOLS))
            return
        switches: list[Switch] = [("*", False)]
        for name, pattern in self._calls("tools", value):
            ours = self._names(name, _TOOLS)
            if pattern and "run_command" in ours:
                if not any(rule.tool == "run_command" for rule in self._rules):
                    self._rules += [ApprovalRule(tool=it, action="deny") for it in ("run_command", "start_process")]
                self._rules += command_rules(pattern)
            elif pattern and pattern != "*":
                self._notices.append(f"{name}({pattern}) cannot be limited here, so the agent does not get it")
                continue
            switches += [(it, True) for it in ours]
        yield tuple(switches)

    def _deny_switches(self) -> Iterator[tuple[Switch, ...]]:
        """Yield the switches of `disallowedTools`. One with a pattern forbids only calls."""
        value: object = self._fields.get("disallowedTools")
        if value is None:
            return
        switches: list[Switch] = []
        for name, pattern in self._calls("disallowedTools", value):
            ours = self._names(name, _TOOLS)
            if pattern and "run_command" in ours:
                self._rules += command_rules(pattern, "deny")
            else:
                switches += [(it, False) for it in ours]
        if not isinstance(value, Iterable):
            switches.append(("*", False))  # what cannot be read forbids everything
        if switches:
            yield tuple(switches)

    def _calls(self, field: str, value: object) -> Iterator[tuple[str, str]]:
        """Yield the tools of a list or of a text with commas, each with its pattern."""
        items = split_calls(value) if isinstance(value, str) else value
        if not isinstance(items, Iterable):
            self._notices.append(f"{field} cannot be read, so the agent has no tools")
            return
        for item in cast("Iterable[object]", items):
            found = _CALL.fullmatch(str(item))
            if found is not None:
                yield found["name"], found["pattern"] or ""
            elif str(item).strip():
                self._unknown.append(str(item)[:80])
                if field == "disallowedTools":  # what it forbids except for some calls is forbidden as a whole
                    yield str(item).partition("(")[0].strip(), ""

    def _permission_switches(self) -> Iterator[tuple[Switch, ...]]:
        """Yield the switches of `permission`, and add its rules. What may be allowed there needs approval here as
        usual."""
        value = self._fields.get("permission")
        if value is None:
            return
        table = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"*": value}
        switches: list[Switch] = []
        for name, action in table.items():
            patterns = cast("Mapping[str, object]", action) if isinstance(action, Mapping) else {"*": action}
            actions: list[ApprovalAction] = [_ACTIONS.get(str(it), "deny") for it in patterns.values()]
            for tool in self._names(name, _PERMISSIONS):
                if tool in _OF_PROCESSES:
                    switches.append((tool, any(it != "deny" for it in actions)))
                elif any(fnmatchcase(it, tool) for it in _WITH_SUBJECT):
                    switches.append((tool, any(it != "deny" for it in actions)))
                    self._rules += [
                        ApprovalRule(tool=tool, pattern=pattern or "*", action=it)
                        for pattern, it in zip(patterns, actions, strict=True)
                    ]
                else:
                    strict = strictest(actions or ["deny"])
                    switches.append((tool, strict != "deny"))
                    self._rules.append(ApprovalRule(tool=tool, action=strict))
                    if any(pattern != "*" for pattern in patterns):
                        self._notices.append(
                            f"the patterns for {name} cannot be told apart here, so {strict} applies to every call"
                        )
        yield tuple(switches)

    def _names(self, written: str, table: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return our names of a tool; note one that is not known."""
        if ours := table.get(written.casefold()):
            return ours
        if written.startswith("mcp__"):
            server, _, tool = written.removeprefix("mcp__").partition("__")
            return (f"{server}__{tool or '*'}",)
        if "*" in written or "_" in written:
            return (written,)  # a pattern, a tool of ours, or one of an MCP server
        self._unknown.append(written[:80])
        return ()


def command_rules(pattern: str, action: ApprovalAction = "allow") -> list[ApprovalRule]:
    """Return the rules for `Bash(PATTERN)` of Claude Code: `git status:*` means every command that begins so."""
    start = pattern.removesuffix(":*").removesuffix(" *").strip()
    patterns: Sequence[str] = (start, f"{start} *") if start != pattern.strip() and start else (pattern.strip() or "*",)
    return [
        ApprovalRule(tool=tool, pattern=it, action=action)
        for tool in ("run_command", "start_process")
        for it in patterns
    ]


def split_calls(text: str) -> list[str]:
    """Return the parts between commas that are not in parentheses; between all commas if these are not balanced.
    Brackets and quotation marks around a part are left out: the text may be a list that is not valid YAML."""
    parts: list[str] = []
    depth = start = 0
    for found in _MARK.finditer(text):
        depth += {"(": 1, ")": -1, ",": 0}[found[0]]
        if depth < 0:
            break
        if found[0] == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    parts = text.split(",") if depth else [*parts, text[start:]]
    return [part.strip(" \t\r\n[]\"'") for part in parts]


def allowed_commands(allowed_tools: object) -> tuple[ApprovalRule, ...]:
    """Return the rules for commands in `allowed-tools` of a slash command: a list, or a text with commas."""
    items = split_calls(allowed_tools) if isinstance(allowed_tools, str) else allowed_tools
    if not isinstance(items, list | tuple):
        return ()
    rules: list[ApprovalRule] = []
    for item in cast("Sequence[object]", items):
        found = _CALL.fullmatch(str(item))
        if found is not None and "run_command" in _TOOLS.get(found["name"].casefold(), (found["name"],)):
            rules += command_rules(found["pattern"] or "")
    return tuple(rules)


def _is_on(switches: Sequence[Switch], tool: str) -> bool:
    """Return the last switch that matches; OpenCode writes tools of MCP servers as `SERVER_TOOL`."""
    names = (tool, tool.replace("__", "_"))
    return next((is_on for pattern, is_on in reversed(switches) if any(fnmatchcase(it, pattern) for it in names)), True)
