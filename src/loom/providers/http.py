"""HttpProvider: the provider for every wire: encode, send while reading media, decode while the answer arrives.

Requests are retried only before the first event of an answer, honor Retry-After, and end at the deadline. Every
failure becomes a `ProviderError` with a hint. A stream that ends without the provider's terminal event emits no
`Stopped`; after a terminal event, the rest of the stream is read for at most a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from loom.content.media import size_label
from loom.errors import Overloaded, ProviderError, RateLimited, Unavailable
from loom.events import DecoderEvent, RetryScheduled, Stopped, UsageReported
from loom.models import Model
from loom.prompt import Prompt
from loom.providers import bedrock, http_errors
from loom.providers.connections import Connections, KeyLookup, Timeouts, checked_headers, endpoint, transport_errors
from loom.providers.media_body import Body, MediaBody, MediaSource
from loom.wire.protocol import Wire, WireDecoder
from loom.wire.table import WIRES, wire_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["WIRES", "HttpProvider", "Timeouts"]

_FIRST_DELAY_SECONDS: Final = 0.5
_MAX_DELAY_SECONDS: Final = 20.0
_FAREWELL_SECONDS: Final = 1.0
_LONG_BYTES: Final = 1_000_000
_TEMPORARY: Final = (RateLimited, Overloaded, Unavailable)


class HttpProvider:
    """`key(model)` returns the API key for its service or None; it is sent only to the model's own host."""

    def __init__(
        self,
        source: MediaSource,
        key: KeyLookup,
        *,
        patience: Timeouts | None = None,
        connections: Connections | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """`on_progress` is called with a text about the sent part of a long request."""
        self._source = source
        self._key = key
        self._on_progress = on_progress
        self._connections = connections or Connections(patience)
        self._patience = self._connections.patience
        self._aws = bedrock.Signer()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[DecoderEvent]:
        model = prompt.model
        deadline = asyncio.get_running_loop().time() + self._patience.deadline_seconds
        try:
            wire = wire_of(model)
            request = _HttpRequest(prompt, wire, self._key(model), self._source)
            for attempt in count(1):
                try:
                    async with aclosing(self._events(request, deadline)) as events:
                        async for event in events:
                            yield event
                    return
                except _RetryableError as again:
                    delay = _delay(attempt, again.error.retry_after)
                    if attempt >= self._patience.attempts or asyncio.get_running_loop().time() + delay > deadline:
                        raise again.error from again.__cause__
                    http_errors.complete_error(again.error, None, self._secrets(model))
                    yield RetryScheduled(seconds=delay, error=again.error)
                    await asyncio.sleep(delay)
        except ProviderError as error:
            http_errors.complete_error(error, None, self._secrets(model))
            raise

    async def close(self) -> None:
        await self._connections.close()

    async def _events(self, request: _HttpRequest, deadline: float) -> AsyncGenerator[DecoderEvent]:
        """Make one attempt. Raise `_RetryableError` for a temporary error, as long as no event was emitted: some
        services respond with 200 and report only then that they are busy."""
        model = request.model
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._attempt(request)
        except TimeoutError as error:
            raise http_errors.timeout_error(model, self._patience.deadline_seconds) from error
        held: list[DecoderEvent] | None = []
        async with AsyncExitStack() as stack:
            stack.push_async_callback(response.aclose)
            try:
                async with aclosing(_decode_stream(response, request.wire.Decoder(model))) as events:
                    async for event in events:
                        if held is not None and isinstance(event, UsageReported):
                            held.append(event)
                            continue
                        for earlier in held or ():
                            yield earlier
                        held = None
                        yield event
                if held is not None:
                    raise http_errors.cut_off_error(model, "no content", arrived=False)
            except transport_errors() as error:
                problem = http_errors.cut_off_error(model, type(error).__name__, arrived=held is None)
                http_errors.complete_error(problem, response, self._secrets(model))
                if held is not None:
                    raise _RetryableError(problem) from error
                raise problem from error
            except ProviderError as error:
                http_errors.complete_error(error, response, self._secrets(model))
                if held is not None and isinstance(error, _TEMPORARY):
                    raise _RetryableError(error) from error
                raise

    async def _attempt(self, request: _HttpRequest) -> httpx2.Response:
        headers = await self._headers(request)
        report, body = self._on_progress, request.body
        content = body if report is None or body.content_length < _LONG_BYTES else _report_progress(body, report)
        sent = self._connections.client().build_request("POST", request.to.url, content=content, headers=headers)
        try:
            response = await self._connections.client().send(sent, stream=True)
        except transport_errors() as error:
            problem = http_errors.unreachable_error(request.model, request.to, error)
            if http_errors.is_lasting(error, request.to):
                raise problem from error
            raise _RetryableError(problem) from error
        try:
            if response.status_code == 200:
                error = http_errors.page(response, request.model, request.to.host)
                if error is None:
                    return response
            else:
                error = await http_errors.refusal_error(response, request.model, request.fault)
            http_errors.complete_error(error, response, self._secrets(request.model))
            if http_errors.may_retry(response.headers, otherwise=isinstance(error, _TEMPORARY)):
                raise _RetryableError(error)
            raise error
        except BaseException:
            await response.aclose()
            raise

    async def _headers(self, request: _HttpRequest) -> dict[str, str]:
        model, body = request.model, request.body
        headers = {
            "content-type": "application/json",
            "content-length": str(body.content_length),
            **request.wire.HEADERS,
            **request.to.headers,
            **request.headers,
        }
        if model.wire in bedrock.WIRES and not request.key:
            signed = await self._aws.sign(request.to.url, headers, body)
            return headers | signed | self._connections.own_headers(model)
        return headers | self._connections.access(model, request.key)

    def _secrets(self, model: Model) -> tuple[str, ...]:
        return self._connections.secrets(model, self._key(model))


class _HttpRequest:
    """One request, which can be sent several times."""

    def __init__(self, prompt: Prompt, wire: Wire, key: str | None, source: MediaSource) -> None:
        self.model, self.wire, self.key = prompt.model, wire, key
        self.headers = checked_headers(prompt.sampling.extra_headers, "extra_headers")
        self._sent = wire.encode(prompt)
        self.body = MediaBody(self._sent, source)
        self.to = endpoint(bedrock.base_url(self.model), wire.path(self.model))

    def fault(self, status: int | None, body: dict[str, Any]) -> ProviderError:
        return self.wire.fault(status, body, self.model, self._sent)


async def _report_progress(body: Body, report: Callable[[str], None]) -> AsyncGenerator[bytes]:
    """Yield the body, and report every tenth of it."""
    total, sent, step = body.content_length, 0, -1
    async with aclosing(aiter(body)) as pieces:
        async for piece in pieces:
            yield piece
            sent += len(piece)
            if (reached := sent * 10 // total) > step:
                step = reached
                report(f"sending {size_label(total)}: {step * 10} %")


class _RetryableError(Exception):
    """A temporary error: the request can be retried."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.code)
        self.error = error


async def _decode_stream(response: httpx2.Response, decoder: WireDecoder) -> AsyncGenerator[DecoderEvent]:
    chunks = response.aiter_bytes()
    async for chunk in chunks:
        stopped = False
        for event in decoder.feed(chunk):
            stopped = stopped or isinstance(event, Stopped)
            yield event
        if stopped:
            for event in await _drain_stream(chunks, decoder):
                yield event
            return
    for event in decoder.finish():
        yield event


async def _drain_stream(chunks: AsyncIterator[bytes], decoder: WireDecoder) -> list[DecoderEvent]:
    """Return the events after the end of an answer. Reading the rest of the stream, for at most a second, lets the
    connection be reused. Errors are ignored: the answer is complete."""
    events: list[DecoderEvent] = []
    with suppress(TimeoutError, ProviderError, *transport_errors()):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            async for chunk in chunks:
                events.extend(decoder.feed(chunk))
            events.extend(decoder.finish())
    return events


def _delay(attempt: int, retry_after: float | None) -> float:
    """Return the seconds until the next attempt: Retry-After, else twice as long each time; with jitter, so that many
    clients do not retry at the same moment."""
    if retry_after is not None:
        return retry_after + random.uniform(0.0, 0.25)  # noqa: S311  jitter, not a secret
    longest = min(_FIRST_DELAY_SECONDS * 2 ** (attempt - 1), _MAX_DELAY_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311  jitter, not a secret
