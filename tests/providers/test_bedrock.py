"""Claude on Bedrock against a server that checks the signature with botocore and frames real event streams."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.eventstream import EventStreamBuffer

from loom.errors import (
    ContextOverflow,
    ExtraMissing,
    NotAuthorised,
    ProviderError,
    RateLimited,
    Refused,
    Unavailable,
    WireError,
)
from loom.events import TextDelta
from loom.models import Model
from loom.providers import bedrock, catalog
from loom.providers.connections import Timeouts
from loom.providers.http import HttpProvider
from loom.wire import anthropic
from loom.wire.event_frames import EventFrame, FrameSplitter
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from providers.worlds import Folder, answer, asking, at, collected, heard
from wire.streams import ANTHROPIC
from wire.streams import told as told_directly

REGION = "eu-central-1"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NAME = "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.anthropic.claude-opus-5-v1:0"
QUICK = Timeouts(connect_seconds=2, silence_seconds=5, deadline_seconds=10, attempts=1)
EVENT_STREAM = "application/vnd.amazon.eventstream"


def frame(payload: Any, **headers: str) -> bytes:
    """A frame as the service writes it."""
    written = b""
    for name, value in headers.items():
        key, text = f":{name.replace('_', '-')}".encode(), value.encode()
        written += bytes([len(key)]) + key + b"\7" + struct.pack(">H", len(text)) + text
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(written) + len(body), len(written))
    start = prelude + struct.pack(">I", zlib.crc32(prelude)) + written + body
    return start + struct.pack(">I", zlib.crc32(start))


def chunk(event: dict[str, Any]) -> bytes:
    data = base64.b64encode(json.dumps(event).encode()).decode()
    return frame(
        {"bytes": data, "p": "abcd"}, event_type="chunk", content_type="application/json", message_type="event"
    )


def framed(stream: bytes) -> bytes:
    """A recorded Anthropic stream in Bedrock's frames."""
    lines = [line for line in stream.decode().split("\n") if line.startswith("data: ")]
    return b"".join(chunk(json.loads(line.removeprefix("data: "))) for line in lines)


def exception(name: str, message: str) -> bytes:
    return frame({"message": message}, exception_type=name, content_type="application/json", message_type="exception")


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own configuration."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def media(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
async def provider(media: Folder) -> AsyncIterator[HttpProvider]:
    provider = HttpProvider(media, lambda model: None, patience=QUICK)
    yield provider
    await provider.close()


def claude(server: FarSide | None = None) -> Model:
    model = catalog.model(f"bedrock/{NAME}")
    return at(model, server.url) if server else model


def is_signed(request: Request, server: FarSide, token: str | None = None) -> bool:
    """Whether botocore, given the secret, comes to the same signature for what arrived."""
    scheme, _, rest = request.headers["authorization"].partition(" ")
    said = dict(part.strip().split("=", 1) for part in rest.split(","))
    covered = said["SignedHeaders"].split(";")
    headers = {name: request.headers[name] for name in covered if name != "host"}
    again = AWSRequest(method=request.method, url=server.url + request.target, headers=headers)
    again.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDEXAMPLE", SECRET, token), "bedrock", REGION)
    expected = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    digest = hashlib.sha256(request.body).hexdigest()
    needed = {"host", "x-amz-date", "x-amz-content-sha256"} <= set(covered)
    return (
        scheme == "AWS4-HMAC-SHA256"
        and said["Credential"].endswith(f"/{REGION}/bedrock/aws4_request")
        and needed
        and request.headers["x-amz-content-sha256"] == digest
        and said["Signature"] == expected
    )


async def test_a_request_with_media_is_signed_so_that_botocore_agrees(provider: HttpProvider, media: Folder) -> None:
    ref = media.add(bytes(range(256)) * 9000)
    async with far_side(Reply(body=framed(ANTHROPIC["text"]), content_type=EVENT_STREAM)) as server:
        told = await answer(provider, asking(claude(server), ref))
    (request,) = server.requests
    assert told.complete
    assert is_signed(request, server)
    quoted = NAME.replace(":", "%3A").replace("/", "%2F")
    assert request.target == f"/model/{quoted}/invoke-with-response-stream"
    assert request.json["anthropic_version"] == "bedrock-2023-05-31"
    assert "model" not in request.json
    assert "stream" not in request.json
    assert SECRET.encode() not in request.body


