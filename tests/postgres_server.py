"""A real PostgreSQL server for tests: own data folder, free port, no durability, deleted at the end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg

SPEED = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off", "max_connections=60"),
    *("shared_buffers=16MB", "wal_level=minimal", "max_wal_senders=0", "max_wal_size=64MB"),
)


class PostgresServer:
    """Use `postgres_server()`. With `stop` and `start` a test simulates an outage."""

    def __init__(self, folder: Path, user: str | None) -> None:
        self.folder = folder
        self.port = 0
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def initialize(self) -> None:
        command = [_program("initdb"), "--no-sync", "--auth=trust", "--username=tester", "--encoding=UTF8"]
        command += ["--locale=C.UTF-8", "--pgdata", str(self.folder / "data")]
        subprocess.run(command, user=self._user, cwd=self.folder, check=True, capture_output=True)

    def start(self) -> None:
        self.port = self.port or _free_port()
        command = [_program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        for setting in SPEED:
            command += ["-c", setting]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, user=self._user, cwd=self.folder, stdout=log, stderr=log)
        log.close()
        for _ in range(400):
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url("postgres")).close()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                raise RuntimeError(f"PostgreSQL ended: {(self.folder / 'log').read_text()[-2000:]}")
        raise RuntimeError("PostgreSQL did not start within 20 seconds")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("PostgreSQL does not run")
        return self._process.pid

    def url(self, name: str) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/{name}"

    def empty_database(self) -> str:
        """Return the address of an empty database. There is only one: this deletes the data of the last test."""
        self._execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'test'")
        if self._execute("SELECT 1 FROM pg_database WHERE datname = 'test'"):
            self._execute("DROP SCHEMA IF EXISTS loom CASCADE", on="test")
            self._execute("DROP SCHEMA IF EXISTS loom_dbos CASCADE", on="test")
            self._execute("DROP SCHEMA public CASCADE", on="test")
            self._execute("CREATE SCHEMA public", on="test")
        else:
            self._execute("CREATE DATABASE test TEMPLATE template0 ENCODING 'UTF8'")
        return self.url("test")

    def latin1(self) -> str:
        """Return the address of a database that cannot store every character."""
        self._execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        return self.url("latin")

    def _execute(self, statement: LiteralString, on: str = "postgres") -> bool:
        """Execute a statement; return whether it affected or returned rows."""
        with psycopg.connect(self.url(on), autocommit=True) as connection:
            return connection.execute(statement).rowcount > 0


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    memory = Path("/dev/shm")
    in_memory = memory.is_dir() and shutil.disk_usage(memory).free > 500_000_000
    folder = Path(tempfile.mkdtemp(prefix="loom-pg-", dir=memory if in_memory else "/tmp"))
    user = _ordinary_user() if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    server = PostgresServer(folder, user)
    try:
        server.initialize()
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def _ordinary_user() -> str:
    """Return a user to run the server as: PostgreSQL refuses to run as root."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
        if not versions:
            raise RuntimeError(f"{name} is not installed: the tests need PostgreSQL")
        found = str(versions[-1])
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
