"""A daemon that stops while it answers gateway requests: what the models have said so far is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from daemon.running import daemon, until_true


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_a_stop_cuts_off_is_stored(tmp_path: Path, stream: bool) -> None:
    body = {"model": "loom/spark", "stream": stream, "messages": [{"role": "user", "content": "!echo yes\n!think 99s"}]}
    with daemon(tmp_path / "home") as house:
        async with _api(house.url, house.token) as api:
            request = asyncio.create_task(api.post("/v1/chat/completions", json=body))

            async def is_stored() -> bool:
                return len((await api.get("/v1/sessions")).json()["sessions"]) == 1

            await until_true(is_stored)
            assert await asyncio.to_thread(house.stop) == 0
            await asyncio.gather(request, return_exceptions=True)
        assert "Traceback" not in house.log()
        house.start()
        async with _api(house.url, house.token) as api:
            [session] = (await api.get("/v1/sessions")).json()["sessions"]
            messages: list[Any] = (await api.get(f"/v1/sessions/{session['id']}/messages")).json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]


def _api(url: str, token: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60)
