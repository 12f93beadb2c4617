"""Sessions: named heads in the forest, and which nodes each of them keeps.

A session keeps every branch that its head has been on: when the head moves to another branch, the end of the old one is
recorded. A fork is a new head on the same nodes. Deleting a session deletes the nodes that no other session keeps.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any

import msgspec

from loom.content.messages import Message
from loom.errors import NotFound, StoreError
from loom.store.database import Database, Transaction, Work, checked_limit
from loom.store.forest import Clock
from loom.store.media_references import SELECT_REFERENCED, referenced_media, tracked_digests
from loom.store.media_text import forget_texts
from loom.store.nodes import Node, NodeDraft, drafts_of, insert_root, plain_json, plain_text, ref_at, ref_of
from loom.store.session_rows import (
    PRUNE,
    SELECT_BEFORE,
    SELECT_DIGESTS,
    SELECT_NEWEST,
    SELECT_QUEUED_DIGESTS,
    SELECT_SESSION,
    SELECT_TIPS,
    SELECT_USE,
    UPDATE_SESSION,
    StoredSession,
    append_aside,
    append_below_head,
    check_session,
    check_session_id,
    folder_name,
    insert_session,
    keeps,
    lock_for_delete,
    lock_head,
    lock_session,
    move_head,
    new_session_id,
    one_line,
    prune,
    read_session,
    repair_session,
    require_session,
    session_for_list,
    stale_head,
    stale_session,
    stored_tags,
    tag_pattern,
)
from loom.struct_types import decode_json


class Sessions:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def create(
        self,
        *,
        system: str = "",
        title: str = "",
        model: str = "",
        workspace: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> StoredSession:
        work = self.creation(system=system, title=title, model=model, workspace=workspace, settings=settings)
        return await self._database.write(work)

    def creation(
        self,
        *,
        system: str = "",
        title: str = "",
        model: str = "",
        workspace: str = "",
        settings: Mapping[str, Any] | None = None,
        drafts: Sequence[NodeDraft] = (),
    ) -> Work[StoredSession]:
        """Return what creates a session with its first messages inside a transaction."""
        now = self._clock()
        values = {
            "id": new_session_id(now),
            "title": one_line(title),
            "model": plain_text(model, "the name of a model"),
            "workspace": plain_text(workspace, "the path of a workspace"),
            "settings": plain_json(dict(settings or {}), "settings"),
            "overrides": "{}",
            "quarantine": "{}",
            "watermark": "{}",
        }

        def work(tx: Transaction) -> StoredSession:
            tx.lock(PRUNE)
            root = insert_root(tx, system, now)
            created = insert_session(tx, values, root, now)
            if not drafts:
                return created
            append_below_head(tx, lock_head(tx, created.id, fence=None)[0], root, drafts, now)
            return read_session(tx, created.id)

        return work

    async def get(self, session_id: str) -> StoredSession:
        return require_session(await self._database.select(SELECT_SESSION, {"id": check_session_id(session_id)}))

    async def list(
        self,
        *,
        archived: bool | None = False,
        pinned: bool | None = None,
        folder: str | None = None,
        tag: str = "",
        limit: int = 50,
        before: tuple[float, str] | None = None,
    ) -> tuple[StoredSession, ...]:
        """Return up to `limit` sessions, newest first. None for `archived`, `pinned` or `folder` means any; `before` is
        the cursor: (updated_at, id) of the last session of the previous page."""
        filters = {
            "archived": -1 if archived is None else int(archived),
            "pinned": -1 if pinned is None else int(pinned),
            "any_folder": int(folder is None),
            "folder": plain_text(folder or "", "a folder"),
            "tag": tag_pattern(tag) if tag else "",
            "limit": checked_limit(limit),
        }
        if before is None:
            rows = await self._database.read(lambda tx: tx.execute(SELECT_NEWEST, filters))
        else:
            cursor = {"updated_at": before[0], "id": plain_text(before[1], "an id")}
            rows = await self._database.read(lambda tx: tx.execute(SELECT_BEFORE, {**filters, **cursor}))
        return tuple(session_for_list(row) for row in rows)

    async def list_all(self) -> AsyncGenerator[StoredSession]:
        """Yield the sessions that are not archived, including those that cannot be opened, newest first."""
        place: tuple[float, str] | None = None
        while page := await self.list(limit=100, before=place):
            for stored in page:
                yield stored
            place = (page[-1].updated_at, page[-1].id)

    async def update(
        self,
        session_id: str,
        *,
        rev: int | None = None,
        title: str | None = None,
        model: str | None = None,
        workspace: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        watermark: Mapping[str, Any] | None = None,
        quarantine: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        archived: bool | None = None,
        folder: str | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        fence: int | None = None,
    ) -> StoredSession:
        """Change the given columns. `settings` are merged into the stored ones; the value None removes a setting. With
        `rev`, raise `Stale` if the session has another revision; with the `fence` of a lease, raise `Conflict` if it
        was lost."""
        changes = {
            "title": None if title is None else one_line(title),
            "model": None if model is None else plain_text(model, "the name of a model"),
            "workspace": None if workspace is None else plain_text(workspace, "the path of a workspace"),
            "overrides": None if overrides is None else plain_json(dict(overrides), "overrides"),
            "watermark": None if watermark is None else plain_json(dict(watermark), "a watermark"),
            "quarantine": None if quarantine is None else plain_json(dict(quarantine), "quarantine"),
            "settings": None,
            "archived": None if archived is None else int(archived),
            "folder": None if folder is None else folder_name(folder),
            "tags": None if tags is None else stored_tags(tags),
            "pinned": None if pinned is None else int(pinned),
            "now": self._clock(),
        }

        def work(tx: Transaction) -> StoredSession:
            key, _, found_rev = lock_session(tx, session_id, fence=fence)
            if rev is not None and rev != found_rev:
                raise stale_session()
            if settings is not None:
                merged = {**read_session(tx, session_id).settings, **settings}
                kept = {name: value for name, value in merged.items() if value is not None}
                changes["settings"] = plain_json(kept, "settings")
            tx.execute(UPDATE_SESSION, {**changes, "key": key})
            return read_session(tx, session_id)

        return await self._database.write(work)

    async def folders(self) -> dict[str, int]:
        """Return each folder and its number of sessions, without archived ones."""
        sql = "SELECT folder, COUNT(*) FROM session WHERE folder <> '' AND archived = 0 GROUP BY folder ORDER BY folder"
        return {row[0]: row[1] for row in await self._database.select(sql)}

    async def tags(self) -> dict[str, int]:
        """Return each tag and its number of sessions, without archived ones."""
        sql = "SELECT tags, COUNT(*) FROM session WHERE tags <> '[]' AND archived = 0 GROUP BY tags"
        counts: Counter[str] = Counter()
        for stored, count in await self._database.select(sql):
            with contextlib.suppress(msgspec.DecodeError):  # a damaged record; `list` reports it
                counts.update(dict.fromkeys(decode_json(stored, list[str]), count))
        return dict(sorted(counts.items()))

    async def with_head(self, node_id: str) -> StoredSession | None:
        """Return the newest session whose head is this node; None if there is none."""
        sql = (
            "SELECT s.id FROM session s JOIN node n ON n.key = s.head_key WHERE n.id = :node"
            " ORDER BY s.updated_at DESC LIMIT 1"
        )
        rows = await self._database.select(sql, {"node": node_id})
        return await self.get(rows[0][0]) if rows else None

    async def repair(self, session_id: str) -> StoredSession:
        """Repair a damaged session record (see `repair_session`). Messages are not changed."""

        def work(tx: Transaction) -> StoredSession:
            tx.lock(PRUNE)
            repair_session(tx, session_id, self._clock())
            return read_session(tx, session_id)

        return await self._database.write(work)

    async def append_to_head(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        expected_head: str | None = None,
        meta: Mapping[str, Any] | None = None,
        fence: int | None = None,
    ) -> tuple[Node, ...]:
        """Write messages below the head and move it to the last of them, in one transaction.

        Raise `Conflict` if the head is not `expected_head` (when given), if another process runs a turn, or if the
        lease with this `fence` was lost.
        """
        drafts = drafts_of(messages, meta=meta)
        now = self._clock()

        def work(tx: Transaction) -> tuple[Node, ...]:
            key, head_key, _ = lock_head(tx, session_id, fence=fence)
            head = ref_at(tx, head_key)
            if expected_head is not None and head.id != expected_head:
                raise stale_head()
            return append_below_head(tx, key, head, drafts, now) if drafts else ()

        return await self._database.write(work)

    async def append_branch(
        self,
        session_id: str,
        parent_id: str,
        messages: Sequence[Message],
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> tuple[Node, ...]:
        """Write messages below any node of the session, as a branch; the head does not move. Raise `NotFound` if the
        node is not part of the session."""
        drafts = drafts_of(messages, meta=meta)
        now = self._clock()

        def work(tx: Transaction) -> tuple[Node, ...]:
            tx.lock(PRUNE)
            key, _, _ = lock_session(tx, session_id)
            parent = ref_of(tx, parent_id)
            if not keeps(tx, key, parent):
                raise NotFound("That message is not part of this session.", hint="Show its tree: `loom tree`.")
            return append_aside(tx, key, parent, drafts, now) if drafts else ()

        return await self._database.write(work)

    async def move_head(
        self, session_id: str, expected_head: str, new_head: str, *, fence: int | None = None
    ) -> StoredSession:
        """Move the head to another node. Raise `Conflict` if the head is not `expected_head`, if another process runs a
        turn, or if the lease with this `fence` was lost."""
        now = self._clock()

        def work(tx: Transaction) -> StoredSession:
            tx.lock(PRUNE)
            key, head_key, _ = lock_head(tx, session_id, fence=fence)
            head, target = ref_at(tx, head_key), ref_of(tx, new_head)
            if head.id != expected_head:
                raise stale_head()
            if target.key != head.key:
                move_head(tx, key, head, target, now)
            return read_session(tx, session_id)

        return await self._database.write(work)

    async def fork(self, session_id: str, node_id: str | None = None, *, title: str | None = None) -> StoredSession:
        """Create a session whose head is a node of this one, by default its head. Nodes are shared, not copied. Raise
        `NotFound` if the node is not part of this session."""
        now = self._clock()
        new_id = new_session_id(now)

        def work(tx: Transaction) -> StoredSession:
            tx.lock(PRUNE)
            key, head_key, _ = lock_session(tx, session_id)
            found = read_session(tx, session_id)
            head = ref_at(tx, head_key) if node_id is None else ref_of(tx, node_id)
            if not keeps(tx, key, head):
                raise NotFound("That message is not part of this session.", hint="Fork the session that contains it.")
            values = {
                "id": new_id,
                "title": found.title if title is None else one_line(title),
                "model": found.model,
                "workspace": found.workspace,
                "settings": plain_json(found.settings, "settings"),
                "overrides": plain_json(found.overrides, "overrides"),
                "quarantine": plain_json(found.quarantine, "quarantine"),
                "watermark": plain_json(found.watermark, "a watermark"),
                "folder": found.folder,
                "tags": plain_json(list(found.tags), "tags"),
            }
            return insert_session(tx, values, head, now)

        return await self._database.write(work)

    async def delete(self, session_id: str) -> tuple[str, ...]:
        """Delete a session, its events and the nodes that no other session keeps, even if its record is damaged.

        Return the digests that it needed and that no message refers to any more. Before deleting their bytes, the
        caller must check `media_in_use`: other sessions may need them otherwise, or refer to them by then.
        """

        def work(tx: Transaction) -> tuple[str, ...]:
            tx.lock(PRUNE)
            key, head_key, settings = lock_for_delete(tx, session_id)
            tips = [row[0] for row in tx.execute("SELECT node_key FROM tip WHERE session_key = :key", {"key": key})]
            needed = {row[0] for row in tx.execute(SELECT_QUEUED_DIGESTS, {"key": key})} | tracked_digests(settings)
            tx.execute("DELETE FROM session WHERE key = :key", {"key": key})
            tx.execute("DELETE FROM share WHERE session_id = :id", {"id": session_id})
            digests = needed | {digest for end in (*tips, head_key) for digest in prune(tx, end)}
            freed = tuple(sorted(digest for digest in digests if not tx.execute(SELECT_USE, {"digest": digest})))
            forget_texts(tx, freed)
            return freed

        freed = await self._database.write(work)
        with contextlib.suppress(StoreError):  # the session is deleted; a busy or full file is scrubbed next time
            await self._database.scrub()
        return freed

    async def tips(self, session_id: str) -> tuple[str, ...]:
        """Return the ids of the ends of the session's branches; the head, if it is one, is the last."""

        def work(tx: Transaction) -> tuple[str, ...]:
            key, head_key = check_session(tx, session_id)
            head = ref_at(tx, head_key)
            left = tuple(row[0] for row in tx.execute(SELECT_TIPS, {"key": key}))
            return left if keeps(tx, key, head, with_head=False) else (*left, head.id)

        return await self._database.read(work)

    async def keeps(self, session_id: str, node_id: str) -> bool:
        """Return whether a node is on a branch of this session."""

        def work(tx: Transaction) -> bool:
            return keeps(tx, check_session(tx, session_id)[0], ref_of(tx, node_id))

        return await self._database.read(work)

    async def digests(self, session_id: str) -> frozenset[str]:
        """Return every digest that a message of this session refers to, on any branch or in the queue."""

        def work(tx: Transaction) -> frozenset[str]:
            key = check_session(tx, session_id)[0]
            sent = tx.execute(SELECT_DIGESTS, {"key": key, "head": 1, "depth": 0})
            return frozenset(row[0] for row in (*sent, *tx.execute(SELECT_QUEUED_DIGESTS, {"key": key})))

        return await self._database.read(work)

    async def referenced_digests(self) -> frozenset[str]:
        """Return every digest that a message or uploaded file refers to: the ones that a sweep must keep."""
        rows = await self._database.read(lambda tx: tx.execute(SELECT_REFERENCED))
        return frozenset(row[0] for row in rows)

    async def media_in_use(self, digests: Collection[str]) -> frozenset[str]:
        """Return those of `digests` whose bytes a session needs."""
        return frozenset(await self._database.read(lambda tx: referenced_media(tx, digests)))
