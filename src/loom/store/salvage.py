"""Salvage: copy every readable row of a damaged SQLite store into a new one.

Messages are verified by their ids, which are hashes of their text and position, so that nothing altered is saved. A
lost message between others is replaced by a note, so that the messages after it can still be read. Conversations whose
session record is lost are saved as recovered ones. The damaged file is only read.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast, get_args

import msgspec

from loom.content.codec import decode_message, encode_stored
from loom.content.messages import Message, user
from loom.errors import Corrupt, LoomError, StoreError
from loom.store.nodes import NODE_TAG, SOURCE_OF_ROLE, RowSource, digests_of, encode_root, node_id_of, root_id_of
from loom.store.session_rows import new_session_id
from loom.store.sqlite_file import open_database_file
from loom.store.sqlite_pages import SqlitePages, SqliteRecord, SqliteValue
from loom.struct_types import decode_json

NOTE: Final = "[This message was lost when the store was damaged (number {}).]"
RECOVERED: Final = "Recovered conversation"
_JSON_COLUMNS: Final = ("overrides", "watermark", "quarantine", "settings")
_COMPUTED: Final = ("node_media", "queued_media", "migration")
"""Tables that are computed from others."""
_WIDE: Final = 8
"""A row with at least this many columns is recognized by its column types alone, even on a page that seems to belong to
another table because two roots were swapped."""

_MAX_TRIED_CHARS: Final = 100_000
"""Longer messages are not hashed against hundreds of candidate parent ids."""

_Row = dict[str, Any]


class SalvageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was saved. `messages` counts verified messages, `notes` the replacements for lost ones,
    `recovered_sessions` conversations whose session record was lost; `rows` counts all other rows by table."""

    sessions: int = 0
    recovered_sessions: int = 0
    messages: int = 0
    notes: int = 0
    damaged_rows: int = 0
    damaged_pages: int = 0
    rows: dict[str, int] = {}


class _Shape(msgspec.Struct, frozen=True):
    """The column types of a table. `kinds` has a letter for each column: `k` row id, `t` text, `i` integer, `f` number,
    `b` bytes; a capital letter may be null. Columns after the first `least` may be missing."""

    table: str
    columns: tuple[str, ...]
    kinds: str
    least: int
    has_rowid: bool

    def fits(self, record: SqliteRecord) -> bool:
        if (record.rowid is not None) != self.has_rowid or not self.least <= len(record.values) <= len(self.kinds):
            return False
        return all(map(_is_kind, record.values, self.kinds))

    def row(self, record: SqliteRecord) -> _Row:
        row = dict(zip(self.columns, record.values, strict=False))
        if self.kinds[0] == "k":
            row[self.columns[0]] = record.rowid
        return row


def _is_kind(value: SqliteValue, kind: str) -> bool:
    match kind:
        case "k":
            return value is None
        case "t":
            return isinstance(value, str)
        case "i":
            return isinstance(value, int)
        case "f":
            return isinstance(value, int | float)
        case "b":
            return isinstance(value, bytes)
        case _:
            return value is None or _is_kind(value, kind.lower())


def salvage(source: Path, target: Path) -> SalvageReport:
    """Copy everything readable of the store `source` to a new one at `target`, which must not exist. Raise `Corrupt`
    if the file contains no data of a Loom store."""
    if target.exists():
        raise StoreError(f"{target.name} already exists.", hint="Use the name of a new file.")
    try:
        pages = SqlitePages(source)
    except OSError as error:
        raise StoreError(f"{source.name} cannot be read: {error.strerror}.", hint="Check the disk.") from error
    connection, _ = open_database_file(target, 15.0)
    try:
        found = _SalvagedRows(pages, connection)
        if not found.rows["node"] and not found.rows["session"]:
            raise Corrupt(f"{source.name} contains no data of a Loom store.", hint="Restore a backup: `loom restore`.")
        report = _write(connection, found)
    except BaseException:
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        raise
    connection.close()
    return report


# Rows of the damaged file


