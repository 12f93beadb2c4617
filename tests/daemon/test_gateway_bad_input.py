"""Bad requests: an error in the caller's own shape, nothing left running, and no key in any log."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest

from daemon.gateways import PICTURE, Gateway, gateway
from daemon.running import TOKEN
from flow.far_models import speak
from providers.far_side import Reply, refusal

PATHS = {"anthropic": "/v1/messages", "openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}
KEY = "sk-far-away-0123"
GOOD: dict[str, Any] = {
    "anthropic": {"model": "far", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "openai_chat": {"model": "far", "messages": [{"role": "user", "content": "hi"}]},
    "openai_responses": {"model": "far", "input": "hi"},
}
BROKEN = (b"", b"{", b"[]", b"null", b'"x"', b"3", b"\xff\xfe\x00", b'{"model": "far"', b"[" * 50_000, b'{"a":' * 5_000)
WRONG: tuple[Any, ...] = (3, "x", None, [], {}, [[[]]], [None], [3], ["x"], [{"role": 7}], {"a": {"b": []}}, True)


def is_error(protocol: str, answer: httpx2.Response) -> bool:
    body = answer.json()
    error = body["error"]
    if protocol == "anthropic":
        return body["type"] == "error" and isinstance(error["type"], str) and isinstance(error["message"], str)
    return {"message", "type", "param", "code"} <= error.keys() and bool(error["message"])


async def idle(door: Gateway) -> None:
    """Wait until no request of the gateway runs, and no connection to the provider is busy."""
    for _ in range(400):
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks() if task.get_coro() is not None]
        if not [name for name in names if "Exchange" in name or "gateway" in name]:
            return
        await door.http.get("/healthz")
    pytest.fail(f"still running: {names}")


@pytest.mark.parametrize("protocol", list(PATHS))
async def test_malformed_bodies_and_wrong_types_are_errors_in_the_callers_shape(protocol: str) -> None:
    async with gateway("anthropic", "fine", model="far") as door:
        for body in BROKEN:
            answer = await door.http.post(PATHS[protocol], content=body)
            assert answer.status_code == 400, (body[:40], answer.text)
            assert is_error(protocol, answer), body[:40]
        for field in (
            "messages",
            "input",
            "model",
            "tools",
            "system",
            "max_tokens",
            "stream",
            "metadata",
            "tool_choice",
        ):
            for wrong in WRONG:
                body = {**GOOD[protocol], field: wrong}
                answer = await door.http.post(PATHS[protocol], json=body)
                assert answer.status_code in (200, 400, 404), (field, wrong, answer.status_code, answer.text)
                if answer.status_code != 200:
                    assert is_error(protocol, answer), (field, wrong)
        await idle(door)


@pytest.mark.parametrize("protocol", list(PATHS))
async def test_unknown_models_keys_and_routes_and_huge_bodies(protocol: str) -> None:
    async with gateway("anthropic", "fine", gateway={"max_request_bytes": 100_000}) as door:
        unknown = await door.http.post(PATHS[protocol], json={**GOOD[protocol], "model": "nobody/none"})
        assert (unknown.status_code, is_error(protocol, unknown)) == (404, True)
        huge = await door.http.post(PATHS[protocol], content=b" " * 200_000)
        assert (huge.status_code, is_error(protocol, huge)) == (413, True)

        async def endless() -> Any:
            for _ in range(400):
                yield b" " * 1_000

        chunked = await door.http.post(PATHS[protocol], content=endless())
        assert (chunked.status_code, is_error(protocol, chunked)) == (413, True)
        stranger = await door.http.post(PATHS[protocol], json=GOOD[protocol], headers={"Authorization": "Bearer no"})
        assert (stranger.status_code, is_error(protocol, stranger)) == (401, True)
        assert stranger.json()["error"]["message"].startswith("The token is not valid. Send `Authorization: Bearer")
        for path in ("/v1/nothing", "/v1/messages/nothing", "/v1/responses/x/y", "/v1/embeddings"):
            answer = await door.http.post(path, json={})
            assert answer.status_code in (404, 405)
            assert answer.json()["error"]["message"], "where both SDKs look for it"
        assert door.far.requests == []
        await idle(door)


async def test_base64_that_is_no_medium_stays_text_and_a_large_picture_goes_to_disk_and_on() -> None:
    run = "QUJD" * 60_000
    async with gateway("openai_chat", "fine") as door:
        for words in (run, f"see {run} there", f"{run}A", "a" * 200_001, f"{run}==x", json.dumps({"k": run})):
            body = {"model": "far", "max_tokens": 9, "messages": [{"role": "user", "content": words}]}
            answer = await door.http.post("/v1/messages", json=body)
            assert answer.status_code == 200, answer.text
            sent = door.far.requests[-1]["messages"][-1]["content"]
            assert (sent if isinstance(sent, str) else sent[0]["text"]) == words
        from daemon.hostile import LARGE, image, spell

        picture = spell("anthropic", [("user", [image(LARGE)])])
        assert (await door.http.post("/v1/messages", json=picture)).status_code == 200
        assert len(door.far.pictures(-1)) == 1


async def test_a_client_that_leaves_at_any_moment_leaves_nothing_running() -> None:
    words = speak("openai_chat", [f"word {number} " for number in range(50)])
    slow = Reply(body=words.body, chunk=200, pause=0.02)
    async with gateway("openai_chat", slow) as door:
        for protocol, path in PATHS.items():
            for lines in (0, 1, 3):
                body = {**GOOD[protocol], "stream": True}
                async with door.http.stream("POST", path, json=body) as answer:
                    found = 0
                    async for _ in answer.aiter_lines():
                        found += 1
                        if found > lines:
                            break
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {TOKEN}\r\nContent-Length: 500\r\n\r\n{{"
        host, _, port = door.url.removeprefix("http://").partition(":")
        for sent in (b"", head[:20].encode(), head.encode()):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await idle(door)
        for _ in range(400):
            if not door.far.server.open_connections or not _busy(door):
                break
            await door.http.get("/healthz")
        assert not _busy(door)


def _busy(door: Gateway) -> bool:
    """Whether the provider still writes an answer that no client reads."""
    return any(
        task.get_coro().__qualname__.endswith("FarSide._answer")
        for task in asyncio.all_tasks()
        if task.get_coro() is not None
    )


async def test_no_key_is_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    async with gateway(
        "anthropic", refusal(401, error), refusal(500, {"error": {"type": "api_error", "message": KEY}}), "fine"
    ) as door:
        for body in ({**GOOD["anthropic"]}, {**GOOD["anthropic"], "model": TOKEN}, {"messages": 3}):
            answer = await door.http.post("/v1/messages", json=body)
            assert KEY not in answer.text
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
        await door.anthropic.messages.create(
            model="far",
            max_tokens=9,
            messages=[{"role": "user", "content": [picture]}],  # type: ignore[typeddict-item]
        )
        await door.http.post("/v1/messages", content=b"{", headers={"x-api-key": TOKEN})
    logged = "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records)
    assert KEY not in logged
    assert TOKEN not in logged


@pytest.mark.parametrize("protocol", list(PATHS))
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_that_nothing_cures_is_not_repeated_by_clients(protocol: str, *, stream: bool) -> None:
    """Clients repeat a 5xx: this one would be refused again, after all attempts of recovery."""
    words = "organization acme is not allowed to do this on a Tuesday"
    refused = refusal(400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}})
    async with gateway("anthropic", lambda _: refused) as door:
        answer = await door.http.post(PATHS[protocol], json={**GOOD[protocol], "stream": stream})
        assert answer.status_code == 400
        assert is_error(protocol, answer)
        assert words in answer.json()["error"]["message"]
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_what_is_not_found_is_named_by_its_own_code() -> None:
    async with gateway("anthropic", "fine") as door:
        body = {"model": "far", "input": "x", "previous_response_id": "resp_none"}
        asked = {
            "model_not_found": door.http.post(
                "/v1/chat/completions", json={**GOOD["openai_chat"], "model": "nobody/none"}
            ),
            "previous_response_not_found": door.http.post("/v1/responses", json=body),
        }
        found = {code: await answer for code, answer in asked.items()}
        for path in ("/v1/files/file_none", "/v1/responses/resp_none", "/v1/receipts/msg_none"):
            found[path] = await door.http.get(path)
        for name, answer in found.items():
            code = "not_found" if name.startswith("/") else name
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)
