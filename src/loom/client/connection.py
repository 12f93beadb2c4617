"""The HTTP connection to a daemon. Idempotent requests are retried when the network fails."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.agent.failures import error_of
from loom.api_types import ProblemBody, ProblemText
from loom.errors import ContentError, LoomError, Unreachable
from loom.events import Event, ToolFinished, decode_event
from loom.message_types import EventEnvelope
from loom.network_environment import check_network_environment
from loom.struct_types import convert, decode_json
from loom.wire.framing import SseParser

if TYPE_CHECKING:
    import httpx2

PATIENCE_SECONDS: Final = 60.0
"""How long a daemon may be unreachable before the caller gets an error."""
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 45.0
"""The daemon sends a keep-alive every fifteen seconds."""
_LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_COMES_BACK: Final = ("daemon.draining", "store.unreachable", "rate.limited")


class _ToolCallBody(msgspec.Struct):
    """The fields of a `tool_call` that are used."""

    result: Any
    seconds: float


class DaemonConnection:
    def __init__(
        self, url: str, token: str, *, patience_seconds: float = PATIENCE_SECONDS, certificate: str = ""
    ) -> None:
        """Create the connection. `certificate` is a file with the only TLS certificate to trust, for any host name;
        empty: those that the system trusts."""
        self.url = url.rstrip("/")
        self._token = token
        self._certificate = certificate
        self._patience = patience_seconds
        self._http: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def ask(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        body: bytes | None = None,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        repeats: bool = True,
    ) -> bytes:
        """Send a request and return the body of the response; raise the daemon's error. With `repeats`, the request may
        be retried."""
        content = msgspec.json.encode(json) if json is not None else body
        kind = {"content-type": "application/json"} if json is not None else {}
        waiting = _Backoff(self._patience if repeats else 0.0)
        while True:
            try:
                response = await self._client().request(
                    method, path, content=content, params=params, headers={**kind, **(headers or {})}
                )
            except self._connection_errors() as error:
                await waiting.pause(self._unreachable_error(error))
                continue
            if response.is_success:
                return response.content
            error = _error(response.content, response.status_code)
            if error.code not in _COMES_BACK or not repeats:
                raise error
            await waiting.pause(error)

    async def open(self, path: str, params: Mapping[str, str | int]) -> tuple[str, int, AsyncGenerator[bytes]]:
        """Return the content type, the length and the blocks of a response that is read as it arrives."""
        client = self._client()
        waiting = _Backoff(self._patience)
        while True:
            try:
                response = await client.send(client.build_request("GET", path, params=dict(params)), stream=True)
                break
            except self._connection_errors() as error:
                await waiting.pause(self._unreachable_error(error))
        if not response.is_success:
            raise _error(await response.aread(), response.status_code)

        async def blocks() -> AsyncGenerator[bytes]:
            try:
                async for block in response.aiter_raw():
                    yield block
            except self._connection_errors() as error:
                raise self._unreachable_error(error) from error
            finally:
                await response.aclose()

        kind = response.headers.get("content-type", "").partition(";")[0]
        return kind, int(response.headers.get("content-length", "0")), blocks()

    async def events(self, session_id: str, after: int) -> AsyncGenerator[tuple[int, Event]]:
        """Yield events without end, each once and in order; reconnect when the connection is lost."""
        last = after
        waiting = _Backoff(self._patience)
        while True:
            try:
                async with self._stream(session_id, last) as response:
                    frames = SseParser()
                    async for chunk in response.aiter_raw():
                        waiting.begin()
                        for frame in frames.feed(chunk):
                            envelope = decode_json(frame.data, EventEnvelope)
                            event = event_of(envelope)
                            if event is not None and envelope.seq > last:
                                last = envelope.seq
                                yield last, event
                problem: LoomError = self._unreachable_error(None)
            except self._connection_errors() as error:
                problem = self._unreachable_error(error)
            await waiting.pause(problem)

    @asynccontextmanager
    async def _stream(self, session_id: str, after: int) -> AsyncGenerator[httpx2.Response]:
        import httpx2

        patient = httpx2.Timeout(10.0, read=_SILENCE_SECONDS)
        path, place = f"/v1/sessions/{session_id}/events", {"after": after}
        async with self._client().stream("GET", path, params=place, timeout=patient) as response:
            if not response.is_success:
                error = _error(await response.aread(), response.status_code)
                raise _RetryLater(error) if error.code in _COMES_BACK else error
            yield response

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            import httpx2

            trusted = _trust(self._certificate) if self._certificate else True
            with check_network_environment():
                self._http = httpx2.AsyncClient(
                    base_url=self.url,
                    headers={
                        "authorization": f"Bearer {self._token}",
                        "user-agent": "loom",
                        "accept-encoding": "identity",
                    },
                    timeout=httpx2.Timeout(60.0, connect=5.0),
                    mounts=dict.fromkeys(_LOOPBACK),
                    limits=httpx2.Limits(max_connections=None),
                    verify=trusted,
                )
        return self._http

    def _connection_errors(self) -> tuple[type[Exception], ...]:
        import httpx2

        return (httpx2.TransportError, httpx2.StreamError, _RetryLater)

    def _unreachable_error(self, error: Exception | None) -> LoomError:
        if isinstance(error, _RetryLater):
            return error.error
        return Unreachable(
            f"The daemon at {self.url} does not respond.", hint="Start it with `loom serve`, or check the URL."
        )


class _RetryLater(Exception):
    """Raised if the daemon asks to retry shortly."""

    def __init__(self, error: LoomError) -> None:
        super().__init__(error.message)
        self.error = error


def _trust(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False  # the daemon is reached by its address, and the pinned certificate identifies it
    return context


class _Backoff:
    """Backoff with a deadline."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Reset the deadline and the pause after data has arrived."""
        self._until = time.monotonic() + self._seconds
        self._pause = _FIRST_WAIT_SECONDS

    async def pause(self, error: LoomError) -> None:
        if time.monotonic() + self._pause > self._until:
            raise error
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_WAIT_SECONDS)


def _error(content: bytes, status: int) -> LoomError:
    try:
        found = decode_json(content, ProblemBody).error
    except msgspec.DecodeError:
        return Unreachable(f"The server is not a Loom daemon (status {status}).", hint="Check the URL.")
    return error_of(found.code, found.message, found.hint)


def event_of(envelope: EventEnvelope) -> Event | None:
    """Return the event of an envelope; None if this version does not know its type. Raise an error that it reports."""
    if envelope.type == "error":
        found = decode_json(envelope.data, ProblemText)
        raise error_of(found.code, found.message, found.hint)
    try:
        if envelope.type == "tool_call":
            called = decode_json(envelope.data, _ToolCallBody)
            whole = {"type": "tool_finished", "result": called.result, "seconds": called.seconds}
            return convert(whole, ToolFinished)
        return decode_event(bytes(envelope.data))
    except (ContentError, msgspec.ValidationError):
        return None
