"""`[models.X] headers`: sent to that model's host and nowhere else, and never repeated to anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flow.far_models import is_question, speak
from loom.config import load_config
from loom.errors import ConfigError, LoomError
from loom.models import Model
from loom.providers import catalog
from loom.providers.catalog import ModelOverrides
from loom.providers.connections import Connections
from loom.runtime import Runtime
from loom.testing import memory_runtime
from providers.far_side import Reply, Request, far_side, refusal

SECRET = "team-secret-0123456789"


def entry(url: str, **more: Any) -> dict[str, Any]:
    return {"provider": "openai-chat", "model": "gpt-5.5", "base_url": url, **more}


def answer(request: Request) -> Reply:
    return speak("openai_chat", "Hello.") if is_question(request) else refusal(404, {"error": "not found"})


async def test_they_go_to_their_own_host_with_every_request_and_to_no_other() -> None:
    async with far_side(answer) as own, far_side(answer) as other:
        models = {
            "team": entry(own.url, headers={"X-Team": SECRET, "anthropic-beta": "a-2026"}),
            "local": {"provider": "compatible", "model": "m", "base_url": own.url, "headers": {"X-Team": SECRET}},
            "plain": entry(other.url),
        }
        async with memory_runtime({"models": models, "keys": {"openai": "sk-0123456789"}}) as runtime:
            for name in models:
                assert (await (await runtime.session(model=name)).send("Hi")).text == "Hello."
    assert {request.headers.get("x-team") for request in own.requests} == {SECRET}
    assert any(not is_question(request) for request in own.requests), "the endpoint was asked about itself too"
    assert own.requests[0].headers["anthropic-beta"] == "a-2026"
    assert own.requests[0].headers["authorization"] == "Bearer sk-0123456789"
    assert not any("x-team" in request.headers for request in other.requests)


async def test_a_header_may_carry_the_key() -> None:
    async with far_side(answer) as server:
        models = {"gateway": entry(server.url, headers={"Authorization": f"Basic {SECRET}"})}
        async with memory_runtime({"models": models}) as runtime:
            await (await runtime.session(model="gateway")).send("Hi")
    assert server.requests[-1].headers["authorization"] == f"Basic {SECRET}"


async def test_a_server_that_repeats_them_is_not_quoted(tmp_path: Path) -> None:
    told = refusal(400, {"error": {"message": f"unknown team {SECRET}", "type": "invalid_request_error"}})
    elsewhere = Reply(status=302, headers={"location": f"http://127.0.0.1:9/{SECRET}"})
    for reply in (told, elsewhere):
        async with far_side(reply) as server:
            models = {"team": entry(server.url, headers={"X-Team": SECRET}, api_key="sk-0123456789")}
            home = {"LOOM_HOME": str(tmp_path / "home")}
            config = load_config(cwd=tmp_path, environ=home, flags={"models": models})
            async with Runtime.open(config) as runtime:
                session = await runtime.session(model="team")
                with pytest.raises(LoomError) as caught:
                    await session.send("Hi")
                assert SECRET not in f"{caught.value}{caught.value!r}{caught.value.hint}"
                assert SECRET not in repr(config)
                (plan,) = await session.plan()
                assert SECRET not in repr(plan)
            assert len(server.requests) == 1, "nobody is followed elsewhere"
    assert not any(SECRET.encode() in file.read_bytes() for file in (tmp_path / "home").rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("name", "value"),
    [("X Team", "a"), ("X-Team", "a\r\nX-Evil: b"), ("X-Team", "ä"), ("Content-Length", "3"), ("", "a")],
)
def test_what_is_no_header_is_refused_before_anything_is_sent(name: str, value: str) -> None:
    model: Model = catalog.model("openai-chat/gpt-5.5", ModelOverrides(base_url="http://127.0.0.1:9"))
    with pytest.raises(ConfigError) as caught:
        Connections(headers=lambda _: {name: value}).access(model, "sk-0123456789")
    assert "Evil" not in str(caught.value)
