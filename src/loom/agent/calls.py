"""Calls: approve, run, fail well. Every call of a message gets exactly one result, in the order of the calls."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from loom.agent.approvals import About, Action, Approvals, about, about_action, place_in
from loom.agent.custom import spelled_out
from loom.agent.ingest import FileBytes, ingest
from loom.agent.ports import MediaShelf
from loom.agent.results import TEXT_CAP_BYTES, blocks_of, data_of, error_of, fitted, kept_text, kept_texts, with_kept
from loom.content.blocks import ContentBlock, TextBlock, ToolCall, ToolResult, clean_text
from loom.content.inputs import Attachment, Content, flatten
from loom.content.media import Media
from loom.content.messages import Message, media_of, tool
from loom.context.assemble import INTERRUPTED
from loom.errors import LoomError, NotFound, ToolError
from loom.events import Event, ToolFinished, ToolProgressed, ToolStarted
from loom.formats.door import admit
from loom.formats.facts import Limits
from loom.models import Capabilities
from loom.tools.base import Tool
from loom.tools.workspace import OpenFile, open_file, read_whole

LOOK: Final = "look"
"""The tool that reads on where a text was cut."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class Workshop(msgspec.Struct, frozen=True, kw_only=True):
    """What all calls of a session share."""

    tools: Mapping[str, Tool]
    workspace: Path
    shelf: MediaShelf
    limits: Limits
    approvals: Approvals
    emit: Callable[[Event], Awaitable[None]]
    messages: Callable[[], Awaitable[Sequence[Message]]]
    """The path of the session so far."""
    finished: Callable[[ToolCall, ToolResult], Awaitable[None]]
    """Told of every call that was run, before its result is stored."""
    text_cap_bytes: int = TEXT_CAP_BYTES
    done: dict[str, ToolResult] = msgspec.field(default_factory=dict[str, ToolResult])
    """What the calls of the last message gave, by call, as far as they have ended."""


class CallContext:
    """The ToolContext of one call."""

    def __init__(self, workshop: Workshop, call: ToolCall, capabilities: Capabilities) -> None:
        self._workshop = workshop
        self._call = call
        self.capabilities = capabilities
        self.workspace = workshop.workspace
        self._root = os.path.realpath(workshop.workspace)
        self.limits = workshop.limits
        self.injected: list[ContentBlock] = []
        self.gate: Action | None = None
        """What the user's rules said of the call before it began."""

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        if isinstance(data, Path):
            found = await self.read(data)
            data, name, source = found.data, name or found.name, source or found.source
        admitted = await asyncio.to_thread(admit, data, name, source=source, pages=pages, limits=self.limits)
        if admitted.data is not None:
            await self._workshop.shelf.put(admitted.data)
        return [admitted.block, *(TextBlock(f"({notice})") for notice in admitted.notices)]

    async def read(self, path: Path) -> FileBytes:
        """A file that a tool hands over: of the workspace, or one that it has just made in the folder for temporary
        files. A model may have chosen the name, so everything else needs the user's word."""
        with open_file(self.workspace, str(path)) as opened:
            is_made = not opened.inside and opened.path.is_relative_to(_scratch())
            why = ""
            if not opened.inside and not is_made:
                why = f"{opened.path} is outside the workspace"
            elif opened.sensitive:
                why = f"{opened.path.name} may hold secrets"
            if why or not is_made:
                await self.approve_file(opened, f"read {path}", why=why)
            data = await asyncio.to_thread(read_whole, opened, self.limits)
            return FileBytes(data, opened.path.name, str(opened.path))

    async def shown(self, content: Content) -> list[ContentBlock]:
        """Blocks whose bytes are in the store, and what there is to say about them. What has no name is called as the
        tool that made it."""
        named = [
            Attachment(source=leaf, name=self._call.name) if isinstance(leaf, bytes) else leaf
            for leaf in flatten(spelled_out(content))
        ]
        found = await ingest(named, self._workshop.shelf, limits=self.limits, read=self.read)
        return [*found.blocks, *(TextBlock(f"({notice})") for notice in found.notices)]

    async def inject(self, *content: Content) -> None:
        self.injected.extend(await self.shown(list(content)))

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        await self._workshop.emit(ToolProgressed(call_id=self._call.id, text=text, fraction=fraction))

    async def approve(self, action: str, *, why: str, url: str = "") -> None:
        await self._ask(about_action(self._call, self.workspace, action, why, url=url))

    async def approve_file(self, opened: OpenFile, action: str, *, why: str) -> None:
        if why or not self.may_read(opened.path):
            why = why or f"it is {opened.path}"
            await self._ask(about_action(self._call, self.workspace, action, why, file=opened.path))

    async def _ask(self, asked: About) -> None:
        await self._workshop.approvals.ask(self._call, asked, needed=True)

    def may_read(self, *places: Path) -> bool:
        subjects = {place_in(self._root, place) for place in places}
        return self._workshop.approvals.covers(self.gate, self._call.name, subjects)

    async def confirm(self, action: str, *, why: str) -> None:
        await self._workshop.approvals.confirm(self._call, about_action(self._call, self.workspace, action, why))

    async def media(self) -> Sequence[Media]:
        found: list[Media] = []
        for message in await self._workshop.messages():
            found += [*media_of(message), *kept_texts(message)]
        return found

    async def load(self, digest: str) -> bytes:
        """Only what the session refers to: a digest from elsewhere opens nothing."""
        if all(media.digest != digest for media in await self.media()):
            raise NotFound(f"this session holds no medium {digest[:80]}")
        return await self._workshop.shelf.load(digest)

    async def keep(self, text: str) -> Media:
        data = text.encode()
        return kept_text(await self._workshop.shelf.put(data), len(data), self._call.name)


