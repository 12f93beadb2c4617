"""Runs the daemon: one per data folder, on localhost only unless a password is set, with a graceful shutdown."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import fcntl
import gc
import ipaddress
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import uvicorn

from loom.api_types import RunningDaemon
from loom.config import Config, load_config, redact
from loom.daemon.app import App, create_app
from loom.daemon.auth import open_auth
from loom.daemon.connections import AcceptFailures, PatientProtocol
from loom.errors import ConfigError, LoomError
from loom.runtime import Runtime
from loom.store.process_identity import has_ended
from loom.struct_types import decode_json
from loom.tools.sandbox import disable_memory_dumps
from loom.tools.secret_mask import environment_secrets, mask_secrets

LOCK: Final = "daemon.lock"
_ENDED_HOLDER_SECONDS: Final = 30.0
_COLLECTED_OBJECTS: Final = 20_000
MAX_SOCKET_BYTES: Final = 1_000_000
USER_TIMEOUT_MS: Final = 60_000
LARGE_BLOCK_BYTES: Final = 1 << 20
_M_MMAP_THRESHOLD: Final = -3
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  addresses to compare with, not to bind
_SOMEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that are reserved for documentation."""
_TCP_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", 18)


class ListeningAddress(msgspec.Struct, frozen=True):
    """`url` is for this machine; `link` opens the web client in a browser, once, also from other machines if they can
    connect."""

    url: str
    link: str


def run_daemon(
    config: Config,
    *,
    host: str = "",
    port: int | None = None,
    on_listening: Callable[[ListeningAddress], None] | None = None,
    log_level: str = "warning",
) -> None:
    """Serve until SIGTERM or SIGINT. `on_listening` receives the URLs; without it they are printed."""
    disable_memory_dumps()
    with suppress(OSError):  # without a file for errors, there is no log
        faulthandler.enable()  # a crash in native code leaves the stack of each thread there
    _log_without_secrets(config)
    _give_memory_back()
    asyncio.run(serve_app(config, host=host, port=port, on_listening=on_listening or _print, log_level=log_level))


class _Redacting(logging.Formatter):
    """Masks configured secrets, and everything that looks like a key, in the formatted log line, tracebacks
    included."""

    def __init__(self, pattern: str, secrets: frozenset[str]) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return redact(mask_secrets(super().format(record), self._secrets))


def _log_without_secrets(config: Config) -> None:
    lines = logging.StreamHandler()
    known = config.secret_values() | environment_secrets(os.environ)
    lines.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s", known))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])


def _give_memory_back() -> None:
    """Return large blocks to the system when they are freed. By default, glibc raises its mmap threshold when the first
    ones are freed, and then keeps such blocks in the arena of each thread: twenty images of 10 MB at once then cost 120
    MB for good instead of 1."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def collect_rarely() -> None:
    """Let the garbage collector run less often in the middle of requests, in a process that is Loom's own. What the
    modules hold stays, so it is never looked at; a request of 100 KB makes thousands of objects without cycles."""
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS, 20, 20)


async def serve_app(
    config: Config,
    *,
    host: str = "",
    port: int | None = None,
    on_listening: Callable[[ListeningAddress], None],
    log_level: str = "warning",
) -> None:
    host = host or config.server.host
    port = config.server.port if port is None else port
    password = config.secret("server", "password")
    check_bind(host, password)
    tls = tls_files(config)
    with lock_data_folder(config), listen(host, port) as listener:
        async with Runtime.open(config, tools="all") as runtime:
            app = create_app(runtime, auth=open_auth(config.token_file(), password=password))
            url = _url(listener, is_secure=tls is not None)
            elsewhere = _url(listener, is_secure=tls is not None, from_elsewhere=True)
            page = f"{elsewhere}/?t={app.daemon.auth.new_link()}"
            listening = ListeningAddress(url, page)
            server = _DrainingServer(_uvicorn(app, log_level, tls), app, lambda: on_listening(listening))
            asyncio.get_running_loop().set_exception_handler(AcceptFailures().handle)
            with _publish_address(config, url, str(tls[0].absolute()) if tls else ""):
                async with _rotate_on_sighup(app):
                    await server.serve([listener])


def check_bind(host: str, password: str) -> None:
    """Raise `ConfigError` if `host` is not a loopback address and there is no password."""
    try:
        is_here = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        is_here = host == "localhost"
    if not is_here and not password:
        raise ConfigError(
            f"Listening on {host} requires a password.",
            hint="Set server.password (loom serve --password-file FILE), or listen on 127.0.0.1.",
        )


class _DrainingServer(uvicorn.Server):
    """A server that reports when it listens, and drains turns before connections are closed, so that watchers see how
    they end."""

    def __init__(self, config: uvicorn.Config, app: App, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        collect_rarely()
        if self.started:
            self._on_started()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals without raising them again at the end, as uvicorn would, before the store is closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.daemon.stop()
        await super().shutdown(sockets)


def tls_files(config: Config) -> tuple[Path, Path] | None:
    """Return the certificate and the key; None if TLS is not configured. Raise `ConfigError` if they cannot be used."""
    server = config.server
    if not server.tls_cert and not server.tls_key:
        return None
    if not server.tls_cert or not server.tls_key:
        raise ConfigError("TLS needs both a certificate and its key.", hint="Set server.tls_cert and server.tls_key.")
    files = Path(server.tls_cert).expanduser(), Path(server.tls_key).expanduser()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, password="")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"The TLS certificate or key cannot be used: {error}.",
            hint="Both are PEM files; the key belongs to the first certificate and has no passphrase.",
        ) from None
    return files


def _uvicorn(app: App, log_level: str, tls: tuple[Path, Path] | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
        lifespan="on",
        http=PatientProtocol,  # based on h11, even if httptools is installed, which does not limit the size of headers
        log_config=None,
        log_level=log_level,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ws_per_message_deflate=False,
        ws_max_size=MAX_SOCKET_BYTES,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=65_536,
    )


@contextmanager
def listen(host: str, port: int) -> Generator[socket.socket]:
    """Yield a listening socket. Raise `ConfigError` if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name the protocol: asyncio sets TCP_NODELAY only on sockets with it. Without that, every response on a keep-alive
    # connection waits 40 ms for the acknowledgement of the other side.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            listener.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        try:
            listener.bind((host.strip("[]"), port))
            listener.listen(1024)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(
                f"The daemon cannot listen on {host}:{port}: {reason}.", hint="Choose another with --port."
            ) from None
        yield listener
    finally:
        listener.close()


