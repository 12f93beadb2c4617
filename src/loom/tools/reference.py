"""Generate `docs/tools.md` from the tool specifications that models see: `python -m loom.tools.reference
docs/tools.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, cast

from loom.atomic_file import write_file_whole
from loom.tools.base import Tool
from loom.tools.builtin import builtin_tools

_INTRODUCTION: Final = """\
# Tools

The built-in tools of agents. The list is generated from the descriptions that models receive
(`python -m loom.tools.reference docs/tools.md`).

## Approval

Paths are relative to the workspace. These calls need your approval:

- every call of a tool marked *asks first*, unless a rule allows it
- reading outside the workspace, reading large files, and reading files that may contain secrets (`.env`, keys,
  credentials, under any name)
- `fetch_url` for each host, including hosts that it is redirected to; `screenshot` for the host of the page. "Always"
  applies to that host

Writing outside the workspace is refused.

Tools marked *reads only* change nothing: calls of one step may run in parallel, and a call that a crash interrupted
runs again. All other calls run one by one, in order, and never twice. For your own tools, use
`@tool(reads_only=True)`, or `@tool(repeatable=True)` if running a call twice does no harm. MCP servers declare
`readOnlyHint` and `idempotentHint`; Loom uses them if the server is `trusted`.

Results over 30 KB are truncated in the middle; the model reads the rest with `look`. Lists and searches respect
`.gitignore`.

## Approval rules

Rules (`[approval]`, [configuration](config.md#approval-rules)) are matched against the `command`, `path`, `media` or
`url` of a call. If a call has several of them, a rule must allow every one.

**Commands.** A pattern such as `git *` or `rm *` is matched against every command that a command line runs, without
quotes, assignments and wrappers (`env`, `sudo`, `xargs`, `sh -c`, `find -exec`, `git -c` …). Each command must be
allowed. Each can be denied under every name that it has, and by the files that its arguments resolve to. Files that
the shell opens (`> out.txt`) must be allowed like commands. If a command cannot be parsed or depends on the running
shell (`$X`), Loom asks whenever a rule could apply to it.

**Paths** are matched as written and as resolved. Lists and searches leave out files that a rule denies or asks about,
and say so.

**"Always"** covers the same command, path, medium or URL. For tools that are not on this page, it covers calls with
the same arguments.

## Network access

`fetch_url` and `screenshot` connect only to public addresses, and resolve no name before you approve. Loom resolves a
name once, refuses private, loopback, link-local and mapped addresses on every redirect, and connects to the address
that it checked. The browser runs behind a proxy with the same rules. Pages of this machine open after your approval;
pages from files have no network access.

## The tools
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
    return f"\n### {tool.name}\n\n{asks}{description}\n\n" + "\n".join(table) + "\n"


def _type(facts: dict[str, Any]) -> str:
    if choices := cast("list[str]", facts.get("enum", [])):
        return " or ".join(f"`{choice}`" for choice in choices)
    words = {"string": "text", "integer": "number", "boolean": "true or false", "array": "list", "null": ""}
    kinds = [facts, *cast("list[dict[str, Any]]", facts.get("anyOf", []))]
    return ", ".join(word for kind in kinds if (word := words.get(str(kind.get("type", "null")), "")))


def _default(name: str, facts: dict[str, Any], required: list[str]) -> str:
    if name in required:
        return "*required*"
    default = facts.get("default")
    if default is None or default == "":
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    write_file_whole(Path(sys.argv[1]), reference(), mode=0o666)
