"""One provider for every wire: encode, send while reading media, decode while the answer arrives.

Retries happen only before the first byte of an answer, honour Retry-After, and end at the deadline. Whatever goes wrong
comes out as a ProviderError that says what to do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.errors import NotAuthorised, Overloaded, ProviderError, RateLimited, Unavailable
from loom.events import DecoderEvent
from loom.models import Model
from loom.prompt import Prompt
from loom.providers.catalog import key_env
from loom.providers.media_body import MediaBody, MediaSource
from loom.wire import anthropic, gemini, ollama, openai_chat, openai_responses

if TYPE_CHECKING:
    import httpx2

WIRES: Final[dict[str, ModuleType]] = {
    "anthropic": anthropic,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "gemini": gemini,
    "ollama": ollama,
}
_MAX_ERROR_BYTES: Final = 65_536
_FIRST_DELAY_SECONDS: Final = 0.5
_MAX_DELAY_SECONDS: Final = 20.0


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, for what."""

    connect_seconds: float = 10.0
    silence_seconds: float = 300.0
    """Between two pieces of an answer; models think before they speak."""
    deadline_seconds: float = 600.0
    """For all attempts together, until an answer begins."""
    attempts: int = 5


class HttpProvider:
    """`key(provider)` gives the secret for a service or None; it is sent to the model's own host and nowhere else."""

    def __init__(
        self,
        source: MediaSource,
        key: Callable[[str], str | None],
        *,
        patience: Patience | None = None,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        self._source = source
        self._key = key
        self._patience = patience or Patience()
        self._client = client

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        model = prompt.model
        wire = WIRES[model.wire]
        sent = wire.encode(prompt)
        async with AsyncExitStack() as stack:
            response = await self._answered(stack, model, wire, sent)
            decoder = wire.Decoder(model)
            try:
                async for chunk in response.aiter_raw():
                    for event in decoder.feed(chunk):
                        yield event
            except self._transport_errors() as error:
                raise _cut_off(model, error) from error
            for event in decoder.finish():
                yield event

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _answered(
        self, stack: AsyncExitStack, model: Model, wire: ModuleType, sent: dict[str, Any]
    ) -> httpx2.Response:
        """The response whose status is 200, after as many attempts as patience allows."""
        body = MediaBody(sent, self._source)
        deadline = asyncio.get_running_loop().time() + self._patience.deadline_seconds
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(stack, model, wire, sent, body)
            except (RateLimited, Overloaded, Unavailable) as error:
                delay = _delay(attempt, error.retry_after)
                late = asyncio.get_running_loop().time() + delay > deadline
                if attempt >= self._patience.attempts or late:
                    raise
                await asyncio.sleep(delay)

    async def _attempt(
        self, stack: AsyncExitStack, model: Model, wire: ModuleType, sent: dict[str, Any], body: MediaBody
    ) -> httpx2.Response:
        headers = {
            "content-type": "application/json",
            "content-length": str(body.content_length),
            "accept-encoding": "identity",
            **wire.HEADERS,
            **self._authorisation(model),
        }
        url = model.base_url.rstrip("/") + wire.path(model)
        attempt = AsyncExitStack()
        try:
            response = await attempt.enter_async_context(
                self._open().stream("POST", url, content=body, headers=headers)
            )
            if response.status_code != 200:
                raise await _refusal(response, model, wire, sent)
        except self._transport_errors() as error:
            await attempt.aclose()
            raise _unreachable(model, url, error) from error
        except BaseException:
            await attempt.aclose()
            raise
        stack.push_async_callback(attempt.aclose)
        return response

    def _authorisation(self, model: Model) -> dict[str, str]:
        key = self._key(model.provider)
        if key is None:
            variable = key_env(model.provider)
            if variable:
                raise NotAuthorised(
                    f"there is no key for {model.provider}",
                    provider=model.provider,
                    model=model.name,
                    hint=f"Set {variable}, or run: loom keys set {model.provider}.",
                )
            return {}
        if model.provider == "gemini":
            return {"x-goog-api-key": key}
        return {"authorization": f"Bearer {key}"}

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            patience = self._patience
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(
                    connect=patience.connect_seconds, read=patience.silence_seconds, write=60.0, pool=60.0
                ),
                follow_redirects=False,
            )
        return self._client

    @staticmethod
    def _transport_errors() -> tuple[type[Exception], ...]:
        import httpx2

        return (httpx2.TransportError, httpx2.StreamError, httpx2.InvalidURL)


async def _refusal(response: httpx2.Response, model: Model, wire: ModuleType, sent: dict[str, Any]) -> ProviderError:
    raw = b""
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > _MAX_ERROR_BYTES:
            break
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        body = {"error": {"message": raw.decode("utf-8", "replace")[:2_000] or "no explanation"}}
    error: ProviderError = wire.fault(response.status_code, body, model, sent)
    stated = _retry_after(response.headers)
    error.retry_after = stated if stated is not None else error.retry_after
    error.request_id = response.headers.get("request-id") or response.headers.get("x-request-id") or ""
    return error


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds, milliseconds or a date: all three are in use."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(float(milliseconds) / 1000, 0.0)
        if value is None:
            return None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


def _delay(attempt: int, retry_after: float | None) -> float:
    """What the provider asked for, else twice as long each time; with jitter, so that many clients do not come back
    at once."""
    if retry_after is not None:
        return retry_after + random.uniform(0.0, 0.25)  # noqa: S311  jitter is no secret
    longest = min(_FIRST_DELAY_SECONDS * 2 ** (attempt - 1), _MAX_DELAY_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311  jitter is no secret


def _unreachable(model: Model, url: str, error: Exception) -> Unavailable:
    host = url.split("/")[2] if url.count("/") >= 2 else url
    return Unavailable(
        f"{model.reference}: no answer from {host} ({type(error).__name__})",
        provider=model.provider,
        model=model.name,
        hint="Check the network and the address, or choose another model.",
    )


def _cut_off(model: Model, error: Exception) -> Unavailable:
    return Unavailable(
        f"{model.reference}: the answer was cut off ({type(error).__name__})",
        provider=model.provider,
        model=model.name,
        hint="What arrived is kept. Try again.",
    )
