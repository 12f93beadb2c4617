"""Nodes as rows: compute their ids, write them inside a transaction, and convert rows back to values.

An id is `node:sha256:` plus a hash over the parent's id and the exact bytes of the stored message; the id of a root is
a hash over its stored system prompt. Every row is hashed again when it is read, so that damage is detected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from loom.content.blocks import Block, TextBlock, ToolResult, UnknownBlock, check_json, check_text
from loom.content.codec import decode_message, encode_stored
from loom.content.media import is_digest
from loom.content.messages import Message, media_of
from loom.errors import Conflict, ContentError, Corrupt, Newer, NotFound
from loom.store.database import Row, Transaction, row_as
from loom.struct_types import convert, json_decoder

RowSource: TypeAlias = Literal["user", "model", "tool", "system"]

NODE_TAG: Final = "node:sha256:"

_NODE_ID = re.compile(r"(?:node:sha256:)?([0-9a-f]{8,64})")
_ROOT_VERSION: Final = 1
SOURCE_OF_ROLE: Final[dict[str, RowSource]] = {"user": "user", "assistant": "model", "tool": "tool"}
_RACES: Final = 3


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message at its position in a tree. A root holds the system prompt instead of a message."""

    id: str
    parent_id: str | None
    depth: int
    message: Message | None
    system: str | None
    source: RowSource
    meta: dict[str, Any]
    tags: tuple[str, ...]
    bookmark: str
    created_at: float


class NodeRef(msgspec.Struct, frozen=True, array_like=True):
    """The columns of a node that are needed to write below it."""

    key: int
    id: str
    depth: int
    root_key: int | None

    @property
    def tree(self) -> int:
        """The key of the node's root; its own key if it is one."""
        return self.key if self.root_key is None else self.root_key


class NodeDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is encoded and ready to be written."""

    message: Message
    stored: str
    digests: tuple[str, ...]
    source: RowSource
    meta: dict[str, Any]
    meta_stored: str


class StoredText(msgspec.Struct, frozen=True, kw_only=True):
    """The stored text of a message, and the node to write it below."""

    parent: NodeRef
    message: Message
    stored: str
    source: RowSource


class StoredNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row whose hash has not been verified yet. `parent_id`, `parent_depth` and `key` are not set in the rows of a
    path, in which each row's parent is the row before it."""

    id: str
    depth: int
    message: str
    source: RowSource
    meta: str
    tags: str
    bookmark: str
    created_at: float
    parent_id: str | None = None
    parent_depth: int | None = None
    key: int = 0


class _StoredRoot(msgspec.Struct):
    v: int
    system: str


_rows = list[StoredNode]
_root_decoder = json_decoder(_StoredRoot)
_meta_decoder = json_decoder(dict[str, Any])
_tags_decoder = json_decoder(tuple[str, ...])


# `surrogateescape`: damaged text may no longer be UTF-8, and its bytes must still be hashed.


def root_id_of(stored: str) -> str:
    return NODE_TAG + sha256(f"loom.root.1\n{stored}".encode("utf-8", "surrogateescape")).hexdigest()


def node_id_of(parent_id: str, stored: str) -> str:
    return NODE_TAG + sha256(f"loom.node.1\n{parent_id}\n{stored}".encode("utf-8", "surrogateescape")).hexdigest()


def encode_root(system: str) -> str:
    check_text(system)
    return msgspec.json.encode(_StoredRoot(_ROOT_VERSION, str.__str__(system))).decode()


def plain_text(text: str, what: str) -> str:
    """Return `text` for a text column. Raise `ContentError`, with `what` in its message, if it contains NUL, which
    PostgreSQL cannot store."""
    check_text(text)
    if "\0" in text:
        raise ContentError(f"{what} cannot contain a NUL character")
    return text


def plain_json(value: Any, what: str) -> str:
    """Return a value as JSON for a text column (NUL is escaped, as in messages). `what` names it in errors."""
    return msgspec.json.encode(check_json(value, what)).decode()


