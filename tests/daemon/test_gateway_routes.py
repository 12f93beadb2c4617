"""Which model a request goes to: by what it holds, its size and its price, and when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from daemon.gateways import PICTURE
from daemon.running import TOKEN, serving
from flow.far_models import settings, speak
from loom.testing import memory_runtime
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from wire.streams import sse

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
KEY = "key-of-ci-0123456789"


@asynccontextmanager
async def two_models(
    answer: Any, gateway: dict[str, Any], *, token: str = TOKEN, **capabilities: bool
) -> AsyncGenerator[tuple[httpx2.AsyncClient, FarSide, FarSide]]:
    """`first` is a model of Anthropic that answers with `answer`; `second` one behind a chat server."""
    async with (
        far_side(answer) as first,
        far_side(lambda _: speak("openai_chat", "from the second")) as second,
        memory_runtime(
            {
                "models": settings("anthropic", first.url, "first", **capabilities)["models"]
                | settings("openai_chat", second.url, "second")["models"],
                "keys": {"anthropic": "sk-far-away-0123", "openai": "sk-far-away-0123"},
                "gateway": gateway,
            }
        ) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": token}, timeout=60) as http,
    ):
        yield http, first, second


def speak_first(_: Request) -> Reply:
    return speak("anthropic", "from the first")


async def ask(http: httpx2.AsyncClient, *content: Any, **fields: Any) -> str:
    blocks = [*content, {"type": "text", "text": "hi"}]
    body = {"model": "first", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}], **fields}
    answer = await http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    return "".join(block["text"] for block in answer.json()["content"])


@pytest.mark.parametrize(
    ("routes", "content"),
    [
        ({"images": "second"}, IMAGE),
        ({"large": "second", "large_tokens": 1_000}, {"type": "text", "text": "word " * 2_000}),
        ({"costly": "second", "costly_usd": 0.005}, {"type": "text", "text": "word " * 2_000}),
    ],
)
async def test_a_route_applies_to_what_it_is_for_and_to_nothing_else(routes: dict[str, Any], content: Any) -> None:
    async with two_models(speak_first, {"routes": routes}) as (http, first, second):
        assert await ask(http) == "from the first"
        assert await ask(http, content) == "from the second"
        assert len([request for request in first.requests if "/messages" in request.target]) == 1
        assert len([request for request in second.requests if "/chat/completions" in request.target]) == 1


async def test_the_system_prompt_and_the_tools_count_for_the_size() -> None:
    tool = {"name": "look", "description": "d" * 9_000, "input_schema": {"type": "object"}}
    routes = {"routes": {"large": "second", "large_tokens": 2_000}}
    async with two_models(speak_first, routes) as (http, _, __):
        assert await ask(http, system="s" * 4_000) == "from the first"
        assert await ask(http, system="s" * 9_000) == "from the second"
        assert await ask(http, tools=[tool]) == "from the second"


async def test_a_model_that_declines_without_a_word_is_followed_by_the_next() -> None:
    start = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 9}}
    end = {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 0}}
    declined = Reply(body=sse({"type": "message_start", "message": start}, end, {"type": "message_stop"}))
    async with two_models(declined, {"fallback": {"first": ["second"]}}) as (http, _, __):
        assert await ask(http) == "from the second"


async def test_a_model_without_images_is_passed_over_for_one_that_has_them() -> None:
    chain = {"fallback": {"first": ["second"]}}
    async with two_models(speak_first, chain, vision=False) as (http, first, second):
        assert await ask(http) == "from the first"
        assert await ask(http, IMAGE) == "from the second"
        assert b"image_url" in second.requests[-1].body
        assert all(b"image" not in request.body for request in first.requests)


async def test_requests_at_the_same_moment_do_not_pass_a_budget_together() -> None:
    """Each would cost about two thirds of the budget: while the first two are answered, there is nothing left."""
    finish = asyncio.Event()

    async def wait(_: Request) -> Reply:
        await finish.wait()
        return speak("anthropic", "from the first")

    budget = {"keys": {"ci": {"token": KEY, "max_usd_per_day": 0.02}}}
    body = {"model": "first", "max_tokens": 9, "messages": [{"role": "user", "content": "word " * 2_200}]}
    async with two_models(wait, budget, token=KEY) as (http, first, _):
        asked = [asyncio.create_task(http.post("/v1/messages", json=body)) for _ in range(6)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 4:
            done, _ = await asyncio.wait(asked, timeout=0.1)
        finish.set()
        statuses = sorted([(await task).status_code for task in asked])
        assert statuses == [200, 200, 429, 429, 429, 429]
        assert len(first.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500, 503, 529])
async def test_every_refusal_is_followed_by_the_next_model(status: int) -> None:
    body = {"type": "error", "error": {"type": "some_error", "message": "not today"}}
    refused = refusal(status, body, **{"x-should-retry": "false"})
    async with two_models(lambda _: refused, {"fallback": {"first": ["second"]}}) as (http, _, __):
        assert await ask(http) == "from the second"
