"""Session: the protocol that every face talks to. A local session and a remote one cannot be told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from loom.content.inputs import Content
from loom.content.messages import Message
from loom.events import Event, StopReason
from loom.models import Usage
from loom.prompt import Receipt


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, folded: the model's last message and what it took to get there."""

    node: str
    message: Message
    usage: Usage
    stop: StopReason | None
    receipt: Receipt

    @property
    def text(self) -> str:
        return self.message.text

    def __str__(self) -> str:
        return self.text


class Session(Protocol):
    """What a person resumes: a named head in the forest."""

    @property
    def id(self) -> str: ...

    def stream(self, *content: Content) -> AsyncIterator[Event]:
        """Say something and watch the turn. Every message is on disk before the next step begins."""
        ...

    async def send(self, *content: Content) -> Reply:
        """The same, folded."""
        ...

    async def path(self) -> tuple[Message, ...]: ...

    async def use(self, model: str) -> None:
        """Ask another model from now on."""
        ...

    async def fork(self, node: str | None = None) -> Session: ...

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        """What the next request would carry, for these models. Nothing is sent by looking."""
        ...

    async def cancel(self) -> None: ...

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None: ...