class _SalvagedRows:
    """The readable rows of each table, not verified yet."""

    def __init__(self, pages: SqlitePages, schema: sqlite3.Connection) -> None:
        self.rows: defaultdict[str, list[_Row]] = defaultdict(list)
        self.node_ids: dict[int, str] = {}
        """Ids of messages from the index on `node`, including messages whose row is lost."""
        self.damaged_rows = 0
        self.damaged_pages = 0
        self._shapes = {shape.table: shape for shape in _shapes(schema)}
        self._others = _index_shapes(schema)
        self._widths = frozenset(
            width
            for shape in self._shapes.values()
            if shape.kinds[0] == "k"
            for width in range(shape.least, len(shape.kinds) + 1)
        )
        self._read(pages)

    def _read(self, pages: SqlitePages) -> None:
        owners = _owners(pages)
        doubtful: list[int] = []
        for number in range(1, pages.count + 1):
            scan, owner = pages.scan(number), owners.get(number)
            self.damaged_rows += scan.unreadable_cells
            for record in scan.records:
                self._add(record, owner)
            is_lost = owner is not None and not pages.is_tree_page(number)
            self.damaged_pages += is_lost
            if scan.unreadable_cells or is_lost or (owner is None and not scan.records):
                doubtful.append(number)
        for number in doubtful:
            if number not in pages.overflow:
                for record in pages.carve(number, self._widths):
                    self._add(record, None)

    def _add(self, record: SqliteRecord, owner: str | None) -> None:
        match record:
            case (_, None, (str(node_id), int(key))) if node_id.startswith(NODE_TAG):
                self.node_ids[key] = node_id
                return
            case _:
                pass
        shape = self._shapes.get(owner or "")
        is_elsewhere = owner is not None and shape is None
        if shape is None or not shape.fits(record):
            fitting = [shape for shape in (*self._shapes.values(), *self._others) if shape.fits(record)]
            shape = fitting[0] if len(fitting) == 1 and fitting[0].table in self._shapes else None
        if shape is not None and is_elsewhere and len(shape.kinds) < _WIDE:
            return  # most likely an entry of the index or search table that owns the page
        if shape is not None:
            self.rows[shape.table].append(shape.row(record))


def _owners(pages: SqlitePages) -> dict[int, str]:
    """Return the table or index of each page, as far as the file's own schema names it."""
    owners: dict[int, str] = {}
    for number in pages.tree(1):
        for record in pages.scan(number).records:
            match record.values:
                case (str(kind), str(name), str(_), int(root), *_) if kind in ("table", "index"):
                    for page in pages.tree(root):
                        owners.setdefault(page, name)
                case _:
                    pass
    return owners


def _shapes(connection: sqlite3.Connection) -> Iterator[_Shape]:
    sql = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'search_*'"
    for table, text in connection.execute(sql).fetchall():
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        if "WITHOUT ROWID" in text:  # such a row starts with its primary key
            columns.sort(key=lambda column: (column[5] == 0, column[5], column[0]))
            yield _shape(table, columns, has_rowid=False)
        else:
            yield _shape(table, columns, has_rowid=True)


def _shape(table: str, columns: list[tuple[Any, ...]], *, has_rowid: bool) -> _Shape:
    kinds = ""
    for _, _, declared, not_null, _, primary in columns:
        if has_rowid and primary and declared == "INTEGER":
            kinds += "k"
            continue
        letter = {"TEXT": "t", "DOUBLE PRECISION": "f", "BLOB": "b"}.get(declared, "i")
        kinds += letter if not_null or primary else letter.upper()
    with_default = 0  # trailing columns with a default or null: they were added later, and old rows lack them
    for column in reversed(columns):
        if column[4] is None and column[3]:
            break
        with_default += 1
    names = tuple(column[1] for column in columns)
    return _Shape(table, names, kinds, len(kinds) - with_default, has_rowid)


def _index_shapes(connection: sqlite3.Connection) -> list[_Shape]:
    """Return the column types of index entries, which must not be mistaken for rows."""
    shapes = {shape.table: shape for shape in _shapes(connection)}
    found: list[_Shape] = []
    for name, table in connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'").fetchall():
        shape = shapes.get(table)
        if shape is None:
            continue
        kinds = dict(zip(shape.columns, shape.kinds, strict=True))
        entry = connection.execute(f"PRAGMA index_xinfo('{name}')").fetchall()
        letters = "".join("i" if column is None else kinds[column].replace("k", "i") for _, _, column, *_ in entry)
        found.append(_Shape(name, (), letters, len(letters), has_rowid=False))
    return found


# The new store


