"""Sessions as rows: read, lock and change them inside a transaction.

A session keeps its head, its *tips* (the ends of branches that the head has left) and all nodes above them. Appending
below the head changes no tips; moving the head to another branch makes the node that it leaves a tip. Nodes are deleted
only under the lock `PRUNE`. A writer that refers to an existing node takes the same lock, so that the node cannot be
deleted at the same time.
"""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from loom.content.blocks import clean_text
from loom.errors import Conflict, Corrupt, NotFound, Stale
from loom.session import PARENT_SESSION
from loom.store.database import Row, T, Transaction, row_as
from loom.store.media_references import KEPT, kept_digests
from loom.store.nodes import NODE_TAG, Node, NodeDraft, NodeRef, insert_path, ref_at, ref_of
from loom.store.process_identity import is_gone
from loom.store.search_index import drop_nodes
from loom.struct_types import json_decoder

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_HEAD_DIGITS: Final = 16
_LEASE_COLUMNS: Final = 3
_Lease: TypeAlias = tuple[int, str, float]
_SESSION_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """`rev` counts the changes of this record; `last_seq` is the sequence number of its last event. `damage` describes
    the problem of a damaged record, which can only be listed."""

    id: str
    title: str
    root_id: str
    head_id: str
    model: str
    workspace: str
    overrides: dict[str, Any]
    watermark: dict[str, Any]
    quarantine: dict[str, Any]
    settings: dict[str, Any]
    archived: bool
    last_seq: int
    rev: int
    created_at: float
    updated_at: float
    folder: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    damage: str = ""

    @property
    def parent_session(self) -> str:
        """The id of the session whose agent or MCP server began this one; empty for a session of the user."""
        return str(self.settings.get(PARENT_SESSION, ""))


class _SessionRow(msgspec.Struct, frozen=True, array_like=True):
    """The columns of `SELECT_SESSION`."""

    id: str
    title: str
    root_id: str
    head_id: str
    model: str
    workspace: str
    overrides: str
    watermark: str
    quarantine: str
    settings: str
    archived: int
    last_seq: int
    rev: int
    created_at: float
    updated_at: float
    head_digits: str
    folder: str
    tags: str
    pinned: int


def new_session_id(now: float) -> str:
    """Return a ULID: 48 bits of time, so that ids sort by age, and 80 random bits."""
    value = (int(now * 1000) & (2**48 - 1)) << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


PRUNE: Final = "prune"

