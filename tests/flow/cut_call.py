"""A turn that ends in the middle of a call: the call has changed a file, and a hook runs after it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.runtime import Runtime
from loom.testing import ScriptedAnswer, ScriptedProvider


async def drain(events: AsyncIterable[object]) -> None:
    async for _ in events:
        pass


def open_runtime(home: Path, answers: list[ScriptedAnswer], **given: object) -> AbstractAsyncContextManager[Runtime]:
    flags = {"approval.default": "allow", "hooks.claude_code": False, **given}
    config = load_config(cwd=home, environ={"LOOM_HOME": str(home / "home")}, flags=flags)
    return Runtime.open(config, providers={"anthropic": ScriptedProvider(answers)}, tools="all")


async def _end_in_hook(
    home: Path, session_id: str, answers: list[ScriptedAnswer], made: ToolCall, way: str, command: str = ":"
) -> None:
    """End the turn while a hook runs after the last call, `made`: the file is changed, and the call has no result.
    The hook runs `command` before."""
    changed = home / "changed"
    os.mkfifo(changed)
    hook = {"tool": made.name, "command": f"{command}; echo > {changed}; sleep 60"}
    async with open_runtime(home, [*answers, made], **{"hooks.after_tool": [hook]}) as runtime:
        session = await runtime.session(session_id)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(drain(session.stream("go")))
            await asyncio.to_thread(changed.read_bytes)
            match way:
                case "cancel":
                    await session.cancel()
                case "leave":
                    await session.leave()
                case _:
                    os.kill(os.getpid(), signal.SIGKILL)


def _run_to_kill(home: Path, session_id: str, answers: list[ScriptedAnswer], made: ToolCall) -> None:
    asyncio.run(_end_in_hook(home, session_id, answers, made, "kill"))


async def cut_off(
    home: Path, session_id: str, answers: list[ScriptedAnswer], made: ToolCall, way: str, command: str = ":"
) -> None:
    """End the turn in the hook after its last call: "cancel" it, "leave" it, or "kill" its process."""
    if way != "kill":
        await _end_in_hook(home, session_id, answers, made, way, command)
        return
    start = multiprocessing.get_context("spawn").Process
    worker = start(target=_run_to_kill, args=(home, session_id, answers, made))
    await asyncio.to_thread(worker.start)
    await asyncio.to_thread(worker.join)
    assert worker.exitcode == -signal.SIGKILL
