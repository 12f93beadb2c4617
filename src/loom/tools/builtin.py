"""The tools that Loom comes with."""

from __future__ import annotations

from typing import Final

from loom.tools.base import Tool
from loom.tools.commands import run_command
from loom.tools.editing import edit_file, write_file
from loom.tools.egress import Egress
from loom.tools.fetch import fetch_tool
from loom.tools.files import read_file
from loom.tools.listing import list_files
from loom.tools.look import look
from loom.tools.screenshot import screenshot_tool
from loom.tools.searching import search_files
from loom.tools.slides import render_slides

OPEN_INTERNET: Final = Egress()


def builtin_tools(egress: Egress = OPEN_INTERNET) -> dict[str, Tool]:
    """By name. `egress` is the gate that `fetch_url` and `screenshot` stand behind."""
    tools = (
        Tool(read_file),
        Tool(list_files),
        Tool(search_files),
        write_file,
        edit_file,
        run_command,
        look,
        render_slides,
        fetch_tool(egress),
        screenshot_tool(egress),
    )
    return {tool.name: tool for tool in tools}
