"""Webhooks: signed, retried, bounded, and only where the user lets them go. The receiver is a real server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from daemon.running import Served, serving, until
from loom.config import Config, load_config
from loom.content.blocks import ToolCall
from loom.daemon import webhooks
from loom.errors import ConfigError, RateLimited
from loom.runtime import Runtime
from loom.testing import ScriptedProvider

MODEL = "anthropic/claude-opus-5"
SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two random bytes").decode()


class Receiver(ThreadingHTTPServer):
    """Answers with the next of `statuses`, then with 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver  # type: ignore[assignment]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        self.send_response(status)
        if status in (301, 302, 307):
            self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the name of the base class


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running() as found:
        yield found


@contextmanager
def running() -> Generator[Receiver]:
    server = Receiver()
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def config(home: Path, receiver: Receiver, text: str = "", *, allow: tuple[str, ...] | None = None) -> Config:
    named = (f"127.0.0.1:{receiver.server_port}",) if allow is None else allow
    lines = [f"[tools]\nallow_hosts = {json.dumps(named)}"]
    lines += [f'[webhooks.mine]\nurl = "{receiver.url}"\nsecret = "{SECRET}"', text]
    (home / "loom.toml").write_text("\n".join(lines))
    return load_config(cwd=home, environ={"LOOM_HOME": str(home), "HOME": str(home)})


@asynccontextmanager
async def daemon(found: Config, *answers: Any) -> AsyncGenerator[Served]:
    opened = Runtime.open(found, providers={"anthropic": ScriptedProvider(answers)}, tools=["all"])
    async with opened as runtime, serving(runtime) as served:
        yield served


async def ask(served: Served, text: str = "hello") -> str:
    session = await served.runtime.session(model=MODEL, title="a title")
    await session.post(text)
    async for _ in session.work():
        pass
    return session.id


async def test_the_end_of_a_turn_is_told_with_a_signature_that_the_receiver_can_check(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with daemon(config(tmp_path, receiver), "hi") as served:
        session = await ask(served)
        await until(lambda: len(receiver.requests) == 1)
    ((headers, body),) = receiver.requests
    told = json.loads(body)
    assert told["type"] == "turn_finished" and told["data"]["session"] == session
    assert told["data"]["title"] == "a title" and told["data"]["stop"] == "end"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(b"a key of thirty-two random bytes", signed, hashlib.sha256).digest())
    assert headers["webhook-signature"] == f"v1,{expected.decode()}"
    assert SECRET.encode() not in body and "hello" not in body.decode(), "neither the key nor what was said"


async def test_failures_and_pending_approvals_are_told_and_a_hook_hears_only_what_it_asked_for(
    tmp_path: Path, receiver: Receiver
) -> None:
    with running() as other:
        more = f'[webhooks.other]\nurl = "{other.url}"\nsecret = "{"x" * 32}"\nevents = ["turn_failed"]'
        found = config(tmp_path, receiver, more, allow=("127.0.0.0/8",))
        call = ToolCall("c1", "run_command", {"command": "make install"})
        async with daemon(found, call, "done", RateLimited("no quota")) as served:
            session = await served.runtime.session(model=MODEL)
            await session.post("go")
            working = asyncio.create_task(_work(session))
            await until(lambda: [one["type"] for one in receiver.bodies()] == ["approval_requested"])
            asked = receiver.bodies()[0]["data"]
            assert asked["tool"] == "run_command" and "make install" in asked["action"]
            await session.answer(asked["approval"], "deny")
            await working
            await ask(served)
            await until(lambda: len(receiver.requests) == 3 and len(other.requests) == 1)
        assert [one["type"] for one in receiver.bodies()] == ["approval_requested", "turn_finished", "turn_failed"]
        assert [one["type"] for one in other.bodies()] == ["turn_failed"]
        assert other.bodies()[0]["data"]["code"] == RateLimited.code


async def _work(session: Any) -> None:
    async for _ in session.work():
        pass


async def test_what_may_pass_is_tried_again_with_the_same_id_and_a_refusal_is_not(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider(["one", "two", "three"])
    async with Runtime.open(config(tmp_path, receiver), providers={"anthropic": provider}, tools=["all"]) as runtime:
        hooks = webhooks.Webhooks(runtime, backoff=(0.01,))
        hooks.start()
        receiver.statuses = [500, 429, 503, 200]
        session = await runtime.session(model=MODEL)
        await session.send("a")
        await until(lambda: len(receiver.requests) == 4)
        assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
        receiver.statuses = [404, 307]
        await session.send("b")
        await session.send("c")
        await until(lambda: len(receiver.requests) == 6)
        with caplog.at_level(logging.WARNING):
            await until(lambda: "HTTP 307" in caplog.text)
        await hooks.stop()
    assert len(receiver.requests) == 6, "a redirect is not followed, and a refusal not repeated"


async def test_a_host_that_is_not_public_is_not_asked_unless_the_user_named_it(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with daemon(config(tmp_path, receiver, allow=()), "hi") as served:
        await ask(served)
        await until(lambda: "tools.allow_hosts" in caplog.text)
    assert receiver.requests == []


async def test_a_receiver_that_is_away_costs_a_bounded_queue_and_no_turn(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "QUEUE_LENGTH", 2)
    receiver.statuses = [500] * 1_000
    async with daemon(config(tmp_path, receiver), *["hi"] * 6) as served:
        for _ in range(6):
            await ask(served)
        assert caplog.text.count("messages are dropped") == 1
        await until(lambda: len(receiver.requests) >= 1)


def test_a_webhook_needs_a_secret_and_a_project_cannot_add_one(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "loom.toml").write_text('[webhooks.evil]\nurl = "https://evil.example"\nsecret = "0123456789abcdef"\n')
    found = load_config(cwd=project, environ={"LOOM_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert found.webhooks == {} and "webhooks.evil" in found.warnings[0]
    (tmp_path / "loom.toml").write_text('[webhooks.mine]\nurl = "https://example.org"\n')
    with pytest.raises(ConfigError, match="expected a url and a secret"):
        load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path), "HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="too short"):
        webhooks.signing_key("short")
