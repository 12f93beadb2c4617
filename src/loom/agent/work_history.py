"""What an agent did along a path, besides its answers: its todo list and the files that it changed. Work before a
summary counts: the summary replaces words, not work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loom.agent.ports import SessionRecord
from loom.compile.policy import Placed
from loom.errors import NotFound
from loom.tools.todos import current_todos
from loom.tools.undo import file_changes
from loom.work_types import FileChange, Todo


class PathWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work along a path."""

    todos: tuple[Todo, ...] | None = None
    """The last todo list; None if there was none."""
    changes: tuple[tuple[str, tuple[FileChange, ...]], ...] = ()
    """The nodes whose calls changed files, oldest first, with the changes."""

    def followed_by(self, later: PathWork) -> PathWork:
        todos = self.todos if later.todos is None else later.todos
        return PathWork(todos=todos, changes=(*self.changes, *later.changes))


class WorkHistory:
    """Reads the work along paths of one session. Nodes never change, so a path that a summary replaced is read once."""

    def __init__(self, record: SessionRecord) -> None:
        self._record = record
        self._known: dict[str, PathWork] = {}

    async def read(self, path: Sequence[Placed]) -> PathWork:
        """Return the work along `path`, including what its summary replaced."""
        parts = [_path_work(path)]
        ends: list[str] = []
        while path and (end := await self._replaced_end(path[0].id)):
            if (known := self._known.get(end)) is not None:
                parts.append(known)
                break
            path = (await self._record.snapshot(end)).path
            parts.append(_path_work(path))
            ends.append(end)
        work = parts.pop()
        while parts:
            if len(parts) <= len(ends):
                self._known[ends[len(parts) - 1]] = work
            work = work.followed_by(parts.pop())
        return work

    async def _replaced_end(self, node: str) -> str:
        """Return the last node of the path that the summary at `node` replaced; empty if there is none, or none that
        is still part of the session."""
        end = await self._record.summarized_end(node)
        try:
            if end:
                await self._record.check_kept(end)
        except NotFound:
            return ""
        return end


def _path_work(path: Sequence[Placed]) -> PathWork:
    changed = ((placed.id, tuple(file_changes(placed.message.results))) for placed in path)
    return PathWork(
        todos=current_todos(placed.message for placed in path),
        changes=tuple((node, changes) for node, changes in changed if changes),
    )
