"""Requests that no client of ours sends: each gets the status that fits and one clear sentence. The number is the
hardening checklist's."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from daemon.asking import api_of, new_session, raw, upload
from daemon.running import DaemonProcess
from loom.testing import sample_png

INSIDE = re.compile(r'Traceback|File "|site-packages|0x[0-9a-f]{6,}|object at|Error\(|/state/|loom\.db')
JSON = "Content-Type: application/json"
FORM = "Content-Type: multipart/form-data; boundary=X"
MESSAGES = "/v1/sessions/{session}/messages"
MEDIA = "/v1/media/{digest}"


def part(fields: str, text: str) -> str:
    return f"--X\r\nContent-Disposition: form-data; {fields}\r\n\r\n{text}\r\n"


BODIES = {
    "half": (JSON, '{"message": ', 400),
    "a lone surrogate": (JSON, '{"message": "\\ud800"}', 400),
    "a number for words": (JSON, '{"message": 5}', 422),
    "a list": (JSON, "[]", 422),
    "nothing to say": (JSON, "{}", 400),
    "no answers": (JSON, '{"message": "x", "n": 0}', 422),
    "more than any number": (JSON, '{"message": "x", "n": 1e400}', 422),
    "deep": (JSON, '{"blocks": ' * 5_000 + "1" + "}" * 5_000, 422),
    "deep where nobody looks": (JSON, '{"x": ' * 50_000 + "1" + "}" * 50_000, 400),
    "a node that is none": (JSON, '{"message": "x", "parent": "\\u0000"}', 404),
    "another kind": ("Content-Type: text/plain", "message=x", 415),
    "a form without a boundary": ("Content-Type: multipart/form-data", "x", 400),
    "a form without an end": (FORM, part('name="text"', "x"), 400),
    "an empty form": (FORM, "--X--\r\n", 400),
    "a form with a word for a number": (FORM, part('name="text"', "x") + part('name="n"', "x") + "--X--\r\n", 400),
    "a form with a second model, unknown": (
        FORM,
        part('name="text"', "x") + part('name="model"', "loom/spark") + part('name="model"', "no") + "--X--\r\n",
        400,
    ),
    "a key that is too long": (f"{JSON}\r\nIdempotency-Key: {'k' * 201}", '{"message": "x"}', 400),
    "a key with a control character": (f"{JSON}\r\nIdempotency-Key: \x80", '{"message": "x"}', 400),
}
PLACES = {
    "GET /v1/sessions/%E2%82%AC": 404,
    "GET /v1/sessions/%00": 404,
    "GET /v1/sessions/%ff": 404,
    f"GET /v1/sessions/{'a' * 5_000}": 404,
    "GET /v1/media/sha256:xyz": 404,
    f"GET {MEDIA}?v=nonsense": 422,
    f"GET {MEDIA}?v=page:0": 422,
    f"GET {MEDIA}?v=page:99999999999999999999": 422,
    f"GET {MEDIA}?v=page:2": 415,
    f"GET {MEDIA}?v=sent:": 422,
    f"GET {MEDIA}?v=sent:no/model": 400,
    f"GET {MEDIA}?v=%00": 422,
    "GET /v1/sessions?limit=0": 422,
    "GET /v1/sessions?limit=x": 422,
    "GET /v1/sessions?before=%00": 422,
    f"GET /v1/sessions?limit={'1' * 5_000}": 422,
    f"GET /v1/sessions?before={'1' * 5_000}.x": 422,
    f"GET {MEDIA}/text?page={'1' * 5_000}": 422,
    "GET /v1/sessions/{session}/events?after=-1": 422,
    "GET /v1/sessions/{session}/export?format=exe": 422,
    "GET /v1/sessions/{session}/wire?model=%00": 400,
    "GET //v1//version": 404,
    "GET /V1/version": 404,
    "GET *": 404,
    "BREW /v1/version": 405,
    "TRACE /v1/version": 405,
    "OPTIONS /v1/sessions": 405,
    "PUT /v1/sessions": 405,
}


def answered(house: DaemonProcess, line: str, *lines: str, body: str = "", version: str = "1.1") -> tuple[int, str]:
    """The status, and what the body of the answer says is wrong."""
    given = [f"Host: {urlsplit(house.url).netloc}", f"Authorization: Bearer {house.token}", "Connection: close", *lines]
    answer = raw(house, "\r\n".join([f"{line} HTTP/{version}", *given, "", body]), is_whole=True)
    head, _, rest = answer.partition("\r\n\r\n")
    assert INSIDE.search(rest) is None
    return int(head.split(" ", 2)[1]), rest


def check_said(text: str) -> None:
    error = msgspec.json.decode(text)["error"]
    assert error["code"] and error["message"].endswith((".", "`"))


@pytest.fixture(scope="module")
def session(house: DaemonProcess) -> str:
    with api_of(house) as api:
        return new_session(api)


@pytest.fixture(scope="module")
def digest(house: DaemonProcess) -> str:
    with api_of(house) as api:
        return upload(api, sample_png(20, 18))["digest"]


@pytest.mark.parametrize("name", BODIES)
def test_26_a_message_that_cannot_be_read_is_refused_in_a_sentence(
    house: DaemonProcess, session: str, name: str
) -> None:
    kind, body, status = BODIES[name]
    length = f"Content-Length: {len(body.encode())}"
    found, said = answered(house, f"POST {MESSAGES.format(session=session)}", kind, length, body=body)
    assert found == status, said
    check_said(said)


@pytest.mark.parametrize("line", PLACES)
def test_26_a_place_that_is_none_is_said(house: DaemonProcess, session: str, digest: str, line: str) -> None:
    found, said = answered(house, line.format(session=session, digest=digest))
    assert found == PLACES[line], said
    check_said(said)


@pytest.mark.parametrize("lengths", [["-1"], ["x"], ["2", "3"], ["1" * 5_000]])
def test_a_body_of_a_length_that_is_none_is_no_request(house: DaemonProcess, session: str, lengths: list[str]) -> None:
    lines = [f"Content-Length: {length}" for length in lengths]
    assert answered(house, f"POST {MESSAGES.format(session=session)}", JSON, *lines, body="{}")[0] == 400


@pytest.mark.parametrize(
    ("wanted", "status", "range_"),
    [
        *(("0-0", 206, "0-0"), ("5-", 206, "5-"), ("-5", 206, "-"), ("-0", 416, "*"), ("9999999-", 416, "*")),
        *(("5-2", 416, "*"), ("a-b", 200, ""), ("0-0,2-3", 200, ""), ("--5", 200, ""), ("", 200, "")),
    ],
)
def test_ranges_that_are_out_of_bounds_or_none_harm_nobody(
    api: httpx2.Client, digest: str, wanted: str, status: int, range_: str
) -> None:
    answer = api.get(f"/v1/media/{digest}", headers={"Range": f"bytes={wanted}"})
    assert answer.status_code == status
    assert range_ in answer.headers.get("content-range", "")


def test_an_old_client_and_a_look_at_the_head_are_answered(house: DaemonProcess, session: str, digest: str) -> None:
    assert answered(house, "GET /v1/version", version="1.0")[0] == 200
    for place in ("/v1/version", "/v1/sessions", MESSAGES, MEDIA, "/openapi.json", "/docs", "/", "/v1/health"):
        found, rest = answered(house, f"HEAD {place.format(session=session, digest=digest)}")
        assert (found, rest) == (200, "")
