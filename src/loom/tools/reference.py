"""`docs/tools.md`, made from what models see: `python -m loom.tools.reference docs/tools.md` writes it anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, cast

from loom.atomic_file import write_file_whole
from loom.tools.base import Tool
from loom.tools.builtin import builtin_tools

_INTRODUCTION: Final = """\
# Tools

What a model can do in a workspace without any set-up. This page is made from what models are told
(`python -m loom.tools.reference docs/tools.md`).

Paths are relative to the workspace. Reading outside it, files that may hold secrets (`.env`, keys, credentials, under
any name) and large files need the user's word; writing outside it is refused. Tools marked *asks first* need the
user's word for every call unless a rule allows them; `fetch_url` asks for every host, also for one that a redirect
leads to, `screenshot` for the host of the page, and "always" holds for that host. Text beyond 30 KB of one result is
cut in the middle and kept: `look` reads on. `.gitignore` is honoured where files are listed or searched.

Tools marked *reads only* change nothing: their calls of one step may run together, and a call that a crash cut off is
run again. Every other call runs by itself, in order, and is never run twice. Tools of your own say so with
`@tool(reads_only=True)`, or `@tool(repeatable=True)` where a second run changes no more than the first; tools of MCP
servers with `readOnlyHint` and `idempotentHint`, if the server is `trusted`.

A rule for commands (`git *`, `rm *`) is matched with every command that a command line runs, after quotes, assignments
and wrappers (`env`, `sudo`, `xargs`, `sh -c`, `find -exec`, `git -c` …) are removed: each must be allowed, and each can
be denied under every name that it goes by, its arguments also by the files that they resolve to. Files that the shell
itself opens (`> out.txt`) must be allowed like commands. What cannot be parsed, and what only the running shell knows
(`$X`), is asked for wherever a rule could be meant for it.

Rules are matched with `command`, `path`, `media` and `url`, where a path, a medium and a page of the workspace count by
where they really are, too. If a call has several of them, a rule must allow every one. Files that a rule denies or asks
about are left out where they would be found without being named (lists, searches, neighbours of a page), and lists and
searches say so. "Always" covers the same command, path, medium or address; of a tool that is not on this page, a call
with the same arguments.

Only public addresses are fetched, and no name is resolved before you agree. Names are resolved once, private,
loopback, link-local and mapped addresses are
refused on every hop of a redirect, and the connection goes to the address that was checked. A browser is shut up
behind a proxy with the same rules; pages of this machine are opened after the user has agreed, pages from files have no
network.
"""


def reference() -> str:
    """Return the whole page."""
    return _INTRODUCTION + "".join(_section(tool) for tool in builtin_tools().values())


def _section(tool: Tool) -> str:
    schema = tool.spec.parameters
    required = cast("list[str]", schema.get("required", []))
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    asks = "*Asks first.* " if tool.danger == "ask" else ""
    asks += "*Reads only.* " if tool.reads_only else ""
    description = " ".join(tool.spec.description.split())
    rows = [
        f"| `{name}` | {_type(facts)} | {_default(name, facts, required)} | {facts.get('description', '')} |"
        for name, facts in properties.items()
    ]
    table = ["| parameter | type | default | meaning |", "|---|---|---|---|", *rows]
    return f"\n## {tool.name}\n\n{asks}{description}\n\n" + "\n".join(table) + "\n"


def _type(facts: dict[str, Any]) -> str:
    words = {"string": "text", "integer": "number", "boolean": "true or false", "null": ""}
    kinds = [facts, *cast("list[dict[str, Any]]", facts.get("anyOf", []))]
    return ", ".join(word for kind in kinds if (word := words.get(str(kind.get("type", "null")), "")))


def _default(name: str, facts: dict[str, Any], required: list[str]) -> str:
    if name in required:
        return "*needed*"
    default = facts.get("default")
    if default is None or default == "":
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    write_file_whole(Path(sys.argv[1]), reference(), mode=0o666)
