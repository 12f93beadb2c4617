"""`loom log`: a conversation, message by message, or its tree."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from loom.cli.completion_values import complete_sessions
from loom.cli.exit_codes import OK
from loom.cli.session_lookup import find_session, last_session
from loom.cli.terminal import Colors, one_line, safe_text
from loom.cli.tree import print_tree
from loom.cli.tree_drawing import short_id
from loom.content.blocks import TextBlock, ThinkingBlock
from loom.content.codec import encode_message
from loom.content.messages import sources_of, text_of
from loom.runtime import Runtime
from loom.runtime.export import speaker
from loom.store.nodes import Node


@click.command("log")
@click.argument("session", default="", metavar="[SESSION]", shell_complete=complete_sessions)
@click.option("--graph", is_flag=True, help="Show the tree, like `loom tree`.")
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=None, help="Show only the last N messages."
)
@click.option("-R", "--hide-reasoning", is_flag=True, help="Hide the model's reasoning.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def command(session: str, graph: bool, count: int | None, hide_reasoning: bool, as_json: bool) -> int:
    """Show a conversation up to its head. Default: the last one of this folder."""
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
            click.echo(_render_node(node, shows_reasoning=shows_reasoning))


def _render_node(node: Node, *, shows_reasoning: bool) -> str:
    ink = Colors(sys.stdout)
    assert node.message is not None
    parts = [f"{ink.bold(one_line(speaker(node), 40))} {ink.dim(short_id(node.id))}"]
    for block in node.message.blocks:
        if isinstance(block, ThinkingBlock):
            parts += [ink.dim(f"thinking: {safe_text(text_of(block))}")] if shows_reasoning else []
        else:
            text = safe_text(text_of(block))
            parts.append(text if isinstance(block, TextBlock) else ink.dim(text))
    if sources := sources_of(node.message):
        parts.append(ink.dim(f"sources: {safe_text(', '.join(sources))}"))
    return "\n".join(parts) + "\n"
