"""Forest: all trees of messages. A node's id is a hash over its message and its parent, so equal paths are stored once.

    root ─ node ─ node ─ node
              └── node ─ node         two conversations share the nodes up to where they branch

Appending the same messages again returns the same nodes. `sessions` decides which nodes a session keeps and when nodes
are deleted.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.content.media import Media
from loom.content.messages import Message, media_of
from loom.errors import ContentError, Corrupt, LoomError, NotFound
from loom.store.database import Database, Row, Transaction
from loom.store.nodes import (
    SELECT_NODES,
    Node,
    RowSource,
    StoredNode,
    content_of,
    damaged_node,
    drafts_of,
    full_id,
    has_true_id,
    insert_path,
    insert_root,
    node_of,
    nodes_below,
    plain_json,
    plain_text,
    printable_id,
    read_node,
    read_path,
    ref_of,
    stored_node,
    stored_nodes,
)
from loom.store.session_rows import check_session, is_above, keeps, read_families

Clock: TypeAlias = Callable[[], float]

_VERIFY_ROWS: Final = 500
_PARENT: Final = StoredNode.__struct_fields__.index("parent_id")
_REACH: Final = (
    "WITH RECURSIVE ends (key) AS (SELECT head_key FROM session WHERE id = :session"
    " UNION SELECT t.node_key FROM session s JOIN tip t ON t.session_key = s.key WHERE s.id = :session),"
    " reach (key, parent_key) AS ("
    " SELECT n.key, n.parent_key FROM ends JOIN node n ON n.key = ends.key"
    " UNION"
    " SELECT n.key, n.parent_key FROM reach r JOIN node n ON n.key = r.parent_key) "
)
_LATEST_STEPS: Final = 300
"""The number of messages, from the end of a path, in which its latest text and media are searched for."""
_LATEST_MESSAGES: Final = 8
_LATEST_WITH_MEDIA: Final = 4
# The last messages of a path, and the last ones with media.
_SELECT_LATEST: Final = (
    "WITH RECURSIVE up (key, parent_key, step) AS ("  # noqa: S608  constants only
    " SELECT key, parent_key, 0 FROM node WHERE id = :id"
    " UNION ALL"
    " SELECT n.key, n.parent_key, up.step + 1 FROM up JOIN node n ON n.key = up.parent_key WHERE up.step < :steps),"
    " wanted (key) AS (SELECT key FROM up WHERE step < :messages UNION SELECT key FROM ("
    " SELECT up.key FROM up WHERE EXISTS (SELECT 1 FROM node_media m WHERE m.node_key = up.key)"
    " ORDER BY up.step LIMIT :with_media) shown) "
    f"{SELECT_NODES} WHERE n.key IN (SELECT key FROM wanted) ORDER BY n.depth"
)
_SELECT_AFTER: Final = f"{SELECT_NODES} WHERE n.key > :after ORDER BY n.key LIMIT :limit"
_SELECT_TREE: Final = f"{_REACH}{SELECT_NODES} JOIN reach ON reach.key = n.key ORDER BY n.depth, n.key"
_SELECT_CHILDREN: Final = f"{SELECT_NODES} WHERE n.parent_key = :key ORDER BY n.key"
_SELECT_OWN_CHILDREN: Final = (
    f"{_REACH}{SELECT_NODES} JOIN reach ON reach.key = n.key WHERE n.parent_key = :key ORDER BY n.key"
)


def select_tree(session_id: str) -> tuple[str, dict[str, str]]:
    """Return the statement, and its parameters, that selects every node of a session, parents before children."""
    return _SELECT_TREE, {"session": plain_text(session_id, "an id")}


class ForestProblem(msgspec.Struct, frozen=True):
    node_id: str
    what: Literal["hash", "parent", "depth", "message", "media"]
    text: str


class Verification(msgspec.Struct, frozen=True):
    nodes: int
    problems: tuple[ForestProblem, ...]


class DamagedNode(msgspec.Struct, frozen=True):
    """A damaged message. The messages below it cannot be continued from and are only counted, in `below`."""

    id: str
    parent_id: str | None
    text: str
    below: int


class NodeTree(msgspec.Struct, frozen=True):
    """All nodes of a session, parents before children."""

    nodes: tuple[Node, ...]
    damaged: tuple[DamagedNode, ...] = ()


class PathPage(msgspec.Struct, frozen=True):
    """Consecutive messages of a path. `siblings` maps each id to the ids that the session has below the same parent;
    `system` is the system prompt of the path."""

    nodes: tuple[Node, ...]
    siblings: dict[str, tuple[str, ...]]
    system: str
    has_more: bool


class Forest:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def root(self, system: str) -> Node:
        """Return the root with this system prompt; create it if needed."""
        now = self._clock()
        return node_of(await self._database.write(lambda tx: read_node(tx, insert_root(tx, system, now).id)), None)

    async def append(
        self,
        parent_id: str,
        messages: Sequence[Message],
        *,
        source: RowSource | None = None,
        meta: Mapping[str, Any] | None = None,
        metas: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[Node, ...]:
        """Write messages below a node; return their nodes. Nodes that already exist stay unchanged.

        `source` is the author, if it does not follow from the role. `meta` (provider, model, usage …) applies to all
        messages, `metas` holds one mapping for each.
        """
        drafts = drafts_of(messages, source, meta, metas)
        now = self._clock()
        return await self._database.write(lambda tx: insert_path(tx, ref_of(tx, parent_id), drafts, now)[0])

    async def node(self, node_id: str) -> Node:
        """Return a node by its id or by a unique prefix of it (at least eight digits)."""
        row = await self._database.read(lambda tx: read_node(tx, node_id))
        return node_of(row, row.parent_id)

    async def nodes(self, node_ids: Iterable[str]) -> dict[str, Node]:
        """Return nodes by their full ids; without those that are missing or damaged."""
        wanted = list(node_ids)

        def work(tx: Transaction) -> dict[str, Node]:
            found: dict[str, Node] = {}
            for node_id in wanted:
                with suppress(Corrupt, NotFound):
                    row = read_node(tx, node_id)
                    found[node_id] = node_of(row, row.parent_id)
            return found

        return await self._database.read(work)

    async def path(self, node_id: str) -> tuple[Node, ...]:
        """Return the nodes from the root to this one, both included."""

        def work(tx: Transaction) -> tuple[Node, ...]:
            root, *rows = read_path(tx, node_id)
            return node_of(root, None), *nodes_below(root.id, rows)

        return await self._database.read(work)

    async def page(self, session_id: str, head_id: str, *, before: str = "", limit: int) -> PathPage:
        """Return the last `limit` messages of the path to `head_id`, or of the path to the message `before`, without
        it. Messages further up are not read."""

        def work(tx: Transaction) -> PathPage:
            session_key, _ = check_session(tx, session_id)
            head = end = ref_of(tx, head_id)
            if before:
                end = ref_of(tx, before)
                if not keeps(tx, session_key, end):
                    raise NotFound("That message is not part of this session.", hint="Show its tree: `loom tree`.")
                if not is_above(tx, end, head):
                    hint = "Set `head` to the branch that contains it."
                    raise ContentError("That message is not on the path to the head.", hint=hint)
            last = end.depth - 1 if before else end.depth
            first = max(last - limit + 1, 1)
            above, *rows = read_path(tx, end.id, above=first - 2)
            nodes = nodes_below(above.id, rows[: last - first + 1])
            root = stored_node(tx.execute(f"{SELECT_NODES} WHERE n.key = :key", {"key": head.tree})[0])
            families = read_families(tx, session_key, first, last) if nodes else {}
            siblings = {child: tuple(family) for family in families.values() for child in family}
            return PathPage(nodes, siblings, node_of(root, None).system or "", first > 1)

        return await self._database.read(work)

    async def latest(self, heads: Iterable[str]) -> dict[str, tuple[Node, ...]]:
        """Return, for each of these nodes, the last messages of its path and the last ones with media, oldest first.
        Damaged messages, and those more than 300 messages up, are left out."""
        bounds = {"steps": _LATEST_STEPS, "messages": _LATEST_MESSAGES, "with_media": _LATEST_WITH_MEDIA}

        def work(tx: Transaction) -> dict[str, list[Row]]:
            return {head: tx.execute(_SELECT_LATEST, {"id": head, **bounds}) for head in heads}

        found = await self._database.read(work)
        return {head: _build_tree(rows).nodes for head, rows in found.items()}

    async def last_valid_node(self, node_id: str) -> str:
        """Return the last intact node of the path to this one: itself, or the one above the first damaged node."""

        def work(tx: Transaction) -> str:
            parent_id: str | None = None
            for row in read_path(tx, node_id):
                try:
                    parent_id = node_of(row, parent_id).id
                except Corrupt:
                    break
            if parent_id is None:
                raise damaged_node(node_id, "so is everything above it")
            return parent_id

        return await self._database.read(work)

    async def children(self, node_id: str, *, session_id: str | None = None) -> tuple[Node, ...]:
        """Return the children of a node, oldest first; with `session_id`, only those of that session."""
        return await self._database.read(lambda tx: _children(tx, node_id, session_id))

    async def tree(self, session_id: str) -> tuple[Node, ...]:
        """Return every intact node of a session, parents before children."""
        return (await self.read_tree(session_id)).nodes

    async def read_tree(self, session_id: str) -> NodeTree:
        """Return every node of a session, intact and damaged. Raise `NotFound` if there is no such session."""
        rows = await self._database.read(lambda tx: tx.execute(*select_tree(session_id)))
        if not rows:
            raise NotFound("Session not found.", hint="List them: `loom sessions`.")
        try:
            return NodeTree(_nodes(rows))
        except Corrupt:
            return _build_tree(rows)

    async def set_bookmark(self, node_id: str, bookmark: str) -> None:
        """Name a node so that users can find it; an empty name removes the bookmark."""
        await self._set("UPDATE node SET bookmark = :value WHERE id = :id", node_id, plain_text(bookmark, "a bookmark"))

    async def set_tags(self, node_id: str, tags: Iterable[str]) -> None:
        value = plain_json(sorted(set(tags)), "tags")
        await self._set("UPDATE node SET tags = :value WHERE id = :id", node_id, value)

    async def _set(self, sql: str, node_id: str, value: str) -> None:
        await self._database.write(lambda tx: tx.execute(sql, {"id": full_id(tx, node_id), "value": value}))

    async def verify(self, *, exists: Callable[[str], Awaitable[bool]] | None = None) -> Verification:
        """Verify the hashes of all nodes; with `exists`, also that their media are stored."""
        count = 0
        problems: list[ForestProblem] = []
        known: dict[str, bool] = {}
        async for row in self._rows():
            count += 1
            if isinstance(row, ForestProblem):
                problems.append(row)
                continue
            found, media = _inspect(row)
            problems += found
            for medium in media:
                if exists is not None and medium.digest not in known:
                    known[medium.digest] = await exists(medium.digest)
                if not known.get(medium.digest, True):
                    problems.append(ForestProblem(row.id, "media", f"{medium.label} ({medium.digest}) is missing"))
        return Verification(count, tuple(problems))

    async def _rows(self) -> AsyncIterator[StoredNode | ForestProblem]:
        after = 0
        while rows := await self._database.select(_SELECT_AFTER, {"after": after, "limit": _VERIFY_ROWS}):
            for row in rows:
                try:
                    yield stored_node(row)
                except Corrupt as error:
                    yield ForestProblem(printable_id(row[0]), "message", error.message)
            if not isinstance(rows[-1][-1], int) or rows[-1][-1] <= after:
                raise Corrupt("The messages are no longer in order.", hint="Run `loom doctor`.")
            after = rows[-1][-1]


def _nodes(rows: list[Row]) -> tuple[Node, ...]:
    return tuple(node_of(row, row.parent_id) for row in stored_nodes(rows))


def _build_tree(rows: list[Row]) -> NodeTree:
    """Convert rows, parents first. Rows below a damaged one are only counted."""
    nodes: list[Node] = []
    found: dict[str, DamagedNode] = {}
    above: dict[str, str] = {}
    for row in rows:
        node_id, parent_id = printable_id(row[0]), row[_PARENT] if isinstance(row[_PARENT], str) else None
        if parent_id in above:
            above[node_id] = hurt = above[parent_id]
            found[hurt] = msgspec.structs.replace(found[hurt], below=found[hurt].below + 1)
            continue
        try:
            nodes.append(node_of(stored_node(row), parent_id))
        except Corrupt as error:
            above[node_id] = node_id
            found[node_id] = DamagedNode(node_id, parent_id, error.message, below=0)
    return NodeTree(tuple(nodes), tuple(found.values()))


def _children(tx: Transaction, node_id: str, session_id: str | None) -> tuple[Node, ...]:
    key = ref_of(tx, node_id).key
    if session_id is None:
        return _nodes(tx.execute(_SELECT_CHILDREN, {"key": key}))
    return _nodes(tx.execute(_SELECT_OWN_CHILDREN, {"key": key, "session": plain_text(session_id, "an id")}))


def _inspect(row: StoredNode) -> tuple[list[ForestProblem], tuple[Media, ...]]:
    """Return the problems of one row, and the media that its message shows."""
    problems: list[ForestProblem] = []
    if row.depth > 0 and row.parent_id is None:
        problems.append(ForestProblem(row.id, "parent", "the message before it is missing"))
    elif row.depth != (0 if row.parent_depth is None else row.parent_depth + 1):
        problems.append(ForestProblem(row.id, "depth", f"its depth is {row.depth}, below {row.parent_depth}"))
    if not has_true_id(row, row.parent_id):
        problems.append(ForestProblem(row.id, "hash", "its text differs from what was written"))
    try:
        message, _ = content_of(row)
        if not problems:
            node_of(row, row.parent_id)
    except LoomError as error:
        if not problems:
            problems.append(ForestProblem(row.id, "message", error.message))
        return problems, ()
    return problems, media_of(message) if message is not None else ()