def drafts_of(
    messages: Sequence[Message],
    source: RowSource | None = None,
    meta: Mapping[str, Any] | None = None,
    metas: Sequence[Mapping[str, Any]] = (),
) -> tuple[NodeDraft, ...]:
    """Encode messages. `meta` applies to all of them, `metas` holds one mapping for each."""
    shared_meta = dict(meta or {})
    drafts: list[NodeDraft] = []
    for at, message in enumerate(messages):
        plain_meta = {**shared_meta, **metas[at]} if at < len(metas) else shared_meta
        meta_stored = plain_json(plain_meta, "meta") if plain_meta else "{}"
        stored = encode_stored(message)
        drafts.append(
            NodeDraft(
                message=message,
                stored=stored,
                digests=tuple(sorted(digests_of(message))) if '"sha256:' in stored else (),
                source=source or SOURCE_OF_ROLE[message.role],
                meta=plain_meta,
                meta_stored=meta_stored,
            )
        )
    return tuple(drafts)


def digests_of(message: Message) -> frozenset[str]:
    """Return the digest of everything in the media store that a message refers to: its media, its citations, and any
    digest in a block of an unknown type."""
    found = {media.digest for media in media_of(message)}
    found.update(_other_digests(message.blocks))
    return frozenset(found)


def _other_digests(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, TextBlock):
            yield from (citation.digest for citation in block.citations if is_digest(citation.digest))
        elif isinstance(block, ToolResult):
            yield from _other_digests(block.blocks)
        elif isinstance(block, UnknownBlock):
            yield from _digests_in(block.data)


def _digests_in(value: Any) -> Iterator[str]:
    match value:
        case str() if is_digest(value):
            yield value
        case list():
            for item in cast("list[Any]", value):
                yield from _digests_in(item)
        case dict():
            for item in cast("dict[str, Any]", value).values():
                yield from _digests_in(item)
        case _:
            pass


# Writing

_SELECT_REF: Final = "SELECT key, id, depth, root_key FROM node WHERE id = :id"
_INSERT_NODE: Final = (
    "INSERT INTO node"
    " (id, parent_key, root_key, depth, role, message, source, meta, tags, bookmark, created_at)"
    " VALUES (:id, :parent_key, :root_key, :depth, :role, :message, :source, :meta, :tags, :bookmark, :now)"
    " ON CONFLICT (id) DO NOTHING RETURNING key"
)
_INSERT_BELOW: Final = (
    "INSERT INTO node"
    " (id, parent_key, root_key, depth, role, message, source, meta, tags, bookmark, created_at)"
    " SELECT :id, p.key, :root_key, :depth, :role, :message, :source, :meta, :tags, :bookmark, :now"
    " FROM node p WHERE p.id = :parent_id ON CONFLICT (id) DO NOTHING"
)
_INSERT_MEDIA: Final = (
    "INSERT INTO node_media (node_key, digest) SELECT n.key, :digest FROM node n WHERE n.id = :id"
    " ON CONFLICT DO NOTHING"
)
_NO_MARKS: Final = {"meta": "{}", "tags": "[]", "bookmark": ""}


def ref_of(tx: Transaction, node_id: str) -> NodeRef:
    return _ref(tx.execute(_SELECT_REF, {"id": full_id(tx, node_id)}))


def ref_at(tx: Transaction, key: int) -> NodeRef:
    return _ref(tx.execute("SELECT key, id, depth, root_key FROM node WHERE key = :key", {"key": key}))


def _ref(rows: list[Row]) -> NodeRef:
    if not rows:
        raise Corrupt("A message that others refer to is missing.", hint="Run `loom doctor`.")
    return row_as(rows[0], NodeRef, "The record of a message")


def insert_root(tx: Transaction, system: str, now: float) -> NodeRef:
    stored = encode_root(system)
    return insert_stored_root(tx, stored, now)


def insert_stored_root(tx: Transaction, stored: str, now: float, **marks: str) -> NodeRef:
    """Write a root from its stored text; `marks` are its meta, tags and bookmark in stored form."""
    params = {
        "id": root_id_of(stored),
        "parent_key": None,
        "root_key": None,
        "depth": 0,
        "role": "system",
        "message": stored,
        "source": "system",
        **_NO_MARKS,
        **marks,
        "now": now,
    }
    return _insert(tx, params)[0]


