"""HttpProvider against servers that answer well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import traceback
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loom.content.blocks import TextBlock
from loom.errors import (
    CapabilityMissing,
    ConfigError,
    ContextOverflow,
    Corrupt,
    MediaRefused,
    NotAuthorised,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    TooManyBytes,
    Unavailable,
    WireError,
)
from loom.events import MediaArrived, ModelEvent, RetryScheduled, Stopped, TextDelta, fold
from loom.models import Model
from loom.providers.connections import Connections, Timeouts, endpoint
from loom.providers.http import HttpProvider
from made import make_sample, run
from patience import PATIENCE_SECONDS
from providers.far_side import ERRORS, FarSide, Reply, Request, far_side, refusal, wait_for_disconnect
from providers.worlds import KEY, WIRES, Folder, answer, asking, at, collected, heard
from wire.prompts import CLAUDE, GEMINI, GPT_CHAT, OLLAMA, VLLM
from wire.streams import ANTHROPIC, OPENAI_CHAT, decode

QUICK = Timeouts(connect_seconds=2, silence_seconds=5, deadline_seconds=10, attempts=3)
EVERY_WIRE = pytest.mark.parametrize("wire", list(WIRES))


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def media(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
async def provider(media: Folder) -> AsyncIterator[HttpProvider]:
    provider = HttpProvider(media, lambda model: KEY, patience=QUICK)
    yield provider
    await provider.close()


def impatient(media: Folder, **patience: Any) -> HttpProvider:
    return HttpProvider(media, lambda model: KEY, patience=msgspec.structs.replace(QUICK, **patience))


def content_type(wire: str) -> str:
    return "application/x-ndjson" if wire == "ollama" else "text/event-stream"


def model_of(wire: str, server: FarSide) -> Model:
    return at(WIRES[wire][1], server.url + ("/v1" if wire.startswith("openai") else ""))


# Answers ------------------------------------------------------------------------------------------------------------


@EVERY_WIRE
@pytest.mark.parametrize("chunk", [0, 1, 7])
async def test_every_recorded_stream_gives_the_same_events_over_a_socket_however_it_is_cut(
    wire: str, chunk: int, provider: HttpProvider
) -> None:
    module, _, streams = WIRES[wire]
    for name, stream in streams.items():
        async with far_side(Reply(body=stream, chunk=chunk, content_type=content_type(wire))) as server:
            model = model_of(wire, server)
            events: list[Any] = []
            try:
                await heard(provider, asking(model), events)
            except ProviderError as error:
                events.append(f"{error.code}: {error}")
            assert events == decode(module, model, [stream]), name


async def test_whoever_waits_is_told_how_much_of_a_long_request_has_left_and_nothing_of_a_short_one(
    media: Folder,
) -> None:
    told: list[str] = []
    provider = HttpProvider(media, lambda model: KEY, patience=QUICK, on_progress=told.append)
    stream = WIRES["anthropic"][2]["text"]
    async with far_side(Reply(body=stream), Reply(body=stream)) as server:
        await answer(provider, asking(model_of("anthropic", server), media.add(b"few bytes")))
        assert told == []
        await answer(provider, asking(model_of("anthropic", server), media.add(bytes(range(256)) * 40_000)))
    await provider.close()
    assert told == sorted(set(told), key=told.index) and 5 <= len(told) <= 11
    assert told[-1] == "sending 14 MB: 100 %"
    assert len(server.requests[1].body) > 13_000_000


@EVERY_WIRE
async def test_a_request_goes_where_its_protocol_wants_it_with_the_exact_length_and_the_bytes_of_its_media(
    wire: str, provider: HttpProvider, media: Folder
) -> None:
    data = bytes(range(256)) * 7001
    ref = media.add(data)
    async with far_side(Reply(body=WIRES[wire][2]["text"], content_type=content_type(wire))) as server:
        told = await answer(provider, asking(model_of(wire, server), ref))
    (request,) = server.requests
    assert told.complete
    assert request.method == "POST"
    assert (
        request.target
        == {
            "anthropic": "/v1/messages",
            "openai_chat": "/v1/chat/completions",
            "openai_responses": "/v1/responses",
            "gemini": "/models/gemini-4-argon:streamGenerateContent?alt=sse",
            "ollama": "/api/chat",
        }[wire]
    )
    assert int(request.headers["content-length"]) == len(request.body)
    assert base64.b64encode(data) in request.body
    assert json.loads(request.body)


async def test_a_key_travels_in_the_header_that_its_service_reads(provider: HttpProvider) -> None:
    streams = (WIRES[wire][2]["text"] for wire in ("anthropic", "openai_chat", "gemini"))
    async with far_side(*(Reply(body=stream) for stream in streams)) as server:
        await collected(provider, asking(at(CLAUDE, server.url)))
        await collected(provider, asking(at(GPT_CHAT, server.url)))
        await collected(provider, asking(at(GEMINI, server.url)))
    claude, gpt, gemini = server.requests
    assert claude.headers["authorization"] == gpt.headers["authorization"] == f"Bearer {KEY}"
    assert claude.headers["anthropic-version"] == "2026-10-21"
    assert gemini.headers["x-goog-api-key"] == KEY
    assert "authorization" not in gemini.headers
    assert all(KEY not in request.target for request in server.requests)


@pytest.mark.parametrize("model", [OLLAMA, VLLM])
async def test_a_local_server_needs_no_key(model: Model, media: Folder) -> None:
    provider = HttpProvider(media, lambda model: None, patience=QUICK)
    async with far_side(Reply(body=WIRES[model.wire][2]["text"])) as server:
        await collected(provider, asking(at(model, server.url)))
    assert "authorization" not in server.requests[0].headers
    await provider.close()


async def test_a_service_without_its_key_is_not_asked_and_the_error_says_how_to_set_one(media: Folder) -> None:
    provider = HttpProvider(media, lambda model: None, patience=QUICK)
    async with far_side(Reply()) as server:
        with pytest.raises(NotAuthorised, match=r"ANTHROPIC_API_KEY.*loom keys set anthropic"):
            await collected(provider, asking(at(CLAUDE, server.url)))
    assert not server.requests
    await provider.close()


async def test_a_stream_after_its_last_word_is_not_waited_for(media: Folder) -> None:
    provider = impatient(media, silence_seconds=60)
    async with asyncio.timeout(PATIENCE_SECONDS), far_side(Reply(body=ANTHROPIC["text"], end="hang")) as server:
        assert (await answer(provider, asking(at(CLAUDE, server.url)))).stop == "end"
        await wait_for_disconnect(server)
    await provider.close()


async def test_connections_are_used_again(provider: HttpProvider) -> None:
    async with far_side(Reply(body=ANTHROPIC["text"])) as server:
        for _ in range(3):
            await answer(provider, asking(at(CLAUDE, server.url)))
        assert (len(server.requests), server.connections) == (3, 1)
        await provider.close()


# Broken streams (F10) -----------------------------------------------------------------------------------------------


@EVERY_WIRE
async def test_a_clean_end_without_the_last_event_is_incomplete_and_keeps_what_was_said(
    wire: str, provider: HttpProvider
) -> None:
    async with far_side(Reply(body=WIRES[wire][2]["cut"], content_type=content_type(wire))) as server:
        told = await answer(provider, asking(model_of(wire, server)))
    assert not told.complete
    assert told.message is not None
    assert told.message.blocks == (TextBlock("Half a sen"),)


@EVERY_WIRE
@pytest.mark.parametrize("end", ["truncate", "reset", "hang"])
async def test_a_broken_stream_is_an_error_after_what_was_said_and_is_not_asked_again(
    wire: str, end: str, media: Folder
) -> None:
    provider = impatient(media, silence_seconds=0.3)
    reply = Reply(body=WIRES[wire][2]["cut"], end=end, content_type=content_type(wire), pause=0.05)
    said: list[ModelEvent] = []
    async with far_side(reply) as server:
        with pytest.raises(Unavailable, match="cut off") as caught:
            await heard(provider, asking(model_of(wire, server)), said)
        await wait_for_disconnect(server)
    assert not any(isinstance(event, Stopped) for event in said)
    assert "".join(event.text for event in said if isinstance(event, TextDelta)) == "Half a sen"
    assert len(server.requests) == 1
    assert "Try again" in caught.value.hint
    await provider.close()


@EVERY_WIRE
async def test_an_error_inside_a_stream_is_typed_and_carries_the_request_id(wire: str, provider: HttpProvider) -> None:
    reply = Reply(body=WIRES[wire][2]["error"], content_type=content_type(wire), headers={"x-request-id": "req_7"})
    async with far_side(reply) as server:
        with pytest.raises((Overloaded, Unavailable, RateLimited)) as caught:
            await collected(provider, asking(model_of(wire, server)))
    assert caught.value.request_id == "req_7"
    assert len(server.requests) == 1


async def test_a_call_that_was_cut_off_is_never_whole(provider: HttpProvider) -> None:
    whole = ANTHROPIC["calls"]
    cut = whole.index(b"sicht.png")
    async with far_side(Reply(body=whole, cut_after=cut)) as server:
        told = await answer(provider, asking(at(CLAUDE, server.url)))
    assert told.cut_calls == ("look",)
    assert not told.complete
    assert told.message is not None
    assert told.message.calls == ()


async def test_an_endless_line_is_refused_before_it_fills_the_memory(provider: HttpProvider) -> None:
    async with far_side(Reply(body=b"data: " + b"x" * (1 << 20), end="endless")) as server:
        with pytest.raises(WireError, match="more than"):
            await collected(provider, asking(at(CLAUDE, server.url)))
        await wait_for_disconnect(server)


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        (b"<html>Sign in</html>", "text/html; charset=utf-8", WireError),
        (b'{"id": "x", "choices": []}', "application/json", WireError),
        (b'{"error": {"message": "No auth credentials found", "code": 401}}', "application/json", NotAuthorised),
    ],
)
async def test_a_page_where_a_stream_should_be_is_no_empty_answer(
    body: bytes, kind: str, problem: type[ProviderError], provider: HttpProvider
) -> None:
    async with far_side(Reply(body=body, content_type=kind)) as server:
        with pytest.raises(problem):
            await collected(provider, asking(at(GPT_CHAT, server.url)))


async def test_a_compressed_stream_is_read_although_nobody_asked_for_it(provider: HttpProvider) -> None:
    import gzip

    reply = Reply(body=gzip.compress(ANTHROPIC["text"]), headers={"content-encoding": "gzip"}, chunk=10)
    async with far_side(reply) as server:
        assert (await answer(provider, asking(at(CLAUDE, server.url)))).complete
    assert server.requests[0].headers["accept-encoding"] == "identity"


# Refusals -----------------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[int, str, type[ProviderError]]] = [
    (400, "the request is malformed", Refused),
    (400, "prompt is too long: 250000 tokens > 200000 maximum", ContextOverflow),
    (400, "Could not process image", MediaRefused),
    (401, "invalid x-api-key", NotAuthorised),
    (404, "no such model", Refused),
    (413, "Request exceeds the maximum size", TooManyBytes),
    (429, "slow down", RateLimited),
    (500, "internal error", Unavailable),
    (500, "image input is not supported - hint: provide the mmproj", CapabilityMissing),
    (503, "temporarily unavailable", Unavailable),
    (529, "Overloaded", Overloaded),
]


@EVERY_WIRE
@pytest.mark.parametrize(("status", "text", "problem"), REFUSALS)
async def test_every_refusal_of_every_protocol_is_typed_and_carries_the_request_id(
    wire: str, status: int, text: str, problem: type[ProviderError], media: Folder
) -> None:
    provider = impatient(media, attempts=1)
    async with far_side(refusal(status, ERRORS[wire](status, text), x_request_id="req_1")) as server:
        with pytest.raises(problem) as caught:
            await collected(provider, asking(model_of(wire, server), media.add(b"a picture")))
    error = caught.value
    assert type(error) is problem
    assert (error.status, error.request_id, error.provider) == (status, "req_1", WIRES[wire][1].provider)
    assert text in str(error)
    await provider.close()


async def test_what_a_gateway_says_in_html_is_quoted_and_bounded(provider: HttpProvider) -> None:
    page = b"<html><title>Bad gateway</title>" + b"x" * 10_000_000
    async with far_side(Reply(status=400, body=page, content_type="text/html", end="endless")) as server:
        with pytest.raises(Refused, match="Bad gateway") as caught:
            await collected(provider, asking(at(CLAUDE, server.url)))
        await wait_for_disconnect(server)
    assert len(str(caught.value)) < 1_000


async def test_an_answer_that_comes_while_the_body_is_still_being_sent_is_heard(
    provider: HttpProvider, media: Folder
) -> None:
    early = Reply(
        status=413,
        before="early",
        content_type="application/json",
        body=json.dumps(ERRORS["anthropic"](413, "Request exceeds the maximum size")).encode(),
        headers={"connection": "close"},
    )
    async with far_side(early) as server:
        with pytest.raises(TooManyBytes):
            await collected(provider, asking(at(CLAUDE, server.url), media.add(bytes(20_000_000))))
    assert len(server.requests) == 1


# Retries (F9) -------------------------------------------------------------------------------------------------------


async def test_what_passes_is_tried_again_and_the_body_is_written_anew(provider: HttpProvider, media: Folder) -> None:
    ref = media.add(bytes(2_000_000))
    busy = refusal(529, ERRORS["anthropic"](529, "Overloaded"), retry_after="0")
    async with far_side(busy, Reply(before="reset"), Reply(body=ANTHROPIC["text"])) as server:
        events = [event async for event in provider.stream(asking(at(CLAUDE, server.url), ref))]
    told = fold([event for event in events if not isinstance(event, MediaArrived | RetryScheduled)])
    assert told.complete
    assert [type(event.error) for event in events if isinstance(event, RetryScheduled)] == [Overloaded, Unavailable]
    first, second, third = (request.body for request in server.requests)
    assert first == second == third


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7.3),
        ({"retry-after-ms": "1500"}, 1.5, 1.8),
        ({"retry-after": format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)}, 3600, 7201),
        ({"retry-after": "soon"}, 0.25, 0.5),
        ({"retry-after-ms": "nan"}, 0.25, 0.5),
        ({"retry-after": "-5"}, 0.25, 0.5),
    ],
)
async def test_a_stated_pause_is_kept_in_every_form_and_nonsense_is_not(
    headers: dict[str, str], low: float, high: float, media: Folder
) -> None:
    provider = impatient(media, deadline_seconds=10_000)
    busy = Reply(status=429, body=b'{"error": "slow down"}', content_type="application/json", headers=headers)
    async with far_side(busy) as server, aclosing(provider.stream(asking(at(OLLAMA, server.url)))) as stream:
        waited = await anext(stream)
        assert isinstance(waited, RetryScheduled) and low <= waited.seconds <= high
    await provider.close()


BUSY_FROM_THE_START = {
    "at once": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    "after its greeting": (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
        b'"model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    ),
}


@pytest.mark.parametrize("body", BUSY_FROM_THE_START.values(), ids=BUSY_FROM_THE_START)
async def test_a_service_that_says_in_its_stream_that_it_is_busy_is_asked_again(media: Folder, body: bytes) -> None:
    provider = impatient(media, deadline_seconds=30)
    async with far_side(Reply(body=body), Reply(body=ANTHROPIC["text"])) as server:
        first, *events = [event async for event in provider.stream(asking(at(CLAUDE, server.url)))]
        told = fold(events)
    async with far_side(Reply(body=ANTHROPIC["text"])) as other:
        alone = fold([event async for event in provider.stream(asking(at(CLAUDE, other.url)))])
    await provider.close()
    assert told.complete
    assert isinstance(first, RetryScheduled) and isinstance(first.error, Overloaded)
    assert len(server.requests) == 2
    assert told.usage == alone.usage, "the greeting of the first attempt is not counted"


async def test_a_service_that_fails_after_its_first_word_is_not_asked_again(media: Folder) -> None:
    begun = ANTHROPIC["text"].partition(b"event: content_block_stop")[0] + BUSY_FROM_THE_START["at once"]
    provider = impatient(media, deadline_seconds=30)
    async with far_side(Reply(body=begun), Reply(body=ANTHROPIC["text"])) as server:
        with pytest.raises(Overloaded):
            await collected(provider, asking(at(CLAUDE, server.url)))
    await provider.close()
    assert len(server.requests) == 1


async def test_a_pause_beyond_the_deadline_is_not_begun_and_the_error_says_how_long_it_would_be(
    provider: HttpProvider,
) -> None:
    async with far_side(refusal(429, ERRORS["anthropic"](429, "slow down"), retry_after="3600")) as server:
        with pytest.raises(RateLimited) as caught:
            await collected(provider, asking(at(CLAUDE, server.url)))
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


async def test_attempts_end(media: Folder) -> None:
    provider = impatient(media, attempts=4)
    async with far_side(refusal(503, ERRORS["anthropic"](503, "no"), retry_after_ms="1")) as server:
        with pytest.raises(Unavailable):
            await collected(provider, asking(at(CLAUDE, server.url)))
    assert len(server.requests) == 4
    await provider.close()


@pytest.mark.parametrize("status", [400, 401, 404, 413])
async def test_what_will_not_pass_is_not_tried_again(status: int, provider: HttpProvider) -> None:
    async with far_side(refusal(status, ERRORS["anthropic"](status, "no"))) as server:
        with pytest.raises(ProviderError):
            await collected(provider, asking(at(CLAUDE, server.url)))
    assert len(server.requests) == 1


async def test_a_service_may_say_itself_whether_to_try_again(provider: HttpProvider) -> None:
    never = refusal(500, ERRORS["anthropic"](500, "no"), x_should_retry="false")
    async with far_side(never) as server:
        with pytest.raises(Unavailable):
            await collected(provider, asking(at(CLAUDE, server.url)))
    assert len(server.requests) == 1


async def test_a_server_that_never_answers_is_given_up_after_the_silence_allowed(media: Folder) -> None:
    provider = impatient(media, silence_seconds=0.2)
    async with asyncio.timeout(PATIENCE_SECONDS), far_side(Reply(before="hang")) as server:
        with pytest.raises(Unavailable, match="did not answer in time"):
            await collected(provider, asking(at(CLAUDE, server.url)))
        await wait_for_disconnect(server)
    assert len(server.requests) == 1
    await provider.close()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(before="hang"),
        Reply(before="unread"),
        Reply(status=500, body=b"{", end="hang", content_type="application/json"),
        refusal(503, {"error": "no"}, retry_after_ms="1"),
    ],
)
async def test_the_deadline_is_kept_whatever_the_server_does(reply: Reply, media: Folder) -> None:
    provider = impatient(media, deadline_seconds=0.5, attempts=100_000, silence_seconds=60)
    async with asyncio.timeout(PATIENCE_SECONDS), far_side(reply) as server:
        with pytest.raises(Unavailable):
            await collected(provider, asking(at(CLAUDE, server.url), media.add(bytes(30_000_000))))
        await provider.close()
        if reply.before != "unread":
            await wait_for_disconnect(server)


async def test_a_local_server_that_is_not_running_is_said_at_once(provider: HttpProvider) -> None:
    async with far_side() as server:
        url = server.url
    with pytest.raises(Unavailable, match="no server is running at"):
        async with asyncio.timeout(1):
            await collected(provider, asking(at(OLLAMA, url)))


async def test_a_name_that_does_not_exist_is_unavailable_after_the_attempts(media: Folder) -> None:
    provider = impatient(media, attempts=2)
    with pytest.raises(Unavailable, match=r"nowhere\.invalid"):
        await collected(provider, asking(at(CLAUDE, "http://nowhere.invalid")))
    await provider.close()


def _certificate(path: Path) -> None:
    key = path.with_suffix(".key")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=localhost",
        "-keyout", key, "-out", path)  # fmt: skip
    path.write_bytes(path.read_bytes() + key.read_bytes())


async def test_a_certificate_that_nobody_vouches_for_is_refused_at_once_and_no_key_is_sent(
    provider: HttpProvider,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_sample("self-signed.pem", _certificate))
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(Unavailable, match="does not trust"):
            await collected(provider, asking(at(CLAUDE, f"https://127.0.0.1:{port}")))
    assert not any(heard)


# Cancelling (F17) ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        Reply(before="unread"),
        Reply(before="hang"),
        Reply(body=ANTHROPIC["cut"], end="hang"),
        Reply(body=ANTHROPIC["cut"], chunk=1, pause=0.01),
        Reply(status=500, body=b"{", end="hang"),
        refusal(429, {"error": "no"}, retry_after="3"),
    ],
    ids=["sending", "waiting", "hearing", "hearing slowly", "hearing a refusal", "pausing"],
)
async def test_cancelling_at_any_point_closes_the_connection_and_leaves_no_task(reply: Reply, media: Folder) -> None:
    provider = impatient(media, silence_seconds=60)
    async with far_side(reply) as server:
        before = asyncio.all_tasks()
        reached = server.asked if reply.before or reply.status == 500 else asyncio.Event()
        prompt = asking(at(CLAUDE, server.url), media.add(bytes(30_000_000)))

        async def listen() -> None:
            async for _ in provider.stream(prompt):
                reached.set()

        task = asyncio.create_task(listen())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(1):
                await task
        if reply.before != "unread" and reply.status != 429:
            await wait_for_disconnect(server)
        await provider.close()
        left = {task.get_name() for task in asyncio.all_tasks() - before if "serve" not in repr(task)}
        assert not left


async def test_closing_the_stream_early_closes_the_connection(provider: HttpProvider) -> None:
    async with far_side(Reply(body=ANTHROPIC["text"], chunk=20, pause=0.01, end="hang")) as server:
        async with aclosing(provider.stream(asking(at(CLAUDE, server.url)))) as stream:
            async for _ in stream:
                break
        await wait_for_disconnect(server)


# Keys, proxies, addresses (hardening 21, 39) ------------------------------------------------------------------------


async def test_a_redirect_is_not_followed_and_the_other_host_never_sees_the_key(provider: HttpProvider) -> None:
    async with far_side(Reply(body=ANTHROPIC["text"])) as elsewhere:
        moved = Reply(status=307, headers={"location": f"{elsewhere.url}/v1/messages"})
        async with far_side(moved) as server:
            with pytest.raises(Refused, match="redirects to another URL"):
                await collected(provider, asking(at(CLAUDE, server.url)))
    assert not elsewhere.requests


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=ANTHROPIC["text"]),
        refusal(401, {"error": {"message": f"the key {KEY} is not valid"}}),
        Reply(status=400, body=f"bad header: Bearer {KEY}".encode(), content_type="text/plain"),
        Reply(body=b'data: {"type": "error", "error": {"message": "unknown key %s"}}\n\n' % KEY.encode()),
        Reply(before="reset"),
        Reply(before="hang"),
        Reply(body=ANTHROPIC["cut"], end="reset"),
    ],
)
async def test_no_key_is_in_any_log_error_or_repr(
    reply: Reply, media: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = impatient(media, silence_seconds=0.2, attempts=1)
    trace = ""
    async with far_side(reply) as server:
        model = at(CLAUDE, server.url.replace("://", "://someone:sesame-opens-it@"))
        try:
            await collected(provider, asking(model))
        except ProviderError as error:
            trace = "".join(traceback.format_exception(error)) + repr(error) + repr(error.args)
    await provider.close()
    said = trace + caplog.text + repr(provider) + repr(vars(provider))
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    for secret in (KEY, "sesame", base64.b64encode(b"someone:sesame-opens-it").decode()):
        assert secret not in said


@pytest.mark.parametrize("key", ["sk-with\nnewline", "sk-schlüssel", "sk with space"])
async def test_a_key_that_cannot_be_one_is_said_without_repeating_it(key: str, media: Folder) -> None:
    provider = HttpProvider(media, lambda model: key, patience=QUICK)
    async with far_side(Reply()) as server:
        with pytest.raises(NotAuthorised, match="invalid character") as caught:
            await collected(provider, asking(at(CLAUDE, server.url)))
    assert key not in str(caught.value)
    assert not server.requests
    await provider.close()


async def test_a_proxy_is_used_for_the_world_but_not_for_this_machine(
    media: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with far_side(Reply(body=ANTHROPIC["text"])) as proxy, far_side(Reply(body=ANTHROPIC["text"])) as local:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        provider = HttpProvider(media, lambda model: KEY, patience=QUICK)
        assert (await answer(provider, asking(at(CLAUDE, "http://models.example")))).complete
        assert (await answer(provider, asking(at(CLAUDE, local.url)))).complete
        await provider.close()
    assert [request.target for request in proxy.requests] == ["http://models.example/v1/messages"]
    assert len(local.requests) == 1


async def test_a_proxy_for_https_is_told_the_host_and_not_the_key(
    media: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with far_side(Reply(status=502)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        provider = impatient(media, attempts=1)
        with pytest.raises(Unavailable, match="ProxyError"):
            await collected(provider, asking(at(CLAUDE, "https://models.example")))
        await provider.close()
    (request,) = proxy.requests
    assert (request.method, request.target) == ("CONNECT", "models.example:443")
    assert KEY not in str(request)


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://api.anthropic.com", "/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:8080/v1", "/v1/messages", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/v1/", "/chat/completions", "http://127.0.0.1:8080/v1/chat/completions"),
        ("https://x.example/v1?api-version=3", "/responses", "https://x.example/v1/responses?api-version=3"),
        ("https://x.example/v1beta", "/m:s?alt=sse", "https://x.example/v1beta/m:s?alt=sse"),
        ("http://[::1]:8080", "/api/chat", "http://[::1]:8080/api/chat"),
        ("http://me:secret@x.example", "/api/chat", "http://x.example/api/chat"),
    ],
)
def test_a_path_stands_behind_its_base(base: str, path: str, url: str) -> None:
    assert endpoint(base, path).url == url


@pytest.mark.parametrize("base", ["", "localhost:11434", "file:///etc/passwd", "http://", "http://a b/", "http://x:y"])
def test_what_is_no_address_is_said_before_anything_is_sent(base: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        endpoint(base, "/v1/messages")


# Media that changed -------------------------------------------------------------------------------------------------


async def test_a_medium_of_another_length_is_never_sent_whole(provider: HttpProvider, media: Folder) -> None:
    for size in (10, 3_000_000):
        ref = media.add(bytes(1_500_000))
        media.path(ref).write_bytes(bytes(size))
        async with far_side(Reply(body=ANTHROPIC["text"])) as server:
            with pytest.raises(Corrupt, match="does not have the expected"):
                await collected(provider, asking(at(CLAUDE, server.url), ref))
            await wait_for_disconnect(server)
        assert not server.requests


async def test_a_hundred_streams_at_once_do_not_mix(provider: HttpProvider) -> None:
    def echo(request: Request) -> Reply:
        text = request.json["messages"][-1]["content"]
        chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
        return Reply(body=b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n", chunk=9)

    async with far_side(echo) as server:
        model = at(GPT_CHAT, server.url)
        told = await asyncio.gather(*(answer(provider, asking(model, text=f"number {n}")) for n in range(100)))
        await provider.close()
    for number, one in enumerate(told):
        assert one.message is not None
        assert one.message.blocks == (TextBlock(f"number {number}"),)


async def test_the_client_is_opened_again_after_it_was_closed(media: Folder) -> None:
    provider = HttpProvider(media, lambda model: KEY, connections=Connections(QUICK))
    async with far_side(Reply(body=OPENAI_CHAT["text"])) as server:
        for _ in range(2):
            assert (await answer(provider, asking(at(GPT_CHAT, server.url)))).complete
            await provider.close()


# Other people's servers ----------------------------------------------------------------------------------------------


@EVERY_WIRE
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream", ""])
async def test_a_stream_is_read_under_any_content_type(wire: str, kind: str, provider: HttpProvider) -> None:
    async with far_side(Reply(body=WIRES[wire][2]["text"], content_type=kind)) as server:
        told = await answer(provider, asking(model_of(wire, server)))
    assert told.complete
    assert told.message is not None
    assert told.message.text == "Grüße aus Köln 🙂"


async def test_a_whole_answer_is_taken_where_a_stream_was_asked_for(provider: HttpProvider) -> None:
    body = b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5}}'
    async with far_side(Reply(body=body, content_type="application/json")) as server:
        told = await answer(provider, asking(model_of("openai_chat", server)))
    assert told.complete
    assert told.message is not None
    assert told.message.text == "Hello"
    assert len(server.requests) == 1


@EVERY_WIRE
@pytest.mark.parametrize("end", ["truncate", "reset", "close"])
async def test_a_stream_that_dies_before_its_first_word_is_asked_for_again(
    wire: str, end: Any, provider: HttpProvider
) -> None:
    kind, stream = content_type(wire), WIRES[wire][2]["text"]
    beginning = b"" if wire == "ollama" else b": waiting\n\n"
    async with far_side(
        Reply(body=beginning, end=end, content_type=kind), Reply(body=stream, content_type=kind)
    ) as server:
        told = await answer(provider, asking(model_of(wire, server)))
    assert told.complete
    assert len(server.requests) == 2


async def test_a_stream_that_always_dies_before_its_first_word_does_not_say_that_words_are_kept(media: Folder) -> None:
    provider = impatient(media, attempts=2)
    replies = [Reply(body=b": waiting\n\n", end="truncate")] * 2
    async with far_side(*replies) as server:
        with pytest.raises(Unavailable, match="before the answer started") as caught:
            await answer(provider, asking(model_of("anthropic", server)))
    assert "kept" not in caught.value.hint
    await provider.close()


async def test_headers_of_one_request_are_sent_and_cannot_break_it(provider: HttpProvider) -> None:
    async with far_side(Reply(body=WIRES["anthropic"][2]["text"])) as server:
        prompt = asking(model_of("anthropic", server))
        replace = msgspec.structs.replace
        beta = replace(prompt, sampling=replace(prompt.sampling, extra_headers={"Anthropic-Beta": "a-1"}))
        await answer(provider, beta)
        assert server.requests[0].headers["anthropic-beta"] == "a-1"
        broken = replace(prompt, sampling=replace(prompt.sampling, extra_headers={"Content-Length": "1"}))
        with pytest.raises(ConfigError, match="cannot be sent"):
            await answer(provider, broken)


async def test_a_web_page_of_a_proxy_is_told_in_its_words(media: Folder) -> None:
    provider = impatient(media, attempts=1)
    page = b"<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"
    async with far_side(Reply(status=502, body=page, content_type="text/html")) as server:
        with pytest.raises(Unavailable) as caught:
            await answer(provider, asking(model_of("anthropic", server)))
    assert "502 Bad Gateway" in caught.value.message
    assert "<" not in caught.value.message
    await provider.close()
