"""BranchPane: the tree of a conversation. Messages without siblings stay on one level; Enter continues from a
message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content
from textual.message import Message as WidgetMessage
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from loom.tui.glyphs import Glyphs
from loom.tui.labels import short_model
from loom.tui.text_content import one_line, plain_text

if TYPE_CHECKING:  # not imported before the first paint
    from loom.api_types import TreeNode

_TEXT_WIDTH: Final = 60


class BranchLine(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the tree with the line drawing before it."""

    node: str
    prefix: str
    label: str
    media: tuple[str, ...]
    speaker: str
    is_head: bool
    is_on_path: bool


def branch_lines(tree: Sequence[TreeNode], head: str) -> list[BranchLine]:
    """Return the lines of the tree, parents before children, the path to the head last among its siblings. Tool results
    are left out."""
    children: dict[str | None, list[TreeNode]] = {}
    by_node = {message.node: message for message in tree}
    for message in tree:
        parent = message.parent if message.parent in by_node else None
        children.setdefault(parent, []).append(message)
    on_path: set[str] = set()
    at: str | None = head
    while at in by_node:
        on_path.add(at)
        at = by_node[at].parent
    found: list[BranchLine] = []
    waiting = [(message, "", "") for message in reversed(_sort(children.get(None, []), on_path))]
    while waiting:
        message, prefix, below = waiting.pop()
        if message.role != "tool":
            found.append(
                BranchLine(
                    node=message.node,
                    prefix=prefix,
                    label=message.label,
                    media=tuple(mark.kind for mark in message.media),
                    speaker="you" if message.role == "user" else short_model(message.model or "model"),
                    is_head=message.node == head,
                    is_on_path=message.node in on_path,
                )
            )
        following = _sort(children.get(message.node, []), on_path)
        if len(following) == 1:
            waiting.append((following[0], below, below))
            continue
        for place, child in reversed(list(enumerate(following, 1))):
            is_last = place == len(following)
            waiting.append((child, below + ("└─" if is_last else "├─"), below + ("  " if is_last else "│ ")))
    return found


def count_leaves(tree: Sequence[TreeNode]) -> int:
    parents = {message.parent for message in tree}
    return sum(message.node not in parents for message in tree)


def _sort(messages: list[TreeNode], on_path: set[str]) -> list[TreeNode]:
    return sorted(messages, key=lambda message: message.node in on_path)


def media_signs(kinds: Sequence[str], glyphs: Glyphs) -> str:
    signs = {"image": glyphs.image, "document": glyphs.document, "audio": glyphs.audio, "video": glyphs.video}
    found = [signs.get(kind, glyphs.document) for kind in kinds]
    return " ".join(f"{sign}{count if (count := found.count(sign)) > 1 else ''}" for sign in dict.fromkeys(found))


class BranchPane(OptionList):
    """The tree, as a side pane or, in a narrow terminal, on a screen of its own."""

    DEFAULT_CSS = """
    BranchPane {
        width: 36; height: 100%; border: none; border-right: solid $line; background: $surface; padding: 0;
        scrollbar-size-vertical: 1; display: none;
    }
    BranchPane:focus { border: none; border-right: solid $primary; }
    """

    class NodeChosen(WidgetMessage):
        def __init__(self, node: str) -> None:
            super().__init__()
            self.node = node

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._node_ids: list[str] = []

    def show(self, lines: Sequence[BranchLine]) -> None:
        self.clear_options()
        self._node_ids = [line.node for line in lines]
        self.add_options([Option(self._text(line)) for line in lines])
        head = next((at for at, line in enumerate(lines) if line.is_head), None)
        if head is not None:
            self.highlighted = head

    def _text(self, line: BranchLine) -> Content:
        glyphs = self._glyphs
        sign = glyphs.head if line.is_head else glyphs.on_path if line.is_on_path else glyphs.off_path
        marks = media_signs(line.media, glyphs)
        style = "$foreground" if line.is_on_path else "$dim"
        prefix = (
            line.prefix
            if glyphs.branch == "⎇"
            else line.prefix.translate({0x2514: "`", 0x2500: "-", 0x251C: "|", 0x2502: "|"})
        )
        text = f" {line.speaker} {one_line(line.label, _TEXT_WIDTH)}"
        content = plain_text(prefix, "$line") + plain_text(sign, "$primary" if line.is_head else style)
        return content + plain_text(f" {marks}" if marks else "", "$secondary") + plain_text(text, style)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.NodeChosen(self._node_ids[event.option_index]))
