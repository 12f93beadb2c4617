"""Approvals on the line: the person at the terminal is asked; where nobody is there, the answer is no."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Literal, TypeAlias

from loom.cli.terminal import Ink, one_line, quiet_keys
from loom.events import ApprovalRequested
from loom.session import Session

Permission: TypeAlias = Literal["ask", "auto", "deny"]
Answer: TypeAlias = Literal["once", "always", "deny"]

_ANSWERS: dict[str, Answer] = {"y": "once", "yes": "once", "a": "always", "always": "always", "n": "deny", "no": "deny"}


async def answer(session: Session, event: ApprovalRequested, permission: Permission) -> None:
    match permission:
        case "auto":
            await session.answer(event.approval, "once")
        case "deny":
            await session.answer(event.approval, "deny", "nothing may be approved in this run (--permission deny)")
        case "ask":
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                reason = "nobody is at the terminal to ask; --permission auto would allow it"
                await session.answer(event.approval, "deny", reason)
                return
            with quiet_keys(on=False):
                said = await _asked(event)
            await session.answer(event.approval, *said)


async def _asked(event: ApprovalRequested) -> tuple[Answer, str]:
    """`action` has its control characters made visible already: what is approved is what is seen."""
    ink = Ink(sys.stderr)
    sys.stderr.write(f"\n{ink.bold('approve')} {one_line(event.call.name)}\n")
    sys.stderr.writelines(f"  {line}\n" for line in event.action.splitlines())
    while True:
        sys.stderr.write("[y] once  [a] always in this session  [n] no › ")
        sys.stderr.flush()
        line = await _line()
        if not line:
            return "deny", "the terminal was closed"
        word, _, reason = line.strip().partition(" ")
        said = _ANSWERS.get(word.lower())
        if said is not None:
            return said, reason.strip()
        sys.stderr.write("y, a or n (and behind n, if you like, why)\n")


async def _line() -> str:
    """A line from the terminal, without blocking what else runs, and gone at once when the turn is interrupted."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not arrived.done():
            arrived.set_result(os.read(descriptor, 4096))

    loop.add_reader(descriptor, read)
    try:
        return (await arrived).decode("utf-8", "replace")
    finally:
        loop.remove_reader(descriptor)