_COLUMNS_OF_SESSIONS: Final = (
    "SELECT s.id, s.title, r.id, h.id, s.model, s.workspace, s.overrides, s.watermark, s.quarantine, s.settings,"
    " s.archived, s.last_seq, s.rev, s.created_at, s.updated_at, s.head_digits, s.folder, s.tags, s.pinned"
)
# Not an inner join: a session whose head is missing is damaged, and must still be listed.
_WITH_NODES: Final = "LEFT JOIN node h ON h.key = s.head_key LEFT JOIN node r ON r.key = COALESCE(h.root_key, h.key)"
SELECT_SESSION: Final = f"{_COLUMNS_OF_SESSIONS} FROM session s {_WITH_NODES} WHERE s.id = :id"
_NEWEST: Final = "ORDER BY updated_at DESC, id DESC LIMIT :limit"
_PAGE: Final = (
    "SELECT * FROM session WHERE :archived IN (-1, archived) AND :pinned IN (-1, pinned)"
    " AND (:any_folder = 1 OR folder = :folder) AND (:tag = '' OR tags LIKE :tag ESCAPE '!')"
)
_PAGE_BEFORE: Final = f"{_PAGE} AND (updated_at, id) < (:updated_at, :id)"
_IN_ORDER: Final = "ORDER BY s.updated_at DESC, s.id DESC"
_COLUMNS_LISTED: Final = f"{_COLUMNS_OF_SESSIONS}, s.fence, s.holder, s.held_until"
SELECT_NEWEST: Final = f"{_COLUMNS_LISTED} FROM ({_PAGE} {_NEWEST}) s {_WITH_NODES} {_IN_ORDER}"
SELECT_BEFORE: Final = f"{_COLUMNS_LISTED} FROM ({_PAGE_BEFORE} {_NEWEST}) s {_WITH_NODES} {_IN_ORDER}"
CHANGED_COLUMNS: Final = (
    *("title", "model", "workspace", "overrides", "watermark", "quarantine", "settings", "archived"),
    *("folder", "tags", "pinned"),
)
UPDATE_SESSION: Final = (
    f"UPDATE session SET {', '.join(f'{name} = COALESCE(:{name}, {name})' for name in CHANGED_COLUMNS)},"  # noqa: S608  constants only
    " rev = rev + 1, updated_at = :now WHERE key = :key"
)
_LOCK_DAMAGED: Final = (
    "SELECT key, head_key, head_digits, title, model, workspace, archived, last_seq, rev, created_at, fence, holder,"
    " held_until FROM session WHERE id = :id FOR UPDATE"
)
_REPAIR: Final = (
    "UPDATE session SET title = :title, model = :model, workspace = :workspace, archived = :archived,"
    " folder = '', tags = '[]', pinned = 0,"
    " overrides = '{}', watermark = '{}', quarantine = '{}', settings = '{}', last_seq = :last_seq, rev = :rev,"
    " created_at = :created_at, fence = :fence, holder = :holder, held_until = :held_until WHERE key = :key"
)
_SELECT_LAST_SEQ: Final = "SELECT COALESCE(MAX(seq), 0) FROM event WHERE session_key = :key"
_INSERT_SESSION: Final = (
    "INSERT INTO session (id, title, head_key, model, workspace, overrides, watermark, quarantine, settings, archived,"
    " last_seq, rev, created_at, updated_at, head_digits, folder, tags, pinned) VALUES (:id, :title, :head_key, :model,"
    " :workspace, :overrides, :watermark, :quarantine, :settings, :archived, 0, 1, :created_at, :updated_at, :digits,"
    " :folder, :tags, :pinned)"
)
_LOCK_DOOMED: Final = "SELECT key, head_key, settings FROM session WHERE id = :id FOR UPDATE"
_LOCK_SESSION: Final = (
    "SELECT key, head_key, rev, fence, holder, held_until, held_until - DATABASE_TIME FROM session"
    " WHERE id = :id FOR UPDATE"
)
INSERT_TIP: Final = "INSERT INTO tip (session_key, node_key) VALUES (:key, :node)"
# The nodes from a node up to a depth.
_UP: Final = (
    "WITH RECURSIVE up (key, parent_key, depth) AS ("
    " SELECT key, parent_key, depth FROM node WHERE key = :node"
    " UNION ALL"
    " SELECT n.key, n.parent_key, n.depth FROM up JOIN node n ON n.key = up.parent_key"
    " WHERE n.depth BETWEEN :depth AND up.depth - 1) "
)
_SELECT_ABOVE: Final = "".join((_UP, "SELECT 1 FROM up WHERE key = :above LIMIT 1"))
_DELETE_PASSED: Final = "".join((_UP, "DELETE FROM tip WHERE session_key = :key AND node_key IN (SELECT key FROM up)"))
# The nodes from the tips, and with `:head` from the head too, up to a depth.
_REACH: Final = (
    "WITH RECURSIVE ends (key) AS (SELECT node_key FROM tip WHERE session_key = :key"
    " UNION SELECT head_key FROM session WHERE key = :key AND :head = 1),"
    " reach (key, parent_key, depth) AS ("
    " SELECT n.key, n.parent_key, n.depth FROM ends JOIN node n ON n.key = ends.key WHERE n.depth >= :depth"
    " UNION"
    " SELECT n.key, n.parent_key, n.depth FROM reach r JOIN node n ON n.key = r.parent_key"
    " WHERE n.depth BETWEEN :depth AND r.depth - 1) "
)
_SELECT_FAMILIES: Final = "".join(
    (
        _REACH,
        "SELECT p.id, n.id FROM reach r JOIN node n ON n.key = r.key JOIN node p ON p.key = n.parent_key",
        " WHERE n.depth <= :last ORDER BY n.key",
    )
)
_SELECT_KEPT: Final = "".join((_REACH, "SELECT 1 FROM reach WHERE key = :node LIMIT 1"))
SELECT_DIGESTS: Final = "".join(
    (_REACH, "SELECT DISTINCT m.digest FROM reach r JOIN node_media m ON m.node_key = r.key")
)
SELECT_TIPS: Final = (
    "SELECT n.id FROM tip t JOIN node n ON n.key = t.node_key WHERE t.session_key = :key ORDER BY n.key"
)
# The nodes from an unreferenced end up to, but without, the first one that is referenced or has another child.
_SELECT_DOOMED: Final = (
    "WITH RECURSIVE kept (key) AS (SELECT node_key FROM tip UNION SELECT head_key FROM session),"
    " doomed (key, parent_key, depth) AS ("
    " SELECT n.key, n.parent_key, n.depth FROM node n WHERE n.key = :end AND n.key NOT IN (SELECT key FROM kept)"
    " AND NOT EXISTS (SELECT 1 FROM node c WHERE c.parent_key = n.key)"
    " UNION ALL"
    " SELECT n.key, n.parent_key, n.depth FROM doomed d JOIN node n ON n.key = d.parent_key"
    " WHERE n.depth < d.depth AND d.parent_key NOT IN (SELECT key FROM kept)"
    " AND NOT EXISTS (SELECT 1 FROM node c WHERE c.parent_key = n.key AND c.key <> d.key))"
    " SELECT d.key, m.digest, CASE WHEN n.role = 'tool' AND n.message LIKE :kept THEN n.message ELSE '' END"
    " FROM doomed d JOIN node n ON n.key = d.key LEFT JOIN node_media m ON m.node_key = d.key ORDER BY d.depth DESC"
)
SELECT_USE: Final = (
    "SELECT 1 FROM node_media WHERE digest = :digest UNION SELECT 1 FROM queued_media WHERE digest = :digest"
)
SELECT_QUEUED_DIGESTS: Final = (
    "SELECT DISTINCT m.digest FROM queued_media m JOIN queued q ON q.key = m.queued_key WHERE q.session_key = :key"
)


