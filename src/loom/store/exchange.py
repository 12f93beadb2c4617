"""SessionExchange: export a whole session as an archive, and import an archive in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from loom.content.archive import (
    ArchivedNode,
    ArchivedSession,
    SessionArchive,
    compact_json,
    rename_nodes,
    system_of,
    without_paths,
)
from loom.content.blocks import clean_text
from loom.content.codec import decode_message
from loom.errors import Corrupt, LoomError
from loom.store.database import Database, Transaction
from loom.store.forest import select_tree
from loom.store.nodes import (
    SOURCE_OF_ROLE,
    NodeRef,
    RowSource,
    StoredNode,
    StoredText,
    encode_root,
    insert_stored,
    insert_stored_root,
    node_id_of,
    node_of,
    plain_json,
    plain_text,
    root_id_of,
    stored_node,
)
from loom.store.session_rows import (
    INSERT_TIP,
    PRUNE,
    StoredSession,
    check_session,
    folder_name,
    insert_session,
    is_session_id,
    new_session_id,
    one_line,
    read_session,
    stored_tags,
)

WORKSPACE: Final = "[workspace]"
_MAPS: Final = ("overrides", "watermark", "quarantine")
_SOURCES: Final[dict[str, RowSource]] = {"system": "system", **{name: name for name in SOURCE_OF_ROLE.values()}}


class StoredArchive(msgspec.Struct, frozen=True, kw_only=True):
    """The session of an imported archive. `shared` counts the messages that the store had already."""

    session: StoredSession
    is_new: bool
    messages: int
    shared: int
    notices: tuple[str, ...] = ()


class SessionExchange:
    """`mask` removes configured secrets from a text."""

    def __init__(self, database: Database, mask: Callable[[str], str]) -> None:
        self._database = database
        self._mask = mask

    async def read(self, session_id: str, *, without: frozenset[str] = frozenset()) -> SessionArchive:
        """Return a session with all its branches, without its media. `without` names settings to leave out, because
        they only make sense on this machine."""
        found, rows = await self._database.read(
            lambda tx: (read_session(tx, session_id), tx.execute(*select_tree(session_id)))
        )
        nodes: dict[str, ArchivedNode] = {}
        names: dict[str, str] = {}
        damaged: list[str] = []
        for row in rows:
            try:
                self._add_node(stored_node(row), found.workspace, nodes, names)
            except LoomError:
                damaged.append(f"a damaged message: {ascii(row[0])[1:-1][:80]}")
        if names.get(found.head_id) is None:
            raise Corrupt("The last message of this session is damaged.", hint="Run `loom doctor`.")
        settings = {name: value for name, value in found.settings.items() if name not in without}
        maps = {name: self._mask_and_rename(getattr(found, name), names) for name in _MAPS}
        session = ArchivedSession(
            id=found.id,
            title=self._mask(found.title),
            head=names[found.head_id],
            model=found.model,
            settings=self._mask_and_rename(settings, names),
            archived=found.archived,
            pinned=found.pinned,
            folder=self._mask(found.folder),
            tags=found.tags,
            created_at=found.created_at,
            updated_at=found.updated_at,
            **maps,
        )
        return SessionArchive(session=session, nodes=tuple(nodes.values()), left_out=tuple(damaged))

    def _add_node(self, row: StoredNode, workspace: str, nodes: dict[str, ArchivedNode], names: dict[str, str]) -> None:
        """Add a row to `nodes`, with paths and secrets removed. Siblings that differ only in those become one node.
        Raise `Corrupt` for a damaged node and for the children of one."""
        known = node_of(row, row.parent_id)
        if row.parent_id is not None and row.parent_id not in names:
            raise Corrupt("the message before it is damaged")
        stored = self._mask(without_paths(_without_workspace(row, workspace)))
        parent = None if row.parent_id is None else names[row.parent_id]
        node_id = root_id_of(stored) if parent is None else node_id_of(parent, stored)
        names[row.id] = node_id
        nodes.setdefault(
            node_id,
            ArchivedNode(
                id=node_id,
                parent=parent,
                message=msgspec.Raw(stored.encode()),
                source=row.source,
                meta=self._mask_and_rename(known.meta, names),
                tags=tuple(self._mask(tag) for tag in known.tags),
                bookmark=self._mask(row.bookmark),
                created_at=row.created_at,
            ),
        )

    def _mask_and_rename(self, value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
        if not value:
            return {}
        renamed = rename_nodes(value, {old: new for old, new in names.items() if old != new})
        return msgspec.json.decode(self._mask(msgspec.json.encode(renamed).decode()))

    async def write(self, archive: SessionArchive, *, workspace: str, model: str) -> StoredArchive:
        """Import an archive as a session, under its own id if that is free. If the store already has this session,
        return that one. `model` is used if the archive names none."""
        existing = await self._original_of(archive)
        if existing is not None:
            count = sum(system_of(node) is None for node in archive.nodes)
            return StoredArchive(session=existing, is_new=False, messages=count, shared=count)
        now = time.time()
        return await self._database.write(lambda tx: _write(tx, archive, workspace, model, now))

    async def _original_of(self, archive: SessionArchive) -> StoredSession | None:
        """Return the session that the archive was exported from, if this store has it with all nodes of the archive.
        Exporting it again makes the ids comparable: stored nodes contain paths that an archive leaves out."""
        try:
            found = await self._database.read(lambda tx: read_session(tx, archive.session.id))
            own = await self.read(found.id)
        except LoomError:
            return None
        holds_all = {node.id for node in archive.nodes} <= {node.id for node in own.nodes}
        return found if holds_all and own.session.head == archive.session.head else None


def _write(tx: Transaction, archive: SessionArchive, workspace: str, model: str, now: float) -> StoredArchive:
    tx.lock(PRUNE)
    (before,) = tx.execute("SELECT COALESCE(MAX(key), 0) FROM node")
    writer = _Writer(tx, archive, now)
    writer.write_nodes()
    shared = sum(ref.key <= before[0] and ref.depth > 0 for ref in writer.refs())
    head = writer.head()
    messages = sum(ref.depth > 0 for ref in writer.refs())
    same = tx.execute(
        "SELECT id FROM session WHERE head_key = :head ORDER BY updated_at DESC LIMIT 1", {"head": head.key}
    )
    if same:
        kept = {stored_node(row).key for row in tx.execute(*select_tree(same[0][0]))}
        if all(end.key in kept for end in writer.ends(head)):
            found = read_session(tx, same[0][0])
            return StoredArchive(session=found, is_new=False, messages=messages, shared=shared, notices=writer.notices)
    session = archive.session
    created = session.created_at or now
    is_free = is_session_id(session.id) and not tx.execute("SELECT 1 FROM session WHERE id = :id", {"id": session.id})
    values = {
        "id": session.id if is_free else new_session_id(created),
        "title": one_line(session.title),
        "model": plain_text(clean_text(session.model or model).replace("\0", ""), "the name of a model"),
        "workspace": plain_text(workspace, "the path of a workspace"),
        "settings": plain_json(rename_nodes(session.settings, writer.names), "settings"),
        **{name: plain_json(rename_nodes(getattr(session, name), writer.names), name) for name in _MAPS},
        "archived": int(session.archived),
        "pinned": int(session.pinned),
        "folder": folder_name(session.folder),
        "tags": stored_tags(session.tags),
        "created_at": created,
        "updated_at": session.updated_at or created,
    }
    made = insert_session(tx, values, head, now)
    key, _ = check_session(tx, made.id)
    tips = [{"key": key, "node": end.key} for end in writer.ends(head) if end.key != head.key]
    tx.executemany(INSERT_TIP, tips)
    return StoredArchive(session=made, is_new=True, messages=messages, shared=shared, notices=writer.notices)


def _without_workspace(row: StoredNode, workspace: str) -> str:
    """Return the stored text of a row. In a system prompt, replace the path of the workspace, which Loom writes into
    it and which is meaningless on another machine."""
    if row.parent_id is not None or len(workspace) < 2:
        return row.message
    written = msgspec.json.encode(workspace).decode()[1:-1]
    return row.message.replace(written, WORKSPACE)


class _Writer:
    """Write the nodes of an archive, parents first. `names` maps ids in the archive to ids in this store, where they
    differ."""

    def __init__(self, tx: Transaction, archive: SessionArchive, now: float) -> None:
        self._tx = tx
        self._archive = archive
        self._now = now
        self._refs: dict[str, NodeRef] = {}
        self._root: NodeRef | None = None
        self._parents: set[int] = set()
        self.names: dict[str, str] = {}
        self._lost = 0
        self._damaged = 0

    @property
    def notices(self) -> tuple[str, ...]:
        found: list[str] = []
        if self._damaged:
            found.append(f"{self._damaged} messages are damaged and were left out")
        if self._lost:
            found.append(f"{self._lost} messages have lost their parent; each starts a new branch")
        return tuple(found)

    def refs(self) -> list[NodeRef]:
        return list({ref.key: ref for ref in self._refs.values()}.values())

    def head(self) -> NodeRef:
        head = self._refs.get(self._archive.session.head)
        return head if head is not None else max(self.refs(), key=lambda ref: (ref.depth, ref.key))

    def ends(self, head: NodeRef) -> list[NodeRef]:
        """Return the head and the ends of all other branches."""
        return [ref for ref in self.refs() if ref.key == head.key or ref.key not in self._parents]

    def write_nodes(self) -> None:
        for node in self._archive.nodes:
            marks = {
                "meta": plain_json(dict(node.meta), "meta"),
                "tags": plain_json(sorted(set(node.tags)), "tags"),
                "bookmark": clean_text(node.bookmark).replace("\0", ""),
            }
            ref = self._write_root(node, marks) if system_of(node) is not None else self._write_message(node, marks)
            if ref is not None:
                self._refs[node.id] = ref
                if ref.id != node.id:
                    self.names[node.id] = ref.id
        if not self._refs:
            self._refs[""] = self._base()

    def _write_root(self, node: ArchivedNode, marks: dict[str, str]) -> NodeRef:
        """Write the first root of an archive and return it; return that one for further roots, because a session has
        only one."""
        if self._root is None:
            text = bytes(node.message).decode()
            stored = text if root_id_of(text) == node.id else encode_root(system_of(node) or "")
            self._root = insert_stored_root(self._tx, stored, node.created_at or self._now, **marks)
        return self._root

    def _base(self) -> NodeRef:
        if self._root is None:
            self._root = insert_stored_root(self._tx, encode_root(""), self._now)
        return self._root

    def _write_message(self, node: ArchivedNode, marks: dict[str, str]) -> NodeRef | None:
        parent = self._refs.get(node.parent or "")
        if parent is None:
            self._lost += bool(node.parent)
            parent = self._base()
        text = bytes(node.message).decode()
        stored = text if node_id_of(parent.id, text) == node.id else compact_json(node.message)
        try:
            message = decode_message(stored)
        except LoomError:
            self._damaged += 1
            return None
        source = _SOURCES.get(node.source) or SOURCE_OF_ROLE[message.role]
        self._parents.add(parent.key)
        placed = StoredText(parent=parent, message=message, stored=stored, source=source)
        return insert_stored(self._tx, placed, node.created_at or self._now, **marks)
