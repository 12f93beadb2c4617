"""RemoteSession: a session on a daemon, with the interface of a local one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Literal, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from loom.agent.failures import CONTINUE_HINT, error_of
from loom.agent.output import read_output
from loom.api_types import FileList, MediaText, OverrideChoice, SessionUsage, SessionView, TreeView
from loom.client.connection import DaemonConnection
from loom.client.receipts import receipt_of
from loom.client.uploads import upload
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.content.output_types import convert_output
from loom.errors import ContentError, LoomError, NotFound
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
from loom.message_types import Children, History, MessageView, PlanView, PostedMessage, QueueView, WireView
from loom.prompt import Receipt
from loom.sampling import Choices, Sampling, sampling_of
from loom.session import (
    AnswerKeywords,
    ExportFormat,
    MediaBytes,
    MessageKeywords,
    NumberedEvent,
    Options,
    Queued,
    Reply,
    options_of,
    with_models,
)
from loom.struct_types import decode_json
from loom.work_types import ChangedStep, ChangeList, ProcessList, ProcessView, Todo, TodoList, UndoReport

T = TypeVar("T")

_PAGE: Final = 1_000
_QUESTION_PAGE: Final = 10
"""The messages that are read at once to find the question of an answer: a step has two."""
_BEGIN_SECONDS: Final = 5.0
"""How long the start event of a turn may take after its message has left the queue."""


class RemoteSession:
    """A session on a daemon. `tools` limits the tools for messages sent through this object."""

    def __init__(
        self, link: DaemonConnection, session_id: str, limits: IntakeLimits, *, tools: Sequence[str] | None = None
    ) -> None:
        self._link = link
        self._limits = limits
        self._tools = None if tools is None else tuple(tools)
        self.id = session_id

    # Messages --------------------------------------------------------------------------------------------------------

    async def stream(self, *content: Content, **how: Unpack[MessageKeywords]) -> AsyncGenerator[Event]:
        """Send a message and yield the events of its turn; closing the stream early cancels the turn. A lost connection
        is reopened without losing events."""
        wanted = options_of(**how, tools=self._tools)
        found = await upload(self._link, content, self._limits)
        message = Message("user", found.blocks)
        body = {"blocks": found.blocks, "parent": wanted.parent or None, **_option_fields(wanted)}
        for notice in found.notices:
            yield NoticeRaised(text=notice, code="attachment")
        async with aclosing(self._post_and_stream("messages", body, wanted.n, message)) as events:
            async for event in events:
                yield event

    async def regenerate(self, node: str | None = None, **how: Unpack[AnswerKeywords]) -> AsyncGenerator[Event]:
        """Generate an alternative answer to the message above `node`."""
        wanted = options_of(**how, parent=node, tools=self._tools)
        body = {"node": node, **_option_fields(wanted)}
        async with aclosing(self._post_and_stream("regenerate", body, wanted.n)) as events:
            async for event in events:
                yield event

    async def compact(self, *, model: str = "") -> AsyncGenerator[Event]:
        async with aclosing(self._post_and_stream("compact", {"model": model}, 1)) as events:
            async for event in events:
                yield event

    again = regenerate
    """The old name of `regenerate`."""

    async def send(self, *content: Content, **how: Unpack[MessageKeywords]) -> Reply:
        """Send a message and return the reply; raise the error of a failed turn."""
        replies: list[Reply] = []
        answers: list[MessageStored] = []
        asked = ""
        schema = options_of(**how).sampling.output_schema
        async with aclosing(self.stream(*content, **how)) as events:
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
                        output = convert_output(await read_output(reply.text, schema), how.get("output"))
                        replies.append(msgspec.structs.replace(reply, output=output))
                        answers.clear()
                    case _:
                        pass
        if not replies:
            raise LoomError("The turn was cancelled", hint=CONTINUE_HINT)
        *others, last = replies
        return msgspec.structs.replace(last, siblings=tuple(others))

    async def post(
        self, *content: Content, key: str = "", models: Sequence[str] = (), **how: Unpack[MessageKeywords]
    ) -> Queued:
        """Queue a message without waiting for its turn. It is on the daemon's disk when this returns; a repeated `key`
        returns the first message."""
        wanted = with_models(options_of(**how, tools=self._tools), models)
        return await self._enqueue(content, {"parent": wanted.parent or None, **_option_fields(wanted)}, key)

    async def steer(self, *content: Content, key: str = "") -> Queued:
        return await self._enqueue(content, {"steer": True, **_option_fields(Options(tools=self._tools))}, key)

    async def _enqueue(self, content: Sequence[Content], body: Mapping[str, Any], key: str) -> Queued:
        found = await upload(self._link, content, self._limits)
        key = key or secrets.token_hex(16)
        posted = await self._post("messages", {"blocks": found.blocks, **body}, key)
        return _queued_message(posted, key, Message("user", found.blocks), (*found.notices, *posted.notices))

    async def post_again(self, node: str | None = None, *, key: str = "", **how: Unpack[AnswerKeywords]) -> Queued:
        key = key or secrets.token_hex(16)
        body = {"node": node, **_option_fields(options_of(**how, parent=node, tools=self._tools))}
        return _queued_message(await self._post("regenerate", body, key), key)

    async def post_compact(self, *, key: str = "", model: str = "") -> Queued:
        key = key or secrets.token_hex(16)
        return _queued_message(await self._post("compact", {"model": model}, key), key)

    async def work(self) -> AsyncGenerator[Event]:
        """Yield nothing: the daemon runs queued messages."""
        return
        yield

    async def leave(self) -> None:
        """Do nothing: the daemon's turns continue without this client."""

    async def todos(self) -> tuple[Todo, ...]:
        return (await self._get("/todos", TodoList)).todos

    async def processes(self) -> tuple[ProcessView, ...]:
        return (await self._get("/processes", ProcessList)).processes

    async def stop_process(self, name: str) -> None:
        await self._link.ask("DELETE", self._path(f"/processes/{quote(name, safe='')}"), repeats=False)

    async def resume(self) -> AsyncGenerator[Event]:
        """Yield the pending approvals of a turn, then its events to the end. Closing it early cancels the turn."""
        now = await self._read_current()
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
                    # A daemon that resumes the turn requests the approvals again, with the same ids.
                    if not isinstance(event, ApprovalRequested) or event.approval not in known:
                        yield event
                    if is_over:
                        break
        finally:
            if not is_over:
                await self.cancel(turn)

    async def watch(self, after: int | None = None) -> AsyncGenerator[NumberedEvent]:
        seq = (await self.info()).last_seq if after is None else after
        async with aclosing(self._link.events(self.id, seq)) as events:
            async for numbered in events:
                yield numbered

    def events(self, after: int = 0) -> AsyncGenerator[NumberedEvent]:
        """The old name of `watch`."""
        return self.watch(after)

    async def _post_and_stream(
        self, route: str, body: dict[str, Any], n: int, message: Message | None = None
    ) -> AsyncGenerator[Event]:
        """Post a request and yield the events of its turns."""
        key = secrets.token_hex(16)
        posting = asyncio.create_task(self._post(route, body, key))
        turns = _Turns(message, n)
        try:
            posted = await asyncio.shield(posting)
            events_after = self._link.events(self.id, _first_seq(posted))
            async with aclosing(turns.of(posted.message, events_after)) as events:
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
            raise LoomError("The message was removed from the queue", hint="Send it again.")

    async def _give_up(self, posting: asyncio.Task[PostedMessage], turns: _Turns) -> None:
        """Remove the message from the queue, or cancel its turn. A message that was never accepted needs neither."""
        await asyncio.wait([posting])
        if posting.cancelled() or posting.exception() is not None:
            return
        posted = posting.result()
        turn = turns.turn if turns.have_begun else posted.turn
        try:
            await self._link.ask("DELETE", self._path(f"/queue/{posted.message}"), repeats=False)
        except NotFound:  # it is no longer queued
            turn = turn or await self._wait_for_turn(posted.message, turns.seen or _first_seq(posted))
        if turn:
            await self.cancel(turn)

    async def _wait_for_turn(self, queued: str, after: int) -> str:
        """Return the turn of a message that has left the queue; its start event arrives a moment later. Return an empty
        string if it does not, because another client removed the message."""
        if (await self.info()).state in ("idle", "queued"):
            return ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS), aclosing(self._link.events(self.id, after)) as events:
                async for _, event in events:
                    if isinstance(event, TurnStarted) and event.message == queued:
                        return event.turn
        return ""

    async def _post(self, route: str, body: dict[str, Any], key: str) -> PostedMessage:
        answer = await self._link.ask("POST", self._path(f"/{route}"), json=body, headers={"idempotency-key": key})
        return decode_json(answer, PostedMessage)

    async def _reply(self, finished: TurnFinished, answers: Sequence[MessageStored], model: str) -> Reply:
        if not answers:
            raise LoomError(f"The model returned an empty answer (stop: {finished.stop})", hint="Try again.")
        last = answers[-1]
        return Reply(
            node=last.node,
            message=last.message,
            usage=finished.usage,
            stop=finished.stop,
            receipt=receipt_of(await self.plan_table([model], sent=True), model),
            parent=await self._parent_of_question(last.node),
        )

    async def _parent_of_question(self, answer: str) -> str:
        """Return the node above the question of an answer."""
        before = ""
        while True:
            page = await self.history(before=before, head=answer, limit=_QUESTION_PAGE)
            for line in reversed(page.messages):
                if line.role == "user":
                    return line.parent or ""
            if not page.more or not page.messages:
                return ""
            before = page.messages[0].node

    # Look and change -------------------------------------------------------------------------------------------------

    async def info(self) -> SessionView:
        return decode_json(await self._link.ask("GET", self._path()), SessionView)

    async def path(self) -> tuple[Message, ...]:
        return tuple(Message(line.role, line.blocks) for line in await self._lines())

    async def head(self) -> str:
        return (await self.info()).head

    async def use(self, model: str) -> None:
        """Set the model of the session."""
        await self._link.ask("PATCH", self._path(), json={"model": model})

    async def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace earlier ones."""
        wanted = sampling_of(options, thinking=thinking)
        await self._link.ask("PATCH", self._path(), json={"options": msgspec.to_builtins(wanted)})

    async def rename(self, title: str) -> None:
        await self.change(title=title)

    async def change(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        workspace: str | None = None,
        archived: bool | None = None,
        folder: str | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        agent: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        plan_mode: bool | None = None,
        rev: int | None = None,
    ) -> SessionView:
        wanted: dict[str, Any] = {
            "title": title,
            "model": model,
            "workspace": workspace,
            "archived": archived,
            "folder": folder,
            "tags": tags,
            "pinned": pinned,
            "agent": agent,
            "system": system,
            "tools": None if tools is None else list(tools),
            "plan_mode": plan_mode,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        answer = await self._link.ask("PATCH", self._path(), json=given, headers=_if_match(rev))
        return decode_json(answer, SessionView)

    async def go(self, node: str, *, rev: int | None = None) -> None:
        await self._link.ask("POST", self._path("/head"), json={"node": node}, headers=_if_match(rev))

    async def fork(self, node: str | None = None, *, title: str | None = None) -> RemoteSession:
        made = await self._link.ask("POST", self._path("/fork"), json={"node": node, "title": title}, repeats=False)
        session_id = decode_json(made, SessionView).id
        return RemoteSession(self._link, session_id, self._limits, tools=self._tools)

    async def mark(self, node: str, *, bookmark: str | None = None, tags: Sequence[str] | None = None) -> None:
        wanted = {"bookmark": bookmark, "tags": None if tags is None else list(tags)}
        await self._link.ask("PATCH", self._path(f"/nodes/{quote(node)}"), json=wanted)

    async def history(self, *, before: str = "", head: str = "", limit: int = 200) -> History:
        params: dict[str, str | int] = {"before": before, "head": head, "limit": limit}
        return await self._get("/messages", History, params)

    async def tree(self) -> TreeView:
        return await self._get("/tree", TreeView)

    async def children(self, node: str) -> tuple[MessageView, ...]:
        return (await self._get(f"/nodes/{quote(node)}/children", Children)).children

    async def usage(self) -> SessionUsage:
        return await self._get("/usage", SessionUsage)

    async def queue(self) -> tuple[Queued, ...]:
        found = await self._get("/queue", QueueView)
        return tuple(
            Queued(
                id=it.message,
                key="",
                message=Message("user", it.blocks),
                options=Options(steers=it.steers),
                created_at=it.created_at,
                is_paused=it.paused,
            )
            for it in found.queue
        )

    async def remove_queued(self, queued: str) -> None:
        await self._link.ask("DELETE", self._path(f"/queue/{quote(queued, safe='')}"), repeats=False)

    async def pause_queue(self, *queued: str) -> None:
        await self._link.ask("PATCH", self._path("/queue"), json={"paused": True, "messages": queued})

    async def resume_queue(self, *queued: str) -> None:
        await self._link.ask("PATCH", self._path("/queue"), json={"paused": False, "messages": queued})

    async def files(self, query: str = "") -> tuple[str, ...]:
        return (await self._get("/files", FileList, {"q": query})).files

    async def export(self, format: ExportFormat = "md") -> bytes:  # noqa: A002  the option has this name everywhere
        return await self._link.ask("GET", self._path("/export"), params={"format": format})

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        kind, size, blocks = await self._link.open(self._path(f"/images/{quote(digest)}"), {"v": form})
        return MediaBytes(media_type=kind, size_bytes=size, blocks=blocks)

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        return await self._get(f"/images/{quote(digest)}/text", MediaText, {"page": page})

    async def wire(self, model: str = "", *, thinking: str = "", options: Choices = None) -> WireView:
        if options:
            raise ContentError("The daemon shows a request with the options of its session.", hint="Set them there.")
        return await self._get("/wire", WireView, {"model": model, "thinking": thinking})

    async def overrides(self) -> Mapping[str, OverrideChoice]:
        return await self._get("/overrides", dict[str, OverrideChoice])

    async def set_overrides(self, changes: Mapping[str, OverrideChoice], *, rev: int | None = None) -> SessionView:
        answer = await self._link.ask("PUT", self._path("/overrides"), json=dict(changes), headers=_if_match(rev))
        return decode_json(answer, SessionView)

    async def set_captions(self, changes: Mapping[str, str], *, rev: int | None = None) -> SessionView:
        answer = await self._link.ask("PUT", self._path("/alts"), json=dict(changes), headers=_if_match(rev))
        return decode_json(answer, SessionView)

    async def _get(self, below: str, kind: type[T], params: Mapping[str, str | int] | None = None) -> T:
        return decode_json(await self._link.ask("GET", self._path(below), params=params), kind)

    async def changes(self) -> tuple[ChangedStep, ...]:
        """Return the steps of the current path that changed files."""
        return decode_json(await self._link.ask("GET", self._path("/changes")), ChangeList).steps

    async def undo(self, step: int | None = None) -> UndoReport:
        """Undo the file changes of the last step that has any, or of `step` and all later ones."""
        answer = await self._link.ask("POST", self._path("/undo"), json={"step": step}, repeats=False)
        return decode_json(answer, UndoReport)

    async def plan(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        cheaper: bool = False,
    ) -> tuple[Receipt, ...]:
        wanted = list(models) or [(await self.info()).model]
        plan = await self.plan_table(wanted, content=content, overrides=overrides, cheaper=cheaper)
        return tuple(receipt_of(plan, model) for model in wanted)

    async def plan_table(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        max_tokens: int | None = None,
        last: bool = False,
        sent: bool = False,
        thinking: str = "",
        options: Choices = None,
        cheaper: bool = False,
        compact: bool = False,
        at: str = "",
        system: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> PlanView:
        blocks = (await upload(self._link, content, self._limits)).blocks if content else ()
        body: dict[str, Any] = {
            "models": list(models),
            "blocks": blocks,
            "overrides": dict(overrides or {}),
            "max_tokens": max_tokens,
            "last": last,
            "sent": sent,
            "options": sampling_of(options, thinking=thinking),
            "cheaper": cheaper,
            "compact": compact,
            "at": at,
            "system": system,
            "tools": None if tools is None else list(tools),
        }
        return decode_json(await self._link.ask("POST", self._path("/plan"), json=body), PlanView)

    async def cancel(self, turn: str = "") -> None:
        await self._link.ask("POST", self._path("/cancel"), json={"turn": turn})

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals."""
        return (await self._read_current()).approvals

    async def _read_current(self) -> History:
        """Return the last message and the state of the session."""
        return await self.history(limit=1)

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        body = {"answer": answer, "reason": reason}
        await self._link.ask("POST", self._path(f"/approvals/{quote(approval, safe='')}"), json=body, repeats=False)

    async def delete(self) -> int:
        await self._link.ask("DELETE", self._path())
        return 0

    async def _lines(self) -> list[MessageView]:
        lines: list[MessageView] = []
        before = ""
        while True:
            page = await self.history(before=before, limit=_PAGE)
            lines = [*page.messages, *lines]
            if not page.more or not page.messages:
                return lines
            before = page.messages[0].node

    def _path(self, below: str = "") -> str:
        return f"/v1/sessions/{self.id}{below}"


