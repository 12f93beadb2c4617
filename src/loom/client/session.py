"""RemoteSession: a session on a daemon, with the interface of a local one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from loom.agent.failures import CONTINUE_HINT, error_of
from loom.agent.file_undo import ChangedStep, UndoReport
from loom.agent.output import read_output
from loom.client.connection import DaemonConnection
from loom.client.receipts import RemotePlan, receipt_of
from loom.client.uploads import upload
from loom.content.blocks import Block
from loom.content.inputs import Content
from loom.content.messages import Message, Role
from loom.errors import LoomError, NotFound
from loom.events import (
    ApprovalRequested,
    Event,
    MessageQueued,
    MessageStored,
    NoticeRaised,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from loom.formats.facts import IntakeLimits
from loom.prompt import Receipt
from loom.sampling import Choices, Sampling, sampling_of
from loom.session import Queued, Reply

_PAGE: Final = 1_000
_BEGIN_SECONDS: Final = 5.0
"""How long the start event of a turn may take after its message has left the queue."""


class _Posted(msgspec.Struct):
    message: str
    node: str | None
    queued: bool
    turn: str | None = None
    notices: tuple[str, ...] = ()


class SessionLine(msgspec.Struct, frozen=True, kw_only=True):
    """A session in the daemon's list."""

    id: str
    title: str
    model: str
    workspace: str
    head: str
    rev: int
    archived: bool
    created_at: float
    updated_at: float
    last_seq: int
    state: Literal["idle", "running", "waiting", "queued"]
    snippet: str = ""


class _Line(msgspec.Struct):
    node: str
    parent: str | None
    role: Role
    blocks: tuple[Block, ...]


class _OpenTurn(msgspec.Struct):
    turn: str


class _History(msgspec.Struct):
    messages: tuple[_Line, ...]
    more: bool
    seq: int = 0
    approvals: tuple[ApprovalRequested, ...] = ()
    running: _OpenTurn | None = None


class _Changes(msgspec.Struct):
    steps: tuple[ChangedStep, ...]


