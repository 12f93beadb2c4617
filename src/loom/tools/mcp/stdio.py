"""A server as a child process: newline-delimited JSON over its pipes.

The SDK has such a transport, too; this one limits the size of a message, keeps stderr off the terminal, starts the
program in the sandbox, and ends its whole process group.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from loom.content.media import size_label
from loom.tools.mcp.specs import MAX_MESSAGE_BYTES, ServerSpec
from loom.tools.processes import kill_group, wait_exit
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from loom.tools.mcp.connection import McpConnection

MAX_STDERR_BYTES: Final = 16_384
PATIENCE_SECONDS: Final = 2.0
"""How long a server may take to exit after its input is closed, and again after SIGTERM."""


class _Pipes(ObjectReceiveStream[SessionMessage], ObjectSendStream[SessionMessage]):
    """The pipes of a program as the two streams of the SDK's client."""

    def __init__(self, process: Process, connection: McpConnection, errors: bytearray) -> None:
        self._process = process
        self._connection = connection
        self._errors = errors

    async def receive(self) -> SessionMessage:
        """Return the next message. A line that is not a message is kept with stderr. At the end of the pipe, and if a
        message is too large, the connection is stopped."""
        assert self._process.stdout is not None
        try:
            while True:
                line = await self._process.stdout.readuntil(b"\n")
                with suppress(ValueError):
                    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                self._keep(line)
        except asyncio.LimitOverrunError:
            self._connection.stop(f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}")
        except asyncio.IncompleteReadError:
            code = await wait_exit(self._process, PATIENCE_SECONDS)
            exited = f"signal {-code}" if code and code < 0 else f"exit code {code}"
            self._connection.stop("it closed its output" if code is None else exited)
        raise anyio.EndOfStream

    async def send(self, item: SessionMessage) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has exited, or reads no more: it then does not respond in time
            self._process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await self._process.stdin.drain()

    async def read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._errors += data
        del self._errors[:-MAX_STDERR_BYTES]

    async def aclose(self) -> None:
        """Do nothing: `process_streams` ends the program."""


@asynccontextmanager
async def process_streams(connection: McpConnection, sandbox: Sandbox, errors: bytearray) -> AsyncGenerator[Any]:
    """Start the program; yield the pair of streams for the SDK's client. `errors` gets the end of its error output."""
    process = await _start(connection.spec, sandbox)
    connection.process_id = process.pid
    pipes = _Pipes(process, connection, errors)
    reading = asyncio.create_task(pipes.read_errors())
    try:
        yield pipes, pipes
    finally:
        await _end(process)
        reading.cancel()
        await asyncio.wait([reading])


async def _start(spec: ServerSpec, sandbox: Sandbox) -> Process:
    fenced = sandbox.wrap(
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


async def _end(process: Process) -> None:
    """Close its input, then send SIGTERM, then SIGKILL, to the whole group: no child of the server remains."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        if await wait_exit(process, PATIENCE_SECONDS) is None:
            kill_group(process, signal.SIGTERM)
            await wait_exit(process, PATIENCE_SECONDS)
    finally:
        kill_group(process, signal.SIGKILL)
    await wait_exit(process, PATIENCE_SECONDS)
    transport = getattr(process, "_transport", None)
    if transport is not None:  # a grandchild outside the group may keep the pipes open: our ends are closed anyway
        transport.close()
