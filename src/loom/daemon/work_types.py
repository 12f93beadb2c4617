"""The values of the routes about an agent's work: file changes, undo, the todo list, background processes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from loom.tools.todos import Todo


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `step`: the last step that is not undone yet."""

    step: Annotated[int, Meta(ge=1)] | None = None


class TodoList(msgspec.Struct, frozen=True):
    todos: tuple[Todo, ...]


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A background process of a session. `ports` are those on which it answers."""

    session: str
    process: str
    command: str
    is_running: bool
    exit_code: int | None
    ports: tuple[int, ...]
    seconds: float


class ProcessList(msgspec.Struct, frozen=True):
    processes: tuple[ProcessView, ...]
