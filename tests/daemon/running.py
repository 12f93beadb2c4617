"""Daemons to test against: one in this process over a real socket, or in processes of their own that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

import uvicorn

from loom.client import Client
from loom.daemon.app import App, create_app
from loom.daemon.auth import Auth
from loom.daemon.serve import listen
from loom.runtime import Runtime
from loom.runtime.options import RuntimeKeywords
from loom.testing import memory_runtime
from made import run
from patience import PATIENCE_SECONDS

JS = Path(__file__).with_name("js")
CACHE = Path(__file__).resolve().parents[2] / ".cache"
TOKEN = "a token that only the tests know"


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that is not announced."""

    async def check() -> bool:
        return condition()

    await until_true(check, seconds)


async def until_true(check: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_SECONDS) -> None:
    """The same for what another process or a store must be asked for."""
    began = time.monotonic()
    while not await check():
        assert time.monotonic() - began < seconds, f"it did not happen within {seconds:g} seconds"
        await asyncio.sleep(0.01)


class Served:
    """A daemon of this process."""

    def __init__(self, app: App, runtime: Runtime, url: str) -> None:
        self.app = app
        self.runtime = runtime
        self.url = url

    def client(self, **options: Any) -> Client:
        return Client(self.url, TOKEN, **options)


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncGenerator[Served]:
    app = create_app(runtime, auth=Auth(TOKEN))
    with listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_level="warning",
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
            proxy_headers=False,
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listener]))
        await until(lambda: server.started or task.done())
        try:
            yield Served(app, runtime, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            await app.daemon.stop()
            server.should_exit = True
            await task


@asynccontextmanager
async def served(
    settings: Mapping[str, Any] | None = None, **options: Unpack[RuntimeKeywords]
) -> AsyncGenerator[Served]:
    """With a database in memory."""
    settings = {"model": "loom/spark", **(settings or {})}
    async with memory_runtime(settings, **options) as runtime, serving(runtime) as found:
        yield found


class DaemonProcess:
    """A daemon with a home of its own; `start` again after `kill` finds what was there."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None, module: str = "loom.daemon") -> None:
        self.home = home
        self.url = ""
        self._module = module
        self._settings = settings or {}
        self._process: subprocess.Popen[str] | None = None

    def start(self, scheme: str = "http") -> None:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LOOM_")},
            "LOOM_HOME": str(self.home),
            "LOOM_OFFLINE": "1",
            "LOOM_MODEL": "loom/spark",
            "LOOM_PROMPT__DEFAULT": "false",
            **self._settings,
        }
        self.home.mkdir(exist_ok=True)
        log = (self.home / "log").open("ab")
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", self._module, "--port", port]
        self._process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        assert self._process.stdout
        line = self._process.stdout.readline()
        found = re.search(rf"{scheme}://\S+", line)
        assert found, (line, self.log())
        self.url = found[0]

    @property
    def token(self) -> str:
        return (self.home / "state" / "token").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def log(self) -> str:
        return (self.home / "log").read_text()

    def client(self, **options: Any) -> Client:
        return Client(self.url, self.token, **options)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def crash(self) -> int:
        """As an error in native code would."""
        return self._end(signal.SIGSEGV)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        code = process.wait(30)
        assert process.stdout
        process.stdout.close()
        return code


@contextlib.contextmanager
def daemon(
    home: Path, settings: Mapping[str, str] | None = None, *, module: str = "loom.daemon"
) -> Iterator[DaemonProcess]:
    made = DaemonProcess(home, settings, module)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class RedisServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise RuntimeError("redis-server did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout
            self._process.stdout.close()
            self._process = None


def javascript(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A script of ours with the official client at hand."""
    environ = {**os.environ, "NODE_PATH": str(node_modules())}
    command = ["node", str(JS / script), *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def node_modules() -> Path:
    """The packages of package.json, installed once per machine."""
    lock = (JS / "package-lock.json").read_bytes()
    folder = CACHE / f"npm-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "node_modules").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(JS / name, folder / name)
            run("npm", "ci", "--prefix", folder, "--no-audit", "--no-fund", timeout=300)
    return folder / "node_modules"
