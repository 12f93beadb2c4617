"""LocalSession: the Session of this process. One turn at a time; what is said meanwhile waits its turn."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from loom.agent.approvals import Approvals, Rule
from loom.agent.ask import Answer, Asking
from loom.agent.calls import Workshop
from loom.agent.ingest import Ingested, ingest
from loom.agent.loop import Turn, TurnLimits, run
from loom.agent.ports import MediaShelf, Provider, Record, State
from loom.agent.renditions import Renditions
from loom.content.blocks import ContentBlock, TextBlock, ToolResult
from loom.content.inputs import Content
from loom.content.messages import Message, tool
from loom.context.assemble import INTERRUPTED
from loom.context.cost import Calibration, calibrate
from loom.context.policy import Placed, Policy, Request, Said, Watermark
from loom.errors import ContentError, LoomError
from loom.events import Event, MessageQueued, MessageStored, NoticeRaised, TurnFailed, TurnFinished
from loom.formats.facts import Limits
from loom.models import Model
from loom.prompt import Receipt
from loom.session import Reply
from loom.tools.base import Tool


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is given by its runtime."""

    shelf: MediaShelf
    renditions: Renditions[Any]
    policy: Policy
    limits: Limits
    turn_limits: TurnLimits
    tools: Mapping[str, Tool]
    rule: Rule
    model: Callable[[str], Model]
    provider: Callable[[Model], Provider]
    open: Callable[[str], Awaitable[LocalSession]]
    fork: Callable[[str, str | None], Awaitable[str]]


