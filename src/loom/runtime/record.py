"""A session of the database as the agent's `SessionRecord`. While the lease is held, every write carries its fencing
token.

A database that is unavailable for a moment does not end a turn: writes are retried as long as the lease is valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from loom.agent.compact import SUMMARIZED_END
from loom.agent.ports import Committed, Completion, OpenStep
from loom.compile.cost import Calibration
from loom.compile.policy import DetachedMessage, Watermark, overrides_of
from loom.compile.request import LearnedLimits, Snapshot
from loom.content.blocks import ToolResult
from loom.content.messages import Message
from loom.content.wire_forms import stored_form
from loom.errors import ContentError, Corrupt, NotFound, StoreError, Unreachable
from loom.events import (
    Event,
    ModelEvent,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    decode_event,
    encode_event,
    is_model_event,
)
from loom.runtime.calibrations import ModelCalibrations
from loom.runtime.event_log import EventLog
from loom.runtime.session_settings import system_prompt_of
from loom.session import Options, Queued, SessionChange
from loom.store.commands import CommandKind, Commands, StoredCommand
from loom.store.database import wait_for_database
from loom.store.events import EncodedEvents
from loom.store.forest import Forest
from loom.store.journal import CommitResult, Journal, KnownPath, SessionPath
from loom.store.journal import JournalCompletion as StoredCompletion
from loom.store.leases import Lease, Leases
from loom.store.nodes import Node
from loom.store.queue import MessageQueue
from loom.store.session_rows import StoredSession
from loom.store.sessions import Sessions
from loom.struct_types import convert

LEASE_SECONDS: Final = 15.0
_RENEWED_AFTER: Final = LEASE_SECONDS / 5
_RETRY_SECONDS: Final = 0.25
_COMPLETE: Final = ("end", "stop_sequence", "max_tokens", "refusal", "other", "overflow")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class SessionStores(msgspec.Struct, frozen=True, kw_only=True):
    """The stores of sessions."""

    sessions: Sessions
    forest: Forest
    journal: Journal
    events: EventLog
    queue: MessageQueue
    leases: Leases
    requests: Commands
    calibrations: ModelCalibrations


class _Path(msgspec.Struct, frozen=True):
    """A path that was read. Nodes never change, so a longer path only adds to it."""

    head: str
    system: str
    placed: tuple[DetachedMessage, ...]


class StoredRecord:
    """A session record in the database. `holder` is the name of this process in leases."""

    def __init__(self, stores: SessionStores, session_id: str, holder: str) -> None:
        self._stores = stores
        self._holder = holder
        self._path: _Path | None = None
        self._lease: Lease | None = None
        self._renewed = 0.0
        self._seq = 0
        """The number of the last event that was written or read here."""
        self.id = session_id

    # Read ------------------------------------------------------------------------------------------------------------

    async def snapshot(self, at: str = "") -> Snapshot:
        if at:
            session = await self._stores.sessions.get(self.id)
            root, *nodes = await self._stores.forest.path(at)
            return await self._snapshot(session, root.system or "", tuple(map(placed_node, nodes)))
        known = self._path
        return await self._extend_path(known, await self._stores.journal.read(self.id, _known_path(known)))

    async def _extend_path(self, known: _Path | None, found: SessionPath) -> Snapshot:
        """Return the snapshot of what was read behind `known`, the path that was known when the read began."""
        session = found.session
        if known is not None and found.is_continuation:
            path = _Path(session.head_id, known.system, (*known.placed, *map(placed_node, found.nodes)))
        else:
            root, *nodes = found.nodes
            path = _Path(session.head_id, root.system or "", tuple(map(placed_node, nodes)))
        self._path = path
        return await self._snapshot(session, path.system, path.placed)

    async def _snapshot(self, session: StoredSession, system: str, path: tuple[DetachedMessage, ...]) -> Snapshot:
        return snapshot_of(session, system, path, await self._stores.calibrations.load())

    async def question(self, node: str | None) -> str:
        if node is not None:
            await self.check_kept(node)
        end = node or (await self._stores.sessions.get(self.id)).head_id
        for found in reversed(await self._stores.forest.path(end)):
            if found.message is not None and found.message.role == "user" and found.source == "user":
                return found.id
        raise NotFound("No user message precedes that message.", hint="Send a message first.")

    async def model(self) -> str:
        return (await self._stores.sessions.get(self.id)).model

    async def parent(self, node: str) -> str:
        return (await self._stores.forest.node(node)).parent_id or ""

    async def summarized_end(self, node: str) -> str:
        return str((await self._stores.forest.node(node)).meta.get(SUMMARIZED_END, ""))

    async def check_kept(self, node: str) -> None:
        if not await self._stores.sessions.keeps(self.id, node):
            raise NotFound("That message is not part of this session.", hint="Show its tree: `loom tree`.")

    async def has_ended(self, turn: str) -> bool:
        with contextlib.suppress(Corrupt, ContentError):  # an end that cannot be read is written again
            found = await self._stores.events.last_of(self.id, ("turn_finished", "turn_failed"))
            match decode_event(found.data) if found is not None else None:
                case TurnFinished(turn=ended) | TurnFailed(turn=ended):
                    return ended == turn
                case _:
                    pass
        return False

    async def is_answer_complete(self, node: str) -> bool:
        return (await self._stores.forest.node(node)).meta.get("finish_reason", "end") in _COMPLETE

    async def open_step(self) -> OpenStep:
        step = _OpenStepReader()
        try:
            last = await self._stores.events.last_of(self.id, ("message_stored", "turn_started"))
            seq = last.seq if last is not None else 0
            while events := await self._stores.events.after(self.id, seq):
                seq = self._seq = events[-1].seq
                for stored in events:
                    step.read(stored.data)
        except Corrupt:
            step.is_damaged = True
        return step.result()

    # Write -----------------------------------------------------------------------------------------------------------

    async def commit(self, change: SessionChange, complete: Callable[[tuple[str, ...]], Completion]) -> Committed:
        known = self._path
        shown: list[Event] = []
        nodes: list[str] = []

        def encode(ids: tuple[str, ...]) -> StoredCompletion:
            found = complete(ids)
            shown[:], nodes[:] = found.events, ids
            return StoredCompletion(
                events=[(event.type, encode_event(event, for_log=True)) for event in found.events],
                settings=found.settings,
                overrides=found.overrides,
            )

        async def write() -> CommitResult:
            return await self._stores.journal.commit(
                self.id, change, encode, fence=self._fence, known=_known_path(known)
            )

        async def was_written() -> CommitResult | None:
            """Return the result of a write whose connection was lost, if the log contains its events; None if it was
            not committed."""
            if not shown:
                return None
            batch = [encode_event(event, for_log=True) for event in shown]
            seq = await self._stores.events.find_batch(self.id, batch, self._seq)
            if seq is None:
                return None
            lease = self._lease
            is_kept = change.lease == "keep" or (
                lease is not None and (await self._stores.leases.read_state(lease)).is_ours
            )
            return CommitResult(nodes=tuple(nodes), seq=seq, is_released=not is_kept)

        committed = await self._while_leased(write, was_written)
        if committed.is_released and self._lease is not None:
            self._stores.leases.note_released(self._lease)
            self._lease = None
        if not committed.is_gone:
            self._seq = max(self._seq, committed.seq if shown else 0)
            self._stores.events.publish(self.id, committed.seq, shown)
        return Committed(
            nodes=committed.nodes,
            is_gone=committed.is_gone,
            is_released=committed.is_released,
            snapshot=await self._extend_path(known, committed.after) if committed.after is not None else None,
        )

    async def append_events(self, events: Sequence[Event]) -> int:
        async def write() -> int:
            return await self._stores.events.append(self.id, events, fence=self._fence)

        async def was_written() -> int | None:
            batch = [encode_event(event, for_log=True) for event in events]
            return await self._stores.events.find_batch(self.id, batch, self._seq)

        seq = await self._while_leased(write, was_written)
        self._seq = max(self._seq, seq)
        self._stores.events.publish(self.id, seq, events)
        return seq

    async def use_model(self, model: str) -> None:
        await self._stores.sessions.update(self.id, model=model)

    async def set_options(self, options: Mapping[str, Any]) -> None:
        await self._stores.sessions.update(self.id, settings={"options": dict(options) or None})

    async def _while_leased(
        self, write: Callable[[], Awaitable[T]], was_written: Callable[[], Awaitable[T | None]]
    ) -> T:
        """Write. If a lost connection leaves it unknown whether the write was committed, check that, and write again if
        it was not."""
        is_retry = False
        while True:
            try:
                if is_retry and (found := await was_written()) is not None:
                    return found
                return await write()
            except Unreachable as error:
                if self._lease is None or time.monotonic() - self._renewed >= LEASE_SECONDS:
                    raise
                if not is_retry:
                    _log.warning(
                        "session %s: the database cannot be reached, trying again (%s)", self.id, error.message
                    )
                is_retry = True
                await asyncio.sleep(_RETRY_SECONDS)

    # The lease -------------------------------------------------------------------------------------------------------

    def wait_for_store(self) -> AbstractContextManager[None]:
        return wait_for_database(lambda: time.monotonic() - self._renewed < LEASE_SECONDS)

    @property
    def _fence(self) -> int | None:
        return None if self._lease is None else self._lease.fence

    @property
    def has_lease(self) -> bool:
        return self._lease is not None

    async def acquire(self) -> bool:
        self._lease = await self._stores.leases.acquire(self.id, self._holder, LEASE_SECONDS)
        self._renewed = time.monotonic()
        return self._lease is not None

    async def heartbeat(self) -> tuple[StoredCommand, ...] | None:
        lease = self._lease
        if lease is None:
            return ()
        try:
            if time.monotonic() - self._renewed >= _RENEWED_AFTER:
                if not await self._stores.leases.renew(lease):
                    return None if self._lease is lease else ()
                self._renewed = time.monotonic()
            held = await self._stores.leases.read_state(lease)
            if self._lease is not lease:  # released meanwhile, with the end of the turn
                return ()
            if not held.is_asked:
                return () if held.is_ours else None
            return await self._stores.requests.take(self.id, fence=lease.fence) if held.is_ours else None
        except NotFound:  # the session was deleted
            return None
        except StoreError:
            return None if time.monotonic() - self._renewed >= LEASE_SECONDS else ()

    async def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(StoreError):  # it expires by itself
                await self._stores.leases.release(lease)

    async def send_command(self, kind: CommandKind, data: Mapping[str, Any]) -> None:
        await self._stores.requests.put(self.id, kind, data)

    # The queue -------------------------------------------------------------------------------------------------------

    async def enqueue(
        self, key: str, message: Message | None, options: Options, events: Callable[[str], Sequence[Event]]
    ) -> Queued:
        shown: list[Event] = []

        def encode(queued_id: str) -> EncodedEvents:
            shown[:] = events(queued_id)
            return encode_for_log(shown)

        queued = await self._stores.queue.put(self.id, key, message, options, encode)
        if queued.is_new and shown:
            self._stores.events.publish(self.id, queued.seq + len(shown), shown)
        return queued

    async def queue(self) -> tuple[Queued, ...]:
        return await self._stores.queue.list(self.id)


def encode_for_log(events: Sequence[Event]) -> EncodedEvents:
    return [(event.type, encode_event(event, for_log=True)) for event in events]


def _known_path(known: _Path | None) -> KnownPath:
    return KnownPath(known.head, len(known.placed)) if known is not None else KnownPath()


class _OpenStepReader:
    """Folds the events of an unfinished step. Events that cannot be read are noted."""

    def __init__(self) -> None:
        self.is_damaged = False
        self._answer: list[ModelEvent] = []
        self._model = ""
        self._tokens = 0
        self._begun: set[str] = set()
        self._results: dict[str, ToolResult] = {}

    def read(self, data: bytes) -> None:
        try:
            event = decode_event(data)
        except ContentError:
            self.is_damaged = True
            return
        match event:
            case StepStarted():
                self._answer, self._model, self._tokens = [], event.model, event.tokens
            case ToolStarted():
                self._begun.add(event.call.id)
            case ToolFinished():
                self._results[event.result.call_id] = event.result
            case _ if is_model_event(event):
                self._answer.append(event)
            case _:
                pass

    def result(self) -> OpenStep:
        return OpenStep(
            answer=tuple(self._answer),
            model=self._model,
            requested_tokens=self._tokens,
            begun=frozenset(self._begun),
            results=self._results,
            is_damaged=self.is_damaged,
        )


def snapshot_of(
    session: StoredSession,
    system: str,
    path: tuple[DetachedMessage, ...],
    calibrations: Mapping[str, Calibration] = MappingProxyType({}),
) -> Snapshot:
    """Return a stored session in the form that compiling reads. `calibrations` are those of the models; a session of an
    earlier version may have its own for others."""
    overrides, alts = overrides_of(session.overrides)
    return Snapshot(
        head=session.head_id,
        model=session.model,
        workspace=session.workspace,
        title=session.title,
        system=system_prompt_of(session.settings, system),
        path=path,
        overrides=overrides,
        alts=alts,
        watermarks=convert(session.watermark, dict[str, Watermark]),
        calibrations={
            **convert(session.settings.get("calibration", {}), dict[str, Calibration]),
            **calibrations,
        },
        limits=convert(session.settings.get("lessons", {}), dict[str, LearnedLimits]),
        quarantine=convert(session.quarantine, dict[str, list[str]]),
        settings=session.settings,
    )


def placed_node(node: Node) -> DetachedMessage:
    """Return a node of a path in the form that compiling reads."""
    if node.message is None:
        raise AssertionError("only a root has no message, and it is not on the path")
    return DetachedMessage(node.id, node.message, bool(node.meta.get("is_blind")), stored_form(node.meta))