def is_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None


def check_session_id(session_id: str) -> str:
    """Return `session_id`; raise `NotFound` if it does not have the form of an id."""
    if not is_session_id(session_id):
        raise session_not_found()
    return session_id


def session_not_found() -> NotFound:
    return NotFound("Session not found.", hint="List them: `loom sessions`.")


def stale_head() -> Conflict:
    return Conflict("The session was changed by another process.", hint="Load it again, then repeat the change.")


def stale_session() -> Stale:
    return Stale("This session has changed since you read it.", hint="Load it again, then repeat the change.")


def lease_lost() -> Conflict:
    return Conflict(
        "This session was taken over by another process; the last changes of this one were not stored.",
        hint="Load it again to see its current state.",
    )


def is_running() -> Conflict:
    return Conflict("A turn of this session is running.", hint="Wait until it ends, or cancel it.")


def lock_session(tx: Transaction, session_id: str, *, fence: int | None = None) -> tuple[int, int, int]:
    """Lock a session; return its key, the key of its head and its revision. With the `fence` of a lease, raise
    `Conflict` if that lease was lost."""
    key, head_key, rev, found, holder, _, _ = _lock_row(tx, session_id)
    if fence is not None and (found != fence or not holder):
        raise lease_lost()
    return key, head_key, rev


def lock_head(tx: Transaction, session_id: str, *, fence: int | None) -> tuple[int, int, int]:
    """Lock a session to move its head; return its key, the key of its head and its revision. Raise `Conflict` while
    another process runs a turn, or if the lease with this `fence` was lost."""
    if fence is not None:
        return lock_session(tx, session_id, fence=fence)
    key, head_key, rev, _, holder, _, seconds_left = _lock_row(tx, session_id)
    if holder and seconds_left > 0 and not is_gone(holder):
        raise is_running()
    return key, head_key, rev


def _lock_row(tx: Transaction, session_id: str) -> tuple[int, int, int, int, str, float, float]:
    """Lock a session; return the columns of `_LOCK_SESSION`. The last is the number of seconds until the lease
    expires, by the database's clock."""
    row = _find_row(tx, _LOCK_SESSION, session_id)
    return row_as(row, tuple[int, int, int, int, str, float, float], f"The record of session {session_id}")


def lock_for_delete(tx: Transaction, session_id: str) -> tuple[int, int, object]:
    """Lock a session for deletion; return its key, the key of its head and its settings. They are not validated, so
    that a damaged session can be deleted."""
    key, head_key, settings = _find_row(tx, _LOCK_DOOMED, session_id)
    return key, head_key, settings


def check_session(tx: Transaction, session_id: str) -> tuple[int, int]:
    """Return the key of a session and the key of its head. Raise `NotFound` if there is no such session."""
    row = _find_row(tx, "SELECT key, head_key FROM session WHERE id = :id", session_id)
    return row_as(row, tuple[int, int], f"The record of session {session_id}")


def _find_row(tx: Transaction, sql: str, session_id: str) -> Row:
    rows = tx.execute(sql, {"id": check_session_id(session_id)})
    if not rows:
        raise session_not_found()
    return rows[0]


def read_session(tx: Transaction, session_id: str) -> StoredSession:
    return session_of(_find_row(tx, SELECT_SESSION, session_id))


def require_session(rows: Sequence[Row]) -> StoredSession:
    if not rows:
        raise session_not_found()
    return session_of(rows[0])