def _scratch() -> str:
    """Where tools put files that nobody else needs."""
    return os.path.realpath(tempfile.gettempdir())


class Acted(msgspec.Struct, frozen=True):
    """The results in the order of the calls, and what tools put into the conversation besides."""

    results: tuple[ToolResult, ...]
    injected: tuple[ContentBlock, ...]


async def act_on(
    calls: Sequence[ToolCall],
    waiting: Collection[str],
    done: Mapping[str, ToolResult],
    workshop: Workshop,
    capabilities: Capabilities,
) -> Acted:
    """Run those calls of an earlier process that had not begun; of others that had not ended nobody knows the end."""
    acted = await act([call for call in calls if call.id in waiting], workshop, capabilities)
    results = {**done, **{result.call_id: result for result in acted.results}}
    return Acted(tuple(results.get(call.id) or _interrupted(call) for call in calls), acted.injected)


async def act(calls: Sequence[ToolCall], workshop: Workshop, capabilities: Capabilities) -> Acted:
    """Run all calls of a message at once. Cancelling ends them all, and so does a store that cannot be written."""
    workshop.done.clear()
    contexts = [CallContext(workshop, call, capabilities) for call in calls]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_run(call, workshop, context)) for call, context in zip(calls, contexts, strict=True)
            ]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    injected = tuple(block for context in contexts for block in context.injected)
    return Acted(tuple(task.result() for task in tasks), injected)


def interrupted_results(calls: Sequence[ToolCall], done: Mapping[str, ToolResult]) -> Message:
    """What answers calls that nobody will run, or that nobody knows the end of; those that have ended keep theirs."""
    return tool(*(done.get(call.id) or _interrupted(call) for call in calls))


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, (TextBlock(INTERRUPTED),), name=call.name, is_error=True)


async def _run(call: ToolCall, workshop: Workshop, context: CallContext) -> ToolResult:
    started = time.monotonic()
    await workshop.emit(ToolStarted(call=call))
    try:
        result = await _answered(call, workshop, context)
    except LoomError as error:
        result = await _failed(call, str(error), workshop)
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        result = await _failed(call, _crash(call, error), workshop)  # the tool cancelled itself, nobody else did
    except (Exception, SystemExit) as error:  # noqa: BLE001  foreign code: whatever it raises is an answer to the model
        result = await _failed(call, _crash(call, error), workshop)
    workshop.done[call.id] = result
    await workshop.finished(call, result)
    await workshop.emit(ToolFinished(result=result, seconds=time.monotonic() - started))
    return result


async def _answered(call: ToolCall, workshop: Workshop, context: CallContext) -> ToolResult:
    found = workshop.tools.get(call.name)
    if found is None:
        known = ", ".join(sorted(workshop.tools)) or "none"
        raise ToolError(f"there is no tool {call.name!r}; these exist: {known}")
    if call.raw_arguments is not None:
        raise ToolError(f"the arguments of {call.name} were not a JSON object: {call.raw_arguments[:500]}")
    found.checked(call.arguments)
    context.gate = await _approved(call, found, workshop)
    value = await found.run(context, call.arguments)
    blocks = await blocks_of(value, context.shown)
    keep = context.keep if LOOK in workshop.tools else None
    shown, kept = await fitted(blocks, most_bytes=workshop.text_cap_bytes, keep=keep)
    return ToolResult(call.id, shown, name=call.name, is_error=error_of(value), data=with_kept(data_of(value), kept))


async def _approved(call: ToolCall, found: Tool, workshop: Workshop) -> Action | None:
    """What the user is shown is what would happen, where the tool can tell; and it is still that when they answer."""
    plain = about(call, workshop.workspace, found.parameters)
    shown = await _shown(call, found, workshop.workspace, plain.shown)
    asked = msgspec.structs.replace(plain, shown=shown)
    was_asked = await workshop.approvals.ask(call, asked, needed=found.danger == "ask", is_gate=True)
    if was_asked and shown != await _shown(call, found, workshop.workspace, plain.shown):
        raise ToolError("something else changed it while the user was asked", hint="Look at it again.")
    return workshop.approvals.decided(call.name, asked.subjects)


async def _shown(call: ToolCall, found: Tool, workspace: Path, arguments: str) -> str:
    """Where it cannot be done the user still decides: what the model is told of a file, it is told with their word."""
    if found.preview is None:
        return arguments
    try:
        return await asyncio.to_thread(found.preview, workspace, found.checked(call.arguments))
    except LoomError as error:
        return f"{arguments}\n\n({error.message})"


def _crash(call: ToolCall, error: BaseException) -> str:
    """What a tool did not say well by itself; addresses of objects help nobody."""
    return _ADDRESS.sub("", f"{call.name} failed: {type(error).__name__}: {error}")


async def _failed(call: ToolCall, words: str, workshop: Workshop) -> ToolResult:
    words = clean_text(words).strip() or f"{call.name} failed"
    shown, _ = await fitted([TextBlock(words)], most_bytes=workshop.text_cap_bytes)
    return ToolResult(call.id, shown, name=call.name, is_error=True)
