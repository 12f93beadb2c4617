"""Work of an agent besides its answers: changed files, the todo list, background processes."""

from __future__ import annotations

from loom.daemon.dispatch import Call
from loom.runtime.views import process_views
from loom.work_types import ChangeList, ProcessList, TodoList, UndoBody, UndoReport


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
    return ProcessList(await session.processes())


async def list_all_processes(call: Call[None, None]) -> ProcessList:
    found = call.daemon.runtime.processes.list_all()
    views = [view for session, it in found.items() for view in await process_views(session, it)]
    return ProcessList(await call.daemon.access.only_readable(call.identity, views, lambda view: view.session))


async def stop_process(call: Call[None, None]) -> None:
    session = await call.daemon.library.open(call.path("session"))
    await session.stop_process(call.path("process"))
