"""What the library and its sessions return, as the screens show it. Local and remote views are the same values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from loom.api_types import ModelView, SessionView, TreeView
from loom.content.messages import Message
from loom.message_types import History, MessageView
from loom.tui.backend import ConversationFacts, ListedModel, PathMessage, SessionEntry, TreeMessage

PAGE: Final = 1_000
"""Messages of a path that are read at once."""
_FLAGS: Final = {"vision": "vision", "pdf": "native_pdf", "thinking": "thinking", "tools": "tools"}


def facts_of(view: SessionView) -> ConversationFacts:
    return ConversationFacts(id=view.id, title=view.title, model=view.model, workspace=view.workspace, head=view.head)


def entry_of(view: SessionView) -> SessionEntry:
    return SessionEntry(
        id=view.id,
        title=view.title,
        model=view.model,
        workspace=view.workspace,
        updated_at=view.updated_at,
        state=view.state,
        snippet=view.snippet,
    )


def tree_messages(view: TreeView) -> tuple[TreeMessage, ...]:
    """Return the messages of a tree; the root with the system prompt is none."""
    return tuple(
        TreeMessage(
            node=node.node,
            parent=node.parent,
            role=node.role,
            label=node.label,
            media=tuple(mark.kind for mark in node.media),
            speaker=node.model,
        )
        for node in view.nodes
        if node.role in ("user", "assistant", "tool")
    )


async def read_pages(
    read: Callable[[str], Awaitable[History]], *, is_whole: bool
) -> tuple[tuple[PathMessage, ...], History]:
    """Return the newest page of a path, or all of it, and the newest page as it came. `read` returns the page before a
    node (empty: the newest)."""
    newest = page = await read("")
    found = list(page.messages)
    while is_whole and page.more and page.messages:
        page = await read(page.messages[0].node)
        found = [*page.messages, *found]
    return tuple(_path_message(view) for view in found), newest


def _path_message(view: MessageView) -> PathMessage:
    return PathMessage(node=view.node, message=Message(view.role, view.blocks), speaker=view.model)


def listed_model(view: ModelView) -> ListedModel:
    return ListedModel(
        name=view.reference,
        reference=view.reference,
        context_tokens=view.context_tokens,
        usd_per_million=view.input_usd_per_million,
        note=f"no key: {view.needs}" if view.needs else "",
        **{column: _flag(view, flag) for column, flag in _FLAGS.items()},
    )


def _flag(view: ModelView, flag: str) -> str:
    if view.origins.get(flag) == "guessed":
        return "?"
    return "yes" if getattr(view.capabilities, flag) else "no"
