"""A process that posts messages and works through the queue until it is killed, at the very point that it was told.

    worker.py zygote FOLDER SESSION      for each number on stdin, fork a child that posts two messages, works, and ends
                                         itself with SIGKILL at that point; 0 lets it finish and count its points
    worker.py ask FOLDER SESSION         work until an approval is open, say so, and wait to be killed
    worker.py say FOLDER SESSION         the same for one message that is said at once, without a queue

Messages that were acknowledged are printed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from flow.turner import Fuse, Speaker, leaving, say
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, sample_png
from loom.tools.base import tool

EFFECTS = "asked-effects"


async def post_and_work(folder: Path, session_id: str, life: str, length: int) -> None:
    fuse = Fuse(length)
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder)})
    async with Runtime.open(
        config, providers={"anthropic": Speaker(fuse, life)}, tools=[leaving(folder, fuse)]
    ) as runtime:
        runtime.stores.database.write = fuse.around(runtime.stores.database.write)
        runtime.stores.media.put = fuse.around(runtime.stores.media.put)
        session = await runtime.session(session_id)
        for number in range(2):
            text = f"life {life}, message {number}"
            await session.post(text, sample_png(30, 30 + length % 5), key=text)
            say("posted", text.replace(" ", "_"))
        async for _ in session.work():
            pass
        say("points", fuse.passed)


def zygote(folder: str, session_id: str) -> None:
    for life, line in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            asyncio.run(post_and_work(Path(folder), session_id, str(life), int(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say("gone", status)


async def ask(mode: str, folder: str, session_id: str) -> None:
    async with Runtime.open(
        load_config(cwd=Path(folder), environ={"LOOM_HOME": folder}),
        providers={"anthropic": ScriptedProvider([ToolCall("c1", "mark", {"path": f"{folder}/{EFFECTS}"})])},
        tools=[mark],
    ) as runtime:
        session = await runtime.session(session_id)
        if mode == "ask":
            await session.post("leave a mark")
            await session.post("what now?")
        async for event in session.work() if mode == "ask" else session.stream("leave a mark"):
            if isinstance(event, ApprovalRequested):
                say("asked", event.approval)


@tool(danger="ask")
def mark(path: str) -> str:
    """Leave a mark that cannot be taken back."""
    with Path(path).open("a") as file:
        file.write("x")
    return "left"


if __name__ == "__main__":
    if sys.argv[1] == "zygote":
        zygote(*sys.argv[2:])
    else:
        asyncio.run(ask(*sys.argv[1:]))
