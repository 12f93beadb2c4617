"""Estimates are set right by what is billed, for a model and not for a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from daemon.running import TOKEN, serving
from flow.far_models import is_question
from loom.compile.cost import Calibration, calibrate
from loom.config import load_config
from loom.runtime import Runtime
from loom.testing import memory_runtime
from providers.far_side import Reply, Request, far_side, refusal
from wire.streams import sse


class Biller:
    """A chat server that counts six tokens where the catalog's rule expects one."""

    def __init__(self) -> None:
        self.billed: list[int] = []

    def __call__(self, request: Request) -> Reply:
        if not is_question(request):
            return refusal(404, {})
        text = "".join(str(message["content"]) for message in request.json["messages"])
        self.billed.append(6 * len(text) // 4 + 60)
        usage = {"prompt_tokens": self.billed[-1], "completion_tokens": 2, "total_tokens": self.billed[-1] + 2}
        delta = {"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}
        return Reply(body=sse({"id": "c", "choices": [delta]}, {"id": "c", "choices": [], "usage": usage}))


@pytest.mark.parametrize("factor", [0.3, 6.0, 20.0])
def test_a_ratio_is_learned_however_far_the_estimate_is_off(factor: float) -> None:
    found = Calibration()
    for _ in range(4):
        found = calibrate(found, round(10_000 * found.ratio), round(10_000 * factor))
    assert found.ratio == pytest.approx(factor, rel=0.05)


def test_a_bill_that_is_far_too_small_is_not_believed() -> None:
    found = Calibration()
    for _ in range(4):
        found = calibrate(found, round(10_000 * found.ratio), 100)
    assert found.ratio == 0.25


async def test_a_new_session_and_a_new_process_begin_with_what_earlier_ones_learned(tmp_path: Path) -> None:
    biller = Biller()
    async with far_side(biller) as server:
        table = {"provider": "vllm", "model": "m", "base_url": f"{server.url}/v1"}
        environ = {"LOOM_HOME": str(tmp_path), "LOOM_PROMPT__DEFAULT": "false"}
        config = load_config(cwd=tmp_path, environ=environ, flags={"models": {"far": table}})
        words = "Is the kettle on the stove? " * 200
        async with Runtime.open(config) as runtime:
            session = await runtime.session(model="far")
            for _ in range(4):
                await session.send(words)
        async with Runtime.open(config) as runtime:
            other = await runtime.session(model="far")
            reply = await other.send(words + "And now?")
            estimated, billed = reply.receipt.totals.tokens, biller.billed[-1]
            assert abs(estimated / billed - 1) < 0.1, "the first request of a new session is estimated well"
            (row,) = [row for row in (await runtime.library.usage(1)).rows if row.session == other.id]
            assert (row.estimated_tokens, row.estimated_input_tokens) == (estimated, billed)
            known = await runtime.models.calibration(runtime.models.resolve("far").reference)
            assert known is not None and known.samples == 5 and known.ratio > 4


async def test_a_plan_says_how_billed_tokens_compare_with_estimates() -> None:
    biller = Biller()
    async with far_side(biller) as server, memory_runtime(vllm(server.url)) as runtime:
        session = await runtime.session(model="far")
        assert (await session.plan_table(["far"])).models["far"].calibration is None
        for _ in range(4):
            await session.send("Is the kettle on the stove? " * 200)
        found = (await session.plan_table(["far"])).models["far"].calibration
        assert found is not None
        assert found.answers == 4
        assert found.ratio > 4


async def test_requests_of_the_gateway_teach_and_use_what_is_billed() -> None:
    biller = Biller()
    words = [{"role": "user", "content": "Is the kettle on the stove? " * 200}]
    body = {"model": "far", "max_tokens": 9, "messages": words}
    async with (
        far_side(biller) as server,
        memory_runtime(vllm(server.url)) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": TOKEN}, timeout=60) as http,
    ):
        for number in range(4):
            (await http.post("/v1/messages", json=body, headers={"x-session-id": str(number)})).raise_for_status()
        receipt = (await http.post("/v1/messages", json=body, headers={"x-session-id": "new"})).headers[
            "x-loom-receipt"
        ]
        found = (await http.get(f"/v1/receipts/{receipt}")).json()["receipt"]["totals"]["tokens"]
        assert found == pytest.approx(biller.billed[-1], rel=0.1)
        counted = (await http.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"]
        assert counted == pytest.approx(biller.billed[-1], rel=0.1)


def vllm(url: str) -> dict[str, Any]:
    return {"models": {"far": {"provider": "vllm", "model": "m", "base_url": f"{url}/v1"}}}
