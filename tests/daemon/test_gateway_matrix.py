"""Hostile conversations through the gateway: every body that goes out is one that its platform takes, and every block
has a row in the receipt. `python -m benchmarks.gateway.matrix` runs all 1,080 pairs; these are a third of them."""

from __future__ import annotations

import itertools
from typing import Any

import httpx2
import pytest

from daemon.hostile import (
    ASK,
    GO_ON,
    HOSTILE,
    LARGE,
    MODELS,
    body_of,
    enforcing,
    image,
    looped,
    model_settings,
    pdf,
    spell,
    text,
    thinking,
)
from daemon.running import TOKEN, serving
from loom.runtime import Runtime
from loom.testing import memory_runtime, sample_pdf

PATHS = {"anthropic": "/v1/messages", "openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}


async def rows_missing(runtime: Runtime, receipt: dict[str, Any]) -> set[tuple[int, int]]:
    """Blocks of the path to an answer that its receipt does not name."""
    _, *nodes = await runtime.stores.forest.path(receipt["node"])
    messages = [node.message for node in nodes if node.message is not None][:-1]
    wanted = {(at, number) for at, message in enumerate(messages) for number in range(len(message.blocks))}
    return wanted - {(row["message"], row["block"]) for row in receipt["receipt"]["rows"]}


@pytest.mark.parametrize("protocol", list(PATHS))
async def test_every_hostile_conversation_is_valid_for_its_model_and_has_a_receipt(protocol: str) -> None:
    async with (
        enforcing() as (server, _),
        memory_runtime(model_settings(server.url)) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": TOKEN}, timeout=120) as http,
    ):
        names = itertools.cycle(MODELS)
        first = list(PATHS).index(protocol) * 5
        for _ in range(first):
            next(names)
        failed: list[Any] = []
        for title, conversation in HOSTILE.items():
            for name in itertools.islice(names, 4):
                answer = await http.post(PATHS[protocol], content=body_of(spell(protocol, conversation, name)))
                if answer.status_code != 200:
                    failed.append((title, name, answer.status_code, answer.text[:300]))
                    continue
                receipt = (await http.get(f"/v1/receipts/{answer.headers['x-loom-receipt']}")).json()
                if missing := await rows_missing(runtime, receipt):
                    failed.append((title, name, "no row", missing))
        assert failed == []


async def test_a_conversation_that_bricks_another_gateway_goes_on_here() -> None:
    """The far side refuses what the others send: a tool's picture that is too large, a PDF to a chat server, a foreign
    signature. A client that changes its base URL in mid-session sends that history here, and it goes on."""
    asked = [("user", [pdf(sample_pdf("The answer is 42.")), text("read")])]
    bricked: dict[str, Any] = {
        "opus": looped(image(LARGE)),
        "local": [*asked, ("assistant", [text("42.")]), GO_ON],
        "haiku": [ASK, ("assistant", [thinking("Hm.", "bm90LW1pbmU="), text("Hello.")]), GO_ON],
    }
    async with (
        enforcing() as (server, rules),
        memory_runtime(model_settings(server.url)) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": TOKEN}, timeout=120) as http,
    ):
        for name, conversation in bricked.items():
            history = spell("anthropic", conversation, name)["messages"]
            for turn in range(3):
                body = {"model": name, "max_tokens": 99, "messages": history}
                answer = await http.post("/v1/messages", content=body_of(body))
                assert answer.status_code == 200, (name, turn, answer.text)
                history += [
                    {"role": "assistant", "content": answer.json()["content"]},
                    {"role": "user", "content": f"and {turn}?"},
                ]
        for name in bricked:
            refused = [broken for asked, broken in rules.broken if asked == name]
            assert len(refused) <= 2, (name, refused)
        sent = [str(body) for name, body in rules.requests if name == "local"]
        assert all("JVBERi0" not in body for body in sent), "a chat server gets no PDF"
        assert any("The answer is 42." in body or "image_url" in body for body in sent), "its pages or its text"
