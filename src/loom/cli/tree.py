"""`loom tree`: a conversation with all its branches."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from loom.cli.completion_values import complete_sessions
from loom.cli.exit_codes import FAILED, OK
from loom.cli.session_lookup import find_session, last_session
from loom.cli.terminal import one_line, print_line, width
from loom.cli.tree_drawing import draw_tree, message_line
from loom.content.messages import media_of
from loom.errors import NotFound
from loom.runtime import Runtime
from loom.runtime.export import speaker
from loom.store.forest import DamagedNode
from loom.store.nodes import Node
from loom.tools.number_text import count_text


@click.command("tree")
@click.argument("session", default="", metavar="[SESSION]", shell_complete=complete_sessions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def command(session: str, as_json: bool) -> int:
    """Show a conversation with all its branches. Default: the last one of this folder.

    Use the ids of the first column with `loom ask --from`. ● on the path to the head  ○ other branch  ◉ head  ✖ damaged
    """
    return asyncio.run(print_tree(session, as_json=as_json))


async def print_tree(wanted: str, *, as_json: bool) -> int:
    """What is damaged is named, and does not keep the rest from being shown."""
    async with Runtime.open() as runtime:
        session = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        tree = await runtime.forest.read_tree(session.id)
    messages = [node for node in tree.nodes if node.message is not None]
    if not messages and not tree.damaged:
        raise NotFound("The conversation is empty.", hint='Example: loom -c "hello"')
    if as_json:
        for row in (*map(_facts, messages), *map(_damage, tree.damaged)):
            click.echo(msgspec.json.encode({**row, "is_head": row["node"] == session.head_id}))
    else:
        parents = {node.parent_id for node in messages}
        leaves = count_text(sum(node.id not in parents for node in messages), "leaf", "leaves")
        size = f"{count_text(len(messages), 'message')}, {leaves}"
        click.echo(f"{one_line(session.title or session.id, 60)} · {session.id} · {size}")
        click.echo(draw_tree(tree, session.head_id, width=width()))
    for damaged in tree.damaged:
        print_line(f"{damaged.text} Run `loom doctor`.")
    return FAILED if tree.damaged else OK


def _facts(node: Node) -> dict[str, Any]:
    assert node.message is not None
    return {
        "node": node.id,
        "parent": node.parent_id,
        "speaker": speaker(node),
        "text": message_line(node.message),
        "media": [media.label for media in media_of(node.message)],
        "damage": None,
    }


def _damage(node: DamagedNode) -> dict[str, Any]:
    return {
        "node": node.id,
        "parent": node.parent_id,
        "speaker": None,
        "text": "",
        "media": [],
        "damage": node.text,
    }
