"""Connections that ask nothing are closed; too many of them are one line in the log."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from daemon.running import DaemonProcess, until
from loom.daemon.connections import AcceptFailures, PatientProtocol
from loom.daemon.serve import listen


class Hasty(PatientProtocol):
    first_request_seconds = 0.2


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await asyncio.sleep(0.5)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})


async def test_a_connection_without_a_request_is_closed_and_a_slow_answer_is_not() -> None:
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(hello, http=Hasty, lifespan="off", log_level="warning"))
        task = asyncio.create_task(server.serve([listener]))
        await until(lambda: server.started)
        port = listener.getsockname()[1]
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            await reader.read()  # until the daemon closes it
            assert reader.at_eof()
            writer.close()
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hi"
        server.should_exit = True
        await task


def test_running_out_of_handles_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    failures = AcceptFailures()
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            failures.handle(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "")})
        assert [record.getMessage() for record in caplog.records] == [
            "out of file handles: new connections wait until some are free (see ulimit -n)"
        ]
        failures.handle(loop, {"message": "something else went wrong"})
        assert "something else went wrong" in caplog.text, "anything else is told as ever"
    loop.close()


def test_a_daemon_that_ran_out_of_handles_recovers_and_its_log_stays_small(tmp_path: Path) -> None:
    house = DaemonProcess(tmp_path / "home")
    house.start()
    held: list[socket.socket] = []
    try:
        open_now = len(list(Path(f"/proc/{house.pid}/fd").iterdir()))
        limit = open_now + 20
        subprocess.run(["prlimit", f"--pid={house.pid}", f"--nofile={limit}:{limit}"], check=True)
        port = int(house.url.rpartition(":")[2])
        held += [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{house.url}/healthz", timeout=3)
        for one in held:
            one.close()
        held.clear()
        assert httpx2.get(f"{house.url}/healthz", timeout=30).status_code == 200
        assert house.log().count("out of file handles") == 1
        assert "Traceback" not in house.log() and len(house.log()) < 2_000
    finally:
        for one in held:
            one.close()
        house.kill()
