"""Functions of users may block: they hold no thread that the rest of the program needs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import loom
from loom.agent.gate import Allow, Approve, Verdict
from loom.content.blocks import ToolCall
from loom.content.messages import text_of
from loom.errors import ToolError
from loom.testing import ScriptedProvider, memory_runtime
from patience import PATIENCE_SECONDS

MODEL = "anthropic/claude-opus-5"


async def test_a_plain_tool_can_wait_for_work_of_the_last_thread_of_the_event_loop() -> None:
    def keep(context: loom.SyncToolContext) -> str:
        """Keep a text."""
        blocks = context.attach(b"kept text", name="a.txt")
        return f"{len(blocks)} attached"

    assert await _result(keep) == "1 attached"


async def test_approve_can_wait_for_work_of_the_last_thread_of_the_event_loop() -> None:
    loop = asyncio.get_running_loop()

    def decide(_: loom.ApprovalRequest) -> Verdict:
        asyncio.run_coroutine_threadsafe(asyncio.to_thread(int), loop).result()
        return Allow()

    async def add() -> str:
        """Add nothing."""
        return "added"

    assert await _result(add, approve=decide) == "added"


async def _result(function: Callable[..., Any], approve: Approve | None = None) -> str:
    """Return the result of a call of `function`, in a loop with one thread."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    provider = ScriptedProvider([[ToolCall("c1", function.__name__, {})], "Done."])
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        memory_runtime(
            providers={"anthropic": provider}, tools=[function], approve=approve or (lambda _: Allow())
        ) as runtime,
    ):
        session = await runtime.session(model=MODEL)
        await session.send("go")
        [result] = [result for message in await session.path() for result in message.results]
        return text_of(result)


async def test_a_plain_tool_that_waits_for_the_user_ends_when_its_turn_is_cancelled() -> None:
    ended = threading.Event()

    def delete(context: loom.SyncToolContext) -> str:
        """Delete something."""
        try:
            return context.confirm("delete it", why="it is large")
        finally:
            try:
                context.emit("one more word")
            except ToolError:
                ended.set()

    provider = ScriptedProvider([[ToolCall("c1", "delete", {})], "Done."])
    async with memory_runtime(providers={"anthropic": provider}, tools=[delete]) as runtime:
        session = await runtime.session(model=MODEL)
        async for event in session.stream("go"):
            if event.type == "approval_requested":
                await session.cancel()
        assert await asyncio.to_thread(ended.wait, PATIENCE_SECONDS)
