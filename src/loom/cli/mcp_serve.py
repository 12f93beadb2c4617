"""`loom mcp-serve`: Loom's reading of files for any MCP client, over standard input and output."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click


@click.command("mcp-serve")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The folder whose files may be read. Default: the current folder.",
)
@click.option("--allow-outside", is_flag=True, help="Also read files outside that folder, except files with secrets.")
def command(workspace: Path, allow_outside: bool) -> None:
    """Serve read_file and look to an MCP client (an editor, a desktop assistant), which starts this command itself."""
    from loom.config import load_config
    from loom.tools.mcp_server import ServeOptions, serve_stdio

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else a read of standard input goes on; nothing is to be saved
    limits = load_config(cwd=workspace.absolute()).media_limits()
    asyncio.run(serve_stdio(ServeOptions(workspace=workspace.absolute(), allow_outside=allow_outside, limits=limits)))