def _url(listener: socket.socket, *, is_secure: bool, from_elsewhere: bool = False) -> str:
    """Return the URL for clients on this machine, or `from_elsewhere`. It is numeric: a host name would have to be
    allowed first."""
    host, port = listener.getsockname()[:2]
    if host in _EVERYWHERE:
        here = _EVERYWHERE[host]
        host = (_own_address(socket.AddressFamily(listener.family)) or here) if from_elsewhere else here
    scheme = "https" if is_secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _own_address(family: socket.AddressFamily) -> str:
    """Return the address of this machine in its network; empty without a network."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_SOMEWHERE[family], 9))  # selects a route; nothing is sent
        except OSError:
            return ""
        return probe.getsockname()[0]


@contextmanager
def lock_data_folder(config: Config) -> Generator[None]:
    """Raise `ConfigError` with the pid of the other daemon if one uses the same data folder. With PostgreSQL, several
    are allowed."""
    if config.secret("store", "url").startswith(("postgres://", "postgresql://")):
        yield
        return
    folder = config.data_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"The data folder cannot be used: {os.strerror(error.errno or 0)}.") from None
    try:
        deadline = time.monotonic() + _ENDED_HOLDER_SECONDS
        while (holder := _try_lock(descriptor)) is not None:
            # A child that a killed daemon was just starting has the lock until it runs its program.
            if not (holder.isdecimal() and has_ended(int(holder))) or time.monotonic() > deadline:
                raise ConfigError(
                    f"A daemon with the pid {holder or '?'} is already using this data folder.",
                    hint="Use it (loom web, loom attach), or stop it first (loom stop).",
                )
            time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> str | None:
    """Lock the file. Return the pid of the daemon that has the lock, or None if it is ours now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 100, 0).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(
            f"The data folder cannot be locked: {os.strerror(error.errno or 0)}.",
            hint="Use a folder on a local disk (LOOM_HOME), or a PostgreSQL store.",
        ) from None
    return None


def unresponsive_daemon(config: Config) -> int | None:
    """Return the pid of the daemon that has the data folder locked although it may not answer; None if there is
    none."""
    if find_daemon(config) is None:
        return None
    try:
        descriptor = os.open(config.data_folder() / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        holder = _try_lock(descriptor)
    finally:
        os.close(descriptor)
    return int(holder) if holder is not None and holder.isdecimal() else None


@contextmanager
def _publish_address(config: Config, url: str, certificate: str) -> Generator[None]:
    """Write the file by which clients on this machine find the daemon; remove it at the end."""
    file = config.daemon_file()
    scratch = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(RunningDaemon(os.getpid(), url, certificate)))
        scratch.replace(file)
    except OSError as error:
        raise ConfigError(f"The state folder cannot be written: {os.strerror(error.errno or 0)}.") from None
    try:
        yield
    finally:
        if (here := find_daemon(config)) is not None and here.pid == os.getpid():
            file.unlink(missing_ok=True)


def find_daemon(config: Config) -> RunningDaemon | None:
    """Return the daemon of this configuration's data folder; None if none runs on this machine."""
    try:
        here = decode_json(config.daemon_file().read_bytes(), RunningDaemon)
        os.kill(here.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return here


@asynccontextmanager
async def _rotate_on_sighup(app: App) -> AsyncGenerator[None]:
    """Create a new token on SIGHUP."""
    tasks: set[asyncio.Task[str]] = set()

    def rotate() -> None:
        task = asyncio.create_task(app.daemon.auth.rotate())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, rotate)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _print(listening: ListeningAddress) -> None:
    """Print the addresses to the user who started the daemon; the link appears nowhere else."""
    sys.stdout.write(f"Loom listens on {listening.url}\nOpen it once with {listening.link}\n")
    sys.stdout.flush()


def main() -> None:
    """Run `python -m loom.daemon [--host H] [--port P]`; `loom serve` has more options."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    try:
        port = options.get("--port")
        run_daemon(load_config(), host=options.get("--host", ""), port=int(port) if port else None)
    except LoomError as error:
        sys.exit(f"loom: {error}")
