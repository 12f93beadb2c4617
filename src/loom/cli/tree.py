"""`loom tree`: a conversation with all its branches."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.branches import drawn, glyphs_of, said
from loom.cli.choosing import find_session, last_session
from loom.cli.completing import complete_sessions
from loom.cli.terminal import one_line, width
from loom.errors import NotFound
from loom.runtime import Runtime
from loom.runtime.exporting import speaker


@click.command("tree")
@click.argument("session", default="", metavar="[SESSION]", shell_complete=complete_sessions)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(session: str, as_json: bool) -> None:
    """Show a conversation with all its branches; nothing given means the last one of this folder.

    The first column is what `loom ask --from` takes. ● on the way to the head  ○ elsewhere  ◉ the head
    """
    asyncio.run(print_tree(session, as_json=as_json))


async def print_tree(wanted: str, *, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        session = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        nodes = await runtime.forest.tree(session.id)
    messages = [node for node in nodes if node.message is not None]
    if not messages:
        raise NotFound("nothing has been said in this conversation yet.", hint='Say something: loom -c "hello"')
    if as_json:
        for node in messages:
            assert node.message is not None
            click.echo(
                msgspec.json.encode(
                    {
                        "node": node.id,
                        "parent": node.parent_id,
                        "speaker": speaker(node),
                        "text": said(node.message),
                        "media": glyphs_of(node.message),
                        "is_head": node.id == session.head_id,
                    }
                )
            )
        return
    parents = {node.parent_id for node in messages}
    leaves = sum(node.id not in parents for node in messages)
    ends = "1 leaf" if leaves == 1 else f"{leaves} leaves"
    click.echo(f"{one_line(session.title or session.id, 60)} · {session.id} · {len(messages)} messages, {ends}")
    click.echo(drawn(nodes, session.head_id, width=width()))