class LocalSession:
    def __init__(self, record: Record, world: World) -> None:
        self._record = record
        self._world = world
        self._turn: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._busy = asyncio.Lock()
        self._approvals = Approvals(world.rule, self._emit)

    @property
    def id(self) -> str:
        return self._record.id

    async def stream(self, *content: Content) -> AsyncIterator[Event]:
        """Say something and watch the turn; leaving it early cancels it. While another turn runs, the message waits
        with its media until it is over."""
        found = await ingest(list(content), self._world.shelf, limits=self._world.limits)
        message = Message("user", found.blocks)
        if self._busy.locked():
            yield MessageQueued(message=message)
        async with self._busy:
            events = self._events = asyncio.Queue()
            turn = self._turn = asyncio.create_task(self._run(message, found))
            try:
                while (event := await events.get()) is not None:
                    yield event
            finally:
                await _end(turn)

    async def send(self, *content: Content) -> Reply:
        """The same, folded; a turn that fails raises what a face would have been told."""
        said: list[MessageStored] = []
        async for event in self.stream(*content):
            match event:
                case MessageStored():
                    said.append(event)
                case TurnFailed():
                    raise LoomError(event.text, hint=event.hint)
                case TurnFinished():
                    (receipt,) = await self.plan()
                    last = said[-1]
                    return Reply(
                        node=last.node, message=last.message, usage=event.usage, stop=event.stop, receipt=receipt
                    )
                case _:
                    pass
        raise LoomError("the turn was cancelled", hint="What was said is kept; say something to go on.")

    async def path(self) -> tuple[Message, ...]:
        _, path = await self._record.path()
        return tuple(placed.message for placed in path)

    async def use(self, model: str) -> None:
        self._world.model(model)
        await self._record.save(model=model)

    async def fork(self, node: str | None = None) -> LocalSession:
        return await self._world.open(await self._world.fork(self.id, node))

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        """What the next request would carry. Nothing is sent by looking."""
        state = await self._record.state()
        receipts: list[Receipt] = []
        for reference in models or (state.model,):
            asking = await self._asking(state, self._world.model(reference))
            if not asking.path:
                raise ContentError("the session holds no message yet: there is nothing to plan")
            receipts.append((await self._world.renditions.settle(asking.prepared)).receipt)
        return tuple(receipts)

    async def cancel(self) -> None:
        """End the running turn; what is stored stays, and the session can go on."""
        if self._turn is not None:
            await _end(self._turn)

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        if not self._approvals.answer(approval, answer, reason):
            raise ContentError("nobody waits for this approval any more")

    # One turn --------------------------------------------------------------------------------------------------------

    async def _run(self, message: Message, found: Ingested) -> None:
        try:
            for notice in found.notices:
                await self._emit(NoticeRaised(text=notice, code="door"))
            await self._say(message)
        finally:
            self._events.put_nowait(None)

    async def _say(self, message: Message) -> None:
        await self._close_cut_turn()
        (node,) = await self._record.append([message])
        await self._emit(MessageStored(node=node, message=message))
        state = await self._record.state()
        model = self._world.model(state.model)
        turn = Turn(
            id=secrets.token_hex(16),
            asking=await self._asking(state, model),
            provider=self._world.provider(model),
            workshop=self._workshop(state),
            limits=self._world.turn_limits,
            settle=self._world.renditions.settle,
            keep=self._keep,
            store=self._store,
            remember=self._remember,
        )
        async for event in run(turn):
            await self._emit(event)

    async def _close_cut_turn(self) -> None:
        """A turn that was killed may have left calls without results: they were interrupted, and that is said."""
        _, path = await self._record.path()
        if not path or not path[-1].message.calls:
            return
        results = [
            ToolResult(call.id, (TextBlock(INTERRUPTED),), name=call.name, is_error=True)
            for call in path[-1].message.calls
        ]
        await self._record.append([tool(*results)])

    async def _asking(self, state: State, model: Model) -> Asking:
        system, path = await self._record.path()
        calibrations = state.settings.get("calibration", {})
        return Asking(
            path=path,
            model=model,
            policy=self._world.policy,
            request=Request(system=system, tools=tuple(found.spec for found in self._world.tools.values())),
            overrides=dict(state.overrides),
            watermark=state.watermarks.get(model.reference, Watermark()),
            calibration=msgspec.convert(calibrations.get(model.reference, {}), Calibration),
            quarantine=frozenset(state.quarantine.get(model.provider, ())),
        )

    def _workshop(self, state: State) -> Workshop:
        return Workshop(
            tools=self._world.tools,
            workspace=Path(state.workspace) if state.workspace else Path.cwd(),
            shelf=self._world.shelf,
            limits=self._world.limits,
            approvals=self._approvals,
            emit=self._emit,
        )

    async def _store(self, message: Message, answer: Answer | None) -> Placed:
        meta: dict[str, Any] = {}
        if answer is not None and answer.prepared is not None and answer.folded is not None:
            model = answer.prepared.prompt.model
            meta = {
                "provider": model.provider,
                "model": model.name,
                "usage": msgspec.to_builtins(answer.folded.usage),
                "finish_reason": answer.folded.stop or "incomplete",
            }
        (node,) = await self._record.append([message], meta=meta)
        return Said(node, message)

    async def _remember(self, asking: Asking, answer: Answer) -> None:
        """What the step taught is kept by model: the next request, also after a restart, begins from there."""
        state = await self._record.state()
        prepared, folded = answer.prepared, answer.folded
        if prepared is None or folded is None:
            return
        asking.watermark = prepared.watermark
        reference, provider = asking.model.reference, asking.model.provider
        asking.calibration = calibrate(asking.calibration, prepared.receipt.totals.tokens, folded.usage.input_tokens)
        await self._record.save(
            watermark={**_plain(state.watermarks), reference: msgspec.to_builtins(asking.watermark)},
            quarantine={**state.quarantine, provider: sorted(asking.quarantine)},
            settings={
                **state.settings,
                "calibration": {
                    **state.settings.get("calibration", {}),
                    reference: msgspec.to_builtins(asking.calibration),
                },
            },
        )

    async def _keep(self, data: bytes) -> ContentBlock:
        return (await ingest(data, self._world.shelf, limits=self._world.limits)).blocks[0]

    async def _emit(self, event: Event) -> None:
        await self._record.emit([event])
        self._events.put_nowait(event)


async def _end(turn: asyncio.Task[None]) -> None:
    """Cancel, wait until it is over, and let no bug of ours go unseen."""
    turn.cancel()
    await asyncio.wait([turn])
    if not turn.cancelled() and (error := turn.exception()) is not None:
        raise error


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: msgspec.to_builtins(value) for key, value in values.items()}
