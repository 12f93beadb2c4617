"""`loom log`: a conversation, message by message, or its tree."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from loom.cli.branches import short_id
from loom.cli.choosing import find_session, last_session
from loom.cli.completing import complete_sessions
from loom.cli.exits import OK
from loom.cli.terminal import Ink, harmless, one_line
from loom.cli.tree import print_tree
from loom.content.blocks import TextBlock, ThinkingBlock
from loom.content.codec import encode_message
from loom.content.messages import sources_of, text_of
from loom.runtime import Runtime
from loom.runtime.exporting import speaker
from loom.store.nodes import Node


@click.command("log")
@click.argument("session", default="", metavar="[SESSION]", shell_complete=complete_sessions)
@click.option("--graph", is_flag=True, help="The tree instead, as `loom tree` shows it.")
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=None, help="Only the last messages, so many of them."
)
@click.option("-R", "--hide-reasoning", is_flag=True, help="Without the model's reasoning.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(session: str, graph: bool, count: int | None, hide_reasoning: bool, as_json: bool) -> int:
    """Show a conversation up to its head; nothing given means the last one of this folder."""
    if graph:
        return asyncio.run(print_tree(session, as_json=as_json))
    asyncio.run(_log(session, count, as_json, shows_reasoning=not hide_reasoning))
    return OK


async def _log(wanted: str, count: int | None, as_json: bool, *, shows_reasoning: bool) -> None:
    async with Runtime.open() as runtime:
        session = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        nodes = [node for node in await runtime.forest.path(session.head_id) if node.message is not None]
    for node in nodes[-count:] if count else nodes:
        assert node.message is not None
        if as_json:
            message = msgspec.Raw(encode_message(node.message))
            click.echo(
                msgspec.json.encode({"node": node.id, "speaker": speaker(node), "message": message, "meta": node.meta})
            )
        else:
            click.echo(_shown(node, shows_reasoning=shows_reasoning))


def _shown(node: Node, *, shows_reasoning: bool) -> str:
    ink = Ink(sys.stdout)
    assert node.message is not None
    parts = [f"{ink.bold(one_line(speaker(node), 40))} {ink.dim(short_id(node.id))}"]
    for block in node.message.blocks:
        if isinstance(block, ThinkingBlock):
            parts += [ink.dim(f"thinking: {harmless(text_of(block))}")] if shows_reasoning else []
        else:
            text = harmless(text_of(block))
            parts.append(text if isinstance(block, TextBlock) else ink.dim(text))
    if sources := sources_of(node.message):
        parts.append(ink.dim(f"sources: {harmless(', '.join(sources))}"))
    return "\n".join(parts) + "\n"
