"""A server as a child process: newline-delimited JSON over its pipes.

The SDK has such a transport, too; this one limits the size of a message, keeps stderr off the terminal, starts the
program in the sandbox, and ends its whole process group.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loom.content.media import size_label
from loom.tools.mcp.specs import MAX_MESSAGE_BYTES, ServerSpec
from loom.tools.processes import kill_group
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

MAX_STDERR_BYTES: Final = 16_384
PATIENCE_SECONDS: Final = 2.0
"""How long a server may take to exit after its input is closed, and again after SIGTERM."""


class StdioTransport:
    """The process of one connection. `reason` is why it ended. `stderr` gets the end of its error output."""

    def __init__(self, spec: ServerSpec, sandbox: Sandbox, stderr: bytearray) -> None:
        self.process_id: int | None = None
        self.reason = ""
        self._spec = spec
        self._sandbox = sandbox
        self._stderr = stderr

    @asynccontextmanager
    async def streams(self, on_end: Callable[[], object]) -> AsyncGenerator[Any]:
        """Start the program; yield the pair of streams for the SDK's client. `on_end` is called if it ends."""
        import anyio
        from mcp.shared.message import SessionMessage

        process = await self._start()
        self.process_id = process.pid
        arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        write, leaving = anyio.create_memory_object_stream[SessionMessage](16)
        receiving = asyncio.create_task(self._receive(process, arriving, on_end))
        tasks = [asyncio.create_task(job) for job in (_send(process, leaving), self._read_stderr(process))]
        try:
            yield read, write
        finally:
            receiving.cancel()  # so that it does not report the end that follows
            for stream in (read, write, arriving, leaving):
                stream.close()
            await _end(process, [receiving, *tasks])

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
                env=fenced.environment | spec.environment(),
                cwd=spec.folder,
                start_new_session=True,
                limit=MAX_MESSAGE_BYTES,
                pass_fds=fenced.descriptors,
            )
        finally:
            fenced.close()

    async def _receive(
        self, process: Process, arriving: MemoryObjectSendStream[SessionMessage | Exception], on_end: Callable[[], Any]
    ) -> None:
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
        except anyio.BrokenResourceError:
            return  # the connection is being closed
        except asyncio.LimitOverrunError:
            self.reason = f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}"
        except asyncio.IncompleteReadError:
            code = await _wait_exit(process)
            exited = f"signal {-code}" if code and code < 0 else f"exit code {code}"
            self.reason = "it closed its output" if code is None else exited
        on_end()

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(4096):
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-MAX_STDERR_BYTES]


async def _send(process: Process, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # it has exited, or reads no more: it then does not respond in time
        async for message in leaving:
            process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _end(process: Process, tasks: list[asyncio.Task[None]]) -> None:
    """Close its input, then send SIGTERM, then SIGKILL, to the whole group: no child of the server remains."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        if await _wait_exit(process) is None:
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


async def _wait_exit(process: Process) -> int | None:
    """Return its exit code, or None if it does not exit in time; `wait()` would also wait for pipes that a grandchild
    may keep open."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while process.returncode is None:  # noqa: ASYNC110  there is no event without the pipes
                await asyncio.sleep(0.01)
    return process.returncode