def insert_stored(tx: Transaction, placed: StoredText, now: float, **marks: str) -> NodeRef:
    """Write a node from its stored text; `marks` are its meta, tags and bookmark in stored form. An existing node stays
    unchanged."""
    params = _params(placed.parent, placed.message.role, placed.stored, placed.source)
    ref, is_new = _insert(tx, {**params, **_NO_MARKS, **marks, "now": now})
    if is_new:
        _insert_digests(tx, ref, digests_of(placed.message))
    return ref


def insert_path(
    tx: Transaction, parent: NodeRef, drafts: Sequence[NodeDraft], now: float
) -> tuple[tuple[Node, ...], NodeRef, bool]:
    """Write drafts below `parent`. Return their nodes, a reference to the last, and whether all of them are new."""
    if len(drafts) > 1 and (written := _insert_new_path(tx, parent, drafts, now)) is not None:
        return *written, True
    nodes: list[Node] = []
    all_new = True
    for draft in drafts:
        params = _params(parent, draft.message.role, draft.stored, draft.source)
        params |= {**_NO_MARKS, "meta": draft.meta_stored, "now": now}
        ref, is_new = _insert(tx, params)
        if is_new:
            _insert_digests(tx, ref, draft.digests)
            nodes.append(_new_node(ref.id, parent.id, ref.depth, draft, now))
        else:
            nodes.append(node_of(read_node(tx, ref.id), parent.id))
        parent = ref
        all_new = all_new and is_new
    return tuple(nodes), parent, all_new


def _insert_new_path(
    tx: Transaction, parent: NodeRef, drafts: Sequence[NodeDraft], now: float
) -> tuple[tuple[Node, ...], NodeRef] | None:
    """Write drafts below `parent` with one statement for all. Return None if some of them exist already; those that do
    not are written then."""
    nodes = nodes_of_drafts(parent, drafts, now)
    if tx.execute(_SELECT_REF, {"id": nodes[0].id}):
        return None  # a node exists only below its parent: if the first is new, so are the others
    shared = {"root_key": parent.tree, **_NO_MARKS, "now": now}
    rows = [
        {
            **shared,
            "id": node.id,
            "parent_id": node.parent_id,
            "depth": node.depth,
            "role": draft.message.role,
            "message": draft.stored,
            "source": draft.source,
            "meta": draft.meta_stored,
        }
        for node, draft in zip(nodes, drafts, strict=True)
    ]
    written = tx.executemany(_INSERT_BELOW, rows)
    media = [
        {"id": node.id, "digest": digest} for node, draft in zip(nodes, drafts, strict=True) for digest in draft.digests
    ]
    if media:
        tx.executemany(_INSERT_MEDIA, media)
    # Another process may have written the same path meanwhile.
    return (nodes, _ref(tx.execute(_SELECT_REF, {"id": nodes[-1].id}))) if written == len(rows) else None


def root_node(system: str, now: float) -> Node:
    """Return the root of a conversation with this system prompt, before any row is written."""
    return Node(
        id=root_id_of(encode_root(system)),
        parent_id=None,
        depth=0,
        message=None,
        system=system,
        source="system",
        meta={},
        tags=(),
        bookmark="",
        created_at=now,
    )


def nodes_of_drafts(parent: Node | NodeRef, drafts: Sequence[NodeDraft], now: float) -> tuple[Node, ...]:
    """Return the nodes that drafts become below `parent`: a message and its place decide the id, before any row is
    written."""
    nodes: list[Node] = []
    for draft in drafts:
        node = _new_node(node_id_of(parent.id, draft.stored), parent.id, parent.depth + 1, draft, now)
        nodes.append(node)
        parent = node
    return tuple(nodes)


