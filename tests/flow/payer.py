"""A process that pays with one call, lingers over another, and waits to be killed: `payer.py FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from flow.test_turn_faults import BOTH, linger, pay
from loom.config import load_config
from loom.events import ToolStarted
from loom.runtime import Runtime
from loom.testing import ScriptedProvider


async def main(folder: str) -> None:
    async with Runtime.open(
        load_config(cwd=Path(folder), environ={"LOOM_HOME": folder}),
        providers={"anthropic": ScriptedProvider([BOTH])},
        tools=[pay, linger],
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        async for event in session.stream("pay bob"):
            if isinstance(event, ToolStarted) and event.call.name == linger.name:  # on disk, like all before it
                print(session.id, flush=True)


asyncio.run(main(sys.argv[1]))
