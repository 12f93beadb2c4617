"""A server at a URL: streamable HTTP by the SDK, with a limit on the size of responses and the reason for refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from loom.content.media import size_label
from loom.errors import ToolError
from loom.tools.mcp.specs import MAX_MESSAGE_BYTES, ServerSpec

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 3600.0
"""A stream of events may be silent for long; calls have their own deadlines."""


class HttpTransport:
    """The HTTP client of one connection. `reason` is why the server refuses requests: the SDK's errors do not contain
    the status. `auth` adds a login to its requests."""

    process_id = None

    def __init__(self, spec: ServerSpec, auth: httpx2.Auth | None) -> None:
        self.reason = ""
        self._spec = spec
        self._auth = auth

    @asynccontextmanager
    async def streams(self, _on_end: object) -> AsyncGenerator[Any]:
        """Yield the pair of streams for the SDK's client."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async with (
            httpx2.AsyncClient(
                headers={**self._spec.headers, "accept-encoding": "identity"},
                timeout=httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS),
                auth=self._auth,
                event_hooks={"response": [self._check_response]},
            ) as client,
            streamable_http_client(self._spec.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
        ):
            yield streams

    async def _check_response(self, response: httpx2.Response) -> None:
        """Count an uncompressed response as it arrives; the SDK limits streams of events event by event."""
        import httpx2

        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)

        class CappedStream(httpx2.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                size = 0
                async for part in stream:
                    size += len(part)
                    if size > MAX_MESSAGE_BYTES:
                        raise ToolError(f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}")
                    yield part

            async def aclose(self) -> None:
                await stream.aclose()

        self.reason = self._refusal(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ToolError("it sent a compressed response, which Loom did not request")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = CappedStream()

    def _refusal(self, status: int) -> str:
        if status not in (401, 403):
            return ""
        if any(name.lower() == "authorization" for name in self._spec.headers):
            return f"it rejected the configured key (HTTP {status})"
        return f"login required: run `loom mcp login {self._spec.name}`"
