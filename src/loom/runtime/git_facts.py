"""Git facts about a workspace when a session starts: the last commit, and how many files are changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from loom.content.blocks import clean_text
from loom.errors import ToolError
from loom.tools.commands import SHELL
from loom.tools.number_text import count_text
from loom.tools.processes import start_program
from loom.tools.sandbox import Sandbox

SECONDS: Final = 3.0
MAX_BYTES: Final = 1_000_000
MAX_SUBJECT: Final = 100
_COMMAND: Final = (
    "git log -1 --format='%h %s' 2>/dev/null || echo; "
    "git --no-optional-locks -c core.fsmonitor=false status --porcelain 2>/dev/null"
)


async def read_git_facts(workspace: Path, sandbox: Sandbox, *, is_trusted: bool) -> str:
    """Return one line; empty if there is no repository or git does not answer in time. A repository can configure
    programs that git runs, so git runs only in the sandbox or in a trusted folder."""
    if not is_trusted and not sandbox.is_active:
        return ""
    try:
        fenced = sandbox.wrap((SHELL, "-c", _COMMAND), workspace, unsandboxed=is_trusted and not sandbox.is_active)
    except ToolError:
        return ""
    try:
        async with (
            asyncio.timeout(SECONDS),
            start_program(
                fenced.argv, folder=workspace, extra=fenced.environment, descriptors=fenced.descriptors
            ) as running,
        ):
            printed = b""
            while (chunk := await running.output.read(65_536)) and len(printed) < MAX_BYTES:
                printed += chunk
    except (TimeoutError, OSError):
        return ""
    finally:
        fenced.close()
    commit, _, status = clean_text(printed.decode("utf-8", "replace")).partition("\n")
    lines = [line for line in status.splitlines() if line[2:3] == " "]
    new = sum(line.startswith("??") for line in lines)
    state = [count_text(len(lines) - new, "changed file")] if len(lines) > new else []
    state += [count_text(new, "new file")] if new else []
    last = f"last commit {commit.strip()[:MAX_SUBJECT]}" if commit.strip() else "no commit yet"
    return f"{', '.join(state) or 'no changes'}; {last}"
