"""`loom ps`: background processes of the sessions that the daemon runs."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.shared.daemon_lookup import running_daemon
from loom.cli.shared.exit_codes import OK
from loom.cli.shared.terminal import safe_text
from loom.config import load_config
from loom.errors import NotFound
from loom.work_types import ProcessList, process_line


@click.command("ps")
@click.option("--stop", nargs=2, default=None, metavar="SESSION PROCESS", help="Stop a process.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def ps_command(stop: tuple[str, str] | None, as_json: bool) -> int:
    """List the background processes that agents have started, with the ports on which they answer.

    Processes belong to a session and live in the program that runs it: those of `loom serve` are listed here. Those of
    `loom chat` and `loom ask` end with the command.
    """
    return asyncio.run(_ps(stop, as_json=as_json))


async def _ps(stop: tuple[str, str] | None, *, as_json: bool) -> int:
    link = await running_daemon(load_config())
    if link is None:
        if stop:
            raise NotFound("No daemon is running: no process to stop.", hint="Start one: `loom serve`.")
        if not as_json:
            click.echo("No daemon is running.", err=True)
        return OK
    try:
        if stop:
            await link.ask("DELETE", f"/v1/sessions/{stop[0]}/processes/{stop[1]}", repeats=False)
            return OK
        found = msgspec.json.decode(await link.ask("GET", "/v1/processes"), type=ProcessList).processes
    finally:
        await link.close()
    for process in found:
        click.echo(
            msgspec.json.encode(process) if as_json else safe_text(f"{process.session}  {process_line(process)}")
        )
    if not found and not as_json:
        click.echo("No background processes.", err=True)
    return OK
