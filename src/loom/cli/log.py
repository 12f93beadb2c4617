"""`loom log` prints a conversation message by message; `loom tree` prints all its branches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from loom.cli.shared.exit_codes import FAILED, OK
from loom.cli.shared.options import complete_sessions
from loom.cli.shared.session_options import find_or_last
from loom.cli.shared.terminal import Colors, clip, one_line, print_line, safe_text, width
from loom.cli.shared.turns import print_last_failure
from loom.content.blocks import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    VideoBlock,
)
from loom.content.codec import encode_message
from loom.content.messages import Message, media_blocks, media_of, sources_of, text_of
from loom.errors import NotFound
from loom.runtime import Runtime
from loom.runtime.export import author_name
from loom.store.forest import DamagedNode, NodeTree
from loom.store.nodes import NODE_TAG, Node
from loom.tools.number_text import count_text


@click.command("log")
@click.argument("session", default="", metavar="[SESSION]", shell_complete=complete_sessions)
@click.option("--graph", is_flag=True, help="Show the tree, like `loom tree`.")
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=None, help="Show only the last N messages."
)
@click.option("-R", "--hide-reasoning", is_flag=True, help="Hide the model's reasoning.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def log_command(session: str, graph: bool, count: int | None, hide_reasoning: bool, as_json: bool) -> int:
    """Show a conversation up to its head. Default: the last one of this folder."""
    if graph:
        return asyncio.run(print_tree(session, as_json=as_json))
    asyncio.run(_log(session, count, as_json, shows_reasoning=not hide_reasoning))
    return OK


async def _log(wanted: str, count: int | None, as_json: bool, *, shows_reasoning: bool) -> None:
    async with Runtime.open() as runtime:
        found = await find_or_last(runtime.library, wanted)
        session = await runtime.library.open(found.id)
        nodes = await session.read_path()
        await print_last_failure(session)
    for node in nodes[-count:] if count else nodes:
        assert node.message is not None
        if as_json:
            message = msgspec.Raw(encode_message(node.message))
            click.echo(
                msgspec.json.encode(
                    {"node": node.id, "speaker": author_name(node), "message": message, "meta": node.meta}
                )
            )
        else:
            click.echo(_render_node(node, shows_reasoning=shows_reasoning))


def _render_node(node: Node, *, shows_reasoning: bool) -> str:
    ink = Colors(sys.stdout)
    assert node.message is not None
    parts = [f"{ink.bold(one_line(author_name(node), 40))} {ink.dim(short_id(node.id))}"]
    for block in node.message.blocks:
        if isinstance(block, ThinkingBlock):
            parts += [ink.dim(f"thinking: {safe_text(text_of(block))}")] if shows_reasoning else []
        else:
            text = safe_text(text_of(block))
            parts.append(text if isinstance(block, TextBlock) else ink.dim(text))
    if sources := sources_of(node.message):
        parts.append(ink.dim(f"sources: {safe_text(', '.join(sources))}"))
    return "\n".join(parts) + "\n"


@click.command("tree")
@click.argument("session", default="", metavar="[SESSION]", shell_complete=complete_sessions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def tree_command(session: str, as_json: bool) -> int:
    """Show a conversation with all its branches. Default: the last one of this folder.

    Use the ids of the first column with `loom ask --from`. ● on the path to the head  ○ other branch  ◉ head  ✖ damaged
    """
    return asyncio.run(print_tree(session, as_json=as_json))


async def print_tree(wanted: str, *, as_json: bool) -> int:
    """Print a session's tree. Damaged messages are listed; the others are shown all the same."""
    async with Runtime.open() as runtime:
        session = await find_or_last(runtime.library, wanted)
        tree = await (await runtime.library.open(session.id)).read_tree()
    messages = [node for node in tree.nodes if node.message is not None]
    if not messages and not tree.damaged:
        raise NotFound("The conversation is empty.", hint='Example: loom -c "hello"')
    if as_json:
        for row in (*map(_facts, messages), *map(_damage, tree.damaged)):
            click.echo(msgspec.json.encode({**row, "is_head": row["node"] == session.head}))
    else:
        parents = {node.parent_id for node in messages}
        branches = count_text(sum(node.id not in parents for node in messages), "branch", "branches")
        size = f"{count_text(len(messages), 'message')}, {branches}"
        click.echo(f"{one_line(session.title or session.id, 60)} · {session.id} · {size}")
        click.echo(draw_tree(tree, session.head, width=width()))
    for damaged in tree.damaged:
        print_line(f"{damaged.text} Run `loom doctor`.")
    return FAILED if tree.damaged else OK


