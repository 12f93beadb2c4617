"""A server at a URL: streamable HTTP by the SDK, with a limit on the size of responses and the reason for refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from loom.content.media import size_label
from loom.errors import ToolError
from loom.network_environment import check_network_environment
from loom.tools.mcp.specs import MAX_MESSAGE_BYTES, ServerSpec

if TYPE_CHECKING:
    from loom.tools.mcp.connection import McpConnection

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 3600.0
"""A stream of events may be silent for long; calls have their own deadlines."""


class _CappedStream(httpx2.AsyncByteStream):
    """An uncompressed response, counted as it arrives; the SDK limits streams of events event by event."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MAX_MESSAGE_BYTES:
                raise ToolError(f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def http_streams(connection: McpConnection, auth: httpx2.Auth | None) -> AsyncGenerator[Any]:
    """Yield the pair of streams for the SDK's client. `auth` adds a login to its requests."""

    async def check_response(response: httpx2.Response) -> None:
        connection.refusal = _refusal(connection.spec, response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ToolError("it sent a compressed response, which Loom did not request")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _CappedStream(response.stream)

    with check_network_environment():
        opened = httpx2.AsyncClient(
            headers={**connection.spec.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS),
            auth=auth,
            event_hooks={"response": [check_response]},
        )
    async with (
        opened as client,
        streamable_http_client(
            connection.spec.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


def _refusal(spec: ServerSpec, status: int) -> str:
    """Return why the server refuses requests, or an empty text: the SDK's errors do not contain the status."""
    if status not in (401, 403):
        return ""
    if any(name.lower() == "authorization" for name in spec.headers):
        return f"it rejected the configured key (HTTP {status})"
    return f"login required: run `loom mcp login {spec.name}`"
