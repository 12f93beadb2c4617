"""Media by address: nothing private is asked, whoever names it. The numbers are those of the hardening checklist."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from daemon.asking import api_of, new_session, peak_mb, rss_mb, sample
from daemon.running import daemon as running


class Canary(ThreadingHTTPServer):
    """Must stay silent."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Canary)
        self.server.asked.append(self.path)
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/endless":
            with suppress(OSError):
                while True:
                    self.wfile.write(bytes(100_000))
        self.wfile.write(sample("login.png"))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the signature of the base class
        pass


@contextmanager
def listening() -> Iterator[Canary]:
    server = Canary()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def canary() -> Iterator[Canary]:
    with listening() as server:
        yield server


PRIVATE = [
    "http://127.0.0.1:{0}/a.png", "http://localhost:{0}/a.png", "http://localhost.:{0}/a.png", "http://[::1]:{0}/a.png",
    "http://0.0.0.0:{0}/a.png", "http://2130706433:{0}/a.png", "http://0x7f.1:{0}/a.png", "http://0177.0.0.1:{0}/a.png",
    "http://[::ffff:127.0.0.1]:{0}/a.png", "http://user@127.0.0.1:{0}/", "http://a\\@127.0.0.1:{0}/",
    "http://127.0.0.1:{0}\t/a.png", "http://169.254.169.254/latest/meta-data/", "http://[::ffff:a9fe:a9fe]/",
    "file:///etc/passwd", "gopher://127.0.0.1:{0}/", "data:image/png;base64,AAAA", "ftp://127.0.0.1:{0}/",
    "//127.0.0.1:{0}/",
]  # fmt: skip


@pytest.mark.parametrize("url", PRIVATE)
def test_16_private_addresses_are_not_asked(api: httpx2.Client, canary: Canary, url: str) -> None:
    address = url.format(canary.port)
    session = new_session(api)
    answers = [
        api.post("/v1/media", json={"url": address}),
        api.post(f"/v1/sessions/{session}/messages", json={"message": "x", "images": [{"url": address}]}),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500, answer.text
        assert "root:" not in answer.text
    assert canary.asked == []
    assert api.get(f"/v1/sessions/{session}/messages").json()["messages"] == []


def test_17_a_host_that_is_allowed_is_asked_and_cannot_lead_to_another(canary: Canary, tmp_path: Path) -> None:
    with listening() as allowed:
        here = f"http://127.0.0.1:{allowed.port}"
        settings = {
            "LOOM_TOOLS__ALLOW_HOSTS": f'["127.0.0.1:{allowed.port}"]',
            "LOOM_SERVER__MAX_UPLOAD_BYTES": "2000000",
        }
        with running(tmp_path / "home", settings) as house, api_of(house) as api:
            taken = api.post("/v1/media", json={"url": f"{here}/shot.png"})
            assert (taken.status_code, taken.json()["name"], taken.json()["kind"]) == (201, "shot.png", "image")
            session = new_session(api)
            body = {"message": "look", "images": [{"url": f"{here}/shot.png"}]}
            assert api.post(f"/v1/sessions/{session}/messages", json=body).status_code == 202
            before = rss_mb(house.pid)
            assert api.post("/v1/media", json={"url": f"{here}/endless"}).status_code == 413
            assert peak_mb(house.pid) - before < 30
            for target in (
                f"http://127.0.0.1:{canary.port}/a.png",
                "file:///etc/passwd",
                f"http://[::1]:{canary.port}/",
            ):
                assert 400 <= api.post("/v1/media", json={"url": f"{here}/to/{target}"}).status_code < 500
    assert canary.asked == []


def test_19_looking_at_plans_previews_and_history_fetches_nothing(api: httpx2.Client, canary: Canary) -> None:
    address = f"http://127.0.0.1:{canary.port}/a.png"
    session = new_session(api)
    text = f"![x]({address}) <img src='{address}'>"
    api.post(f"/v1/sessions/{session}/messages", json={"message": text})
    api.post(f"/v1/sessions/{session}/plan", json={"models": ["openai/gpt-5.5"], "text": text})
    for path in ("messages", "tree", "wire?model=openai/gpt-5.5", "export?format=html"):
        api.get(f"/v1/sessions/{session}/{path}")
    assert canary.asked == []


def test_21_no_request_says_where_a_provider_is(api: httpx2.Client, canary: Canary) -> None:
    where = {"base_url": f"http://127.0.0.1:{canary.port}", "api_base": "x", "api_key": "x"}
    session = new_session(api, model="loom/spark")
    for name, value in where.items():
        assert api.post("/v1/sessions", json={"model": "loom/spark", name: value}).status_code == 422
        said = api.post(f"/v1/sessions/{session}/messages", json={"message": "hello", name: value})
        assert said.status_code == 422
    assert canary.asked == []
