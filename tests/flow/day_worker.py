"""A process that works on a task until an approval is pending, says so, and waits to be killed.

day_worker.py HOME WORKSPACE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from loom.agent.gate import Allow, ApprovalRequest, Ask
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.testing import ScriptedProvider

MODEL = "anthropic/claude-opus-5"
TODOS = [{"text": "find the bug", "state": "in_progress"}, {"text": "fix it"}, {"text": "look at the page"}]


def decide(request: ApprovalRequest) -> Allow | Ask:
    return Ask() if request.tool == "edit_file" else Allow()


async def work(home: str, workspace: str) -> None:
    answers = [
        ToolCall("a1", "update_todos", {"todos": TODOS}),
        ToolCall("a2", "run_command", {"command": "python3 check.py"}),
        [
            ToolCall("a3", "search_files", {"pattern": "def total", "around": 2}),
            ToolCall("a4", "read_file", {"path": "shop.py"}),
        ],
        ToolCall("a5", "edit_file", {"path": "shop.py", "old": "sum(prices) + 1", "new": "sum(prices)"}),
    ]
    config = load_config(cwd=Path(workspace), environ={"LOOM_HOME": home})
    providers = {"anthropic": ScriptedProvider(answers)}
    async with Runtime.open(config, providers=providers, tools="all", approve=decide) as runtime:
        session = await runtime.session(model=MODEL, workspace=workspace)
        async for event in session.stream("the check fails: fix it, then look at the page"):
            if isinstance(event, ApprovalRequested) and event.call.name == "edit_file":
                print(session.id, flush=True)
            elif isinstance(event, ApprovalRequested):
                await session.answer(event.approval, "once")


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
