"""Record which functions of Loom a real turn crosses: a message with a picture, a tool that returns another, an answer,
with a model behind a real socket.

    PYTHONPATH=tests python tests/flow/turn_trace.py     print the crossings between folders, for docs/flow.md
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from flow.far_models import Answer, far_model, half
from loom.content.blocks import ToolCall
from loom.events import TurnFailed
from loom.testing import sample_png
from loom.tools.base import tool
from providers.far_side import refusal

SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "loom") + "/"
VALUES = ("content", "models", "prompt", "events", "errors", "session", "testing")
"""Folders and files that hold only values: calls into them are no crossings."""


class Function(NamedTuple):
    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}()"

    @property
    def room(self) -> str:
        return self.file.split("/")[0].removesuffix(".py")


class Recorder:
    """A profile hook. `functions` are all that were entered, `crossings` those entered from another room, both in the
    order of the first time; `calls` counts how often each was entered."""

    def __init__(self) -> None:
        self.functions: dict[Function, None] = {}
        self.crossings: dict[Function, str] = {}
        self.calls: dict[Function, int] = {}
        self._is_active = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        found = _function_of(frame) if self._is_active and event == "call" else None
        if found is None:
            return
        self.functions.setdefault(found)
        self.calls[found] = self.calls.get(found, 0) + 1
        caller = frame.f_back
        while caller is not None and _function_of(caller) is None:
            caller = caller.f_back
        origin = _function_of(caller) if caller is not None else None
        room = origin.room if origin is not None else ""
        if (
            room != found.room
            and found.room not in VALUES
            and not ("<" in found.name or found.name.split(".")[-1].startswith("_"))
        ):
            self.crossings.setdefault(found, room)

    @property
    def modules(self) -> set[str]:
        return {function.file for function in self.functions}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Listen to this thread and those that begin meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._is_active = True
        try:
            yield
        finally:
            self._is_active = False


def _function_of(frame: FrameType) -> Function | None:
    code = frame.f_code
    is_function = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")  # no module, class body or lambda
    if not is_function or not code.co_filename.startswith(SOURCE):
        return None
    return Function(code.co_filename[len(SOURCE) :], code.co_qualname)


@tool
def take_picture() -> list[str | bytes]:
    """Return a picture."""
    return ["a picture", sample_png(60, 40)]


WIRE = "anthropic"
PLAIN: tuple[Answer, ...] = (ToolCall("call-1", "take_picture", {}), "I have seen both.")
TROUBLE: tuple[Answer, ...] = (
    refusal(429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}, retry_after_ms="1"),
    refusal(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Could not process image"}}),
    half(WIRE, "I have seen "),
    "both.",
)
"""It is sent again after a pause; without the picture; and once more behind the words that had arrived."""


async def trace_turn(answers: tuple[Answer, ...] = PLAIN) -> Recorder:
    recorder = Recorder()
    with recorder.attached():
        await _run_turn(recorder, answers)
    return recorder


async def _run_turn(recorder: Recorder, answers: tuple[Answer, ...]) -> None:
    async with far_model(WIRE, "warm", *answers, tools=[take_picture]) as far:
        session = await far.runtime.session(model="far")
        await session.send("warm up")
        with recorder.recording():
            async for event in session.stream("look", sample_png(80, 60)):
                if isinstance(event, TurnFailed):
                    raise AssertionError(event)


def main() -> None:
    for function, room in asyncio.run(trace_turn()).crossings.items():
        print(f"{room:<10} → {function}")


if __name__ == "__main__":
    main()
