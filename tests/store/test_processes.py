"""Several processes, one session: their turns come one after the other, whole, whatever the database."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from loom.config import load_config
from loom.content.messages import broken_pairs
from loom.runtime import Runtime

SPEAKER = Path(__file__).with_name("speaker.py")
COUNT = 4


async def test_processes_that_speak_in_one_session_at_once_are_all_heard_one_after_the_other(
    url: str, tmp_path: Path
) -> None:
    """F16."""
    address = url if "://" in url else f"sqlite://{url}"
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)}, flags={"store.url": address})
    async with Runtime.open(config) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, str(SPEAKER), address, str(tmp_path), session.id, name, str(COUNT)),
                stdout=asyncio.subprocess.PIPE,
            )
            for name in ("a", "b", "c")
        ]
        outputs = [(await process.communicate())[0].decode().splitlines() for process in processes]
        for name, output in zip("abc", outputs, strict=True):
            assert output == [f"answer {name} {number}" for number in range(COUNT)]
        path = await session.path()
        assert broken_pairs(path) == ()
        assert [message.role for message in path] == ["user", "assistant", "tool", "assistant"] * 3 * COUNT
        for at in range(0, len(path), 4):
            assert path[at].text.removeprefix("message ") == path[at + 3].text.removeprefix("answer ")
        assert await runtime.stores.leases.holder(session.id) == ""
        assert await runtime.stores.leases.list_abandoned() == ()
        stored = await runtime.stores.events.after(session.id, 0, limit=10_000)
        assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