def _write(connection: sqlite3.Connection, found: _SalvagedRows) -> SalvageReport:
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    nodes = _Nodes(found.rows["node"], found.node_ids)
    sessions = _Sessions(found.rows["session"], found.rows["tip"], nodes)
    events = _events(found.rows["event"], sessions)
    recovered = sessions.recover()
    nodes.finish()
    _insert(connection, "node", nodes.kept.values())
    _insert(connection, "node_media", nodes.media())
    _insert(connection, "session", sessions.kept.values())
    _insert(connection, "tip", sessions.tips())
    _insert(connection, "event", events)
    queued = [row for row in found.rows["queued"] if _message(row["message"]) is not None]
    _insert(connection, "queued", queued)
    _insert(connection, "queued_media", _media_of_queued(queued))
    for table, rows in found.rows.items():
        if table not in {"node", "session", "tip", "event", "queued", *_COMPUTED}:
            _insert(connection, table, rows)
    _drop_dangling(connection)
    connection.execute("COMMIT")
    connection.execute("PRAGMA foreign_keys = ON")
    ((verdict,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise Corrupt(f"The new store is damaged: {verdict}.", hint="Check its disk.")
    counts = Counter(
        {
            table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]  # noqa: S608  names of our own schema
            for table in found.rows
            if table not in {"node", "session", "migration"}
        }
    )
    return SalvageReport(
        sessions=len(sessions.kept) - recovered,
        recovered_sessions=recovered,
        messages=sum(not row["is_note"] and row["depth"] > 0 for row in nodes.kept.values()),
        notes=sum(row["is_note"] for row in nodes.kept.values()),
        damaged_rows=found.damaged_rows + nodes.damaged + sessions.damaged,
        damaged_pages=found.damaged_pages,
        rows={table: count for table, count in sorted(counts.items()) if count},
    )


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[_Row]) -> None:
    known = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    for row in rows:
        columns = [column for column in known if column in row]
        values = ", ".join(f":{column}" for column in columns)
        connection.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({values})", row)  # noqa: S608


def _drop_dangling(connection: sqlite3.Connection) -> None:
    """Delete rows that refer to lost rows, repeatedly, because each deletion may leave further ones."""
    while broken := connection.execute("PRAGMA foreign_key_check").fetchall():
        for table, rowid, _parent, _number in broken:
            if rowid is not None:
                connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608  names of our own schema
                continue
            # A table without row ids: delete by its foreign keys.
            for _, _, parent, column, to, *_ in connection.execute(f"PRAGMA foreign_key_list({table})").fetchall():
                connection.execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT {to} FROM {parent})")  # noqa: S608  names of our own schema


