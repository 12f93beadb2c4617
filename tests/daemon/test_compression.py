"""JSON responses are compressed where it pays, and nothing else is."""

from __future__ import annotations

import gzip
import json

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.asking import api_of, new_session, say, upload
from daemon.running import DaemonProcess
from loom.daemon.compression import MIN_BYTES, gzip_bytes
from loom.daemon.routes import ROUTES
from loom.testing import sample_png

CREDENTIALS = {"token", "secret", "password", "key", "url"}
READS = ("/v1/models", "/v1/config", "/v1/settings", "/v1/tools", "/v1/sessions", "/openapi.json")


def _raw(
    api: httpx2.Client, method: str, path: str, encoding: str, body: object = None
) -> tuple[bytes, httpx2.Headers]:
    """The bytes on the wire."""
    with api.stream(method, path, headers={"Accept-Encoding": encoding}, json=body) as answer:
        assert answer.status_code == 200, path
        return b"".join(answer.iter_raw()), answer.headers


@pytest.fixture
def long_session(api: httpx2.Client) -> str:
    session = new_session(api)
    say(api, session, "!echo " + "many words in a long answer, " * 200)
    return session


def test_a_large_response_is_the_same_with_and_without_compression(api: httpx2.Client, long_session: str) -> None:
    place = f"/v1/sessions/{long_session}"
    for path in (*READS, f"{place}/messages", f"{place}/tree"):
        plain, headers = _raw(api, "GET", path, "identity")
        assert "content-encoding" not in headers
        packed, packed_headers = _raw(api, "GET", path, "gzip, deflate, br, zstd")
        if len(plain) < MIN_BYTES or not headers["content-type"].startswith("application/json"):
            assert "content-encoding" not in packed_headers
            continue
        assert packed_headers["content-encoding"] == "gzip", path
        assert "accept-encoding" in headers["vary"].lower()
        assert "accept-encoding" in packed_headers["vary"].lower()
        assert int(packed_headers["content-length"]) == len(packed) < len(plain)
        assert msgspec.json.decode(gzip.decompress(packed)).keys() == json.loads(plain).keys()
    packed, headers = _raw(api, "GET", f"{place}/messages", "gzip")
    assert gzip.decompress(packed) == _raw(api, "GET", f"{place}/messages", "identity")[0]
    packed, headers = _raw(api, "POST", f"{place}/plan", "gzip", {})
    assert headers.get("content-encoding") == ("gzip" if len(packed) > MIN_BYTES or packed[:2] == b"\x1f\x8b" else None)


def test_media_and_event_streams_stay_as_they_are(api: httpx2.Client, long_session: str) -> None:
    picture = upload(api, sample_png(300, 300), "shot.png")["digest"]
    body, headers = _raw(api, "GET", f"/v1/media/{picture}", "gzip")
    assert "content-encoding" not in headers
    assert body.startswith(b"\x89PNG")
    stream = f"/v1/sessions/{long_session}/events?after=0"
    with api.stream("GET", stream, headers={"Accept-Encoding": "gzip"}) as answer:
        assert "content-encoding" not in answer.headers
        assert next(answer.iter_raw()).strip()


def test_no_compressed_response_contains_a_credential(house: DaemonProcess) -> None:
    """See the reason in `loom.daemon.compression`: credentials are issued by routes that are not compressed."""
    for route in ROUTES:
        if (route.method == "GET" or route.only_reads) and isinstance(route.answer, type):
            fields = msgspec.structs.fields(route.answer) if issubclass(route.answer, msgspec.Struct) else ()
            assert not {field.name for field in fields if field.type is str} & CREDENTIALS, route.path
    with api_of(house) as api:
        link = api.post("/v1/links", json={}, headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in link.headers
        secret = link.json()["url"].partition("=")[2]
        seen = [api.get(path).text for path in (*READS, "/v1/logins", "/v1/keys", "/v1/users")]
        assert not [text for text in seen if secret in text or house.token in text]


@given(st.binary(max_size=20_000), st.integers(1, 9))
def test_any_body_comes_back(data: bytes, level: int) -> None:
    assert gzip.decompress(gzip_bytes(data, level)) == data
