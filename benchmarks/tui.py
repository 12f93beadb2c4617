"""Measure the terminal UI: first paint, a keystroke while an answer streams, opening 2,000 messages.

python -m benchmarks.tui

Budgets: first paint at most 400 ms above Python's own start; a keystroke at most 16 ms at the median while 100 tokens a
second arrive; 2,000 messages open within a second. All figures are medians. Each is printed with the processor time of
the program, which on a busy machine is the time that it would take on an idle core.
"""

from __future__ import annotations

import asyncio
import os
import pty
import resource
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import msgspec
from textual import events

from loom.config import load_config
from loom.content.messages import assistant, user
from loom.events import StepStarted, TextDelta, TurnStarted
from loom.runtime import Runtime
from loom.tui.app import AskTrust, LoomApp, OpenedLibrary
from loom.tui.chat_library import ChatLibrary
from loom.tui.chat_screen import ChatScreen

ROUNDS = 7
KEYS = 150
MESSAGES = 2_000
BUDGETS_MS = {"first paint above Python": 400.0, "keystroke while streaming": 16.0, "open 2,000 messages": 1_000.0}


class Timing(msgspec.Struct, frozen=True):
    """Wall time and processor time, in milliseconds."""

    wall: float
    cpu: float


def median(found: Sequence[Timing]) -> Timing:
    return Timing(statistics.median(it.wall for it in found), statistics.median(it.cpu for it in found))


def cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


def first_paint(home: str) -> Timing:
    """Measure the time from the start of the process until its composer is drawn."""
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 34, 100, 0, 0))
    loom = {"LOOM_HOME": home, "LOOM_MODEL": "loom/spark", "LOOM_OFFLINE": "1", "TERM": "xterm-256color"}
    environ = {**os.environ, **loom}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode; the first round writes it
    began = time.perf_counter()
    command = [sys.executable, "-m", "loom.cli.main"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True)
    os.close(slave)
    seen = b""
    while b"drop files" not in seen:
        select.select([master], [], [], 60)
        seen += os.read(master, 65_536)
    timing = Timing((time.perf_counter() - began) * 1_000, cpu_ms(process.pid))
    process.kill()
    process.wait()
    os.close(master)
    return timing


def bare_python() -> Timing:
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    _, _, used = os.wait4(process.pid, 0)
    return Timing((time.perf_counter() - began) * 1_000, (used.ru_utime + used.ru_stime) * 1_000)


async def measure_app(folder: Path) -> dict[str, Timing]:
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder), "LOOM_OFFLINE": "1"})
    stack = AsyncExitStack()
    runtime = await stack.enter_async_context(Runtime.open(config, tools="all"))
    library = ChatLibrary(runtime.library, config, close=stack.aclose)

    async def connect(_: AskTrust) -> OpenedLibrary:
        return OpenedLibrary(library=library, model="loom/spark")

    app = LoomApp(connect, protocol="off")
    async with app.run_test(size=(100, 34)) as pilot:
        chat = next(screen for screen in app.screen_stack if isinstance(screen, ChatScreen))
        while not chat.query("TranscriptView"):
            await pilot.pause(0.01)
        opened = median(await _open_long(chat, runtime))
        keys = await _type_while_streaming(chat)
    return {"keystroke while streaming": keys, "open 2,000 messages": opened}


async def _open_long(chat: ChatScreen, runtime: Runtime) -> list[Timing]:
    conversation = await runtime.library.create(title="long", model="loom/spark")
    roles = (user, assistant)
    messages = [roles[n % 2](f"message {n} with **some** words\n\n- one\n- two") for n in range(MESSAGES)]
    await runtime.stores.sessions.append_to_head(conversation.id, messages)
    found: list[Timing] = []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        await chat.open_session(conversation.id)
        found.append(Timing((time.perf_counter() - began) * 1_000, (time.process_time() - used) * 1_000))
        await chat.open_new()
    await chat.open_session(conversation.id)
    return found


async def _type_while_streaming(chat: ChatScreen) -> Timing:
    """Return the median time from a key to its letter in the composer."""

    async def stream() -> None:
        await chat.transcript.apply(TurnStarted(turn="t", model="loom/spark"))
        await chat.transcript.apply(StepStarted(step=1, model="loom/spark"))
        for number in range(100_000):
            await chat.transcript.apply(TextDelta(index=0, text=f"word{number} " if number % 40 else "\n\n"))
            await asyncio.sleep(0.01)

    streaming = asyncio.create_task(stream())
    await asyncio.sleep(0.5)
    times: list[Timing] = []
    for _ in range(KEYS):
        length = len(chat.composer.text)
        began, used = time.perf_counter(), time.process_time()
        chat.app.post_message(events.Key("x", "x"))
        while len(chat.composer.text) == length:  # noqa: ASYNC110  no event signals the new text
            await asyncio.sleep(0)
        times.append(Timing((time.perf_counter() - began) * 1_000, (time.process_time() - used) * 1_000))
        await asyncio.sleep(0.02)
    streaming.cancel()
    await asyncio.wait([streaming])
    return median(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        pairs = [(first_paint(home), bare_python()) for _ in range(ROUNDS + 1)][1:]
    paint, bare = median([first for first, _ in pairs]), median([second for _, second in pairs])
    found = {"first paint above Python": Timing(paint.wall - bare.wall, paint.cpu - bare.cpu)}
    with tempfile.TemporaryDirectory() as folder:
        found |= asyncio.run(measure_app(Path(folder)))
    for name, timing in found.items():
        over = "" if timing.wall <= BUDGETS_MS[name] else "   OVER"
        print(f"{name:<28}{timing.wall:>9.1f} ms   cpu {timing.cpu:>7.1f} ms   budget {BUDGETS_MS[name]:.0f} ms{over}")
    print(f"{'bare Python':<28}{bare.wall:>9.1f} ms   cpu {bare.cpu:>7.1f} ms")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"{'load of the machine':<28}{load:>9.1f} on {cores} cores")
    print(f"{'memory':<28}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024:>9.1f} MB")


if __name__ == "__main__":
    main()
