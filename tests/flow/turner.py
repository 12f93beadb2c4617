"""A process that takes turns until it is killed, at the very point that it was told.

    turner.py zygote FOLDER SESSION      for each number on stdin, fork a child that takes turns and ends itself with
                                         SIGKILL at that point; 0 lets it finish one turn and count its points

Points stand before and after every write to the store, in a tool before and after what it does, and between the words
of the model. What a face was told is printed: nothing of that may be lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from loom.config import Config, load_config
from loom.content.blocks import ToolCall
from loom.events import DecoderEvent, MessageStored, Stopped, TextDelta, ToolFinished, TurnFinished
from loom.prompt import Prompt, ShownResult
from loom.runtime import Runtime
from loom.testing import events_of, sample_png
from loom.tools.base import Tool, tool

MODEL = "anthropic/claude-opus-5"
EFFECTS = "effects"


def say(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


class Fuse:
    """Counts the points that were passed; at the last one the process is gone."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.passed = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.length:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def written(*given: Any, **named: Any) -> Any:
            self.point()
            result = await write(*given, **named)
            self.point()
            return result

        return written


class Speaker:
    """Says a few words, calls the tool twice, looks at its pictures, and says some more."""

    def __init__(self, fuse: Fuse, life: str) -> None:
        self._fuse = fuse
        self._life = life
        self._calls = 0

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        say("asked")
        answered = any(isinstance(block, ShownResult) for block in prompt.messages[-1].blocks)
        if answered:
            events: list[DecoderEvent] = [
                *(TextDelta(text=f"word-{self._life}-{self._calls}-{at} ") for at in range(4)),
                Stopped(reason="end"),
            ]
        else:
            self._calls += 2
            names = (f"{self._life}-{self._calls}", f"{self._life}-{self._calls + 1}")
            events = events_of(["I do it.\n", *(ToolCall(name, "leave", {"mark": name}) for name in names)])
        for event in events:
            self._fuse.point()
            await asyncio.sleep(0)
            yield event


def leaving(folder: Path, fuse: Fuse) -> Tool:
    @tool
    async def leave(mark: str) -> list[str | bytes]:
        """Leave a mark that cannot be taken back."""
        fuse.point()
        with (folder / EFFECTS).open("a") as file:
            file.write(f"{mark}\n")
        fuse.point()
        await asyncio.sleep(0)
        fuse.point()
        return [f"left {mark}", sample_png(20, 20)]

    return leave


def config_of(folder: Path) -> Config:
    """The settings of all lives: those of the environment, in this folder."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("LOOM_")}
    return load_config(cwd=folder, environ={**settings, "LOOM_HOME": str(folder)})


async def take_turns(folder: Path, session_id: str, life: str, length: int) -> None:
    fuse = Fuse(length)
    async with Runtime.open(
        config_of(folder), providers={"anthropic": Speaker(fuse, life)}, tools=[leaving(folder, fuse)]
    ) as runtime:
        runtime.stores.database.write = fuse.around(runtime.stores.database.write)
        runtime.stores.media.put = fuse.around(runtime.stores.media.put)
        session = await runtime.session(session_id)
        for number in range(1_000):
            picture = sample_png(30, 30 + length % 5)
            async for event in session.stream(f"life {life}, turn {number}", picture):
                match event:
                    case MessageStored():
                        say("stored", event.node)
                    case TextDelta():
                        say("word", *event.text.split())
                    case ToolFinished():
                        say("finished", event.result.call_id)
                    case TurnFinished() if length == 0:
                        say("points", fuse.passed)
                        return
                    case _:
                        pass


def zygote(folder: str, session_id: str) -> None:
    if config_of(Path(folder)).turn.engine == "dbos":
        import_module("dbos")  # once, not in every child
    for life, line in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            asyncio.run(take_turns(Path(folder), session_id, str(life), int(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say("gone", status)


if __name__ == "__main__":
    zygote(*sys.argv[2:])