def _if_match(rev: int | None) -> dict[str, str]:
    return {} if rev is None else {"if-match": f'"{rev}"'}


class _Turns:
    """Selects the turns of one message from all events of a session."""

    def __init__(self, message: Message | None, n: int) -> None:
        self.turn = ""
        """The running turn."""
        self.have_begun = False
        self.seen = 0
        """The number of the last event; 0 before the first."""
        self._queued = ""
        self._message = message
        self._left = n
        self._held: list[Event] = []
        """Events since the last turn of another message: they may belong to our turn."""
        self._is_announced = False

    @property
    def are_over(self) -> bool:
        """Whether all turns have ended; true before the last event is yielded, so that a caller may stop there."""
        return not self._left

    async def of(self, queued: str, events: AsyncGenerator[tuple[int, Event]]) -> AsyncGenerator[Event | None]:
        """Yield the events of our turns; None at the end of another turn, when our message may have been removed."""
        self._queued = queued
        async with aclosing(events):
            async for self.seen, event in events:
                for found in self._events_in_turn(event) if self.turn else self._events_before_turn(event):
                    yield found
                if self.are_over:
                    return

    def _events_in_turn(self, event: Event) -> list[Event | None]:
        if isinstance(event, TurnFinished | TurnFailed) and event.turn == self.turn:
            self.turn, self._left = "", self._left - 1
        return [event]

    def _events_before_turn(self, event: Event) -> list[Event | None]:
        """Return the events to yield before our turn has started; hold back those that may belong to it."""
        match event:
            case TurnStarted() if event.message == self._queued:
                self.turn, self.have_begun = event.turn, True
                held, self._held = self._held, []
                return [*held, event]
            case TurnFailed() if self._message in [it.message for it in self._held if isinstance(it, MessageStored)]:
                # our message was stored, and its turn ended without a start event
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
                return self._announce_message()

    def _announce_message(self) -> list[Event | None]:
        if self._is_announced or self._message is None:
            return []
        self._is_announced = True
        return [MessageQueued(message=self._message, id=self._queued)]


def _first_seq(posted: PostedMessage) -> int:
    """Return the number of the event after which those of a posted message begin."""
    return int(posted.events.rpartition("=")[2])


def _queued_message(
    posted: PostedMessage, key: str, message: Message | None = None, notices: tuple[str, ...] = ()
) -> Queued:
    return Queued(
        id=posted.message,
        key=key,
        message=message,
        node=posted.node or "",
        answers_left=int(posted.queued),
        notices=notices,
    )


def _option_fields(options: Options) -> dict[str, Any]:
    """Return the fields of a request body with the options of a message."""
    chosen: dict[str, Any] = {} if options.tools is None else {"tools": options.tools}
    if options.sampling != Sampling():
        chosen["options"] = options.sampling
    if options.models:
        return {"models": options.models, **chosen}
    return {"model": options.model, "n": options.n, **chosen}
