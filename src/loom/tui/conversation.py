"""OpenConversation: a session as the screens use it, in this process or on a daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from loom.content.messages import Message
from loom.errors import LoomError
from loom.events import Event, TurnFailed

if TYPE_CHECKING:  # not imported before the first paint
    from loom.api_types import OverrideChoice, TreeNode
    from loom.compile.policy import Override
    from loom.estimates import DiscardedCache
    from loom.message_types import History
    from loom.prompt import ReceiptRow
    from loom.session import Session

PAGE: Final = 1_000
"""The number of messages per page of a path."""


class PathMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the current path. `speaker` is the model that wrote it, if known."""

    node: str
    message: Message
    speaker: str = ""


class OpenConversation:
    """An open session. Stateless operations use `session` directly. `on_error` receives the error of a turn that could
    not be run here."""

    def __init__(self, session: Session, on_error: Callable[[LoomError], None]) -> None:
        self.session = session
        self._on_error = on_error
        self._seq: int | None = None
        """The number of the last event when the path was read."""
        self._partial: tuple[Event, ...] = ()
        self.running_model = ""
        """The model of the turn that was unfinished when the path was read; empty if there was none."""
        self.failure: TurnFailed | None = None
        """How the last turn had ended when the path was read, unless it finished."""
        self._working: asyncio.Task[None] | None = None
        self._has_work = False

    @property
    def id(self) -> str:
        return self.session.id

    async def path(self, *, newest: int = 0) -> tuple[PathMessage, ...]:
        """Return the messages from the root to the head; with `newest`, only that many of the last ones."""
        first = page = await self.session.history(limit=newest or PAGE)
        found = list(page.messages)
        while not newest and page.more and page.messages:
            page = await self.session.history(before=page.messages[0].node, limit=PAGE)
            found = [*page.messages, *found]
        if self._seq is None:
            self._seq, self._partial, self.failure = first.seq, _partial_events(first), first.failure
            self.running_model = first.running.model if first.running is not None else ""
        return tuple(PathMessage(node=it.node, message=Message(it.role, it.blocks), speaker=it.model) for it in found)

    async def tree(self) -> tuple[TreeNode, ...]:
        """Return the messages of all branches, without the root, which holds the system prompt."""
        return tuple(node for node in (await self.session.tree()).nodes if node.role in ("user", "assistant", "tool"))

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events of the unfinished answer so far, then all events from now on, without end. An unfinished
        turn is continued."""
        if self._seq is None:
            await self.path(newest=1)
        for event in self._partial:
            yield event
        self.work()
        async with aclosing(self.session.watch(self._seq)) as events:
            async for _, event in events:
                yield event

    def work(self) -> None:
        """Run the queued messages, unless a daemon does."""
        self._has_work = True
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._has_work:  # a message may be queued after the worker has read the queue for the last time
                self._has_work = False
                async with aclosing(self.session.work()) as events:
                    async for _ in events:  # `events` yields them
                        pass
        except LoomError as error:
            self._on_error(error)

    @property
    def is_working(self) -> bool:
        """Whether a turn may run here, also without a reader of its events."""
        return self._working is not None and not self._working.done()

    async def close(self) -> None:
        """Stop working here; the turn stays open for the next process to continue."""
        try:
            await self.session.leave()
        finally:
            if self._working is not None:
                self._working.cancel()
                await asyncio.wait([self._working])

    async def override(self, row: ReceiptRow, rendition: Override | None) -> None:
        """Set the rendition of one block; None leaves it to the policy."""
        await self.session.set_overrides(await self._override_of(row, rendition))

    async def discarded_by(self, row: ReceiptRow, rendition: Override | None) -> DiscardedCache | None:
        """Return the cached tokens that `override` would discard; None if there are none."""
        (receipt,) = await self.session.plan(overrides=await self._override_of(row, rendition))
        return receipt.estimate.discards if receipt.estimate is not None else None

    async def _override_of(self, row: ReceiptRow, rendition: Override | None) -> dict[str, OverrideChoice]:
        from loom.compile.policy import override_key

        key = override_key((await self.path())[row.message].node, row.block, row.inner)
        return {key: rendition or "auto"}


def _partial_events(history: History) -> tuple[Event, ...]:
    from loom.events import decode_event

    return tuple(decode_event(bytes(it.data)) for it in history.running.partial) if history.running is not None else ()
