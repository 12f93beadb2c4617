"""Measure the daemon under load: `python -m benchmarks.daemon`.

F11: 200 sessions at once, each with an image, on the built-in model at 20 tokens a second: the time to accept a message
(compared with 200 requests for the version), the latency of its events, events per second, and failures.
Memory: many short turns with images, one after the other in each of 20 sessions; the memory of the daemon over time.
F13: the official client loses its connection 1,000 times, and the daemon is killed while the client watches.
P16: events with an image to 10 and 40 clients, sent as a reference with a preview, as bytes, and as base64 in JSON
(the usual way, with plain python-socketio); the longest stall of the server's event loop.

`--turns 10000` sets the length of the memory run. See also `benchmarks.soak` (long runs) and `benchmarks.kills`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import socketio
import uvicorn
import websockets

from loom.client import Client, RemoteSession
from loom.content.blocks import ContentBlock, ImageBlock
from loom.content.media import Media
from loom.events import ImageAdded, TextDelta, TurnFailed, TurnFinished
from loom.testing import memory_runtime, sample_png

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon.running import TOKEN, serving
from daemon.running import daemon as running
from daemon.test_reconnecting import watched_through

SESSIONS = 200
TURNS = 1_000
WALKERS = 20
MARKS = 10
DROPS = 1_000
IMAGE_BYTES = 1_000_000
UNLIMITED = {"LOOM_APPROVAL__DEFAULT": "allow"}


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def icon(number: int) -> bytes:
    """Return an image that differs by `number`, and is too small for OCR, which would take most of the time."""
    return sample_png(20 + number % 16, 16 + number // 16)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1000


def files_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


# Two hundred at once -------------------------------------------------------------------------------------------------


class Crowd:
    """Counters over all sessions of the run."""

    def __init__(self) -> None:
        self.accepted_ms: list[float] = []
        self.events = 0
        self.turns = 0
        self.failed = 0

    async def run_turn(self, session: RemoteSession, number: int, image: Sequence[ContentBlock]) -> None:
        before = (await session.info()).last_seq if self.turns else 0
        began = time.perf_counter()
        await session.post(f"{number}\n!slow 20tps\n!tokens 60", *image)
        self.accepted_ms.append((time.perf_counter() - began) * 1000)
        async for _, event in session.events(before):
            self.events += 1
            if isinstance(event, TurnFailed):
                self.failed += 1
            if isinstance(event, TurnFinished | TurnFailed):
                self.turns += 1
                return


async def crowd(folder: Path) -> None:
    with running(folder / "crowd", UNLIMITED) as house:
        async with house.client() as client:
            sessions = [await client.session() for _ in range(SESSIONS)]
            images = [await client.upload(icon(number)) for number in range(SESSIONS)]
            await Crowd().run_turn(await client.session(), -1, images[0])
            await versions_ms(client)  # opens the connections
            version_ms = await versions_ms(client)
            found = Crowd()
            began = time.perf_counter()
            await asyncio.gather(*(found.run_turn(sessions[at], at, images[at]) for at in range(SESSIONS)))
            seconds = time.perf_counter() - began
            stored = sum(line.last_seq for line in await client.sessions(limit=SESSIONS + 1))
        print(f"    {SESSIONS} sessions with an image each, {seconds:.1f} s, failed: {found.failed}")
        accepted, version = percentile(found.accepted_ms, 0.99), percentile(version_ms, 0.99)
        print(
            f"    accepted: median {statistics.median(found.accepted_ms):.0f} ms, p99 {accepted:.0f} ms;"
            f" as many requests for the version: p99 {version:.0f} ms (× {accepted / version:.1f})"
        )
        print(f"    events stored {stored / seconds:.0f}/s, envelopes received {found.events / seconds:.0f}/s")
        print(f"    memory of the daemon {resident_mb(house.pid):.0f} MB, {files_of(house.pid)} open files")


async def versions_ms(client: Client) -> list[float]:
    """Request the version once per session, all at once; return the milliseconds of each request."""

    async def version_ms() -> float:
        began = time.perf_counter()
        await client.version()
        return (time.perf_counter() - began) * 1000

    return await asyncio.gather(*(version_ms() for _ in range(SESSIONS)))


async def reconnects(folder: Path) -> None:
    (folder / "reconnects").mkdir()
    began = time.perf_counter()
    events = await watched_through(folder / "reconnects", drops=DROPS, restarts=3, seconds=900)
    seconds = time.perf_counter() - began
    print(
        f"    {DROPS:,} connections lost and 3 daemons killed in {seconds:.0f} s: all {events:,} events received once"
    )


async def latency(folder: Path) -> None:
    """Measure the latency of text while 50 sessions stream: send a small message and wait for its echo."""
    with running(folder / "late", UNLIMITED) as house:
        async with house.client() as client:
            streaming = [await client.session() for _ in range(50)]
            for session in streaming:
                await session.post("!slow 20tps\n!tokens 200")
            session = await client.session()
            times = [await first_text_ms(session, f"!echo {number}") for number in range(40)]
        late = f"median {statistics.median(times):.0f} ms, p95 {percentile(times, 0.95):.0f} ms"
        print(f"    message sent → first text received, while 50 sessions stream: {late}")


async def first_text_ms(session: RemoteSession, text: str) -> float:
    began = time.perf_counter()
    found = 0.0
    async for event in session.stream(text):
        if isinstance(event, TextDelta) and not found:
            found = (time.perf_counter() - began) * 1000
    return found


# Memory --------------------------------------------------------------------------------------------------------------


async def memory(folder: Path, turns: int) -> None:
    """Print the memory over many short turns. Every fifth message has an image; every fiftieth starts a new session."""
    with running(folder / "memory", UNLIMITED) as house:
        async with house.client() as client:

            async def walk(walker: int, count: int) -> None:
                session = await client.session()
                for number in range(count):
                    if number % 50 == 49:
                        session = await client.session()
                    image = [icon(walker * 10 + number // 5 % 10)] if number % 5 == 0 else []
                    await run_turn(session, f"!echo {number}", *image)

            print(f"    {turns:,} turns, {WALKERS} at once, every fifth with an image")
            marks: list[float] = []
            for part in range(MARKS + 1):
                began = time.perf_counter()
                each = turns // WALKERS // MARKS if part else 2
                await asyncio.gather(*(walk(walker, each) for walker in range(WALKERS)))
                rate = each * WALKERS / (time.perf_counter() - began)
                marks.append(resident_mb(house.pid))
                done, files = turns * part // MARKS, files_of(house.pid)
                print(
                    f"      after {done:>6,}: {marks[-1]:6.1f} MB, {files} open files, {rate:.0f} turns/s",
                    flush=True,
                )
        half = marks[MARKS // 2]
        print(f"    the second half added {marks[-1] - half:.1f} MB, {(marks[-1] / half - 1) * 100:.1f} %")


async def run_turn(session: RemoteSession, *content: str | bytes) -> None:
    async for event in session.stream(*content):
        if isinstance(event, TurnFailed):
            raise RuntimeError(event.text)


# Images to many clients ----------------------------------------------------------------------------------------------


class LoopStall:
    """The longest stall of the event loop of this process: in wall time, and in CPU time of its thread, which does not
    depend on other load of the machine."""

    def __init__(self) -> None:
        self.worst_ms = 0.0
        self.thread_ms = 0.0
        self.cpu_ms = 0.0
        """Total CPU time of the thread."""

    @contextlib.asynccontextmanager
    async def record(self) -> AsyncGenerator[None]:
        async def watch() -> None:
            while True:
                clock, own = time.perf_counter(), time.thread_time()
                await asyncio.sleep(0.001)
                self.worst_ms = max(self.worst_ms, (time.perf_counter() - clock) * 1000 - 1)
                self.thread_ms = max(self.thread_ms, (time.thread_time() - own) * 1000)

        task = asyncio.create_task(watch())
        began = time.thread_time()
        try:
            yield
        finally:
            self.cpu_ms = (time.thread_time() - began) * 1000
            task.cancel()


def readers(
    url: str, session: str, clients: int, count: int, *, inline: bool = False, deflate: bool = False
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.daemon", "--read", url, session, str(clients), str(count)]
    environ = {**os.environ, "INLINE": "1" if inline else "", "DEFLATE": "1" if deflate else ""}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


async def read(url: str, session: str, clients: int, count: int) -> None:
    """Run the reader process: `clients` connections, each until it has received `count` images."""
    ready: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(clients)]
    inline = "true" if os.environ.get("INLINE") else "false"
    compression = "deflate" if os.environ.get("DEFLATE") else None

    async def read_images(number: int) -> None:
        address = f"{url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket"
        async with websockets.connect(address, max_size=None, compression=compression) as socket:
            await socket.recv()
            await socket.send(f'40/events,{{"token":"{TOKEN}"}}')
            await socket.recv()
            await socket.send(f'42/events,1["join",{{"session":"{session}","after":0,"inline":{inline}}}]')
            await socket.recv()
            ready[number].set_result(None)
            received = 0
            while received < count:
                data = await socket.recv()
                if data == "2":
                    await socket.send("3")
                elif isinstance(data, str) and data[:2] in ("42", "45") and '"image"' in data[:40]:
                    received += 1

    tasks = [asyncio.create_task(read_images(number)) for number in range(clients)]
    await asyncio.gather(*ready)
    print("ready", flush=True)
    await asyncio.gather(*tasks)
    print("done", flush=True)


async def time_work(process: subprocess.Popen[str], work: Callable[[], Awaitable[None]], stall: LoopStall) -> float:
    """Return the seconds from the start of `work` until the reader process has received everything."""
    assert process.stdout
    line = await asyncio.to_thread(process.stdout.readline)
    assert line == "ready\n", line
    async with stall.record():
        began = time.perf_counter()
        await work()
        await asyncio.to_thread(process.stdout.readline)
        seconds = time.perf_counter() - began
    process.wait()
    process.stdout.close()
    return seconds


async def send_by_loom(
    clients: int, count: int, *, inline: bool, pause_seconds: float = 0.0
) -> tuple[float, LoopStall]:
    """Return the events per second that all clients have received, and the stalls of the event loop."""
    async with memory_runtime() as runtime, serving(runtime) as house:
        session = await runtime.session()
        data = noise_png(IMAGE_BYTES)
        digest = await runtime.stores.media.put(data)
        media = Media(digest=digest, media_type="image/png", size_bytes=len(data), width=577, height=577)
        await house.app.daemon.feeds.previews.preview(media)
        await house.app.daemon.feeds.previews.inline(media)
        event = ImageAdded(index=0, image=ImageBlock(media, alt="an image"))
        at_once = 1 if pause_seconds else 20
        stall = LoopStall()

        async def work() -> None:
            for _ in range(count // at_once):
                seq = await runtime.stores.events.append(session.id, [event] * at_once)
                runtime.stores.events.publish(session.id, seq, [event] * at_once)
                await asyncio.sleep(pause_seconds)

        seconds = await time_work(readers(house.url, session.id, clients, count, inline=inline), work, stall)
        return count / seconds, stall


async def send_base64(
    clients: int, count: int, *, deflate: bool, pause_seconds: float = 0.0
) -> tuple[float, LoopStall]:
    """Send with plain python-socketio, one room, the image inside the event. Return the same as `send_by_loom`."""
    server: Any = socketio.AsyncServer(async_mode="asgi", namespaces=["/events"])
    server.on("connect", lambda *_: None, namespace="/events")
    server.on("join", lambda *_: {"ok": True}, namespace="/events")
    image = base64.b64encode(noise_png(IMAGE_BYTES)).decode()
    with listening() as listener:
        config = uvicorn.Config(socketio.ASGIApp(server), log_level="error", ws_per_message_deflate=deflate)
        web = uvicorn.Server(config)
        task = asyncio.create_task(web.serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        stall = LoopStall()

        async def work() -> None:
            for number in range(count):
                await server.emit("image", {"seq": number, "image": image}, namespace="/events")
                if number % 5 == 4:
                    await asyncio.gather(*(found.queue.join() for found in server.eio.sockets.values()))
                await asyncio.sleep(pause_seconds)

        seconds = await time_work(readers(url, "any", clients, count, deflate=deflate), work, stall)
        web.should_exit = True
        await task
        return count / seconds, stall


@contextlib.contextmanager
def listening() -> Iterator[Any]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def noise_png(size_bytes: int) -> bytes:
    """Return an image of random pixels, which cannot be compressed."""
    import io
    import math

    from PIL import Image

    side = math.isqrt(size_bytes // 3)
    file = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(side * side * 3)).save(file, "PNG")
    return file.getvalue()


async def images() -> None:
    """Send as fast as possible to 10 clients; then five per second to 40, to measure how long one event stalls the
    loop."""
    ways: dict[str, tuple[Callable[..., Awaitable[tuple[float, LoopStall]]], int]] = {
        "base64 in JSON, deflate on (uvicorn's default)": (partial(send_base64, deflate=True), 5),
        "base64 in JSON, deflate off": (partial(send_base64, deflate=False), 40),
        "Loom: bytes (inline: true)": (partial(send_by_loom, inline=True), 40),
        "Loom: reference and preview": (partial(send_by_loom, inline=False), 4_000),
    }
    megabytes = IMAGE_BYTES / 1e6
    print(f"    {f'an image of {megabytes:.0f} MB':<50}{'to 10 clients':>28}{'to 40, stall':>24}")
    print(f"    {'':<50}{'events/s':>14}{'loop ms/event':>14}{'wall ms':>12}{'CPU ms':>12}")
    idle = LoopStall()
    async with idle.record():
        await asyncio.sleep(4)
    name = "idle (load of the machine)"
    print(f"    {name:<50}{'':>28}{idle.worst_ms:>12.1f}{idle.thread_ms:>12.1f}")
    for name, (way, count) in ways.items():
        rate, busy = await way(10, count)
        _, stall = await way(40, min(count, 20), pause_seconds=0.2)
        print(f"    {name:<50}{rate:>14.1f}{busy.cpu_ms / count:>14.2f}{stall.worst_ms:>12.1f}{stall.thread_ms:>12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of the memory run")
    parser.add_argument("--only", choices=("crowd", "latency", "memory", "reconnects", "pictures"), help="one part")
    parser.add_argument("--read", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        url, session, clients, count = options.read
        asyncio.run(read(url, session, int(clients), int(count)))
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        parts: dict[str, Callable[[], Any]] = {
            "crowd": lambda: crowd(folder),
            "latency": lambda: latency(folder),
            "memory": lambda: memory(folder, options.turns),
            "reconnects": lambda: reconnects(folder),
            "pictures": images,
        }
        for part, work in parts.items():
            if options.only in (None, part):
                asyncio.run(work())


if __name__ == "__main__":
    main()
