"""Uploads that are too large, too many, too slow, or meet a full disk. The numbers are the hardening checklist's."""

from __future__ import annotations

import os
import random
import resource
import select
import socket
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from PIL import Image
from starlette.requests import Request

from daemon.asking import api_of, new_session, peak_mb, rss_mb, sample, say, settled, upload
from daemon.running import DaemonProcess
from daemon.running import daemon as running
from loom.daemon.request_bodies import chunks
from loom.errors import TooLarge
from made import make_sample
from patience import PATIENCE_SECONDS

MB = 1_000_000


def ten_megabytes(path: Path) -> None:
    noise = random.Random(7).randbytes(1800 * 1800 * 3)
    Image.frombytes("RGB", (1800, 1800), noise).save(path, "PNG", compress_level=1)


@contextmanager
def sending(house: DaemonProcess, head: str) -> Iterator[socket.socket]:
    place = urlsplit(house.url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as line:
        line.sendall(f"{head}Host: {place.netloc}\r\nAuthorization: Bearer {house.token}\r\n".encode())
        yield line


def pour(line: socket.socket, most_bytes: int) -> str:
    """Send chunks until the other side says something, and read it."""
    block = bytes(65_536)
    for _ in range(0, most_bytes, len(block)):
        line.sendall(b"%x\r\n%b\r\n" % (len(block), block))
        if select.select([line], [], [], 0)[0]:
            break
    return line.recv(65_536).decode("latin-1")


def test_500_megabytes_are_refused_at_the_limit_and_never_held(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api:
        upload(api, sample("login.png"))
        before = rss_mb(house.pid)
        with sending(house, "POST /v1/media HTTP/1.1\r\n") as line:
            line.sendall(b"Content-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert " 413 " in pour(line, 500 * MB).split("\r\n")[0]
        growth = peak_mb(house.pid) - before
        print(f"500 MB refused: RSS peak +{growth:.1f} MB")
        assert growth < 20
        with sending(house, "POST /v1/media HTTP/1.1\r\n") as line:
            line.sendall(b"Content-Type: image/png\r\nContent-Length: 500000000\r\n\r\n")
            assert " 413 " in line.recv(65_536).decode().split("\r\n")[0], "said before a byte of it came"
        files = [file for file in house.home.rglob("*") if file.is_file() and file.stat().st_size > 5 * MB]
        assert files == []
        assert upload(api, sample("receipt.jpg"))["kind"] == "image"


def test_a_form_of_500_megabytes_is_refused_at_the_limit_too(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api:
        upload(api, sample("login.png"))
        session = new_session(api)
        before = rss_mb(house.pid)
        for path in ("/v1/media", f"/v1/sessions/{session}/messages"):
            with sending(house, f"POST {path} HTTP/1.1\r\n") as line:
                line.sendall(b"Content-Type: multipart/form-data; boundary=XX\r\nTransfer-Encoding: chunked\r\n\r\n")
                part = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
                line.sendall(b"%x\r\n%b\r\n" % (len(part), part))
                assert " 413 " in pour(line, 500 * MB).split("\r\n")[0]
        assert peak_mb(house.pid) - before < 20
        assert api.get(f"/v1/sessions/{session}/messages").json()["messages"] == []


def test_many_pictures_of_10_megabytes_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    data = make_sample("ten.png", ten_megabytes).read_bytes()
    assert len(data) > 9 * MB
    with running(tmp_path / "home") as house, api_of(house) as api:
        _at_once(house, data, range(4))
        few = peak_mb(house.pid)
        _at_once(house, data, range(4, 14))
        many = peak_mb(house.pid)
        print(
            f"RSS peak after 4 pictures of {len(data) / MB:.0f} MB at once: {few:.0f} MB; after 16 more: {many:.0f} MB"
        )
        assert many - few < 50
        found = upload(api, data)
        assert api.get(f"/v1/media/{found['digest']}").content == data


def _at_once(house: DaemonProcess, data: bytes, numbers: Iterable[int]) -> None:
    """The same picture in so many different files."""

    def send(at: int) -> None:
        body = b"tEXtnumber\0%d" % at
        chunk = (len(body) - 4).to_bytes(4) + body + zlib.crc32(body).to_bytes(4)
        with api_of(house) as api:
            assert upload(api, data[:-12] + chunk + data[-12:])["new"]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(send, numbers))


async def test_a_length_of_very_many_digits_is_too_large() -> None:
    # The server that we run refuses it before us; another one, around an embedded daemon, may not.
    request = Request({"type": "http", "method": "POST", "headers": [(b"content-length", b"1" * 5_000)]})
    with pytest.raises(TooLarge):
        await anext(chunks(request, 1_000))


def test_28_forms_with_too_many_parts_or_no_end_are_refused(house: DaemonProcess, api: httpx2.Client) -> None:
    part = b'--XX\r\nContent-Disposition: form-data; name="text"\r\n\r\nx\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=XX"}
    session = new_session(api)
    for path in ("/v1/media", f"/v1/sessions/{session}/messages"):
        many = api.post(path, content=part * 100_000 + b"--XX--\r\n", headers=headers)
        assert many.status_code == 413
        endless = api.post(path, content=part, headers=headers)
        assert (endless.status_code, endless.json()["error"]["code"]) == (400, "request.unreadable")
        field = api.post(path, content=part[:-3] + b"y" * 2_000_000 + b"\r\n--XX--\r\n", headers=headers)
        assert field.status_code == 413
        nothing = api.post(path, content=b"hello", headers={"Content-Type": "multipart/form-data"})
        assert nothing.status_code == 400
        garbage = api.post(path, content=b"hello", headers=headers)
        assert garbage.status_code == 400
        long_header = b'--XX\r\nContent-Disposition: form-data; name="' + b"n" * 100_000
        assert api.post(path, content=long_header, headers=headers).status_code == 400
    assert api.get("/healthz", timeout=PATIENCE_SECONDS).status_code == 200


def test_28_two_hundred_slow_uploads_do_not_slow_anybody_else(tmp_path: Path) -> None:
    with running(tmp_path / "home") as house, api_of(house) as api, ExitStack() as lines:
        upload(api, sample("login.png"))
        before = rss_mb(house.pid)
        for _ in range(200):
            line = lines.enter_context(sending(house, "POST /v1/media HTTP/1.1\r\n"))
            line.sendall(b"Content-Type: a/b\r\nContent-Length: 5000000\r\n\r\n" + bytes(50_000))
        waits: list[float] = []
        for _ in range(21):
            began = time.monotonic()
            assert api.get("/healthz").status_code == 200
            waits.append(time.monotonic() - began)
        assert sorted(waits)[10] < 0.5
        assert rss_mb(house.pid) - before < 60
        lines.close()
        assert upload(api, sample("receipt.jpg"))["kind"] == "image"


def test_deep_and_huge_json_is_refused(api: httpx2.Client) -> None:
    session = new_session(api)
    for body in (
        b"[" * 100_000,
        b'{"message":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"title": "\xff", "text": "\xff"}',
        b"nonsense",
    ):
        for path in ("/v1/sessions", f"/v1/sessions/{session}/messages", f"/v1/sessions/{session}/plan"):
            assert api.post(path, content=body).status_code in (400, 422)
    assert api.post("/v1/sessions", content=b'{"title":"' + b"x" * 5_000_000 + b'"}').status_code == 413
    refused = api.post("/v1/sessions", content=b"a=b", headers={"Content-Type": "text/csv"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "request.type")


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own where we may mount one; else files may just not grow beyond that."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        yield folder
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_f4_a_full_disk_is_said_loses_nothing_and_heals(tmp_path: Path) -> None:
    data = make_sample("ten.png", ten_megabytes).read_bytes()
    with small_disk(tmp_path / "disk", 24) as disk:
        is_mount = os.path.ismount(disk)
        with running(disk / "home") as house, api_of(house) as api:
            if not is_mount:
                resource.prlimit(house.pid, resource.RLIMIT_FSIZE, (8 * MB, 8 * MB))
            session = new_session(api)
            say(api, session, "before")
            ballast = disk / "ballast"
            if is_mount:
                ballast.write_bytes(bytes(max(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 6 * MB, 0)))
            refused = api.post("/v1/media", content=data, headers={"Content-Type": "image/png"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (507, "store.full")
            form = api.post(f"/v1/sessions/{session}/messages", data={"text": "x"}, files={"files[]": ("a.png", data)})
            assert form.status_code == 507
            if is_mount:
                _fill(disk / "more")
                said = api.post(f"/v1/sessions/{session}/messages", json={"message": "x" * 200_000})
                assert (said.status_code, said.json()["error"]["code"]) == (507, "store.full")
                (disk / "more").unlink()
            assert api.get("/healthz").status_code == 200
            assert [message["role"] for message in settled(api, session)["messages"]] == ["user", "assistant"]
            ballast.unlink(missing_ok=True)
            if is_mount:
                assert upload(api, data)["bytes"] == len(data)
            say(api, session, "after")
            assert len(settled(api, session)["messages"]) == 4
            assert "Traceback" not in house.log()


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as opened:
        while True:
            opened.write(bytes(65_536))


@pytest.mark.parametrize("path", ["/v1/media", "messages"])
def test_a_client_that_leaves_in_the_middle_leaves_nothing(house: DaemonProcess, api: httpx2.Client, path: str) -> None:
    session = new_session(api)
    place = path if path.startswith("/") else f"/v1/sessions/{session}/{path}"
    before = sum(1 for file in house.home.rglob("*") if file.is_file())
    for _ in range(5):
        with sending(house, f"POST {place} HTTP/1.1\r\n") as line:
            line.sendall(b"Content-Type: image/png\r\nContent-Length: 3000000\r\n\r\n" + bytes(100_000))
    assert api.get("/healthz").status_code == 200
    assert sum(1 for file in house.home.rglob("*") if file.is_file()) <= before
    assert "Traceback" not in house.log()
