"""Lines that a person types while a turn runs: the turn reads them at its next step."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Final, NamedTuple

from loom.cli.shared.terminal import one_line, print_line
from loom.content.inputs import Content
from loom.errors import LoomError, NotFound
from loom.events import Event, MessageStored, TurnFailed, TurnFinished, TurnStarted
from loom.session import Queued, Session

_LAST: Final = ""
"""Marks the end of a turn; typed lines end with a newline."""


class SentLine(NamedTuple):
    line: str
    queued: Queued
    seq: int
    """The number of the last event before the line was sent."""


class TypedLines:
    """Reads the terminal during a turn and sends each line to it. A line for which `content_of` returns None waits for
    the prompt, and so does every line after it; `waiting` contains them, None for the end of the input."""

    def __init__(self, session: Session, content_of: Callable[[str], list[Content] | None]) -> None:
        self.waiting: deque[str | None] = deque()
        self._session = session
        self._content_of = content_of
        self._arrived: asyncio.Queue[str | None] = asyncio.Queue()
        self._sent: list[SentLine] = []

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Read and send lines within the context of a turn."""
        sender = asyncio.create_task(self._send_lines())
        self._listen()
        try:
            yield
        finally:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._arrived.put_nowait(_LAST)
            await sender

    @contextmanager
    def step_aside(self) -> Generator[None]:
        """Stop reading the terminal while a prompt uses it."""
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        try:
            yield
        finally:
            self._listen()

    def note_event(self, event: Event) -> None:
        """Print a line when the turn has read it."""
        if not isinstance(event, MessageStored) or event.message.role != "user":
            return
        read = next((sent for sent in self._sent if sent.queued.message == event.message), None)
        if read is not None:
            self._sent.remove(read)
            print_line(f"the model reads: {one_line(read.line)}")

    async def take_back(self) -> list[SentLine]:
        """Take lines that the turn has not read out of the queue; they wait for the prompt. Return those whose turn has
        already started."""
        begun: list[SentLine] = []
        for sent in reversed(self._sent):
            try:
                await self._session.remove_queued(sent.queued.id)
            except NotFound:
                begun.insert(0, sent)
            else:
                self.waiting.appendleft(sent.line.strip())
        self._sent.clear()
        return begun

    def _listen(self) -> None:
        descriptor = sys.stdin.fileno()

        def read() -> None:
            data = os.read(descriptor, 4096)
            self._arrived.put_nowait(data.decode("utf-8", "replace") if data else None)
            if not data:
                asyncio.get_running_loop().remove_reader(descriptor)

        asyncio.get_running_loop().add_reader(descriptor, read)

    async def _send_lines(self) -> None:
        while (line := await self._arrived.get()) != _LAST:
            if line is not None and not line.strip():
                continue
            content = self._content_of(line.strip()) if line is not None and not self.waiting else None
            if line is None or content is None:
                self.waiting.append(line)
                continue
            seq = (await self._session.history(limit=1)).seq
            try:
                self._sent.append(SentLine(line, await self._session.steer(*content), seq))
            except LoomError as error:
                print_line(f"{one_line(line)} is sent after this turn: {error.message}")
                self.waiting.append(line)


async def follow_turn(session: Session, sent: SentLine) -> AsyncGenerator[Event]:
    """Yield the events of the turn that another process has started for a line. Closing the generator early cancels the
    turn."""
    turn, is_over = "", False
    try:
        async with aclosing(session.watch(sent.seq)) as events:
            async for _, event in events:
                if isinstance(event, TurnStarted) and event.message == sent.queued.id:
                    turn = event.turn
                if turn:
                    is_over = isinstance(event, TurnFinished | TurnFailed) and event.turn == turn
                    yield event
                if is_over:
                    return
    finally:
        if turn and not is_over:
            await session.cancel(turn)
