"""Calls: approve, run, fail well. Every call of a message gets exactly one result, in the order of the calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from loom.agent.approvals import Approvals
from loom.agent.ingest import ingest
from loom.agent.ports import Shelf
from loom.agent.results import blocks_of, capped, data_of, error_of
from loom.content.blocks import ContentBlock, TextBlock, ToolCall, ToolResult
from loom.content.inputs import Attachment, Content
from loom.errors import LoomError, ToolError
from loom.events import Event, ToolFinished, ToolProgressed, ToolStarted
from loom.formats.facts import Limits
from loom.models import Capabilities
from loom.tools.base import Tool


class Workshop(msgspec.Struct, frozen=True, kw_only=True):
    """What all calls of a session share."""

    tools: Mapping[str, Tool]
    workspace: Path
    shelf: Shelf
    limits: Limits
    approvals: Approvals
    emit: Callable[[Event], Awaitable[None]]
    text_cap_bytes: int = 30_000


class CallContext:
    """The ToolContext of one call."""

    def __init__(self, workshop: Workshop, call: ToolCall, capabilities: Capabilities) -> None:
        self._workshop = workshop
        self._call = call
        self.capabilities = capabilities
        self.workspace = workshop.workspace
        self.limits = workshop.limits
        self.injected: list[ContentBlock] = []

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        found = await ingest(Attachment(source=data, name=name, pages=pages), self._workshop.shelf, limits=self.limits)
        return [*found.blocks, *(TextBlock(f"({notice})") for notice in found.notices)]

    async def inject(self, *content: Content) -> None:
        found = await ingest(list(content), self._workshop.shelf, limits=self.limits)
        self.injected.extend(found.blocks)

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        await self._workshop.emit(ToolProgressed(call_id=self._call.id, text=text, fraction=fraction))

    async def approve(self, action: str, *, why: str) -> None:
        await self._workshop.approvals.ask(self._call, f"{action} ({why})" if why else action, needed=True)


class Acted(msgspec.Struct, frozen=True):
    """The results in the order of the calls, and what tools put into the conversation besides."""

    results: tuple[ToolResult, ...]
    injected: tuple[ContentBlock, ...]


async def act(calls: Sequence[ToolCall], workshop: Workshop, capabilities: Capabilities) -> Acted:
    """Run all calls of a message at once. Cancelling ends them all."""
    contexts = [CallContext(workshop, call, capabilities) for call in calls]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_run(call, workshop, context)) for call, context in zip(calls, contexts, strict=True)
        ]
    injected = tuple(block for context in contexts for block in context.injected)
    return Acted(tuple(task.result() for task in tasks), injected)


async def _run(call: ToolCall, workshop: Workshop, context: CallContext) -> ToolResult:
    started = time.monotonic()
    await workshop.emit(ToolStarted(call=call))
    try:
        result = await _answered(call, workshop, context)
    except ToolError as error:
        result = _failed(call, str(error))
    except LoomError as error:
        result = _failed(call, str(error))
    except Exception as error:  # noqa: BLE001  a tool is foreign code: whatever it raises is an answer to the model
        result = _failed(call, f"{call.name} failed: {type(error).__name__}: {error}")
    await workshop.emit(ToolFinished(result=result, seconds=time.monotonic() - started))
    return result


async def _answered(call: ToolCall, workshop: Workshop, context: CallContext) -> ToolResult:
    tool = workshop.tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(workshop.tools)) or "none"
        raise ToolError(f"there is no tool {call.name!r}; these exist: {known}")
    if call.raw_arguments is not None:
        raise ToolError(f"the arguments of {call.name} were not a JSON object: {call.raw_arguments[:500]}")
    tool.checked(call.arguments)
    await workshop.approvals.ask(call, _action(call), needed=tool.danger == "ask")
    value = await tool.run(context, call.arguments)

    async def attach(found: bytes | Path | Attachment) -> Sequence[ContentBlock]:
        source = found if isinstance(found, Attachment) else Attachment(source=found)
        return (await ingest(source, workshop.shelf, limits=workshop.limits)).blocks

    blocks = await blocks_of(value, attach)
    return ToolResult(
        call.id,
        capped(blocks, most_bytes=workshop.text_cap_bytes),
        name=call.name,
        is_error=error_of(value),
        data=data_of(value),
    )


def _action(call: ToolCall) -> str:
    return f"{call.name} {msgspec.json.encode(call.arguments).decode()}"


def _failed(call: ToolCall, words: str) -> ToolResult:
    return ToolResult(call.id, capped([TextBlock(words.strip() or "it failed")]), name=call.name, is_error=True)