async def test_temporary_credentials_sign_their_token_too(
    provider: HttpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-session-token")
    async with far_side(Reply(body=framed(ANTHROPIC["text"]), content_type=EVENT_STREAM)) as server:
        assert (await answer(provider, asking(claude(server)))).complete
    (request,) = server.requests
    assert request.headers["x-amz-security-token"] == "a-session-token"
    assert "x-amz-security-token" in request.headers["authorization"]
    assert is_signed(request, server, "a-session-token")


async def test_an_api_key_for_bedrock_needs_no_signature_and_no_botocore(
    media: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("botocore.auth", "botocore.session", "botocore.awsrequest"):
        monkeypatch.setitem(sys.modules, name, None)
    provider = HttpProvider(media, lambda model: "bedrock-api-key-abc", patience=QUICK)
    async with far_side(Reply(body=framed(ANTHROPIC["text"]), content_type=EVENT_STREAM)) as server:
        assert (await answer(provider, asking(claude(server)))).complete
    assert server.requests[0].headers["authorization"] == "Bearer bedrock-api-key-abc"
    await provider.close()


async def test_without_botocore_the_error_says_what_to_install(
    provider: HttpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.awsrequest", None)
    async with far_side(Reply()) as server:
        with pytest.raises(ExtraMissing, match=r"loom-runtime\[bedrock\]"):
            await collected(provider, asking(claude(server)))
    assert not server.requests


async def test_without_credentials_nothing_is_sent_and_the_error_says_how_to_get_some(
    provider: HttpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with far_side(Reply()) as server:
        with pytest.raises(NotAuthorised, match="aws configure"):
            await collected(provider, asking(claude(server)))
    assert not server.requests


def test_the_region_of_the_environment_is_in_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bedrock.base_url(claude()) == f"https://bedrock-runtime.{REGION}.amazonaws.com"
    monkeypatch.delenv("AWS_REGION")
    assert bedrock.base_url(claude()) == "https://bedrock-runtime.us-east-1.amazonaws.com"


@pytest.mark.parametrize("size", [1, 7, 0])
async def test_every_stream_reads_like_the_one_it_frames_however_it_is_cut(size: int, provider: HttpProvider) -> None:
    for name, stream in ANTHROPIC.items():
        if name == "error":
            continue
        async with far_side(Reply(body=framed(stream), chunk=size, content_type=EVENT_STREAM)) as server:
            told = await answer(provider, asking(claude(server)))
        assert told == told_directly(anthropic, claude(server), stream), name


@pytest.mark.parametrize(
    ("name", "message", "problem"),
    [
        ("throttlingException", "Too many requests", RateLimited),
        ("internalServerException", "oops", Unavailable),
        ("modelStreamErrorException", "The model failed", Unavailable),
        ("modelTimeoutException", "too slow", Unavailable),
        ("serviceUnavailableException", "later", Unavailable),
        ("validationException", "messages.0: bad", Refused),
        ("validationException", "Input is too long for requested model.", ContextOverflow),
        ("somethingNewException", "hm", Unavailable),
    ],
)
async def test_an_exception_inside_the_stream_is_typed_and_what_was_said_is_kept(
    name: str, message: str, problem: type[ProviderError], provider: HttpProvider
) -> None:
    body = framed(ANTHROPIC["cut"]) + exception(name, message)
    said: list[Any] = []
    async with far_side(Reply(body=body, content_type=EVENT_STREAM, headers={"x-amzn-requestid": "r-1"})) as server:
        with pytest.raises(problem, match=message.split(" ", maxsplit=1)[0]) as caught:
            await heard(provider, asking(claude(server)), said)
    assert any(isinstance(event, TextDelta) for event in said)
    assert type(caught.value) is problem
    assert caught.value.request_id == "r-1"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "problem"),
    [
        (400, "ValidationException", Refused),
        (403, "AccessDeniedException", NotAuthorised),
        (403, "ExpiredTokenException", NotAuthorised),
        (429, "ThrottlingException", RateLimited),
        (503, "ServiceUnavailableException", Unavailable),
    ],
)
async def test_a_refusal_is_typed(status: int, kind: str, problem: type[ProviderError], provider: HttpProvider) -> None:
    said = refusal(status, {"message": "the reason"}, x_amzn_errortype=f"{kind}:http://internal.amazon.com/")
    async with far_side(said) as server:
        with pytest.raises(problem, match="the reason"):
            await collected(provider, asking(claude(server)))


# Frames -------------------------------------------------------------------------------------------------------------


def _frames() -> Iterator[bytes]:
    yield framed(ANTHROPIC["calls"])
    yield exception("throttlingException", "slow down")
    yield frame(b"", message_type="event", event_type="empty")
    typed = b"\1a\0" + b"\1b\1" + b"\1c\2\5" + b"\1d\3\0\5" + b"\1e\4" + bytes(4) + b"\1f\5" + bytes(8)
    typed += b"\1g\6\0\2hi" + b"\1h\7\0\2ho" + b"\1i\x08" + bytes(8) + b"\1j\x09" + bytes(16)
    prelude = struct.pack(">II", 16 + len(typed) + 3, len(typed))
    start = prelude + struct.pack(">I", zlib.crc32(prelude)) + typed + b"xyz"
    yield start + struct.pack(">I", zlib.crc32(start))


def test_frames_are_read_as_botocore_reads_them_however_they_are_cut() -> None:
    data = b"".join(_frames())
    oracle = EventStreamBuffer()
    oracle.add_data(data)
    expected = [
        EventFrame({name: value for name, value in event.headers.items() if isinstance(value, str)}, event.payload)
        for event in oracle
    ]
    for size in (1, 5, 64, len(data)):
        splitter = FrameSplitter()
        found = [frame for at in range(0, len(data), size) for frame in splitter.feed(data[at : at + size])]
        assert [one.payload for one in found] == [one.payload for one in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.headers.items() <= theirs.headers.items()


def test_a_damaged_frame_is_never_taken_for_an_answer() -> None:
    data = chunk({"type": "ping"})
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x55
        try:
            found = list(FrameSplitter().feed(bytes(broken)))
        except WireError:
            continue
        assert found == []  # it waits for more, and the stream ends


def test_a_frame_that_claims_gigabytes_is_refused_at_once() -> None:
    prelude = struct.pack(">II", 3_000_000_000, 16)
    with pytest.raises(WireError, match="claims"):
        list(FrameSplitter().feed(prelude + struct.pack(">I", zlib.crc32(prelude))))
