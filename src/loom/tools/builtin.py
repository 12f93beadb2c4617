"""The built-in tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loom.tools.background import BackgroundProcesses, background_tools
from loom.tools.base import Tool
from loom.tools.commands import command_tool
from loom.tools.egress import Egress
from loom.tools.fetch import fetch_tool
from loom.tools.file_edits import edit_file, multi_edit, write_file
from loom.tools.file_list import list_files
from loom.tools.file_read import read_file
from loom.tools.file_search import search_files
from loom.tools.look import look
from loom.tools.sandbox import Sandbox
from loom.tools.screenshot import screenshot_tool
from loom.tools.slides import render_slides
from loom.tools.todos import TODO_TOOL

OPEN_INTERNET: Final = Egress()


def builtin_tools(
    egress: Egress = OPEN_INTERNET,
    *,
    sandbox: Sandbox | None = None,
    variables: Sequence[str] = (),
    background: BackgroundProcesses | None = None,
) -> dict[str, Tool]:
    """Return the tools by name. `egress` checks the requests of `fetch_url` and `screenshot`, `sandbox` confines
    commands, `variables` are names of environment variables that commands get besides the usual ones, and `background`
    has the processes of sessions that own none."""
    sandbox = sandbox or Sandbox()
    tools = (
        Tool(read_file, reads_only=True),
        Tool(list_files, reads_only=True),
        Tool(search_files, reads_only=True),
        write_file,
        edit_file,
        multi_edit,
        command_tool(sandbox, variables),
        *background_tools(sandbox, variables, background),
        look,
        render_slides,
        fetch_tool(egress),
        screenshot_tool(egress),
        TODO_TOOL,
    )
    return {tool.name: tool for tool in tools}