class RemoteSession:
    """A session on a daemon. `tools` limits the tools for messages sent through this object."""

    def __init__(
        self, link: DaemonConnection, session_id: str, limits: IntakeLimits, *, tools: Sequence[str] | None = None
    ) -> None:
        self._link = link
        self._limits = limits
        self._tools = None if tools is None else tuple(tools)
        self.id = session_id

    # Say something ---------------------------------------------------------------------------------------------------

    async def stream(
        self,
        *content: Content,
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> AsyncGenerator[Event]:
        """Send a message and yield the events of its turn; leaving early cancels it. A lost connection is reopened
        without losing events."""
        wanted = self._options(model, n, sampling_of(options, thinking=thinking))
        found = await upload(self._link, content, self._limits)
        message = Message("user", found.blocks)
        body = {"blocks": found.blocks, "parent": parent, **wanted}
        for notice in found.notices:
            yield NoticeRaised(text=notice, code="door")
        async with aclosing(self._post_and_stream("messages", body, n, message)) as events:
            async for event in events:
                yield event

    async def regenerate(
        self, node: str | None = None, *, model: str = "", n: int = 1, thinking: str = "", options: Choices = None
    ) -> AsyncGenerator[Event]:
        """Generate an alternative answer to the message above `node`."""
        body = {"node": node, **self._options(model, n, sampling_of(options, thinking=thinking))}
        async with aclosing(self._post_and_stream("regenerate", body, n)) as events:
            async for event in events:
                yield event

    again = regenerate
    """The old name of `regenerate`."""

    async def send(
        self,
        *content: Content,
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> Reply:
        """Send a message and return the reply; raise the error of a failed turn."""
        replies: list[Reply] = []
        answers: list[MessageStored] = []
        asked = ""
        stream = self.stream(*content, model=model, parent=parent, n=n, thinking=thinking, options=options)
        async with aclosing(stream) as events:
            async for event in events:
                match event:
                    case TurnStarted():
                        asked = event.model
                    case MessageStored() if event.message.role == "assistant":
                        answers.append(event)
                    case TurnFailed():
                        raise error_of(event.code, event.text, event.hint)
                    case TurnFinished():
                        reply = await self._reply(event, answers, asked)
                        output = read_output(reply.text, sampling_of(options).output_schema)
                        replies.append(msgspec.structs.replace(reply, output=output))
                        answers.clear()
                    case _:
                        pass
        if not replies:
            raise LoomError("the turn was cancelled", hint=CONTINUE_HINT)
        *others, last = replies
        return msgspec.structs.replace(last, siblings=tuple(others))

    async def post(
        self,
        *content: Content,
        key: str = "",
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> Queued:
        """Queue a message without waiting for its turn. It is on the daemon's disk when this returns; the same
        `key` again returns the first one."""
        wanted = self._options(model, n, sampling_of(options, thinking=thinking))
        found = await upload(self._link, content, self._limits)
        key = key or secrets.token_hex(16)
        body = {"blocks": found.blocks, "parent": parent, **wanted}
        posted = await self._post("messages", body, key)
        return Queued(
            id=posted.message,
            key=key,
            message=Message("user", found.blocks),
            node=posted.node or "",
            answers_left=int(posted.queued),
            notices=(*found.notices, *posted.notices),
        )

    async def resume(self) -> AsyncGenerator[Event]:
        """Yield the pending approvals of a turn, then its events to the end. Leaving early cancels it."""
        now = await self._now()
        if now.running is None or not now.approvals:
            return
        known = {asked.approval for asked in now.approvals}
        turn, is_over = now.running.turn, False
        try:
            for asked in now.approvals:
                yield asked
            async with aclosing(self._link.events(self.id, now.seq)) as events:
                async for _, event in events:
                    is_over = isinstance(event, TurnFinished | TurnFailed) and event.turn == turn
                    # A daemon that takes the turn up asks again, under the same names.
                    if not isinstance(event, ApprovalRequested) or event.approval not in known:
                        yield event
                    if is_over:
                        break
        finally:
            if not is_over:
                await self._cancel(turn)

    def _options(self, model: str, n: int, sampling: Sampling) -> dict[str, Any]:
        chosen: dict[str, Any] = {} if self._tools is None else {"tools": self._tools}
        if sampling != Sampling():
            chosen["options"] = sampling
        return {"model": model, "n": n, **chosen}

    async def events(self, after: int = 0) -> AsyncGenerator[tuple[int, Event]]:
        """Yield all events of the session after this number, without end, each with its number."""
        async with aclosing(self._link.events(self.id, after)) as events:
            async for numbered in events:
                yield numbered

    async def _post_and_stream(
        self, route: str, body: dict[str, Any], n: int, message: Message | None = None
    ) -> AsyncGenerator[Event]:
        """Post a request and yield the events of its turns."""
        key = secrets.token_hex(16)
        before = (await self.info()).last_seq
        posting = asyncio.create_task(self._post(route, body, key))
        turns = _Turns(message, n, before)
        try:
            posted = await asyncio.shield(posting)
            async with aclosing(turns.of(posted.message, self._link.events(self.id, before))) as events:
                async for event in events:
                    if event is None:
                        await self._check_waits(route, body, key)
                    else:
                        yield event
        finally:
            if not turns.are_over:
                await self._give_up(posting, turns)

    async def _check_waits(self, route: str, body: dict[str, Any], key: str) -> None:
        posted = await self._post(route, body, key)
        if posted.node is None and not posted.queued:
            raise LoomError("the message was removed from the queue", hint="Send it again.")

    async def _give_up(self, posting: asyncio.Task[_Posted], turns: _Turns) -> None:
        """Remove the message from the queue, or cancel its turn. A message that was never accepted needs neither."""
        await asyncio.wait([posting])
        if posting.cancelled() or posting.exception() is not None:
            return
        posted = posting.result()
        turn = turns.turn if turns.have_begun else posted.turn
        try:
            await self._link.ask("DELETE", self._path(f"/queue/{posted.message}"), repeats=False)
        except NotFound:  # it does not wait any more
            turn = turn or await self._wait_for_turn(posted.message, turns.seen)
        if turn:
            await self._cancel(turn)

    async def _wait_for_turn(self, queued: str, after: int) -> str:
        """Return the turn of a message that has left the queue; its event arrives a moment later. Empty if it
        does not: another client removed the message."""
        if (await self.info()).state in ("idle", "queued"):
            return ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS), aclosing(self._link.events(self.id, after)) as events:
                async for _, event in events:
                    if isinstance(event, TurnStarted) and event.message == queued:
                        return event.turn
        return ""

    async def _post(self, route: str, body: dict[str, Any], key: str) -> _Posted:
        answer = await self._link.ask("POST", self._path(f"/{route}"), json=body, headers={"idempotency-key": key})
        return msgspec.json.decode(answer, type=_Posted)

    async def _reply(self, finished: TurnFinished, answers: Sequence[MessageStored], model: str) -> Reply:
        if not answers:
            raise LoomError(f"the model returned an empty answer (stop: {finished.stop})", hint="Ask again.")
        last = answers[-1]
        receipt = await self._last_receipt(model)
        path = await self._lines(last.node)
        question = next((line for line in reversed(path) if line.role == "user"), None)
        return Reply(
            node=last.node,
            message=last.message,
            usage=finished.usage,
            stop=finished.stop,
            receipt=receipt,
            parent=(question.parent or "") if question else "",
        )

    # Look and change -------------------------------------------------------------------------------------------------

    async def info(self) -> SessionLine:
        return msgspec.json.decode(await self._link.ask("GET", self._path()), type=SessionLine)

    async def path(self) -> tuple[Message, ...]:
        return tuple(Message(line.role, line.blocks) for line in await self._lines())

    async def head(self) -> str:
        return (await self.info()).head

    async def use(self, model: str) -> None:
        """Set the model of the session."""
        await self._link.ask("PATCH", self._path(), json={"model": model})

    async def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace those that were set before."""
        wanted = sampling_of(options, thinking=thinking)
        await self._link.ask("PATCH", self._path(), json={"options": msgspec.to_builtins(wanted)})

    async def rename(self, title: str) -> None:
        await self._link.ask("PATCH", self._path(), json={"title": title})

    async def go(self, node: str) -> None:
        """Move the head to any node of the session."""
        await self._link.ask("POST", self._path("/head"), json={"node": node})

    async def fork(self, node: str | None = None) -> RemoteSession:
        made = await self._link.ask("POST", self._path("/fork"), json={"node": node}, repeats=False)
        session_id = msgspec.json.decode(made, type=SessionLine).id
        return RemoteSession(self._link, session_id, self._limits, tools=self._tools)

    async def changes(self) -> tuple[ChangedStep, ...]:
        """Return the steps of the current path that changed files."""
        return msgspec.json.decode(await self._link.ask("GET", self._path("/changes")), type=_Changes).steps

    async def undo(self, step: int | None = None) -> UndoReport:
        """Undo the file changes of the last step that has any, or of `step` and all later ones."""
        answer = await self._link.ask("POST", self._path("/undo"), json={"step": step}, repeats=False)
        return msgspec.json.decode(answer, type=UndoReport)

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        """Return what the next request would contain for these models. Nothing is sent."""
        wanted = list(models) or [(await self.info()).model]
        answer = await self._link.ask("POST", self._path("/plan"), json={"models": wanted})
        plan = msgspec.json.decode(answer, type=RemotePlan)
        return tuple(receipt_of(plan, model) for model in wanted)

    async def _last_receipt(self, model: str) -> Receipt:
        """Return the receipt of the last request."""
        answer = await self._link.ask("POST", self._path("/plan"), json={"models": [model], "sent": True})
        return receipt_of(msgspec.json.decode(answer, type=RemotePlan), model)

    async def cancel(self) -> None:
        await self._cancel("")

    async def _cancel(self, turn: str) -> None:
        """Cancel this turn, or the running one if `turn` is empty."""
        await self._link.ask("POST", self._path("/cancel"), json={"turn": turn})

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals."""
        return (await self._now()).approvals

    async def _now(self) -> _History:
        """Return the last message and the state of the session."""
        answer = await self._link.ask("GET", self._path("/messages"), params={"limit": 1})
        return msgspec.json.decode(answer, type=_History)

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        body = {"answer": answer, "reason": reason}
        await self._link.ask("POST", self._path(f"/approvals/{quote(approval, safe='')}"), json=body, repeats=False)

    async def delete(self) -> None:
        await self._link.ask("DELETE", self._path())

    async def _lines(self, head: str = "") -> list[_Line]:
        lines: list[_Line] = []
        place: dict[str, str | int] = {"limit": _PAGE, **({"head": head} if head else {})}
        while True:
            answer = await self._link.ask("GET", self._path("/messages"), params=place)
            page = msgspec.json.decode(answer, type=_History)
            lines = [*page.messages, *lines]
            if not page.more or not page.messages:
                return lines
            place["before"] = page.messages[0].node

    def _path(self, below: str = "") -> str:
        return f"/v1/sessions/{self.id}{below}"


class _Turns:
    """Selects the turns of one message from all events of a session."""

    def __init__(self, message: Message | None, n: int, seen: int) -> None:
        self.turn = ""
        """The running turn."""
        self.have_begun = False
        self.seen = seen
        """The number of the last event."""
        self._queued = ""
        self._message = message
        self._left = n
        self._held: list[Event] = []
        """Events since the last turn of another message: they may belong to ours."""
        self._is_told = False

    @property
    def are_over(self) -> bool:
        """Whether all turns have ended; true before the last event is yielded, so that a caller may stop there."""
        return not self._left

    async def of(self, queued: str, events: AsyncGenerator[tuple[int, Event]]) -> AsyncGenerator[Event | None]:
        """Yield the events of our turns; None at the end of another turn, when our message may have been removed."""
        self._queued = queued
        async with aclosing(events):
            async for self.seen, event in events:
                for found in self._within(event) if self.turn else self._before(event):
                    yield found
                if self.are_over:
                    return

    def _within(self, event: Event) -> list[Event | None]:
        if isinstance(event, TurnFinished | TurnFailed) and event.turn == self.turn:
            self.turn, self._left = "", self._left - 1
        return [event]

    def _before(self, event: Event) -> list[Event | None]:
        match event:
            case TurnStarted() if event.message == self._queued:
                self.turn, self.have_begun = event.turn, True
                held, self._held = self._held, []
                return [*held, event]
            case TurnFailed() if self._is_placed():
                self._left = 0
                return [*self._held, event]
            case TurnFinished() | TurnFailed():
                self._held.clear()
                return [None]
            case MessageStored() | NoticeRaised():
                self._held.append(event)
                return []
            case MessageQueued():
                return []
            case _:
                return self._others()

    def _is_placed(self) -> bool:
        """Return whether our message was stored and its turn ended without a start event."""
        said = [event.message for event in self._held if isinstance(event, MessageStored)]
        return self._message is not None and self._message in said

    def _others(self) -> list[Event | None]:
        if self._is_told or self._message is None:
            return []
        self._is_told = True
        return [MessageQueued(message=self._message, id=self._queued)]
