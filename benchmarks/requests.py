"""P1–P3: measure building and sending a request with 30 screenshots and 3 PDFs: `python -m benchmarks.requests`.

P1  over HTTP to a local server, compared with plain code and other libraries: time, longest stall of the event loop,
    peak memory above idle. Every case has its own process; all run in every round, and medians are printed.
P2  only the body on a UNIX socket, compared with sending prepared bytes.
P3  the same conversation after its old media have aged.

Other libraries are measured if they can be imported, here or by another Python (their pins exclude ours):
`--peers-python PATH`, or `.cache/peers/venv`. There: pip install anthropic pydantic-ai-slim[anthropic]
langchain-anthropic litellm. Missing ones are listed. Processor time is printed next to wall time, for busy machines.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.request_ways import CASES, NAME, Loom, Send, blocks, make

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".cache" / "peers" / "venv" / "bin" / "python"
ROUNDS = int(os.environ.get("ROUNDS", "7"))

# The server ---------------------------------------------------------------------------------------------------------

EVENTS = (
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": NAME,
     "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
     "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)  # fmt: skip
STREAM = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS).encode()
WHOLE = json.dumps(
    {"id": "m", "type": "message", "role": "assistant", "model": NAME, "stop_reason": "end_turn", "stop_sequence": None,
     "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 1, "output_tokens": 1}}
).encode()  # fmt: skip


def serve(listening: socket.socket) -> None:
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=converse, args=(connection,), daemon=True).start()


def converse(connection: socket.socket) -> None:
    """Read requests and discard their bodies; answer a path that starts with /sse with a stream."""
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    with connection:
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(1 << 16)
                if not piece:
                    return
                head += piece
            lines, _, rest = head.partition(b"\r\n\r\n")
            length = next(line for line in lines.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            left = int(length.split(b":")[1]) - len(rest)
            while left > 0:
                got = connection.recv_into(view, min(left, len(buffer)))
                if not got:
                    return
                left -= got
            body, kind = (STREAM, "text/event-stream") if b" /sse" in lines else (WHOLE, "application/json")
            answer = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            connection.sendall(answer + body)


def run_server(folder: str) -> None:
    """Serve on a TCP port, which is printed, and on the UNIX socket `unix` in `folder`."""
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind(f"{folder}/unix")
    unix.listen()
    threading.Thread(target=serve, args=(unix,), daemon=True).start()
    print(tcp.getsockname()[1], flush=True)
    serve(tcp)


# Measuring ----------------------------------------------------------------------------------------------------------


def peak_bytes(*, reset: bool = False) -> int:
    if reset:  # memory that an earlier request left allocated does not count as idle
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


async def watch(worst: list[float]) -> None:
    """Record the longest stall of the event loop in `worst`: in wall time, and in CPU time of this thread, which does
    not depend on other programs."""
    while True:
        clock, own = time.perf_counter(), time.thread_time()
        await asyncio.sleep(0.001)
        worst[0] = max(worst[0], time.perf_counter() - clock - 0.001)
        worst[1] = max(worst[1], time.thread_time() - own - 0.001)


async def work(case: str, folder: Path, url: str) -> None:
    """Run a case in this process: send one request for every line of standard input."""
    send = await CASES[case](folder, url)
    await send()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        worst = [0.0, 0.0]
        watching = asyncio.create_task(watch(worst))
        await asyncio.sleep(0.02)
        idle = peak_bytes(reset=True)
        await asyncio.sleep(0.005)
        worst[:] = [0.0, 0.0]
        start, busy = time.perf_counter(), time.process_time()
        await send()
        seconds, cpu = time.perf_counter() - start, time.process_time() - busy
        await asyncio.sleep(0.005)
        watching.cancel()
        grown = peak_bytes() - idle
        print(json.dumps([seconds * 1000, cpu * 1000, worst[0] * 1000, worst[1] * 1000, grown / 1e6]), flush=True)


class Worker:
    """The process of one case; `measured` has the figures of each request."""

    def __init__(self, case: str, folder: Path, url: str, python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.requests", "work", case, str(folder), url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self.measured: list[list[float]] = []
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().strip() == "ready"

    def send_request(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.measured.append(json.loads(self.process.stdout.readline()))

    def failure_reason(self) -> str:
        _, stderr = self.process.communicate(timeout=60)
        return (stderr.strip().splitlines() or ["no message"])[-1][:100]

    def medians(self) -> list[float]:
        return [statistics.median(column) for column in zip(*self.measured, strict=True)]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def compare(folder: Path, url: str, peers: Path) -> None:
    workers: dict[str, Worker] = {}
    for case in CASES:
        for python in [sys.executable, *([str(peers)] if peers.exists() else [])]:
            worker = Worker(case, folder, url, python)
            if worker.ready:
                workers[case] = worker
                break
            reason = worker.failure_reason()
        else:
            print(f"{case}: NOT MEASURED, install it ({reason})")
    for _ in range(ROUNDS):
        for worker in workers.values():
            worker.send_request()
    found = {case: worker.medians() for case, worker in workers.items()}
    for worker in workers.values():
        worker.stop()
    peers = [values for case, values in found.items() if case != "loom"]
    fastest, least = min(values[0] for values in peers), min(values[1] for values in peers)
    print(f"{'':20}{'time':>9}{'':>7}{'cpu':>9}{'':>7}{'stall':>9}{'own CPU':>9}{'memory':>10}")
    for case, (seconds, cpu, stall, own, memory) in found.items():
        print(
            f"{case:20}{seconds:6.0f} ms{seconds / fastest:6.2f}×{cpu:6.0f} ms{cpu / least:6.2f}×"
            f"{stall:6.1f} ms{own:6.1f} ms{memory:7.1f} MB"
        )
    print("P1: ≤ 0.20× the fastest peer, stall ≤ 5 ms, memory ≤ 4 MB. Own CPU: the stall in CPU time of the thread")


async def measure_body(folder: Path, path: str) -> None:
    """P2: send the same body on a UNIX socket: prepared bytes, Loom's parts, plain JSON."""
    from loom.providers.media_body import MediaBody
    from loom.wire import anthropic as wire

    loop = asyncio.get_running_loop()
    opened = await Loom.open(folder, "http://127.0.0.1:1")
    prompt = await opened.prompt()
    body = MediaBody(wire.encode(prompt), opened.renditions)
    ready = b"".join([piece async for piece in body])
    head = b"POST /sse HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(ready)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.settimeout(0)

    async def parts() -> None:
        async for piece in MediaBody(wire.encode(prompt), opened.renditions):
            await loop.sock_sendall(connection, piece)

    async def send_plain() -> None:
        text = json.dumps({"model": NAME, "messages": blocks(folder)}).encode()
        await loop.sock_sendall(connection, text[: len(ready)].ljust(len(ready)))

    ways: dict[str, Send] = {"bytes": lambda: loop.sock_sendall(connection, ready), "loom": parts, "plain": send_plain}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS * 4):
        for way, send in ways.items():
            start = time.perf_counter()
            await loop.sock_sendall(connection, head)
            await send()
            await loop.sock_recv(connection, 1 << 16)
            took[way].append(time.perf_counter() - start)
    least, quickest = statistics.median(took["bytes"]), min(took["bytes"])
    for way, seconds in took.items():
        middle, best = statistics.median(seconds), min(seconds)
        print(
            f"P2 {way:8}{middle * 1000:7.1f} ms {middle / least:6.2f}×"
            f"   best {best * 1000:6.1f} ms {best / quickest:6.2f}×   (loom ≤ 2.2×)"
        )


