"""A conversation of another product as an archive, which the store imports like one of our own."""

from __future__ import annotations

import msgspec

from loom.content.archive import ArchivedNode, ArchivedSession, SessionArchive
from loom.content.codec import encode_stored
from loom.importers import LegacyTree, seconds_of
from loom.importers.products import ForeignConversation
from loom.store.nodes import encode_root, node_id_of, root_id_of


def archive_of(found: ForeignConversation, tree: LegacyTree) -> tuple[SessionArchive, tuple[str, ...]]:
    """Return the archive of a conversation, and notices. It has one root, with the system prompt of the path to the
    head."""
    known = {node.id: node for node in tree.nodes}
    end = known.get(found.head) or known.get(tree.head or "")
    prompts = [found.system, end.system if end is not None else ""]
    system = "\n\n".join(text for text in prompts if text.strip())
    others = {node.system for node in tree.nodes if node.messages} - {end.system if end is not None else ""}
    root_text = encode_root(system)
    root = ArchivedNode(id=root_id_of(root_text), message=msgspec.Raw(root_text.encode()), source="system")
    nodes = {root.id: root}
    places: dict[str | None, str] = {None: root.id}
    created = _seconds(found.created_at)
    for node in tree.nodes:
        at = places.get(node.parent_id, root.id)
        for message in node.messages:
            stored = encode_stored(message)
            node_id = node_id_of(at, stored)
            meta = {"model": node.model} if node.model and message.role == "assistant" else {}
            nodes.setdefault(
                node_id,
                ArchivedNode(
                    id=node_id,
                    parent=at,
                    message=msgspec.Raw(stored.encode()),
                    meta=meta,
                    created_at=node.created_at or created,
                ),
            )
            at = node_id
        places[node.id] = at
    head = places.get(found.head) or places.get(tree.head) or root.id
    last = max((node.created_at for node in nodes.values()), default=0.0)
    session = ArchivedSession(
        title=found.title,
        head=head,
        model="",
        archived=found.archived,
        pinned=found.pinned,
        folder=found.folder,
        tags=tuple(found.tags),
        created_at=created or min((node.created_at for node in nodes.values() if node.created_at), default=0.0),
        updated_at=_seconds(found.updated_at) or last,
    )
    notices = ("other branches began with another system prompt; that of the last one is kept",) if others else ()
    return SessionArchive(session=session, nodes=tuple(nodes.values())), notices


def _seconds(value: object) -> float:
    """Return seconds since 1970; zero if there is no time."""
    return max(seconds_of(value), 0.0)
