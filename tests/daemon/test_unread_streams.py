"""Clients that ask for the events of a session and take nothing: they hold up no other, and hold next to no memory."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from httpx2 import Client as HttpClient

from daemon.asking import api_of, new_session, settled
from daemon.running import DaemonProcess
from daemon.running import daemon as running

READERS = 50
MESSAGES, MESSAGE_BYTES = 20, 400_000
"""Each is in the log three times: queued, stored and echoed. That is more than the buffers of the system take."""
GROWN_MB = 100
"""A page of what one reader would get at once is 24 MB."""


@contextlib.contextmanager
def unread_stream(house: DaemonProcess, session: str) -> Iterator[socket.socket]:
    """A connection that asks for the events of a session and has little room for them."""
    host, _, port = house.url.removeprefix("http://").partition(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        head = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: {host}:{port}\r\n"
        connection.sendall(f"{head}authorization: Bearer {house.token}\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield connection


def long_session(api: HttpClient) -> str:
    session = new_session(api)
    for number in range(MESSAGES):
        body = {"message": f"!echo {number}\n" + "x" * MESSAGE_BYTES}
        assert api.post(f"/v1/sessions/{session}/messages", json=body).status_code == 202
    settled(api, session)
    return session


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_fifty_readers_that_take_nothing_hold_up_no_other_and_do_not_fill_the_memory(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api, contextlib.ExitStack() as stack:
        session = long_session(api)
        before = resident_mb(house.pid)
        for _ in range(READERS):
            stack.enter_context(unread_stream(house, session))
        body = {"message": "!slow 30tps\n!tokens 3000"}
        assert api.post(f"/v1/sessions/{session}/messages", json=body).status_code == 202
        seen = 0
        is_cancelled = False
        with api.stream("GET", f"/v1/sessions/{session}/events") as quick, api_of(house, house.token) as other:
            for line in quick.iter_lines():
                seen += len(line)
                if line.startswith("event: text") and seen > 2 * MESSAGES * MESSAGE_BYTES and not is_cancelled:
                    is_cancelled = True
                    assert other.post(f"/v1/sessions/{session}/cancel").status_code < 300
                if line.startswith("event: turn_failed"):
                    break
        settled(api, session)
        grown = resident_mb(house.pid) - before
        assert grown < GROWN_MB, f"{grown:.0f} MB more"


def test_a_stop_cuts_off_readers_that_take_nothing_and_logs_no_error(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api, contextlib.ExitStack() as stack:
        session = long_session(api)
        for _ in range(3):
            stack.enter_context(unread_stream(house, session))
        assert house.stop() == 0
        assert "ERROR" not in house.log()