class _Nodes:
    """The saved messages by key. A parent always has a smaller key than its children."""

    def __init__(self, rows: Iterable[_Row], indexed_ids: Mapping[int, str]) -> None:
        self.kept: dict[int, _Row] = {}
        self.damaged = 0
        self._indexed_ids = indexed_ids
        self._true_ids = dict(indexed_ids)
        """The original ids, including those of messages whose text is damaged."""
        self._doubtful: dict[int, str] = {}
        """The id computed from the text, for messages whose id or text is damaged."""
        self._found: dict[int, _Row] = {}
        self._root_key = 0
        self._last_key = 0
        for row in rows:
            known = self._found.get(row["key"])
            if known is None or not self._is_plausible(known):
                self._found[row["key"]] = row
        for key in sorted(self._found):
            self._keep(self._found[key])

    @staticmethod
    def _is_plausible(row: _Row) -> bool:
        return row["id"].startswith(NODE_TAG) and (row["depth"] == 0 or _message(row["message"]) is not None)

    def _keep(self, row: _Row) -> None:
        key, parent_key, text = row["key"], row["parent_key"], row["message"]
        self._true_ids[key] = row["id"]
        if parent_key is None:
            true_id = root_id_of(text)
            if true_id in (row["id"], self._indexed_ids.get(key)) and row["depth"] == 0:
                self._true_ids[key] = true_id
                self.kept[key] = {**row, "id": true_id, "root_key": None, "is_note": False}
            else:
                self.damaged += 1
                self._doubtful[key] = true_id
            return
        if self._is_whole(row):
            self._place(row, self._parent(parent_key, row), text, is_note=False)
        else:
            self.damaged += 1

    def _is_whole(self, row: _Row) -> bool:
        key, parent_key, text = row["key"], row["parent_key"], row["message"]
        true_parent = self._true_ids.get(parent_key) if parent_key < key else None
        if true_parent is None:
            return _message(text) is not None
        own_ids = (row["id"], self._indexed_ids.get(key))
        candidates = [true_parent, self._indexed_ids.get(parent_key), self._doubtful.get(parent_key)]
        if parent_key not in self.kept and len(text) <= _MAX_TRIED_CHARS:
            candidates += _one_bit_off(true_parent)
        for parent_id in candidates:
            if parent_id and (made := node_id_of(parent_id, text)) in own_ids:
                self._true_ids[key] = made
                self._true_ids[parent_key] = parent_id
                self.confirm(parent_key, parent_id)
                return True
        self._doubtful[key] = node_id_of(true_parent, text)
        return False

    def confirm(self, key: int, node_id: str) -> bool:
        """Keep a message whose stored id was damaged, if its text hashes to `node_id` (or an id that starts with it),
        which another row refers to. Return whether it does."""
        if not node_id or not self._doubtful.get(key, "").startswith(node_id):
            return False
        self._true_ids[key] = self._doubtful.pop(key)
        self.damaged -= 1
        row = self._found[key]
        if row["parent_key"] is None:
            self.kept[key] = {**row, "id": self._true_ids[key], "root_key": None, "depth": 0, "is_note": False}
        else:
            self._place(row, self._parent(row["parent_key"], row), row["message"], is_note=False)
        return True

    def _place(self, row: _Row, parent: _Row, text: str, *, is_note: bool) -> None:
        self.kept[row["key"]] = {
            **row,
            "id": node_id_of(parent["id"], text),
            "parent_key": parent["key"],
            "root_key": parent["key"] if parent["root_key"] is None else parent["root_key"],
            "depth": parent["depth"] + 1,
            "message": text,
            "is_note": is_note,
        }

    def _parent(self, key: int, child: _Row) -> _Row:
        """Return the parent of a kept message; if the parent is lost, a note in its place."""
        if key in self.kept and key < child["key"]:
            return self.kept[key]
        if key >= child["key"]:
            key = self._free_key()
        found = self._found.get(key)
        above = None if found is None else found["parent_key"]
        if above is not None and above in self.kept and above < key:
            parent = self.kept[above]
        elif child["root_key"] in self.kept:
            parent = self.kept[child["root_key"]]
        else:
            parent = self._empty_root()
        return self.note(key, parent, child["created_at"])

    def note(self, key: int, parent: _Row, now: float) -> _Row:
        message = user(NOTE.format(key))
        row = {"key": key, "role": message.role, "source": "system", "created_at": now}
        row |= {"meta": "{}", "tags": "[]", "bookmark": ""}
        self._place(row, parent, encode_stored(message), is_note=True)
        return self.kept[key]

    def lost_end(self) -> int:
        """Add a note that replaces a whole lost conversation; return its key."""
        return cast("int", self.note(self._free_key(), self._empty_root(), time.time())["key"])

    def _empty_root(self) -> _Row:
        if not self._root_key:
            text = encode_root("")
            known = next((key for key, row in self.kept.items() if row["id"] == root_id_of(text)), None)
            self._root_key = known or self._free_key()
            row: _Row = {"key": self._root_key, "id": root_id_of(text), "parent_key": None, "root_key": None}
            row |= {"depth": 0, "role": "system", "message": text, "source": "system", "created_at": time.time()}
            row |= {"meta": "{}", "tags": "[]", "bookmark": "", "is_note": False}
            self.kept.setdefault(self._root_key, row)
        return self.kept[self._root_key]

    def _free_key(self) -> int:
        self._last_key = max(self._last_key, 0 if self._last_key else max([0, *self._found, *self.kept])) + 1
        return self._last_key

    def true_id(self, key: int) -> str:
        return self._true_ids.get(key, "")

    def by_digits(self, digits: str) -> int | None:
        """Return the key of the message whose original id starts with these digits."""
        return next((key for key in self.kept if self.true_id(key).startswith(NODE_TAG + digits)), None)

    def nearest(self, key: int) -> int | None:
        """Return `key` if its message is kept, else the key of the nearest kept message above it."""
        seen = set[int]()
        at: int | None = key
        while at is not None and at not in self.kept and at not in seen:
            seen.add(at)
            at = self._found[at]["parent_key"] if at in self._found else None
        return at if at in self.kept else None

    def path(self, key: int) -> Iterator[int]:
        at: int | None = key
        while at is not None:
            yield at
            at = self.kept[at]["parent_key"]

    def finish(self) -> None:
        """Replace unreadable metadata of kept messages by defaults."""
        for row in self.kept.values():
            message = _message(row["message"]) if row["depth"] else None
            row["role"] = "system" if message is None else message.role
            if row["source"] not in get_args(RowSource):
                row["source"] = SOURCE_OF_ROLE.get(row["role"], "system")
            for column, shape, usual in (("meta", dict[str, Any], "{}"), ("tags", tuple[str, ...], "[]")):
                if not _is_json(row[column], shape):
                    row[column] = usual

    def media(self) -> Iterator[_Row]:
        for key, row in self.kept.items():
            message = _message(row["message"]) if row["depth"] and '"sha256:' in row["message"] else None
            for digest in digests_of(message) if message is not None else ():
                yield {"node_key": key, "digest": digest}