def _new_node(node_id: str, parent_id: str, depth: int, draft: NodeDraft, now: float) -> Node:
    return Node(
        id=node_id,
        parent_id=parent_id,
        depth=depth,
        message=draft.message,
        system=None,
        source=draft.source,
        meta=draft.meta,
        tags=(),
        bookmark="",
        created_at=now,
    )


def _params(parent: NodeRef, role: str, stored: str, source: RowSource) -> dict[str, Any]:
    return {
        "id": node_id_of(parent.id, stored),
        "parent_key": parent.key,
        "root_key": parent.tree,
        "depth": parent.depth + 1,
        "role": role,
        "message": stored,
        "source": source,
    }


def _insert_digests(tx: Transaction, ref: NodeRef, digests: Iterable[str]) -> None:
    rows = [{"key": ref.key, "digest": digest} for digest in sorted(digests)]
    if rows:
        tx.executemany("INSERT INTO node_media (node_key, digest) VALUES (:key, :digest)", rows)


def _insert(tx: Transaction, params: dict[str, Any]) -> tuple[NodeRef, bool]:
    """Insert a node if it does not exist. Return it, and whether this call inserted it."""
    for _ in range(_RACES):
        written = tx.execute(_INSERT_NODE, params)
        if written:
            return NodeRef(written[0][0], params["id"], params["depth"], params["root_key"]), True
        found = tx.execute(_SELECT_REF, {"id": params["id"]})
        if found:
            return _ref(found), False
    raise Conflict("The same message was written and deleted elsewhere at the same time.", hint="Try again.")


# Reading

_COLUMNS: Final = "n.id, n.depth, n.message, n.source, n.meta, n.tags, n.bookmark, n.created_at"
SELECT_NODES: Final = f"SELECT {_COLUMNS}, p.id, p.depth, n.key FROM node n LEFT JOIN node p ON p.key = n.parent_key"  # noqa: S608  constants only
# No ORDER BY: SQLite would sort whole rows, which takes longer than reading them. A recursive step has no condition on
# the joined table alone: with statistics, SQLite would read that whole table first, for a Bloom filter.
_SELECT_PATH: Final = (
    "WITH RECURSIVE up (key, parent_key, depth) AS ("  # noqa: S608  constants only
    " SELECT key, parent_key, depth FROM node WHERE id = :id AND depth > :above"
    " UNION ALL"
    " SELECT n.key, n.parent_key, n.depth FROM up JOIN node n ON n.key = up.parent_key"
    " WHERE n.depth BETWEEN :above + 1 AND up.depth - 1)"
    f" SELECT {_COLUMNS} FROM up JOIN node n ON n.key = up.key"
)


def full_id(tx: Transaction, text: str) -> str:
    """Return the full id for an id or a unique prefix of at least eight digits. Raise `NotFound` if none or several
    match."""
    match = _NODE_ID.fullmatch(text)
    if match is None:
        raise NotFound(f"Not a message id: {text[:80]!r}.", hint="Use at least eight hexadecimal digits.")
    digits = match[1]
    found = tx.execute(
        "SELECT id FROM node WHERE id >= :first AND id <= :last ORDER BY id LIMIT 2",
        {"first": NODE_TAG + digits, "last": NODE_TAG + digits.ljust(64, "f")},
    )
    if not found:
        raise NotFound(f"Message {digits[:12]} not found.", hint="It may have been deleted with its session.")
    if len(found) > 1:
        raise NotFound(f"More than one message id begins with {digits}.", hint="Use a longer id prefix.")
    return cast("str", found[0][0])


def read_node(tx: Transaction, node_id: str) -> StoredNode:
    return stored_node(tx.execute(f"{SELECT_NODES} WHERE n.id = :id", {"id": full_id(tx, node_id)})[0])


def read_path(tx: Transaction, node_id: str, *, above: int = -1) -> list[StoredNode]:
    """Return the rows from the root to a node, or only those deeper than `above`; each is the parent of the next.
    Raise `Corrupt` if one is missing."""
    path = stored_nodes(tx.execute(_SELECT_PATH, {"id": full_id(tx, node_id), "above": above}))
    path.sort(key=attrgetter("depth"))
    if [row.depth for row in path] != list(range(above + 1, above + 1 + len(path))):
        raise damaged_node(path[-1].id, "messages above it are missing")
    return path


