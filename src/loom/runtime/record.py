"""StoredRecord: a session of the database, as the agent sees it. While it holds the session's lease, every write
carries the fence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from loom.agent.ports import State
from loom.content.blocks import ToolResult
from loom.content.messages import Message
from loom.context.policy import Override, Placed, Said, Watermark, wishes_of
from loom.errors import ContentError, Corrupt, NotFound, StoreError
from loom.events import Event, ToolFinished, TurnFailed, TurnFinished, decode_event, encode_event
from loom.session import Options, Queued
from loom.store.leases import Lease
from loom.store.nodes import Node
from loom.store.requests import Asked, Kind

if TYPE_CHECKING:
    from loom.runtime import Runtime

LEASE_SECONDS: Final = 15.0
_RENEWED_AFTER: Final = LEASE_SECONDS / 5

Written: TypeAlias = Callable[[str, int, Sequence[tuple[str, bytes]]], None]
"""Told of a session that these events (type and JSON) are on disk, and the number of the last."""


class _Loaded(msgspec.Struct, frozen=True):
    """A path that was read. Nodes never change, so a longer one only adds to it."""

    head: str
    system: str
    said: tuple[Said, ...]


class StoredRecord:
    def __init__(self, runtime: Runtime, session_id: str) -> None:
        self._runtime = runtime
        self._loaded: _Loaded | None = None
        self._lease: Lease | None = None
        self._renewed = 0.0
        self.id = session_id

    async def state(self) -> State:
        found = await self._runtime.sessions.get(self.id)
        overrides, alts = wishes_of(found.overrides)
        return State(
            head=found.head_id,
            model=found.model,
            workspace=found.workspace,
            title=found.title,
            overrides=overrides,
            alts=alts,
            watermarks=msgspec.convert(found.watermark, dict[str, Watermark]),
            quarantine=msgspec.convert(found.quarantine, dict[str, list[str]]),
            settings=found.settings,
        )

    async def path(self) -> tuple[str, tuple[Placed, ...]]:
        head = (await self._runtime.sessions.get(self.id)).head_id
        loaded = self._loaded
        if loaded is None or loaded.head != head:
            loaded = self._loaded = await self._load(head, loaded)
        return loaded.system, loaded.said

    async def _load(self, head: str, before: _Loaded | None) -> _Loaded:
        """Read what is new since the last time, or all of it where the head has gone elsewhere."""
        if before is not None:
            news = await self._runtime.forest.path_below(before.head, len(before.said), head)
            if news is not None:
                return _Loaded(head, before.system, (*before.said, *map(_said, news)))
        root, *nodes = await self._runtime.forest.path(head)
        return _Loaded(head, root.system or "", tuple(map(_said, nodes)))

    async def question(self, node: str | None) -> str:
        if node is not None and not await self._runtime.sessions.keeps(self.id, node):
            raise _not_kept()
        end = node or (await self._runtime.sessions.get(self.id)).head_id
        for found in reversed(await self._runtime.forest.path(end)):
            if found.message is not None and found.message.role == "user" and found.source == "user":
                return found.id
        raise NotFound("There is no question above that message.", hint="Say something first.")

    async def parent(self, node: str) -> str:
        return (await self._runtime.forest.node(node)).parent_id or ""

    async def append(
        self,
        messages: Sequence[Message],
        *,
        meta: Mapping[str, Any] | None = None,
        source: Literal["system", "tool"] | None = None,
    ) -> tuple[str, ...]:
        nodes = await self._runtime.sessions.append_to_head(
            self.id, messages, source=source, meta=meta, fence=self._fence
        )
        return tuple(node.id for node in nodes)

    async def branch(self, parent: str, message: Message, *, meta: Mapping[str, Any], source: Literal["system"]) -> str:
        (node,) = await self._runtime.forest.append(parent, [message], source=source, meta=meta)
        head = (await self._runtime.sessions.get(self.id)).head_id
        await self._runtime.sessions.move_head(self.id, head, node.id, fence=self._fence)
        return node.id

    async def move(self, node: str) -> None:
        if not await self._runtime.sessions.keeps(self.id, node):
            raise _not_kept()
        head = (await self._runtime.sessions.get(self.id)).head_id
        await self._runtime.sessions.move_head(self.id, head, node, fence=self._fence)

    async def save(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        watermark: Mapping[str, Any] | None = None,
        quarantine: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        await self._runtime.sessions.update(
            self.id,
            title=title,
            model=model,
            watermark=watermark,
            quarantine=quarantine,
            settings=settings,
            fence=self._fence,
        )

    async def override(self, changes: Mapping[str, Override]) -> None:
        kept = (await self._runtime.sessions.get(self.id)).overrides
        await self._runtime.sessions.update(self.id, overrides={**kept, **changes}, fence=self._fence)

    async def emit(self, events: Sequence[Event]) -> int:
        encoded = [(event.type, encode_event(event)) for event in events]
        seq = await self._runtime.events.append(self.id, encoded, fence=self._fence)
        for tell in self._runtime.on_events:
            tell(self.id, seq, encoded)
        return seq

    async def has_ended(self, turn: str) -> bool:
        with contextlib.suppress(Corrupt, ContentError):  # an end that cannot be read is told once more
            found = await self._runtime.events.last_of(self.id, ("turn_finished", "turn_failed"))
            match decode_event(found.data) if found is not None else None:
                case TurnFinished(turn=ended) | TurnFailed(turn=ended):
                    return ended == turn
                case _:
                    pass
        return False

    async def finished_calls(self) -> dict[str, ToolResult]:
        found: dict[str, ToolResult] = {}
        with contextlib.suppress(Corrupt, ContentError):  # what is damaged is told as interrupted; the session goes on
            last = await self._runtime.events.last_of(self.id, ("message_stored", "turn_started"))
            seq = last.seq if last is not None else 0
            while events := await self._runtime.events.after(self.id, seq):
                seq = events[-1].seq
                for stored in events:
                    if stored.type == "tool_finished" and isinstance(event := decode_event(stored.data), ToolFinished):
                        found[event.result.call_id] = event.result
        return found

    # Who runs it -----------------------------------------------------------------------------------------------------

    @property
    def _fence(self) -> int | None:
        return None if self._lease is None else self._lease.fence

    async def take(self) -> bool:
        self._lease = await self._runtime.leases.take(self.id, self._runtime.holder.name, LEASE_SECONDS)
        self._renewed = time.monotonic()
        return self._lease is not None

    async def beat(self) -> tuple[Asked, ...] | None:
        lease = self._lease
        if lease is None:
            return None
        try:
            if time.monotonic() - self._renewed >= _RENEWED_AFTER:
                if not await self._runtime.leases.renew(lease):
                    return None
                self._renewed = time.monotonic()
            held = await self._runtime.leases.look(lease)
            if not held.is_asked:
                return () if held.is_ours else None
            return await self._runtime.requests.take(self.id, fence=lease.fence) if held.is_ours else None
        except NotFound:  # the session was deleted
            return None
        except StoreError:
            if time.monotonic() - self._renewed >= LEASE_SECONDS:
                return None
            return ()

    async def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(StoreError):  # it runs out by itself
                await self._runtime.leases.release(lease)

    async def ask(self, kind: Kind, data: Mapping[str, Any]) -> None:
        await self._runtime.requests.put(self.id, kind, data)

    # What waits to be said -------------------------------------------------------------------------------------------

    async def enqueue(self, key: str, message: Message | None, options: Options) -> Queued:
        return await self._runtime.queue.put(self.id, key, message, options)

    async def waiting(self) -> tuple[Queued, ...]:
        return await self._runtime.queue.list(self.id)

    async def dequeue(self, queued: Queued) -> str | None:
        if self._lease is None:
            raise AssertionError("only who runs a session takes from its queue")
        return await self._runtime.queue.take(self.id, queued.id, fence=self._lease.fence)


def _said(node: Node) -> Said:
    if node.message is None:
        raise AssertionError("only a root has no message, and it is not said")
    return Said(node.id, node.message, bool(node.meta.get("is_blind")))


def _not_kept() -> NotFound:
    return NotFound("That message is not part of this session.", hint="Look at its tree: `loom tree`.")
