"""A process that speaks in a session that others speak in, too.

speaker.py URL FOLDER SESSION NAME COUNT      say COUNT things and print each answer
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.runtime import Runtime
from loom.testing import ScriptedProvider
from loom.tools.base import tool


@tool
def nod() -> str:
    """Nod."""
    return "nodded"


async def main(url: str, folder: str, session_id: str, name: str, count: int) -> None:
    config = load_config(cwd=Path(folder), environ={"LOOM_HOME": folder}, flags={"store.url": url})
    provider = ScriptedProvider([])
    async with Runtime.open(config, providers={"anthropic": provider}, tools=[nod]) as runtime:
        session = await runtime.session(session_id)
        for number in range(count):
            call = ToolCall(f"{name}{number}", "nod")
            provider.add(call, f"answer {name} {number}")
            print((await session.send(f"message {name} {number}")).text, flush=True)


if __name__ == "__main__":
    url, folder, session_id, name, count = sys.argv[1:]
    asyncio.run(main(url, folder, session_id, name, int(count)))