class _Sessions:
    def __init__(self, rows: Iterable[_Row], tips: Iterable[_Row], nodes: _Nodes) -> None:
        self.kept: dict[int, _Row] = {}
        self.damaged = 0
        self._nodes = nodes
        newest: dict[int, _Row] = {}
        for row in rows:
            if row["key"] not in newest or newest[row["key"]]["rev"] < row["rev"]:
                newest[row["key"]] = row
        ids = Counter(row["id"] for row in newest.values())
        for key, row in newest.items():
            if ids[row["id"]] == 1:
                self.kept[key] = self._repair(row)
        self._tips = {(row["session_key"], row["node_key"]) for row in tips}

    def _repair(self, row: _Row) -> _Row:
        head = self._head(row)
        if head is None:
            self.damaged += 1
            head = self._nodes.lost_end()
        for column in _JSON_COLUMNS:
            if not _is_json(row[column], dict[str, Any]):
                row[column] = "{}"
        digits = self._nodes.kept[head]["id"].removeprefix(NODE_TAG)[:16]
        return {**row, "head_key": head, "head_digits": digits, "holder": "", "held_until": 0}

    def _head(self, row: _Row) -> int | None:
        digits = row.get("head_digits", "")
        self._nodes.confirm(row["head_key"], NODE_TAG + digits if digits else "")
        true_id = self._nodes.true_id(row["head_key"])
        if digits and true_id and not true_id.startswith(NODE_TAG + digits):
            return self._nodes.by_digits(digits)
        return self._nodes.nearest(row["head_key"])

    def tips(self) -> Iterator[_Row]:
        for session_key, node_key in sorted(self._tips):
            if session_key in self.kept and node_key in self._nodes.kept:
                head_path = set(self._nodes.path(self.kept[session_key]["head_key"]))
                if node_key not in head_path:
                    yield {"session_key": session_key, "node_key": node_key}

    def recover(self) -> int:
        """Create sessions for conversations that belong to no session any more; return how many."""
        reached = set[int]()
        for end in [row["head_key"] for row in self.kept.values()] + [row["node_key"] for row in self.tips()]:
            reached.update(self._nodes.path(end))
        reached |= {row["parent_key"] for row in self._nodes.kept.values()}
        lost = [key for key, row in self._nodes.kept.items() if row["depth"] and key not in reached]
        by_beginning: defaultdict[int, list[int]] = defaultdict(list)
        for end in lost:
            *_, first, _root = self._nodes.path(end)
            by_beginning[first].append(end)
        for number, ends in enumerate(by_beginning.values(), 1):
            self._add(number, ends)
        return len(by_beginning)

    def _add(self, number: int, ends: list[int]) -> None:
        key = max([0, *self.kept]) + 1
        head = max(ends)
        now = time.time()
        row: _Row = dict.fromkeys((*_JSON_COLUMNS,), "{}")
        row |= {"key": key, "id": new_session_id(now), "title": f"{RECOVERED} {number}", "head_key": head}
        row |= {"model": "", "workspace": "", "archived": 0, "last_seq": 0, "rev": 1}
        row |= {"created_at": now, "updated_at": now}
        self.kept[key] = row | {"head_digits": self._nodes.kept[head]["id"].removeprefix(NODE_TAG)[:16]}
        self._tips |= {(key, end) for end in ends if end != head}


def _one_bit_off(node_id: str) -> Iterator[str]:
    """Yield every id that differs from this one in one bit. If a child's id follows from one of them, that was the
    original id."""
    for at in range(len(NODE_TAG), len(node_id)):
        for bit in range(8):
            yield f"{node_id[:at]}{chr(ord(node_id[at]) ^ 1 << bit)}{node_id[at + 1 :]}"


def _events(rows: Iterable[_Row], sessions: _Sessions) -> list[_Row]:
    kept = [row for row in rows if row["session_key"] in sessions.kept and _is_json(row["data"], Any)]
    for row in kept:
        session = sessions.kept[row["session_key"]]
        session["last_seq"] = max(session["last_seq"], row["seq"])
    return kept


def _media_of_queued(rows: Iterable[_Row]) -> Iterator[_Row]:
    for row in rows:
        message = _message(row["message"])
        for digest in digests_of(message) if message is not None and row["answers_left"] > 0 else ():
            yield {"queued_key": row["key"], "digest": digest}


def _message(text: str) -> Message | None:
    """Decode a stored message; return None if it is damaged."""
    try:
        return decode_message(text)
    except LoomError:
        return None


def _is_json(text: str, shape: Any) -> bool:
    try:
        decode_json(text, shape)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True
