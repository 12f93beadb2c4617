"""Thinking and options: from settings, session and message to the socket, in every interface; what a platform lacks is
named once."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from daemon.running import TOKEN, serving
from flow.far_models import WIRES, far_model, is_question, settings, speak
from loom.client import Client
from loom.errors import ContentError
from loom.events import NoticeRaised, ThinkingDelta
from loom.models import Usage
from loom.sampling import Sampling, read_options, sampling_of
from loom.testing import memory_runtime
from providers.far_side import Reply, far_side
from wire.streams import ANTHROPIC

THINKING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anthropic": (
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
    ),
    "openai_chat": ({"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
    "openai_responses": (
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"reasoning": {"effort": "high", "summary": "auto"}},
    ),
    "gemini": (
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}}},
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}}},
    ),
    "ollama": ({}, {}),
}


def holds(body: dict[str, Any], part: dict[str, Any]) -> bool:
    return all(
        holds(body.get(key, {}), value) if isinstance(value, dict) else body.get(key) == value
        for key, value in part.items()
    )


@pytest.mark.parametrize("wire", WIRES)
async def test_the_message_wins_over_the_session_and_the_session_over_the_settings(wire: str) -> None:
    low, high = THINKING[wire]
    async with far_side(lambda _: speak(wire, "yes")) as server:
        config = settings(wire, server.url)
        config["models"]["far"] |= {"thinking": "low", "stop": ["A"], "extra_body": {"a": {"b": 1}}}
        async with memory_runtime(config) as runtime:
            session = await runtime.session(model="far")
            await session.send("one")
            await session.set_options({"thinking": "high", "extra_body": {"a": {"c": 2}}})
            await session.send("two")
            await session.send("three", thinking="low")
            await session.send("four")
            bodies = [request.json for request in server.requests if is_question(request)]
    assert [holds(body, low) for body in bodies] == ([True, False, True, False] if low != high else [True] * 4)
    assert [holds(body, high) for body in bodies] == ([False, True, False, True] if low != high else [True] * 4)
    assert bodies[0]["a"] == {"b": 1}
    assert bodies[1]["a"] == {"b": 1, "c": 2}


async def test_an_option_that_the_platform_lacks_is_named_once_and_in_every_receipt() -> None:
    async with far_model("anthropic", "yes") as far:
        session = await far.runtime.session(model="far")
        await session.set_options({"top_p": 0.5})
        notices: list[str] = []
        for _ in range(3):
            async with session.stream("hi") as events:
                notices += [event.text async for event in events if isinstance(event, NoticeRaised)]
        (receipt,) = await session.plan()
    assert notices == ["anthropic/claude-opus-5 does not support top_p: not sent."]
    assert receipt.unsent_options == ("top_p",)
    assert all("top_p" not in body for body in far.requests)


async def test_thoughts_are_events_while_they_arrive_and_stay_in_the_message() -> None:
    async with far_model("anthropic", Reply(body=ANTHROPIC["thinking"])) as far:
        session = await far.runtime.session(model="far")
        async with session.stream("hi", thinking="high") as events:
            seen = [event async for event in events]
        thought = "".join(event.text for event in seen if isinstance(event, ThinkingDelta))
        stored = (await session.path())[-1]
    assert thought
    assert thought in [getattr(block, "text", "") for block in stored.blocks]


async def test_the_routes_and_the_client_carry_options() -> None:
    async with far_model("openai_chat", "yes") as far, serving(far.runtime) as daemon:
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(base_url=daemon.url, headers=headers) as http:
            made = (await http.post("/v1/sessions", json={"model": "far", "thinking": "low"})).json()
            assert made["options"] == {"thinking": "low"}
            wrong = await http.post(f"/v1/sessions/{made['id']}/messages", json={"text": "x", "options": {"topp": 1}})
            assert wrong.status_code == 422
            assert "topp" in wrong.text
            far_off = await http.post(f"/v1/sessions/{made['id']}/messages", json={"text": "x", "thinking": "huge"})
            assert far_off.status_code == 422
            changed = await http.patch(f"/v1/sessions/{made['id']}", json={"options": {"user": "u7"}})
            assert changed.json()["options"] == {"user": "u7"}
            wire = await http.get(f"/v1/sessions/{made['id']}/wire", params={"thinking": "high"})
            assert wire.status_code == 400
        async with Client(daemon.url, TOKEN) as client:
            session = await client.session(made["id"])
            await session.send("hi", thinking="high", options={"max_tokens": 99})
            await session.set_options({"service_tier": "flex"})
            await session.send("hi")
    first, second = far.requests
    assert (first["reasoning_effort"], first["max_completion_tokens"], first["safety_identifier"]) == ("high", 99, "u7")
    assert (second.get("reasoning_effort"), second.get("safety_identifier"), second["service_tier"]) == (
        None,
        None,
        "flex",
    )


async def test_other_answers_and_queued_messages_keep_their_options() -> None:
    async with far_model("openai_chat", "yes") as far:
        session = await far.runtime.session(model="far")
        await session.post("hi", thinking="low", n=2)
        async with session.work() as events:
            assert [event async for event in events]
        async with session.regenerate(options={"service_tier": "flex"}, thinking="high") as events:
            assert [event async for event in events]
    assert [body.get("reasoning_effort") for body in far.requests] == ["low", "low", "high"]
    assert far.requests[2]["service_tier"] == "flex"


def test_options_on_a_command_line_are_read_by_their_type() -> None:
    written = ("top_p=0.9", "seed=7", "stop=END", "stop=STOP", "user=12", "extra_body.provider.order=[1]", "cache=1h")
    found = read_options((*written, "extra_headers.X-Team=7", "parallel_calls=false"))
    assert found == Sampling(
        top_p=0.9,
        seed=7,
        stop=("END", "STOP"),
        user="12",
        cache="1h",
        parallel_calls=False,
        extra_body={"provider": {"order": [1]}},
        extra_headers={"X-Team": "7"},
    )


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("topp=1", "top_p"),
        ("top_p=2", "top_p"),
        ("thinking=huge", "huge"),
        ("top_p", "KEY=VALUE"),
        ("seed=x", "seed"),
        ("extra_body=1", "extra_body"),
    ],
)
def test_a_wrong_option_is_refused_with_the_way_to_write_it(written: str, named: str) -> None:
    with pytest.raises(ContentError) as raised:
        read_options((written,))
    assert named in raised.value.message + raised.value.hint


def test_a_caller_that_writes_a_wrong_option_is_told_before_anything_is_stored() -> None:
    with pytest.raises(ContentError, match="temprature"):
        sampling_of({"temprature": 1})
    assert sampling_of({"temperature": 1, "thinking": "low"}, thinking="max") == Sampling(temperature=1, thinking="max")


async def test_a_price_of_the_settings_counts_also_at_a_local_address() -> None:
    async with far_side(lambda _: speak("openai_chat", "yes")) as server:
        config = settings("openai_chat", server.url)
        config["models"]["far"] |= {"price": {"input": 2.0, "output": 10.0, "cache_read": 0.5}}
        async with memory_runtime(config) as runtime:
            model = runtime.models.resolve("far")
            used = Usage(input_tokens=1_000_000, cache_read_tokens=400_000, output_tokens=100_000)
            assert runtime.models.cost(model, used) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 10)
