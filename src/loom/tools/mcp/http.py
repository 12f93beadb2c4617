"""A server at a URL: streamable HTTP by the SDK, with a limit on the size of responses and the reason for refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from loom.content.media import size_label
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.stdio import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 3600.0
"""A stream of events may be silent for long; calls have their own deadlines."""
REFUSALS: Final = (401, 403)
_END_WORDS: Final = ("Connection closed", "SSE stream", "Session terminated")
"""The beginnings of the SDK's errors for a stream that broke and a session that the server dropped."""


class HttpTransport:
    """The HTTP client of one connection. `auth` adds a login to its requests."""

    process_id = None

    def __init__(self, spec: ServerSpec, auth: httpx2.Auth | None) -> None:
        self.ended = asyncio.Event()
        self._spec = spec
        self._auth = auth
        self._refusal = 0
        """The last HTTP status if it is one of `REFUSALS`, else 0: the SDK's errors do not contain it."""

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Any]:
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

    def is_end(self, error: BaseException) -> bool:
        """Return whether this connection will not respond any more. Servers use the SDK's error code for other errors,
        too, so the message decides."""
        return self.ended.is_set() or str(error).startswith(_END_WORDS)

    def end_reason(self) -> str:
        """Return why the server refuses requests; empty if it does not."""
        if not self._refusal:
            return ""
        if any(name.lower() == "authorization" for name in self._spec.headers):
            return f"it rejected the configured key (HTTP {self._refusal})"
        return f"login required: run `loom mcp login {self._spec.name}`"

    async def _check_response(self, response: httpx2.Response) -> None:
        """Count an uncompressed response as it arrives; the SDK limits streams of events event by event."""
        import httpx2

        class CappedStream(httpx2.AsyncByteStream):
            def __init__(self, stream: httpx2.AsyncByteStream) -> None:
                self._stream = stream

            async def __aiter__(self) -> AsyncIterator[bytes]:
                size = 0
                async for part in self._stream:
                    size += len(part)
                    if size > MAX_MESSAGE_BYTES:
                        raise httpx2.ReadError(f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}")
                    yield part

            async def aclose(self) -> None:
                await self._stream.aclose()

        self._refusal = response.status_code if response.status_code in REFUSALS else 0
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("it sent a compressed response, which Loom did not request")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = CappedStream(response.stream)
