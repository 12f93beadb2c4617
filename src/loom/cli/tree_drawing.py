"""The tree of a conversation, drawn as text: straight runs stay on one level, branches step in.

3f9a2b1c ● you    what is wrong here? ▣
81c2d3e4 ● spark  A bright landscape screenshot …
5a6b7c8d ├─○ you    shorter
77aa88bb └─◉ you    and the first picture again?   ← head
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from loom.cli.terminal import clip, one_line
from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, ToolCall, ToolResult
from loom.content.messages import Message, media_blocks, text_of
from loom.runtime.export import speaker
from loom.store.forest import DamagedNode, NodeTree
from loom.store.nodes import NODE_TAG, Node
from loom.tools.number_text import count_text

ID_DIGITS: Final = 8
_SPEAKER_WIDTH: Final = 18
_MEDIA: Final = {ImageBlock: "▣", DocumentBlock: "▤", AudioBlock: "♪"}


class TreeLine(msgspec.Struct, frozen=True):
    node: Node | DamagedNode
    prefix: str
    is_head: bool
    is_on_path: bool


def draw_tree(tree: NodeTree, head_id: str, *, width: int = 100) -> str:
    speakers = [len(_speaker(node)) for node in tree.nodes if node.message is not None]
    return "\n".join(_text(line, max(speakers, default=0), width) for line in lines(tree, head_id))


def lines(tree: NodeTree, head_id: str) -> Iterator[TreeLine]:
    """Every message, parents before children, the path to the head last among its siblings."""
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
    return one_line(speaker(node), _SPEAKER_WIDTH)


def short_id(node_id: str) -> str:
    return node_id.removeprefix(NODE_TAG)[:ID_DIGITS]


def message_line(message: Message) -> str:
    """A message in one line: its words, else what it did."""
    if message.text.strip():
        return message.text
    if message.calls:
        return ", ".join(call.name for call in message.calls)
    if message.results:
        return " ".join(text_of(result) for result in message.results)
    return " ".join(text_of(block) for block in message.blocks)


def glyphs_of(message: Message) -> str:
    """▣ picture, ▤ document, ♪ sound, ⚒ tools; with a number where there are several."""
    counts: dict[str, int] = {}
    for block in media_blocks(message.blocks):
        counts[_MEDIA[type(block)]] = counts.get(_MEDIA[type(block)], 0) + 1
    tools = sum(isinstance(block, ToolCall | ToolResult) for block in message.blocks)
    if tools:
        counts["⚒"] = tools
    return " ".join(f"{glyph}{count if count > 1 else ''}" for glyph, count in counts.items())
