"""Whether a key works is asked of its service, over a real socket, and said plainly where it could not be."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.loom_command import Loom
from loom.providers.key_check import KeyCheck, check_key


class Service(ThreadingHTTPServer):
    answer: tuple[int, Any]
    seen: list[tuple[str, dict[str, str]]]


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        status, body = self.server.answer
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """A test's output is not the place."""


@contextmanager
def service(status: int, body: Any) -> Generator[tuple[str, Service]]:
    server = Service(("127.0.0.1", 0), _Handler)
    server.answer, server.seen = (status, body), []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def checked(name: str, base_url: str) -> KeyCheck:
    return asyncio.run(check_key(name, "sk-test-1234567890", base_url=base_url))


@pytest.mark.parametrize(
    ("name", "body", "path", "header"),
    [
        ("anthropic", {"data": [{"id": "claude-opus-5"}, {"id": "claude-sonnet-5"}]}, "/v1/models", "authorization"),
        ("openai", {"data": [{"id": "gpt-5.5"}, {"id": "gpt-5.5-mini"}]}, "/v1/models", "authorization"),
        (
            "gemini",
            {"models": [{"name": "models/gemini-4-argon"}, {"name": "models/gemini-4-neon"}]},
            "/v1beta/models",
            "x-goog-api-key",
        ),
        (
            "mistral",
            {"data": [{"id": "mistral-medium"}, {"id": "codestral"}]},
            "/models",
            "authorization",
        ),
    ],
)
def test_a_key_that_works_tells_what_it_opens(
    monkeypatch: pytest.MonkeyPatch, name: str, body: Any, path: str, header: str
):
    monkeypatch.delenv("LOOM_OFFLINE", raising=False)
    with service(200, body) as (url, server):
        found = checked(name, f"{url}/v1" if name == "openai" else url)

    assert found.state == "works" and found.text.startswith("2 models, ") and found.text.endswith("with image support")
    (asked,) = server.seen
    assert asked[0].partition("?")[0] == path and "sk-test-1234567890" in asked[1][header]


@pytest.mark.parametrize(
    ("status", "body", "state", "said"),
    [
        (401, {"error": "no"}, "refused", "HTTP 401"),
        (403, {}, "refused", "HTTP 403"),
        (500, {}, "unknown", "HTTP 500"),
        (302, {}, "unknown", "HTTP 302"),
        (200, b"<html>a captive portal</html>", "unknown", "the server at this URL is not anthropic"),
        (200, {"data": "nonsense"}, "unknown", "the server at this URL is not anthropic"),
    ],
)
def test_what_a_service_says_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, status: int, body: Any, state: str, said: str
):
    monkeypatch.delenv("LOOM_OFFLINE", raising=False)
    with service(status, body) as (url, _):
        found = checked("anthropic", url)

    assert found.state == state and said in found.text


def test_a_service_that_cannot_be_reached_leaves_it_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LOOM_OFFLINE", raising=False)
    with service(200, {}) as (url, _):
        pass

    assert checked("anthropic", url) == KeyCheck(state="unknown", text="anthropic cannot be reached")


def test_a_key_is_stored_and_it_is_said_that_it_could_not_be_checked(tmp_path: Path):
    loom = Loom(tmp_path)

    ran = loom("keys", "set", "anthropic", stdin=b"sk-ant-1234567890\n")
    silent = loom("keys", "set", "openai", "--no-check", stdin=b"sk-1234567890\n")

    assert ran.code == 0 and "could not be checked (LOOM_OFFLINE is set), stored in" in ran.out
    assert silent.code == 0 and "checked" not in silent.out
