"""Replay: the user messages of a session, sent to another model in a session of its own.

The new session is a fork from before the first message, so both paths are in one tree and share their media.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from loom.content.blocks import ContentBlock, ToolCall, ToolResult, is_content_block
from loom.errors import NotFound, ToolError
from loom.message_types import MessageView
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.session import Session
from loom.tools.base import Tool, ToolContext


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A user message and everything below it up to the next one."""

    question: MessageView
    replies: tuple[MessageView, ...]


class ReplaySession(msgspec.Struct, frozen=True, kw_only=True):
    """The session to replay in, and the recorded turns, oldest first."""

    session: LocalSession
    turns: tuple[RecordedTurn, ...]


class RecordedResults:
    """The results of tool calls on a path, by tool and arguments. A call that was made several times returns its
    results in order, then the last one again."""

    def __init__(self, messages: Sequence[MessageView]) -> None:
        self.names: set[str] = set()
        """The tools that were called."""
        self._results: dict[str, list[ToolResult]] = defaultdict(list)
        calls: dict[str, ToolCall] = {}
        for message in messages:
            for block in message.blocks:
                match block:
                    case ToolCall():
                        calls[block.id] = block
                        self.names.add(block.name)
                    case ToolResult() if block.call_id in calls:
                        call = calls[block.call_id]
                        self._results[_key(call.name, call.arguments)].append(block)
                    case _:
                        pass

    def next_result(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Return the next result of this call. Raise `ToolError` if the call was not made in the recorded session."""
        left = self._results.get(_key(name, arguments))
        if not left:
            raise ToolError(
                f"{name} was not called with these arguments in the recorded conversation, and is not run in a replay",
                hint="Answer with what is known.",
            )
        return left.pop(0) if len(left) > 1 else left[0]


class RecordedTool(Tool):
    """A tool that looks to the model like `tool` and returns recorded results: nothing is run."""

    def __init__(self, tool: Tool, results: RecordedResults) -> None:
        super().__init__(_do_nothing, name=tool.name, reads_only=True)
        self.spec = tool.spec
        self._results = results

    def check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        return self._results.next_result(self.name, arguments)


async def fork_for_replay(runtime: Runtime, session: Session, *, title: str, runs_tools: bool) -> ReplaySession:
    """Fork `session` from before its first user message. The model gets the tools that only read and those that the
    original called; without `runs_tools`, they return the recorded results. Raise `NotFound` if there is no user
    message."""
    messages = await _whole_path(session)
    turns = _turns(messages)
    if not turns:
        raise NotFound("The session has no user message to replay.", hint="Choose another: `loom sessions`.")
    fork = await session.fork(turns[0].question.parent, title=title)
    results = RecordedResults(messages)
    offered = [
        tool
        for tool in (await runtime.toolbox.wait_and_list()).values()
        if tool.danger == "none" or tool.name in results.names
    ]
    tools = [tool.name if runs_tools else RecordedTool(tool, results) for tool in offered]
    return ReplaySession(session=await runtime.session(fork.id, tools=tools), turns=turns)


def question_content(turn: RecordedTurn) -> tuple[ContentBlock, ...]:
    """Return the blocks of the user message, to send them again."""
    return tuple(block for block in turn.question.blocks if is_content_block(block))


async def _whole_path(session: Session) -> tuple[MessageView, ...]:
    page = await session.history()
    found = page.messages
    while page.more:
        page = await session.history(before=found[0].node)
        found = page.messages + found
    return found


def _turns(messages: Sequence[MessageView]) -> tuple[RecordedTurn, ...]:
    """Messages that Loom wrote for the user, such as changes of tracked files, are not questions: they come again."""
    starts = [at for at, found in enumerate(messages) if found.role == "user" and found.source == "user"]
    ends = [*starts[1:], len(messages)]
    return tuple(
        RecordedTurn(question=messages[start], replies=tuple(messages[start + 1 : end]))
        for start, end in zip(starts, ends, strict=False)
    )


def _key(name: str, arguments: dict[str, Any]) -> str:
    return name + msgspec.json.encode(arguments, order="sorted").decode()


def _do_nothing() -> None:
    """Do nothing: `run` returns a recorded result instead."""
