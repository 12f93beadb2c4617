"""The events of a turn as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeAlias

import msgspec

from loom.agent.failures import CONTINUE_HINT, error_of
from loom.content.output_types import convert_output
from loom.errors import LoomError
from loom.events import Event, MessageStored, TextDelta, TurnFailed, TurnFinished
from loom.session import Reply

Job: TypeAlias = Callable[[Callable[[Event], None]], Coroutine[Any, Any, None]]
"""Runs turns and passes each event to the function given."""
MakeReply: TypeAlias = Callable[[TurnFinished, Sequence[MessageStored]], Awaitable[Reply]]
"""Makes the reply from the end of a turn and its answers; raises `LoomError` if the answer is empty."""


class EventStream:
    """An async iterator over the events of a job. Closing it early (`aclose`, `async with`) cancels the running turn.

    The job starts when the first event is requested; an error of the job is raised after its last event.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._is_closed:
            raise StopAsyncIteration
        if self._task is None:
            events = self._events
            self._task = asyncio.create_task(self._job(events.put_nowait))
            self._task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is not None:
            return event
        self._is_closed = True
        if not self._task.cancelled():
            self._task.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the job and wait until it has ended; raise its error, if any."""
        self._is_closed = True
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is not None and not self._task.done() and not self._task.get_loop().is_closed():
            self._task.cancel()


class ReplyStream(EventStream):
    """The events of the turns that answer a message, the text of the answer (`text()`) and, at the end, the `reply`."""

    def __init__(self, job: Job, make_reply: MakeReply, output: Any = None) -> None:
        """Create the stream; `output` is the type of `Reply.output`."""
        super().__init__(job)
        self._make_reply = make_reply
        self._output = output
        self._answers: list[MessageStored] = []
        self._replies: list[Reply] = []
        self._failure: LoomError | None = None

    async def __anext__(self) -> Event:
        event = await super().__anext__()
        match event:
            case MessageStored(message=message):
                self._answers = [*self._answers, event] if message.role == "assistant" else []
            case TurnFailed():
                self._failure = error_of(event.code, event.text, event.hint)
            case TurnFinished():
                try:
                    made = await self._make_reply(event, self._answers)
                    value = convert_output(made.output, self._output)
                    self._replies.append(msgspec.structs.replace(made, output=value))
                except LoomError as error:
                    self._failure = error
                self._answers = []
            case _:
                pass
        return event

    async def text(self) -> AsyncGenerator[str]:
        """Iterate over the text of the answer only; raise the error of a turn that failed. Closing it early cancels the
        turn."""
        async with self:
            async for event in self:
                if isinstance(event, TextDelta):
                    yield event.text
        if self._failure is not None:
            raise self._failure

    @property
    def reply(self) -> Reply:
        """The reply, available after all events were read. Raises the error of a turn that failed."""
        if self._failure is not None:
            raise self._failure
        if not self._is_closed:
            raise LoomError("The turn has not ended yet.", hint="Read all events first, or `await stream.finish()`.")
        if not self._replies:
            raise LoomError("The turn was cancelled", hint=CONTINUE_HINT)
        *others, last = self._replies
        return msgspec.structs.replace(last, siblings=tuple(others))

    async def finish(self) -> Reply:
        """Read the remaining events and return the reply: of several answers the last, with the others as
        `siblings`."""
        async with self:
            async for _ in self:
                if self._failure is not None:
                    break
        return self.reply
