"""The agent's work besides answering: file changes and their undo, the to-do list, background processes.

The values of `Session` and of the daemon's routes.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

TodoState: TypeAlias = Literal["pending", "in_progress", "done"]


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the to-do list."""

    text: str
    state: TodoState = "pending"


class TodoList(msgspec.Struct, frozen=True):
    todos: tuple[Todo, ...]


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A background process of a session. `ports` are those on which it listens."""

    session: str
    process: str
    command: str
    is_running: bool
    exit_code: int | None
    ports: tuple[int, ...]
    seconds: float


def process_line(process: ProcessView) -> str:
    """Return one line about a process for a list: its name, its state, its ports, its command."""
    ports = "".join(f"  http://localhost:{port}/" for port in process.ports)
    state = f"{process.seconds:.0f} s" if process.is_running else f"exit {process.exit_code}"
    command = " ".join(process.command.split())
    return f"{process.process}  {state}{ports}  {command if len(command) <= 60 else f'{command[:59]}…'}"


class ProcessList(msgspec.Struct, frozen=True):
    processes: tuple[ProcessView, ...]


class KeptBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes in the media store. The field name is significant: the store searches for it (`store.media_references`)."""

    digest: str


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One write: `path` relative to the workspace, and the digests of the content before and after.

    `before` is None for a new file; `kept` is None if the previous bytes were not stored.
    """

    path: str
    before: str | None = None
    after: str
    kept: KeptBytes | None = None


class ChangedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that changed files. Steps are counted from 1 along the path."""

    step: int
    node: str
    """The message with the results of its calls."""
    changes: tuple[FileChange, ...]
    is_undone: bool = False


class ChangeList(msgspec.Struct, frozen=True):
    steps: tuple[ChangedStep, ...]


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step to undo; without `step`, the last one that is not undone yet."""

    step: Annotated[int, Meta(ge=1)] | None = None


class UndoReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for each file, in sentences, and the steps that are undone now."""

    steps: tuple[int, ...]
    files: tuple[str, ...]
