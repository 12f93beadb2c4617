"""What an agent does besides answering: the files that it changed, and undo."""

from __future__ import annotations

from loom.agent.file_undo import UndoReport
from loom.daemon.dispatch import Call
from loom.daemon.work_types import ChangeList, UndoBody


async def list_changes(call: Call[None, None]) -> ChangeList:
    session = await call.daemon.library.open(call.path("session"))
    return ChangeList(await session.changes())


async def undo(call: Call[None, UndoBody]) -> UndoReport:
    daemon, session_id = call.daemon, call.path("session")
    report = await (await daemon.library.open(session_id)).undo(call.body.step)
    await daemon.turns.announce_change(session_id)
    return report
