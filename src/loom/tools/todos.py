"""update_todos: the plan of the work, as a list that the user sees. The last list on the path is the current one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import ToolResult
from loom.content.messages import Message
from loom.errors import ToolError
from loom.struct_types import convert
from loom.tools.base import Tool, text_result
from loom.work_types import Todo, TodoState

MAX_TODOS: Final = 100
_MARKS: Final[dict[TodoState, str]] = {"pending": "[ ]", "in_progress": "[~]", "done": "[x]"}


async def update_todos(todos: list[Todo]) -> ToolResult:
    """Write the todo list; it replaces the previous one. Use it for work of three or more steps; keep one
    item in_progress, and mark items done as soon as they are.

    todos: all items, each with a text and a state: pending, in_progress or done
    """
    if len(todos) > MAX_TODOS:
        raise ToolError(f"the list has {len(todos)} items; {MAX_TODOS} at most")
    if any(not todo.text.strip() for todo in todos):
        raise ToolError("an item has no text")
    data = {"kind": "todos", "todos": msgspec.to_builtins(todos)}
    return text_result(todo_lines(todos) or "the list is empty", data=data)


TODO_TOOL: Final = Tool(update_todos, repeatable=True)


def todo_lines(todos: Iterable[Todo]) -> str:
    """Return the list as text, one item per line."""
    return "\n".join(f"{_MARKS[todo.state]} {todo.text}" for todo in todos)


def current_todos(path: Iterable[Message]) -> tuple[Todo, ...] | None:
    """Return the last list on a path, or None if there is none."""
    found: tuple[Todo, ...] | None = None
    for result in (result for message in path for result in message.results):
        data: Any = result.data
        if isinstance(data, dict) and cast("dict[str, Any]", data).get("kind") == "todos":
            found = convert(cast("dict[str, Any]", data)["todos"], tuple[Todo, ...])
    return found
