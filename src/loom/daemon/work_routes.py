"""What an agent does besides answering: the files that it changed, its todo list, its background processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from starlette.responses import Response

from loom.agent.failures import error_of
from loom.agent.file_undo import UndoReport
from loom.daemon.dispatch import Call
from loom.daemon.sessions_routes import session_response
from loom.daemon.work_types import ChangeList, CompactBody, ProcessList, ProcessView, TodoList, UndoBody
from loom.errors import NotFound, ToolError
from loom.events import TurnFailed
from loom.tools.background import BackgroundProcess


async def list_changes(call: Call[None, None]) -> ChangeList:
    session = await call.daemon.runtime.session(call.path("session"))
    return ChangeList(await session.changes())


async def undo(call: Call[None, UndoBody]) -> UndoReport:
    daemon, session_id = call.daemon, call.path("session")
    report = await (await daemon.runtime.session(session_id)).undo(call.body.step)
    await daemon.turns.announce_change(session_id)
    return report


async def compact(call: Call[None, CompactBody]) -> Response:
    """Answer when the summary is stored. A turn that runs ends first."""
    daemon, session_id = call.daemon, call.path("session")
    if call.body.model:
        daemon.runtime.model(call.body.model)
    session = await daemon.runtime.session(session_id)
    async with session.compact(model=call.body.model) as events:
        async for event in events:
            if isinstance(event, TurnFailed):
                raise error_of(event.code, event.text, event.hint)
    await daemon.turns.announce_change(session_id)
    return await session_response(daemon, await daemon.runtime.sessions.get(session_id))


async def list_todos(call: Call[None, None]) -> TodoList:
    session = await call.daemon.runtime.session(call.path("session"))
    return TodoList(await session.todos())


async def list_processes(call: Call[None, None]) -> ProcessList:
    session = await call.daemon.runtime.session(call.path("session"))
    return await _process_list({session.id: session.processes()})


async def list_all_processes(call: Call[None, None]) -> ProcessList:
    return await _process_list(call.daemon.runtime.all_processes())


async def stop_process(call: Call[None, None]) -> None:
    session = await call.daemon.runtime.session(call.path("session"))
    try:
        await session.stop_process(call.path("process"))
    except ToolError as error:
        raise NotFound(error.message) from None


async def _process_list(found: Mapping[str, Sequence[BackgroundProcess]]) -> ProcessList:
    views: list[ProcessView] = []
    for session_id, processes in found.items():
        for process in processes:
            await asyncio.to_thread(process.look)
            views.append(
                ProcessView(
                    session=session_id,
                    process=process.name,
                    command=process.command,
                    is_running=process.is_running,
                    exit_code=process.exit_code,
                    ports=process.ports,
                    seconds=round(time.monotonic() - process.began, 1),
                )
            )
    return ProcessList(tuple(views))
