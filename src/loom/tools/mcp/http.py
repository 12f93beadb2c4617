"""The HTTP client of a server that runs elsewhere: its headers, its login, and a limit on the size of one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from loom.content.media import size_label
from loom.tools.mcp.specs import ServerSpec

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 3600.0
"""A stream of events may be silent for long; calls have a deadline of their own."""
REFUSALS: Final = (401, 403)


class HttpState:
    """What the transport has seen: the SDK tells a refusal apart from other errors by no word."""

    refusal: int = 0


def http_client(
    spec: ServerSpec, state: HttpState, *, max_message_bytes: int, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """Answers come uncompressed and are counted as they arrive; the SDK limits streams of events event by event."""
    import httpx2

    class CappedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > max_message_bytes:
                    raise httpx2.ReadError(f"it sent a message of more than {size_label(max_message_bytes)}")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    class CappedTransport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            state.refusal = response.status_code if response.status_code in REFUSALS else 0
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.DecodingError("it sent a compressed answer, which was not asked for")
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                response.stream = CappedStream(response.stream)
            return response

    return httpx2.AsyncClient(
        transport=CappedTransport(),
        headers={**spec.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS),
        auth=auth,
    )