def session_of(row: Row) -> StoredSession:
    what = f"The record of session {ascii(row[0])[1:-1]}"
    shape = row_as(row, _SessionRow, what)
    values = msgspec.structs.asdict(shape)
    values["archived"] = bool(shape.archived)
    values["pinned"] = bool(shape.pinned)
    if not shape.head_id.startswith(NODE_TAG + values.pop("head_digits")):
        raise Corrupt(f"{what} is damaged.", hint="Run `loom doctor`; the rest can still be read.")
    try:
        for name in ("overrides", "watermark", "quarantine", "settings"):
            values[name] = {} if values[name] == "{}" else _objects.decode(values[name])
        values["tags"] = _tags.decode(shape.tags)
    except (msgspec.DecodeError, UnicodeError):
        raise Corrupt(f"{what} is damaged.", hint="Run `loom doctor`; the rest can still be read.") from None
    return StoredSession(**values)


def session_for_list(row: Row) -> StoredSession:
    """Convert a row for a list. A damaged record is listed with its readable columns and a description in `damage`, so
    that it hides no other. One whose lease is damaged can be read, but not continued."""
    record, lease = row[:-_LEASE_COLUMNS], row[-_LEASE_COLUMNS:]
    try:
        found = session_of(record)
    except Corrupt as error:
        return _damaged_session(record, error.message)
    try:
        row_as(lease, _Lease, f"The lease of session {found.id}")
    except Corrupt as error:
        return msgspec.structs.replace(found, damage=error.message)
    return found


def _damaged_session(row: Row, damage: str) -> StoredSession:
    values: dict[str, Any] = {}
    for (name, kind), value in zip(_SessionRow.__annotations__.items(), row, strict=True):
        empty: object = {"str": "", "int": 0, "float": 0.0}[kind]
        fits = isinstance(value, (int, float)) if kind == "float" else isinstance(value, type(empty))
        values[name] = value if fits else empty
    values |= {"overrides": {}, "watermark": {}, "quarantine": {}, "settings": {}, "tags": ()}
    values |= {"archived": bool(values["archived"]), "pinned": bool(values["pinned"])}
    del values["head_digits"]
    values["title"] = clean_text(values["title"])
    return StoredSession(**values, damage=damage)


_objects = json_decoder(dict[str, Any])
_tags = json_decoder(tuple[str, ...])


def insert_session(tx: Transaction, values: Mapping[str, object], head: NodeRef, now: float) -> StoredSession:
    """Insert a session. Columns missing in `values` get defaults: empty, and `now` for times."""
    defaults = {"folder": "", "tags": "[]", "pinned": 0, "archived": 0, "created_at": now, "updated_at": now}
    tx.execute(_INSERT_SESSION, {**defaults, **values, "head_key": head.key, "digits": _digits(head)})
    return read_session(tx, cast("str", values["id"]))


def set_head(tx: Transaction, key: int, head: NodeRef, now: float) -> None:
    tx.execute(
        "UPDATE session SET head_key = :head, head_digits = :digits, rev = rev + 1, updated_at = :now WHERE key = :key",
        {"head": head.key, "digits": _digits(head), "now": now, "key": key},
    )


def _digits(head: NodeRef) -> str:
    return head.id.removeprefix(NODE_TAG)[:_HEAD_DIGITS]


def repair_session(tx: Transaction, session_id: str, now: float) -> None:
    """Repair a damaged session record. The head becomes the node that `head_digits` names, or else the current one.
    Settings, overrides and other JSON columns are cleared; of the other columns, only unreadable ones get defaults."""
    row = _find_row(tx, _LOCK_DAMAGED, session_id)
    key, head_key, digits, title, model, workspace, archived, last_seq, rev, created_at, *lease = row
    try:
        head = ref_of(tx, str(digits))
    except NotFound:
        head = ref_at(tx, head_key)
    ((written,),) = tx.execute(_SELECT_LAST_SEQ, {"key": key})
    try:
        fence, holder, held_until = row_as(tuple(lease), _Lease, "The lease of a session")
    except Corrupt:
        fence, holder, held_until = int(now), "", 0.0  # higher than any real fence, so that old leases are refused
    values: dict[str, object] = {
        "title": one_line(_value_or(title, "")),
        "model": clean_text(_value_or(model, "")),
        "workspace": clean_text(_value_or(workspace, "")),
        "archived": _value_or(archived, 0),
        "last_seq": max(_value_or(last_seq, 0), _value_or(written, 0)),
        "rev": _value_or(rev, 1),
        "created_at": _value_or(created_at, now),
        "fence": fence,
        "holder": holder,
        "held_until": held_until,
        "key": key,
    }
    tx.execute(_REPAIR, values)
    set_head(tx, key, head, now)


