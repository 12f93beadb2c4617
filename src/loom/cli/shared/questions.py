"""Prompts in the terminal: confirmations, and approvals of tool calls. Without a terminal, approvals are denied."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import click
import msgspec

from loom.cli.shared.options import ApprovalMode
from loom.cli.shared.terminal import Colors, one_line, print_line, quiet_keys, safe_text
from loom.errors import LoomError
from loom.events import ApprovalAnswered, ApprovalRequested, Event, TurnFailed, TurnFinished
from loom.session import EventIterator, Session
from loom.tools.approval_values import describe_field, value_fields


def confirm(question: str) -> bool:
    """Ask on stderr; an empty answer means no. Raise `click.Abort` at Ctrl+C and at the end of the input."""
    if not sys.stdin.isatty():
        return click.confirm(question, err=True)
    while True:
        try:
            answer = _read_answer(f"{question} [y/N]: ").strip().lower()
        except (KeyboardInterrupt, EOFError):
            raise click.Abort from None
        if answer in ("", "n", "no"):
            return False
        if answer in ("y", "yes"):
            return True
        click.echo("Type y or n.", err=True)


def _read_answer(prompt: str) -> str:
    """Read a line from the terminal. Raise `EOFError` at its end, `KeyboardInterrupt` at Ctrl+C.

    `input()` loses a signal that arrives between its prompt and its read: Python only records the signal, and the read
    blocks until a key is pressed. The C handler writes to the wakeup descriptor at any time.
    """
    descriptor = sys.stdin.fileno()
    with _signal_pipe() as signalled:
        click.echo(prompt, nl=False, err=True)
        while descriptor not in select.select([descriptor, signalled], [], [])[0]:
            os.read(signalled, 1)  # another signal, which its own handler has received
        line = os.read(descriptor, 4096)  # a complete line: the terminal is line-buffered
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace")


@contextmanager
def _signal_pipe() -> Generator[int]:
    """Yield a descriptor that becomes readable at a signal. Within the context, Ctrl+C raises `KeyboardInterrupt`, even
    where an event loop would only cancel its task."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        os.close(readable)
        os.close(writable)


ApprovalChoice: TypeAlias = Literal["once", "always", "deny"]

ApprovalReply: TypeAlias = tuple[ApprovalChoice, str]
"""An answer and its reason, which may be empty."""

_GONE: Final = "approval.gone"
_ANSWERS: Final[dict[str, ApprovalChoice]] = {
    "y": "once",
    "yes": "once",
    "a": "always",
    "always": "always",
    "n": "deny",
    "no": "deny",
}
_CHOICES: Final = "[y] once  [a] always in this session  [n] no › "
_VALUE_CHOICES: Final = "[y] answer  [n] no › "


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def answer_in(
    events: EventLookahead,
    session: Session,
    event: ApprovalRequested,
    permission: ApprovalMode,
    given: ApprovalReply | None = None,
) -> None:
    """Answer an approval of a watched turn. An answer from another client ends the prompt. `given` is an answer that
    was given in advance."""
    reply = given or await events.wait_for_answer(_answer_without_prompt(event, permission), event.approval)
    if reply is None:
        sys.stderr.write("\n")
        _say_gone(event)
    else:
        await _send_answer(session, event, reply)


async def answer(session: Session, event: ApprovalRequested, permission: ApprovalMode) -> None:
    """Answer an approval of a turn that this process does not watch."""
    await _send_answer(session, event, await _answer_without_prompt(event, permission))


async def _send_answer(session: Session, event: ApprovalRequested, reply: ApprovalReply) -> None:
    try:
        await session.answer(event.approval, *reply)
    except LoomError as error:
        if error.code != _GONE:
            raise
        _say_gone(event)


def _say_gone(event: ApprovalRequested) -> None:
    print_line(f"{one_line(event.call.name)} was answered elsewhere")