async def measure_aged(folder: Path, url: str) -> None:
    """P3: send repeated requests of a session with aged media, alternating with the lower bound: the same bytes,
    prepared, through the same HTTP client."""
    from loom.providers.connections import Connections
    from loom.providers.media_body import MediaBody
    from loom.wire import anthropic as wire

    bodies: list[MediaBody] = []
    for aging in ("off", "stepped"):
        opened = await Loom.open(folder, url, aging=aging)
        await opened.settle()
        bodies.append(MediaBody(wire.encode(await opened.prompt()), opened.renditions))
    whole, rest = (body.content_length for body in bodies)
    ready = b"".join([piece async for piece in bodies[1]])
    connections = Connections()

    async def send_bytes() -> None:
        await connections.client().post(f"{url}/sse/v1/messages", content=ready)

    print(f"P3 body {rest / 1e6:.2f} of {whole / 1e6:.1f} MB, {rest / whole:.1%} (≤ 5%)")
    ways: dict[str, Send] = {"loom": opened.send, "bytes": send_bytes}
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS * 8):
        for way, send in ways.items():
            start, cpu = time.perf_counter(), time.process_time()
            await send()
            took[way].append(((time.perf_counter() - start) * 1000, (time.process_time() - cpu) * 1000))
    for way, measured in took.items():
        clock, busy = zip(*measured, strict=True)
        print(
            f"P3 {way:8}{statistics.median(clock):7.1f} ms, best {min(clock):5.1f} ms;"
            f" processor {statistics.median(busy):5.1f} ms, best {min(busy):5.1f} ms   (loom ≤ 5 ms)"
        )
    await connections.close()
    await opened.provider.close()


def main(peers: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as name:
        folder = Path(name)
        make(folder)
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.requests", "serve", name], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            compare(folder, url, peers)
            asyncio.run(measure_body(folder, f"{name}/unix"))
            asyncio.run(measure_aged(folder, url))
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder]:
            run_server(folder)
        case ["work", case, folder, url]:
            asyncio.run(work(case, Path(folder), url))
        case _:
            options = argparse.ArgumentParser(description="P1-P3: build and send a request with 30 screenshots")
            options.add_argument("--peers-python", type=Path, default=PEERS, help="a Python with the other libraries")
            main(options.parse_args().peers_python)
