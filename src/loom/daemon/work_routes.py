"""What an agent does besides answering: the files that it changed, its todo list, its background processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from loom.agent.file_undo import ChangeList, UndoReport
from loom.daemon.dispatch import Call
from loom.daemon.work_types import ProcessList, ProcessView, TodoList, UndoBody
from loom.errors import NotFound, ToolError
from loom.tools.background import BackgroundProcess


async def list_changes(call: Call[None, None]) -> ChangeList:
    session = await call.daemon.library.open(call.path("session"))
    return ChangeList(await session.changes())


async def undo(call: Call[None, UndoBody]) -> UndoReport:
    daemon, session_id = call.daemon, call.path("session")
    report = await (await daemon.library.open(session_id)).undo(call.body.step)
    await daemon.turns.announce_change(session_id)
    return report


async def list_todos(call: Call[None, None]) -> TodoList:
    session = await call.daemon.library.open(call.path("session"))
    return TodoList(await session.todos())


async def list_processes(call: Call[None, None]) -> ProcessList:
    session = await call.daemon.library.open(call.path("session"))
    return await _process_list({session.id: session.processes()})


async def list_all_processes(call: Call[None, None]) -> ProcessList:
    return await _process_list(call.daemon.runtime.all_processes())


async def stop_process(call: Call[None, None]) -> None:
    session = await call.daemon.library.open(call.path("session"))
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
