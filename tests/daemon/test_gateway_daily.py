"""Daily use of the gateway: what each request may cost, store and wait for."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest

from daemon.gateways import PICTURE, gateway, stored_messages
from daemon.running import TOKEN, serving
from flow.far_models import settings, speak
from loom.compile.renditions import Renditions
from loom.content.blocks import UnknownBlock
from loom.content.recipes import Ocr
from loom.store.database import Database
from loom.store.usage import read_answers
from loom.testing import memory_runtime
from providers.far_side import Reply, far_side, refusal
from wire.streams import sse

ASK: list[Any] = [{"role": "user", "content": "hi"}]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}


async def test_counting_tokens_stores_no_conversation() -> None:
    async with gateway("anthropic", "x") as door:
        for size in (10, 1_000):
            ask: Any = [{"role": "user", "content": [IMAGE, {"type": "text", "text": "word " * size}]}]
            counted = await door.anthropic.messages.count_tokens(model="far", messages=ask)
            assert counted.input_tokens > size
        assert await stored_messages(door.runtime) == []


async def test_the_secret_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway("openai_chat", "x") as door:
        await door.anthropic.messages.create(model="far", max_tokens=9, messages=ASK)
        records = door.runtime.conversations.records
        first = await records.secret()

        async def refuse(*_: Any) -> Any:
            raise AssertionError("a write")

        monkeypatch.setattr(Database, "write", refuse, raising=False)
        monkeypatch.setattr(type(door.runtime.stores.database), "write", refuse)
        assert await records.secret() == first


async def test_a_system_prompt_that_changes_is_stored_with_each_answer_and_the_session_goes_on_with_the_newest() -> (
    None
):
    async with gateway("openai_chat", "fine") as door:
        history: list[Any] = []
        answers: list[str] = []
        for turn in range(3):
            history.append({"role": "user", "content": f"message {turn}"})
            body = {"model": "far", "max_tokens": 9, "messages": history, "system": f"It is {turn} o'clock."}
            answer = await door.http.post("/v1/messages", json=body, headers={"x-session-id": "one"})
            answers.append(answer.headers["x-loom-receipt"])
            history.append({"role": "assistant", "content": "fine"})
        found = [(await door.http.get(f"/v1/receipts/{answer}")).json()["system"] for answer in answers]
        assert found == [f"It is {turn} o'clock." for turn in range(3)]
        (session,) = await door.runtime.stores.sessions.list()
        assert len((await stored_messages(door.runtime))[0]) == 6, "one path, however often the prompt changes"
        assert (await door.runtime.sessions.record(session.id).snapshot()).system == "It is 2 o'clock."
        assert [request["messages"][0]["content"] for request in door.far.requests] == found


async def test_calls_that_the_provider_runs_reach_clients_of_its_protocol_and_come_back_to_it() -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "loom"}}
    hit = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "eA"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01", "content": [hit]}
    start = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 9}}
    events: list[Any] = [{"type": "message_start", "message": start}]
    for at, block in enumerate((call, result, {"type": "text", "text": "Found."})):
        events += [
            {"type": "content_block_start", "index": at, "content_block": block},
            {"type": "content_block_stop", "index": at},
        ]
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}})
    answer = Reply(body=sse(*events, {"type": "message_stop"}))
    async with gateway("anthropic", answer) as door:
        tools: Any = [{"type": "web_search_20260209", "name": "web_search"}]
        whole = await door.anthropic.messages.create(model="far", max_tokens=99, messages=ASK, tools=tools)
        assert [block.type for block in whole.content] == ["server_tool_use", "web_search_tool_result", "text"]
        async with door.anthropic.messages.stream(model="far", max_tokens=99, messages=ASK, tools=tools) as stream:
            final = await stream.get_final_message()
        assert [block.type for block in final.content] == ["server_tool_use", "web_search_tool_result", "text"]
        chat = await door.openai.chat.completions.create(model="far", messages=ASK)
        assert chat.choices[0].message.content == "Found."
        more: Any = [*ASK, {"role": "assistant", "content": "Found."}, {"role": "user", "content": "more"}]
        await door.openai.chat.completions.create(model="far", messages=more)
        kinds = [block["type"] for block in door.far.requests[-1]["messages"][1]["content"]]
        assert kinds == ["server_tool_use", "web_search_tool_result", "text"], "a chat client gets them kept for it"
        stored = await stored_messages(door.runtime)
        assert any(isinstance(block, UnknownBlock) for messages in stored for m in messages for block in m.blocks)


async def test_a_budget_counts_real_prices_and_says_so_when_it_is_used_up() -> None:
    """claude-opus-5 has a price in the list: 9 tokens in and 5 out cost a fraction of a cent."""
    limited = {"token": "key-of-ci-0123456789", "max_usd_per_day": 0.000_2}
    async with (
        far_side(lambda _: speak("anthropic", "ok")) as server,
        memory_runtime(settings("anthropic", server.url) | {"gateway": {"keys": {"ci": limited}}}) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": "key-of-ci-0123456789"}, timeout=60) as http,
    ):
        model = runtime.models.resolve("far")
        body: dict[str, Any] = {"model": "far", "max_tokens": 9, "messages": ASK}
        spent = 0.0
        for _ in range(20):
            answer = await http.post("/v1/messages", json=body)
            if answer.status_code == 429:
                break
            spent += float(answer.headers["x-loom-cost-usd"])
        else:
            pytest.fail("the budget did not end")
        assert "$0.0002 for today" in answer.json()["error"]["message"]
        assert int(answer.headers["retry-after"]) <= 86_400
        from loom.models import Usage

        one = runtime.models.cost(model, Usage(input_tokens=9, output_tokens=5))
        assert one is not None
        assert spent >= 0.000_2 > spent - one - 1e-6, "it ended with the answer that passed the limit"
        async with httpx2.AsyncClient(
            base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        ) as owner:
            assert (await owner.post("/v1/messages", json=body)).status_code == 200, "others are not limited"
            counted = (await owner.get("/v1/metrics")).text
            answers = round(spent / one)
            assert f'loom_gateway_answers_total{{key="ci"}} {answers}' in counted
            assert f'loom_gateway_input_tokens_total{{key="ci"}} {9 * answers}' in counted
            assert 'loom_gateway_answers_total{key=""} 1' in counted
        assert set((await runtime.conversations.records.session_clients()).values()) == {"ci"}


async def test_slow_ocr_does_not_hold_up_an_answer_and_its_text_comes_with_a_later_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, finish = asyncio.Event(), asyncio.Event()
    original = Renditions.get

    async def slow(self: Any, digest: str, media_type: str, recipe: Any) -> Any:
        if isinstance(recipe, Ocr):
            begun.set()
            await finish.wait()
        return await original(self, digest, media_type, recipe)

    monkeypatch.setattr(Renditions, "get", slow)
    async with gateway("openai_chat", "fine", gateway={"ocr_seconds": 0.2}) as door:
        await door.runtime.services().learn(door.runtime.models.resolve("far"), "image/")
        ask = {"model": "far", "messages": [{"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        ]}]}  # fmt: skip
        started = time.monotonic()
        answer = await door.http.post("/v1/chat/completions", json=ask)
        assert answer.status_code == 200
        assert time.monotonic() - started < 30
        assert begun.is_set()
        receipt = (await door.http.get(f"/v1/receipts/{answer.headers['x-loom-receipt']}")).json()
        assert any("sent with a later one" in notice for notice in receipt["receipt"]["notices"])
        finish.set()
        for _ in range(100):  # the text is being read now
            again = await door.http.post("/v1/chat/completions", json=ask)
            found = (await door.http.get(f"/v1/receipts/{again.headers['x-loom-receipt']}")).json()["receipt"]
            if not any("later request" in notice for notice in found["notices"]):
                break
        else:
            pytest.fail("the text did not arrive")


async def test_what_a_refusal_taught_is_kept_for_the_next_request() -> None:
    """A server that takes no images is asked once with one, and never again in this conversation."""

    def blind(request: Any) -> Reply:
        if b"image_url" in request.body:
            return refusal(400, {"error": {"message": "This model does not support image input"}})
        return speak("openai_chat", "fine")

    async with gateway("openai_chat", blind) as door:
        history: list[Any] = [{"role": "user", "content": [IMAGE, {"type": "text", "text": "see"}]}]
        for _ in range(3):
            answer = await door.anthropic.messages.create(model="far", max_tokens=9, messages=history)
            history += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "more"}]
        assert sum("image_url" in str(request) for request in door.far.requests) == 1


async def test_the_conversation_is_stored_before_the_first_word_is_shown() -> None:
    """It is stored while the model is asked; a reader of the first word can rely on it."""
    whole = speak("anthropic", ["one ", "two"])
    begun = Reply(body=whole.body, cut_after=whole.body.index(b"two") - 60, end="hang")
    async with gateway("anthropic", begun) as door:
        body = {"model": "far", "max_tokens": 9, "stream": True, "messages": ASK}
        async with door.http.stream("POST", "/v1/messages", json=body) as response:
            await anext(response.aiter_bytes())
            (stored,) = await stored_messages(door.runtime)
            assert [message.text for message in stored] == ["hi"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_store_that_is_full_is_an_error_before_the_first_word(*, stream: bool) -> None:
    async with gateway("anthropic", lambda _: speak("anthropic", "fine")) as door:
        database = door.runtime.stores.database
        history: list[Any] = [{"role": "user", "content": "hi"}]
        body = {"model": "far", "max_tokens": 9, "stream": stream, "messages": history}
        assert (await door.http.post("/v1/messages", json=body)).status_code == 200
        history += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": "more " * 20_000}]
        (pages,) = (await database.select("PRAGMA page_count"))[0]
        await database.write(lambda tx: tx.execute(f"PRAGMA max_page_count = {pages}"))
        refused = await door.http.post("/v1/messages", json=body)
        assert refused.status_code == 500
        assert "No space left" in refused.json()["error"]["message"]
        assert b"fine" not in refused.content
        await database.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000"))
        assert (await door.http.post("/v1/messages", json=body)).status_code == 200
        (stored,) = await stored_messages(door.runtime)
        assert [message.role for message in stored] == ["user", "assistant", "user", "assistant"]


async def test_requests_that_begin_one_conversation_together_share_its_session() -> None:
    async with gateway("anthropic", lambda _: speak("anthropic", "fine")) as door:
        bodies = [
            {"model": "far", "max_tokens": 9, "messages": [{"role": "user", "content": f"question {number % 3}"}]}
            for number in range(9)
        ]
        headers = {"x-session-id": "together"}
        answers = await asyncio.gather(*(door.http.post("/v1/messages", json=body, headers=headers) for body in bodies))
        assert [answer.status_code for answer in answers] == [200] * 9
        (session,) = await door.runtime.stores.sessions.list()
        forest = door.runtime.stores.forest
        asked = await forest.children(session.root_id, session_id=session.id)
        assert sorted(node.message.text for node in asked if node.message) == ["question 0", "question 1", "question 2"]
        for node in asked:
            (said,) = await forest.children(node.id, session_id=session.id)
            assert said.message is not None and said.message.text == "fine"


async def test_an_answer_that_repeats_an_earlier_one_is_counted_like_any_other() -> None:
    keys = {"keys": {"ci": {"token": "key-of-ci-0123456789"}}}
    async with gateway("anthropic", lambda _: speak("anthropic", "ok"), gateway=keys) as door:
        body: dict[str, Any] = {"model": "far", "max_tokens": 9, "messages": ASK}
        for _ in range(3):
            await door.http.post("/v1/messages", json=body)
        for _ in range(2):
            await door.http.post("/v1/messages", json=body, headers={"Authorization": "Bearer key-of-ci-0123456789"})
        rows = (await door.runtime.library.usage(1)).rows
        clients = await door.runtime.conversations.records.session_clients()
        counted = {clients.get(row.session, ""): (row.answers, row.usage.input_tokens) for row in rows}
        assert counted == {"": (3, 27), "ci": (2, 18)}
        assert sum(row.usd for row in rows) > 0
        one = next(row.session for row in rows if row.session in clients)
        assert len(await read_answers(door.runtime.stores.database, 0.0, one)) == 2, "also for the session's budget"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_inline_notice_comes_once_with_the_first_answer_that_lost_something(*, is_streamed: bool) -> None:
    async with gateway("openai_chat", "fine", gateway={"notices": "inline"}, images={"max_per_message": 1}) as served:
        messages: list[dict[str, Any]] = []
        shown: list[str] = []
        for content in ("hello", [IMAGE, IMAGE], "and now?"):
            messages.append({"role": "user", "content": content})
            body: Any = {"model": "far", "max_tokens": 99, "messages": messages}
            if is_streamed:
                async with served.anthropic.messages.stream(**body) as stream:
                    answer = await stream.get_final_message()
            else:
                answer = await served.anthropic.messages.create(**body)
            shown.append("".join(block.text for block in answer.content if block.type == "text"))
            messages.append({"role": "assistant", "content": shown[-1]})

        assert shown[0] == shown[2] == "fine"
        assert shown[1].startswith("[Loom: ") and shown[1].endswith("]\n\nfine")
        assert "[Loom: " not in json.dumps(served.far.requests), "the model does not read it"
        (stored,) = await stored_messages(served.far.runtime)
        assert [message.text for message in stored if message.role == "assistant"] == ["fine"] * 3
