"""A server as a child process: newline-delimited JSON over its pipes.

The SDK has such a transport, too; this one limits the size of a message, keeps stderr off the terminal, starts the
program in the sandbox, and ends its whole process group.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loom.content.media import size_label
from loom.tools.mcp.specs import ServerSpec
from loom.tools.processes import kill_group
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES: Final = 48 * 1024 * 1024
MAX_STDERR_BYTES: Final = 16_384
PATIENCE_SECONDS: Final = 2.0
"""How long a server may take to exit after its input is closed, and again after SIGTERM."""


class StdioTransport:
    """The process of one connection. `ended` is set when it stops responding, or to stop it. `stderr` gets the end of
    its error output, for diagnostics."""

    def __init__(self, spec: ServerSpec, sandbox: Sandbox, stderr: bytearray) -> None:
        self.ended = asyncio.Event()
        self._spec = spec
        self._sandbox = sandbox
        self._stderr = stderr
        self._process: Process | None = None
        self._reason = ""
        """Why Loom ended it."""

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Any]:
        """Start the program; yield the pair of streams for the SDK's client."""
        import anyio
        from mcp.shared.message import SessionMessage

        process = self._process = await self._start()
        arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        write, leaving = anyio.create_memory_object_stream[SessionMessage](16)
        jobs = (self._receive(process, arriving), self._send(process, leaving), self._read_stderr(process))
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            yield read, write
        finally:
            for stream in (read, write, arriving, leaving):
                stream.close()
            with anyio.CancelScope(shield=True):
                await _end(process, tasks)

    def is_end(self, _error: BaseException) -> bool:
        """Return whether this connection will not respond any more."""
        return self.ended.is_set()

    def end_reason(self) -> str:
        """Return why it ended, as far as it is known; empty if it has not ended."""
        code = self._process.returncode if self._process is not None else None
        if self._reason or not self.ended.is_set():
            return self._reason
        return "it closed its output" if code is None else f"exit code {code}" if code >= 0 else f"signal {-code}"

    async def _start(self) -> Process:
        spec = self._spec
        fenced = self._sandbox.wrap(
            (spec.command, *spec.args),
            spec.folder or Path.cwd(),
            network=spec.sandbox == "online",
            unsandboxed=spec.sandbox == "off",
            is_server=True,
        )
        try:
            return await asyncio.create_subprocess_exec(
                *fenced.argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=fenced.environment | spec.environment(os.environ),
                cwd=spec.folder,
                start_new_session=True,
                limit=MAX_MESSAGE_BYTES,
                pass_fds=fenced.descriptors,
            )
        finally:
            fenced.close()

    async def _receive(self, process: Process, arriving: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass messages on until the pipe ends. A line that is not a message is kept with stderr."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        assert process.stdout is not None
        try:
            while True:
                line = await process.stdout.readuntil(b"\n")
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._keep(line)
                else:
                    await arriving.send(SessionMessage(message))
        except asyncio.LimitOverrunError:
            self._reason = f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}"
        except (asyncio.IncompleteReadError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it has ended, or the streams were closed here
        finally:
            self.ended.set()
            arriving.close()

    async def _send(self, process: Process, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert process.stdin is not None
        try:
            async for message in leaving:
                process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
        except OSError:  # it closed its input: the connection has ended
            self.ended.set()

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(4096):
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-MAX_STDERR_BYTES]


async def _end(process: Process, tasks: list[asyncio.Task[None]]) -> None:
    """Close its input, then send SIGTERM, then SIGKILL, to the whole group: no child of the server remains."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        if not await _wait_exit(process):
            kill_group(process, signal.SIGTERM)
            await _wait_exit(process)
    finally:
        kill_group(process, signal.SIGKILL)
    await _wait_exit(process)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    transport = getattr(process, "_transport", None)
    if transport is not None:  # a grandchild outside the group may keep the pipes open: our ends are closed anyway
        transport.close()


async def _wait_exit(process: Process) -> bool:
    """Return whether it has exited in time; `wait()` would also wait for pipes that a grandchild may keep open."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
