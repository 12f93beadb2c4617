"""S3 servers on real sockets: moto, and a small one with the faults of some S3-compatible servers."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import quote, unquote, urlsplit

START_SECONDS = 60
_numbers = count(1)


@contextmanager
def moto_server() -> Iterator[str]:
    """Run a moto server in its own process; yield its endpoint."""
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _wait_for_endpoint(process, log)
        finally:
            process.terminate()
            process.wait()


def _wait_for_endpoint(process: subprocess.Popen[bytes], log: tempfile._TemporaryFileWrapper[str]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read()):
            return found.group(1)
        time.sleep(0.02)
    log.seek(0)
    raise RuntimeError(f"moto did not start: {log.read()[-2000:]}")


def new_bucket(endpoint: str) -> str:
    """Create a bucket; return its address for `open_media`."""
    name = f"bucket-{next(_numbers)}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    return address(endpoint, name)


def address(endpoint: str, bucket: str, prefix: str = "loom") -> str:
    where = quote(endpoint, safe="")
    return f"s3://{bucket}/{prefix}?endpoint={where}&region=us-east-1&access_key_id=test&secret_access_key=test"


class OddServer:
    """The state of a server that stores objects in memory, ignores conditions, and refuses the requests in `refuse`."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.refuse: dict[str, tuple[int, str]] = {}
        """Method, or `create` for a conditional PUT → status and S3 error code."""

    def one_key(self) -> str:
        (key,) = self.objects
        return key

    def age(self, key: str, modified_at: datetime) -> None:
        self.objects[key] = (self.objects[key][0], modified_at)

    def spoil(self, key: str, data: bytes) -> None:
        self.objects[key] = (data, datetime.now(UTC))

    def count_requests(self, method: str) -> int:
        return sum(1 for name, _ in self.requests if name == method)


@contextmanager
def odd_server(port: int = 0) -> Iterator[tuple[OddServer, str]]:
    """Run a server with the part of S3 that one bucket needs; yield its state and its address."""
    world = OddServer()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"world": world}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield world, address(f"http://127.0.0.1:{server.server_address[1]}", "odd")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: OddServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is given by the base class
        pass

    def do_PUT(self) -> None:
        if key := self._begin():
            self.world.objects[key] = (self.body, datetime.now(UTC))
            self._answer(200, headers={"etag": '"0"'})

    def do_GET(self) -> None:
        key = self._begin()
        if key is None:
            return
        if "list-type" in urlsplit(self.path).query:
            self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        elif key not in self.world.objects:
            self._fail(404, "NoSuchKey")
        else:
            self._object(*self.world.objects[key])

    def do_DELETE(self) -> None:
        if key := self._begin():
            self.world.objects.pop(key, None)
            self._answer(204)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _begin(self) -> str | None:
        """Read the request; return the key, or None if the request was refused."""
        self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.world.requests.append((self.command, dict(self.headers.items())))
        create = self.command == "PUT" and "if-none-match" in self.headers
        refusal = self.world.refuse.get("create" if create else self.command) or self.world.refuse.get(self.command)
        if refusal:
            self._fail(*refusal)
            return None
        return unquote(urlsplit(self.path).path)

    def _object(self, data: bytes, modified_at: datetime) -> None:
        headers = {"etag": '"0"', "last-modified": format_datetime(modified_at, usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if asked is None:
            self._answer(200, data, headers)
            return
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if first > last:
            self._fail(416, "InvalidRange")
            return
        headers["content-range"] = f"bytes {first}-{last}/{len(data)}"
        self._answer(206, data[first : last + 1], headers)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
