"""`loom prompt`: the system prompt that a new session would begin with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from loom.cli.shared.exit_codes import OK
from loom.cli.shared.session_options import choose_tools
from loom.cli.shared.terminal import safe_text
from loom.runtime import Runtime


@click.command("prompt")
@click.option("--agent", default="", metavar="NAME", help="An agent of the configuration ([agents.NAME]).")
@click.option("-T", "--tool", "tools", multiple=True, metavar="NAME", help="As for `loom ask`. Default: all.")
def prompt_command(agent: str, tools: tuple[str, ...]) -> int:
    """Print the system prompt of a new session in this folder.

    It holds the default prompt or that of the agent, what `prompt.append` adds, and AGENTS.md. To replace the default
    prompt set `prompt.system`; to leave it out set `prompt.default = false`.
    """
    return asyncio.run(_print_prompt(agent, tools))


async def _print_prompt(agent: str, tools: tuple[str, ...]) -> int:
    async with Runtime.open(tools="all") as runtime:
        chosen = await choose_tools(runtime, tools, default="all")
        click.echo(safe_text(await runtime.sessions.system_for("", Path.cwd(), tools=chosen, agent=agent)))
    return OK