def stored_nodes(rows: list[Row]) -> list[StoredNode]:
    try:
        return convert(rows, _rows)
    except (msgspec.ValidationError, UnicodeError):
        return [stored_node(row) for row in rows]  # raises, and names the damaged row


def stored_node(row: Row) -> StoredNode:
    try:
        return convert(row, StoredNode)
    except (msgspec.ValidationError, UnicodeError):
        raise damaged_node(row[0], "its record cannot be read") from None


def node_of(row: StoredNode, parent_id: str | None) -> Node:
    """Verify and convert a row. Raise `Corrupt`, with the node's id, if the row is damaged."""
    if not has_true_id(row, parent_id):
        raise damaged_node(row.id, "its text differs from what was written")
    return _node(row, parent_id, *content_of(row))


def nodes_below(parent_id: str, rows: Sequence[StoredNode]) -> tuple[Node, ...]:
    """Verify and convert consecutive rows below a node. Do each step for all rows, which is faster than row by
    row."""
    texts = [row.message for row in rows]
    ids = [row.id for row in rows]
    parents = [parent_id, *ids][: len(ids)]
    try:
        messages = [decode_message(text) for text in texts] if _are_true(ids, parents, texts) else []
    except ContentError:
        messages = []
    if len(messages) < len(rows):
        return tuple(map(node_of, rows, parents))  # raises, and names the damaged row
    return tuple(map(_node, rows, parents, messages))


def _are_true(ids: list[str], parents: list[str], texts: list[str]) -> bool:
    """Return whether each id is that of the text below the parent, as `node_id_of` computes it."""
    try:
        return ids == [
            NODE_TAG + sha256(f"loom.node.1\n{parent}\n{text}".encode()).hexdigest()
            for parent, text in zip(parents, texts, strict=True)
        ]
    except UnicodeError:  # damaged text
        return False


def _node(row: StoredNode, parent_id: str | None, message: Message | None, system: str | None = None) -> Node:
    """Return the node of a row whose hash is verified. Raise `Corrupt` if its metadata cannot be read."""
    try:
        meta = _meta_decoder.decode(row.meta) if row.meta != "{}" else {}
        tags = _tags_decoder.decode(row.tags) if row.tags != "[]" else ()
    except (msgspec.DecodeError, UnicodeError):
        raise damaged_node(row.id, "its metadata cannot be read") from None
    return Node(
        id=row.id,
        parent_id=parent_id,
        depth=row.depth,
        message=message,
        system=system,
        source=row.source,
        meta=meta,
        tags=tags,
        bookmark=row.bookmark,
        created_at=row.created_at,
    )


def has_true_id(row: StoredNode, parent_id: str | None) -> bool:
    if row.depth == 0:
        return row.id == root_id_of(row.message)
    return parent_id is not None and row.id == node_id_of(parent_id, row.message)


def content_of(row: StoredNode) -> tuple[Message | None, str | None]:
    """Decode a row; return its message and None, or None and a root's system prompt."""
    try:
        if row.depth > 0:
            return decode_message(row.message), None
        root = _root_decoder.decode(row.message)
    except (ContentError, msgspec.DecodeError, UnicodeError):
        raise damaged_node(row.id, "it is not a message") from None
    if root.v > _ROOT_VERSION:
        raise Newer(f"The system prompt {row.id[:20]}… was written by a newer Loom.", hint="Upgrade Loom to read it.")
    return None, root.system


def damaged_node(node_id: object, reason: str) -> Corrupt:
    return Corrupt(
        f"The message {printable_id(node_id)} is damaged: {reason}.",
        hint="Run `loom doctor`; other sessions, and the path above it, can still be read.",
    )


def printable_id(node_id: object) -> str:
    """Return an id for a message; an id that is itself damaged is escaped and shortened."""
    return node_id if isinstance(node_id, str) and _NODE_ID.fullmatch(node_id) else ascii(node_id)[:100]