def _value_or(value: object, instead: T) -> T:
    return value if isinstance(value, type(instead)) else instead


def append_below_head(
    tx: Transaction, key: int, head: NodeRef, drafts: Sequence[NodeDraft], now: float
) -> tuple[Node, ...]:
    """Write drafts below the head and move the head to the last of them."""
    nodes, last, all_new = insert_path(tx, head, drafts, now)
    if not all_new:
        tx.lock(PRUNE)
        nodes, last, _ = insert_path(tx, head, drafts, now)
        _pass_tips(tx, key, last, depth=head.depth)
    set_head(tx, key, last, now)
    return nodes


def append_aside(
    tx: Transaction, key: int, parent: NodeRef, drafts: Sequence[NodeDraft], now: float
) -> tuple[Node, ...]:
    """Write drafts below a node of the session, and make the last of them a tip."""
    nodes, last, _ = insert_path(tx, parent, drafts, now)
    if not keeps(tx, key, last):
        _pass_tips(tx, key, last, depth=parent.depth)
        tx.execute(INSERT_TIP, {"key": key, "node": last.key})
    return nodes


def move_head(tx: Transaction, key: int, head: NodeRef, target: NodeRef, now: float) -> None:
    """Move the head to any node. The node that it leaves becomes a tip, unless another branch already contains it."""
    if not is_above(tx, head, target) and not keeps(tx, key, head, with_head=False):
        tx.execute(INSERT_TIP, {"key": key, "node": head.key})
    _pass_tips(tx, key, target, depth=0)
    set_head(tx, key, target, now)


def _pass_tips(tx: Transaction, key: int, node: NodeRef, *, depth: int) -> None:
    """Delete the tips at this node and above it, up to a depth: they are no longer ends of branches."""
    tx.execute(_DELETE_PASSED, {"key": key, "node": node.key, "depth": depth})


def keeps(tx: Transaction, key: int, node: NodeRef, *, with_head: bool = True) -> bool:
    """Return whether a session keeps a node: it is the head, a tip or above one. With `with_head` False, consider only
    the tips."""
    params = {"key": key, "head": int(with_head), "depth": node.depth, "node": node.key}
    return bool(tx.execute(_SELECT_KEPT, params))


def read_families(tx: Transaction, key: int, first: int, last: int) -> dict[str, list[str]]:
    """Return, by parent id, the ids of the session's nodes at the depths from `first` to `last`."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for parent_id, node_id in tx.execute(_SELECT_FAMILIES, {"key": key, "head": 1, "depth": first, "last": last}):
        families[parent_id].append(node_id)
    return families


def is_above(tx: Transaction, above: NodeRef, node: NodeRef) -> bool:
    return bool(tx.execute(_SELECT_ABOVE, {"node": node.key, "depth": above.depth, "above": above.key}))


def prune(tx: Transaction, end_key: int) -> set[str]:
    """Delete the unreferenced nodes of a branch, from its end upwards. Return the digests of the media that they refer
    to, and of the full texts of truncated results in them."""
    rows = tx.execute(_SELECT_DOOMED, {"end": end_key, "kept": KEPT})
    doomed = dict.fromkeys(row[0] for row in rows)
    tx.executemany("DELETE FROM node WHERE key = :key", [{"key": key} for key in doomed])
    drop_nodes(tx, doomed)
    kept = {digest for _, _, stored in rows if stored for digest in kept_digests(stored)}
    return kept | {digest for _, digest, _ in rows if digest is not None}


def one_line(title: str) -> str:
    """Return a title as one line without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in clean_text(title)).split())


def folder_name(folder: str) -> str:
    """Return a folder as a path of names, `Work/Invoices`, without extra white space and empty names."""
    return "/".join(name for part in folder.split("/") if (name := one_line(part)))


def stored_tags(tags: Iterable[str]) -> str:
    """Return tags in stored form: a sorted JSON list without duplicates and empty names."""
    names = sorted({name for tag in tags if (name := one_line(tag))})
    return msgspec.json.encode(names).decode()


def tag_pattern(tag: str) -> str:
    """Return a LIKE pattern, with `!` as its escape character, for the stored tags of a session with this tag."""
    name = msgspec.json.encode(one_line(tag)).decode()
    return f"%{re.sub('[!%_]', lambda found: '!' + found[0], name)}%"