async def _answer_without_prompt(event: ApprovalRequested, permission: ApprovalMode) -> ApprovalReply:
    from loom.agent.plan_mode import PRESENT_PLAN  # the question about a folder is asked before anything else is loaded

    match permission:
        case "auto":
            return "once", ""
        case "plan" if event.call.name == PRESENT_PLAN and is_interactive():
            with quiet_keys(on=False):
                return await _prompt_for_answer(event)
        case "plan" if event.call.name == PRESENT_PLAN:
            return "deny", "no terminal to approve the plan: give the plan as your answer"
        case "plan":
            return "deny", "this run only plans (--plan): say what you would do, and do not try it again"
        case "deny":
            return "deny", "--permission deny rejects every approval"
        case "ask" if is_interactive():
            with quiet_keys(on=False):
                return await _prompt_for_answer(event)
        case "ask":
            return "deny", "No terminal to ask for approval; use --permission auto to allow it"


async def _prompt_for_answer(event: ApprovalRequested) -> ApprovalReply:
    """Prompt for an answer. Control characters in `action` are already made visible, so that the user approves exactly
    what runs."""
    ink = Colors(sys.stderr)
    sys.stderr.write(f"\n{ink.bold('approve')} {one_line(event.call.name)}\n")
    sys.stderr.writelines(f"  {line}\n" for line in event.action.splitlines())
    while True:
        sys.stderr.write(_CHOICES if event.values is None else _VALUE_CHOICES)
        sys.stderr.flush()
        line = await _line()
        if not line:
            return "deny", "the terminal was closed"
        word, _, reason = line.strip().partition(" ")
        answer = _ANSWERS.get(word.lower())
        if answer not in (None, "deny") and event.values is not None:
            return await _prompt_for_values(event.values)
        if answer is not None:
            return answer, reason.strip()
        sys.stderr.write("Type y, a or n, optionally with a reason: n REASON\n")


async def _prompt_for_values(schema: dict[str, Any]) -> ApprovalReply:
    """Prompt for each value on its own line; an empty line omits it."""
    values: dict[str, str] = {}
    for name in value_fields(schema):
        sys.stderr.write(f"  {safe_text(describe_field(name, schema))} › ")
        sys.stderr.flush()
        line = await _line()
        if not line:
            return "deny", "the terminal was closed"
        if line.strip():
            values[name] = line.strip()
    return "once", msgspec.json.encode(values).decode()


async def _line() -> str:
    """Return a line from the terminal without blocking the event loop; can be cancelled at once when the turn is
    interrupted."""
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


T = TypeVar("T")


class EventLookahead:
    """Iterates over the events of a turn, with lookahead. Use it inside the `async with` that closes them."""

    def __init__(self, events: EventIterator) -> None:
        self._events = events
        self._held: deque[Event] = deque()
        self._coming: asyncio.Task[Event | None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._coming is not None:
            await _cancel_task(self._coming)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._held:
            return self._held.popleft()
        if self._coming is None:
            return await anext(self._events)
        coming, self._coming = self._coming, None
        event = await coming
        if event is None:
            raise StopAsyncIteration
        return event

    async def wait_for_answer(self, asking: Coroutine[Any, Any, T], approval: str) -> T | None:
        """Return the result of `asking`; cancel it and return None if the approval was answered by another client, or
        the turn ended. Events that arrive meanwhile are yielded later."""
        answering = asyncio.create_task(asking)
        try:
            while not answering.done():
                coming = self._coming = self._coming or asyncio.create_task(_next(self._events))
                await asyncio.wait([answering, coming], return_when=asyncio.FIRST_COMPLETED)
                if answering.done() or not coming.done():
                    continue
                event = coming.result()
                if event is None:
                    return None
                self._coming = None
                self._held.append(event)
                if isinstance(event, TurnFinished | TurnFailed):
                    return None
                if isinstance(event, ApprovalAnswered) and event.approval == approval:
                    return None
            return await answering
        finally:
            if not answering.done():
                await _cancel_task(answering)


async def _next(events: EventIterator) -> Event | None:
    return await anext(events, None)


async def _cancel_task(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
