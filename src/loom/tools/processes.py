"""Programs that tools start: they get no secrets, and all their processes end with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from loom.errors import ToolError

_KEPT: Final = (
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX JAVA_HOME GOPATH "
    "GOROOT CARGO_HOME RUSTUP_HOME NVM_DIR PYENV_ROOT RBENV_ROOT SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE "
    "CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS"
)
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_MARK: Final = "LOOM_STARTED"
_BEGAN: Final = 19
"""The index of the start time in /proc/PID/stat, after the name of the program."""
_ROUNDS: Final = 20
_GONE_SECONDS: Final = 2.0
_DRAIN_SECONDS: Final = 0.5
_READ_BYTES: Final = 65_536


class RunningProgram(msgspec.Struct, frozen=True):
    """`output` has both output streams, in order."""

    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    mark: str
    groups: set[int]
    """The process groups that were observed to be its own."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an allow-list of variables: API keys and tokens are not passed on."""
    kept = {name: os.environ[name] for name in _KEPT.split() if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("LC_")}
    return kept | proxy_variables(os.environ) | dict(extra or {})


def proxy_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of proxies, except URLs with a password."""
    return {name: value for name, value in environ.items() if name.upper() in _PROXIES and "@" not in value}


@asynccontextmanager
async def start_program(
    command: Sequence[str],
    *,
    folder: Path,
    extra: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stderr: int | None = None,
    descriptors: Sequence[int] = (),
) -> AsyncGenerator[RunningProgram]:
    """Yield a program in its own process group. At the end, also if cancelled, everything that it started is ended.

    The program inherits `descriptors`. With `stderr`, a descriptor, its errors are not in `output`.
    """
    mark = f"{_runner_of(os.getpid())}:{secrets.token_hex(8)}"
    async with _pipe() as (output, writing):
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=writing,
                stderr=writing if stderr is None else stderr,
                cwd=folder,
                env=environment(extra) | {_MARK: mark},
                start_new_session=True,
                pass_fds=descriptors,
            )
        except OSError as error:
            raise ToolError(f"{command[0]} cannot be started: {error.strerror}") from None
        except asyncio.CancelledError:
            _kill(mark, set())  # asyncio has ended the program itself, but not the processes that it started
            raise
        finally:
            os.close(writing)
        running = RunningProgram(process, output, mark, {process.pid})
        try:
            yield running
        finally:
            end_all(running)
            await process.wait()
            await _wait_for_exit(running)


async def run_typed_command(argv: Sequence[str], folder: Path, add: Callable[[bytes], None]) -> int:
    """Run a command that the user typed, with the user's whole environment, and return its exit code. Programs that it
    leaves in the background go on, as in a shell. If cancelled, end the command and its group."""
    async with _pipe() as (output, writing):
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=DEVNULL, stdout=writing, stderr=writing, cwd=folder, start_new_session=True
            )
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be started: {error.strerror}") from None
        finally:
            os.close(writing)
        ending = asyncio.create_task(process.wait())
        async with collect_output(output, add):
            try:
                return await asyncio.shield(ending)
            except asyncio.CancelledError:
                kill_group(process, signal.SIGTERM)
                try:
                    await asyncio.wait([ending], timeout=_GONE_SECONDS)
                finally:  # cancelled again: the user does not want to wait for its end
                    kill_group(process, signal.SIGKILL)
                await asyncio.wait([ending])
                raise


@asynccontextmanager
async def _pipe() -> AsyncGenerator[tuple[asyncio.StreamReader, int]]:
    """Yield a reader, and the descriptor to write to. The reader is closed even if another process keeps the other
    end."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
    )
    try:
        yield reader, writing
    finally:
        transport.close()


@asynccontextmanager
async def collect_output(output: asyncio.StreamReader, add: Callable[[bytes], None]) -> AsyncGenerator[None]:
    """Pass the output of a program to `add` as it arrives. At the end, what is in the pipe is read, and no more:
    processes that the program left running may keep the pipe open for ever."""

    async def read() -> None:
        while chunk := await output.read(_READ_BYTES):
            add(chunk)

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        await asyncio.wait([reading], timeout=_DRAIN_SECONDS)
        reading.cancel()
        await asyncio.wait([reading])


async def _wait_for_exit(running: RunningProgram) -> None:
    """Wait a moment: killed processes still need time to release their files."""
    until = time.monotonic() + _GONE_SECONDS
    while members(running.mark, running.groups) and time.monotonic() < until:  # noqa: ASYNC110  there is no event for processes that are not children
        await asyncio.sleep(0.01)


def end_all(running: RunningProgram) -> int:
    """Kill the program and everything that it started, in its group and outside. Return the number of processes besides
    the program itself."""
    there = members(running.mark, running.groups)
    kill_group(running.process, signal.SIGKILL)
    return len((there | _kill(running.mark, running.groups)) - {running.process.pid})


def _kill(mark: str, groups: set[int]) -> set[int]:
    """Kill in rounds, because a process may have started another one just before."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        left = members(mark, groups)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or has another owner now
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        ended |= left
    return ended


def kill_orphans() -> int:
    """Kill programs whose runner was killed and could not end them; return the number of processes. A runner in another
    process namespace is ignored: its process id has no meaning here."""
    ended: set[int] = set()
    for mark in _marks():
        runner = mark.rpartition(":")[0]
        namespace, _, number = runner.partition(":")
        pid = number.partition(".")[0]
        if namespace == _namespace() and pid.isdecimal() and _runner_of(int(pid)) != runner:
            ended |= _kill(mark, set())
    return len(ended)


def _marks() -> set[str]:
    """Return the marks of all running programs that tools of any runner have started."""
    prefix = f"{_MARK}=".encode()
    found: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to another user
            variables = (folder / "environ").read_bytes().split(b"\0")
            found |= {os.fsdecode(it.removeprefix(prefix)) for it in variables if it.startswith(prefix)}
    return found


def _runner_of(pid: int) -> str:
    """Return the identity of a process in marks: its namespace, its process id, and its start time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    is_dead = fields[0] in (b"Z", b"X")
    return "" if is_dead else f"{_namespace()}:{pid}.{fields[_BEGAN].decode()}"


@cache
def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return ""


def kill_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # everything has ended
        os.killpg(process.pid, number)


async def wait_exit(process: asyncio.subprocess.Process, seconds: float) -> int | None:
    """Return the exit code, or None if the process does not exit in time; `wait()` would also wait for pipes that a
    grandchild may keep open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while process.returncode is None:  # noqa: ASYNC110  there is no event without the pipes
                await asyncio.sleep(0.01)
    return process.returncode


def members(mark: str, groups: set[int]) -> set[int]:
    """Return the live processes that inherited the mark, in any group, and all in `groups`, to which their groups are
    added.

    A process that forks twice leaves its group, but keeps its variables; a browser overwrites its variables, but stays
    in its group.
    """
    wanted = f"{_MARK}={mark}".encode()
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:3]
            if state in (b"Z", b"X"):
                continue
            is_marked = wanted in (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile, or belongs to another user
            continue
        if is_marked:
            groups.add(int(group))
        if int(group) in groups:
            found.add(int(folder.name))
    return found
