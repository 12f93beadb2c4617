"""The guard in front of everything: hosts, origins, headers. The numbers are those of the hardening checklist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from daemon.asking import raw, request
from daemon.running import DaemonProcess
from daemon.running import daemon as running

POLLING = "/socket.io/?EIO=4&transport=polling"
UPGRADE = {
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
HOSTS = [
    "evil.example",
    "localhost.evil.com",
    "127.evil.com",
    "127.0.0.1:1",
    "127.0.0.1",
    "",
    "[::1",
    "a b",
    "user@127.0.0.1",
]
ORIGINS = [
    "https://evil.example",
    "null",
    "http://localhost.evil.com",
    "http://127.0.0.1:1",
    "file://",
    "http://127.0.0.1",
]


@pytest.mark.parametrize("host", HOSTS)
def test_3_other_hosts_are_refused(house: DaemonProcess, host: str) -> None:
    for path in ("/v1/version", "/healthz", "/", POLLING):
        assert request(house, f"GET {path}", {"Host": host}) in (400, 403), path
    assert request(house, "GET /socket.io/?EIO=4&transport=websocket", {"Host": host, **UPGRADE}) in (400, 403)


def test_3_a_request_without_a_host_is_refused(house: DaemonProcess) -> None:
    assert " 40" in raw(house, f"GET /v1/version HTTP/1.0\r\nAuthorization: Bearer {house.token}\r\n\r\n")[:13]
    assert " 40" in raw(house, "GET /v1/version HTTP/1.1\r\n\r\n")[:13]
    both = f"Host: {urlsplit(house.url).netloc}\r\nHost: evil.example\r\n"
    assert " 40" in raw(house, f"GET /healthz HTTP/1.1\r\n{both}\r\n")[:13]


def test_3_its_own_names_are_answered(house: DaemonProcess) -> None:
    port = urlsplit(house.url).port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        assert request(house, "GET /v1/version", {"Host": host}) == 200


@pytest.mark.parametrize("origin", ORIGINS)
def test_4_other_origins_are_refused_even_with_the_token(house: DaemonProcess, origin: str) -> None:
    headers = {"Host": urlsplit(house.url).netloc, "Origin": origin}
    for line in (
        "GET /v1/version",
        "POST /v1/sessions",
        "GET /",
        f"GET {POLLING}",
        f"POST {POLLING}",
        "OPTIONS /v1/sessions",
    ):
        assert request(house, line, headers) == 403, line
    assert request(house, "GET /socket.io/?EIO=4&transport=websocket", {**headers, **UPGRADE}) == 403


def test_4_no_other_origin_is_ever_named_in_an_answer(house: DaemonProcess, api: httpx2.Client) -> None:
    answer = api.get("/v1/version", headers={"Origin": house.url})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_daemons_own_pages_may_call_it(house: DaemonProcess, api: httpx2.Client) -> None:
    headers = {"Origin": house.url}
    assert api.get("/v1/version", headers=headers).status_code == 200
    assert api.get(POLLING, headers=headers).status_code == 200


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[DaemonProcess]:
    settings = {
        "LOOM_SERVER__ALLOWED_HOSTS": '["loom.example", "other.example:99"]',
        "LOOM_SERVER__ALLOWED_ORIGINS": '["https://pages.example"]',
    }
    with running(tmp_path / "home", settings) as found:
        yield found


def test_hosts_and_origins_that_are_configured_are_let_in(wide: DaemonProcess) -> None:
    assert request(wide, "GET /v1/version", {"Host": "loom.example"}) == 200
    assert request(wide, "GET /v1/version", {"Host": "loom.example:8443"}) == 200
    assert request(wide, "GET /v1/version", {"Host": "other.example:99"}) == 200
    assert request(wide, "GET /v1/version", {"Host": "other.example"}) == 403
    host = urlsplit(wide.url).netloc
    headers = {"Origin": "https://pages.example"}
    answer = httpx2.get(f"{wide.url}/v1/version", headers={**headers, "Authorization": f"Bearer {wide.token}"})
    assert answer.headers["access-control-allow-origin"] == "https://pages.example"
    assert "access-control-allow-credentials" not in answer.headers
    asked = httpx2.options(f"{wide.url}/v1/sessions", headers={**headers, "Access-Control-Request-Method": "POST"})
    assert asked.status_code == 204
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    assert request(wide, "GET /v1/version", {"Host": host, "Origin": "https://pages.example.evil"}) == 403


def test_every_answer_tells_browsers_to_be_careful(house: DaemonProcess, api: httpx2.Client) -> None:
    for path in ("/", "/healthz", "/v1/version", "/docs", "/nothing", "/assets/nothing.js", "/openapi.json"):
        headers = api.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers
    shell = api.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in shell and "unsafe" not in shell
    docs = api.get("/docs")
    assert not re.search(r"<script|https?://(?!www\.w3)", docs.text)


def test_what_is_nowhere_and_what_is_not_taken_are_said_in_the_same_shape(api: httpx2.Client) -> None:
    assert api.get("/v1/nothing").json()["error"]["code"] == "request.no_route"
    wrong = api.delete("/v1/version")
    assert wrong.status_code == 405 and wrong.json()["error"]["code"] == "request.method"
    assert "GET" in wrong.headers["allow"]
