"""Ways to ask a running daemon: a client that has the token, requests written by hand, what it weighs."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

import loom.providers.samples as shipped
from daemon.running import DaemonProcess


def api_of(house: DaemonProcess, token: str | None = None) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {house.token if token is None else token}"}
    return httpx2.Client(base_url=house.url, headers=headers, timeout=60)


def sample(name: str) -> bytes:
    return (Path(shipped.__file__).parent / name).read_bytes()


def upload(api: httpx2.Client, data: bytes, name: str = "") -> dict[str, Any]:
    answer = api.post("/v1/media", params={"name": name}, content=data, headers={"Content-Type": "application/x"})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def new_session(api: httpx2.Client, **body: Any) -> str:
    answer = api.post("/v1/sessions", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def say(api: httpx2.Client, session: str, text: str, **body: Any) -> dict[str, Any]:
    """Say it, and wait until the session is idle again."""
    answer = api.post(f"/v1/sessions/{session}/messages", json={"message": text, **body})
    assert answer.status_code == 202, answer.text
    return settled(api, session)


def settled(api: httpx2.Client, session: str, state: str = "idle") -> dict[str, Any]:
    """The conversation, once the session is in this state; the stream of events tells when to look."""
    until = time.monotonic() + 30
    while api.get(f"/v1/sessions/{session}").json()["state"] != state:
        assert time.monotonic() < until, f"never {state}"
        time.sleep(0.02)
    return api.get(f"/v1/sessions/{session}/messages").json()


def raw(house: DaemonProcess, text: str | bytes, *, read_bytes: int = 65_536, is_whole: bool = False) -> str:
    """The beginning of the answer to a request that is written by hand; or all of it, where it asks for an end."""
    place = urlsplit(house.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        line.sendall(text.encode("latin-1") if isinstance(text, str) else text)
        parts = iter(lambda: line.recv(read_bytes), b"") if is_whole else [line.recv(read_bytes)]
        return b"".join(parts).decode("latin-1")


def request(house: DaemonProcess, line: str, headers: Mapping[str, str], *, auth: bool = True) -> int:
    """The status of a request with exactly these headers."""
    given = {**({"Authorization": f"Bearer {house.token}"} if auth else {}), **headers, "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    answer = raw(house, f"{line} HTTP/1.1\r\n{lines}\r\n")
    return int(answer.split(" ", 2)[1]) if answer else 0


def rss_mb(pid: int) -> float:
    """What the process holds, without what its children do."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1_000


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1_000