def _facts(node: Node) -> dict[str, Any]:
    assert node.message is not None
    return {
        "node": node.id,
        "parent": node.parent_id,
        "speaker": author_name(node),
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


ID_DIGITS: Final = 8
_SPEAKER_WIDTH: Final = 18
_MEDIA: Final = {ImageBlock: "▣", DocumentBlock: "▤", AudioBlock: "♪", VideoBlock: "▶"}


class TreeLine(msgspec.Struct, frozen=True):
    node: Node | DamagedNode
    prefix: str
    is_head: bool
    is_on_path: bool


def draw_tree(tree: NodeTree, head_id: str, *, width: int = 100) -> str:
    speakers = [len(_speaker(node)) for node in tree.nodes if node.message is not None]
    return "\n".join(_text(line, max(speakers, default=0), width) for line in lines(tree, head_id))


def lines(tree: NodeTree, head_id: str) -> Iterator[TreeLine]:
    """Yield every message, parents before children, the path to the head last among its siblings."""
    children: dict[str | None, list[Node | DamagedNode]] = {}
    parents: dict[str, str | None] = {}
    known = {node.id for node in tree.nodes}
    for node in (*tree.nodes, *tree.damaged):
        parent = node.parent_id if node.parent_id in known else None
        children.setdefault(parent, []).append(node)
        parents[node.id] = parent
    on_path: set[str] = set()
    at: str | None = head_id
    while at is not None:
        on_path.add(at)
        at = parents.get(at)
    waiting = [(node, "", "") for node in reversed(_sort_children(children.get(None, []), on_path))]
    while waiting:
        node, prefix, below = waiting.pop()
        if isinstance(node, DamagedNode) or node.message is not None:
            yield TreeLine(node, prefix, node.id == head_id, node.id in on_path)
        following = _sort_children(children.get(node.id, []), on_path)
        if len(following) == 1:
            waiting.append((following[0], below, below))
            continue
        for place, child in reversed(list(enumerate(following, 1))):
            last = place == len(following)
            waiting.append((child, below + ("└─" if last else "├─"), below + ("  " if last else "│ ")))


def _sort_children(nodes: list[Node | DamagedNode], on_path: set[str]) -> list[Node | DamagedNode]:
    return sorted(nodes, key=lambda node: node.id in on_path)


def _text(line: TreeLine, speaker_width: int, width: int) -> str:
    start = f"{short_id(line.node.id)} {line.prefix}"
    if isinstance(line.node, DamagedNode):
        below = f", and {count_text(line.node.below, 'message')} below it" if line.node.below else ""
        return clip(f"{start}✖ damaged{below}", width)
    glyph = "◉" if line.is_head else "●" if line.is_on_path else "○"
    message = line.node.message
    assert message is not None
    marks = glyphs_of(message)
    tail = f"{f' {marks}' if marks else ''}{'  ← head' if line.is_head else ''}"
    head = f"{start}{glyph} {_speaker(line.node):<{speaker_width}}  "
    return (
        clip(head + one_line(message_line(message), max(width - len(head) - len(tail), 12)), width - len(tail)) + tail
    )


def _speaker(node: Node) -> str:
    return one_line(author_name(node), _SPEAKER_WIDTH)


def short_id(node_id: str) -> str:
    return node_id.removeprefix(NODE_TAG)[:ID_DIGITS]


def message_line(message: Message) -> str:
    """Return a message in one line: its text, else its tool calls, results or media."""
    if message.text.strip():
        return message.text
    if message.calls:
        return ", ".join(call.name for call in message.calls)
    if message.results:
        return " ".join(text_of(result) for result in message.results)
    return " ".join(text_of(block) for block in message.blocks)


def glyphs_of(message: Message) -> str:
    """Return the marks of a message: ▣ image, ▤ document, ♪ audio, ▶ video, ⚒ tools; with a number if there are
    several."""
    counts: dict[str, int] = {}
    for block in media_blocks(message.blocks):
        counts[_MEDIA[type(block)]] = counts.get(_MEDIA[type(block)], 0) + 1
    tools = sum(isinstance(block, ToolCall | ToolResult) for block in message.blocks)
    if tools:
        counts["⚒"] = tools
    return " ".join(f"{glyph}{count if count > 1 else ''}" for glyph, count in counts.items())
