"""The configured default model keeps its address, key and headers, however a conversation begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import loom
from flow.far_models import PLATFORMS, WIRES, is_question, speak
from loom.config import Config, load_config
from loom.runtime import Runtime
from loom.testing import memory_runtime
from providers.far_side import Reply, Request, far_side, refusal

KEY = "sk-only-for-this-host-0123"
Way = Callable[[Config], Coroutine[Any, Any, str]]


async def with_ask(config: Config) -> str:
    def run() -> str:
        with loom.Loom(config=config) as lm:
            return lm.ask("hi").text

    return await asyncio.to_thread(run)


async def with_sync_session(config: Config) -> str:
    def run() -> str:
        with loom.Loom(config=config) as lm:
            return lm.session().send("hi").text

    return await asyncio.to_thread(run)


async def with_runtime_session(config: Config) -> str:
    async with Runtime.open(config) as runtime:
        return (await (await runtime.session()).send("hi")).text


async def with_reopened_session(config: Config) -> str:
    async with Runtime.open(config) as runtime:
        session_id = (await runtime.session()).id
    async with Runtime.open(config) as runtime:
        return (await (await runtime.session(session_id)).send("hi")).text


async def with_fork(config: Config) -> str:
    async with Runtime.open(config) as runtime:
        fork = await (await runtime.session()).fork()
        return (await fork.send("hi")).text


WAYS: tuple[Way, ...] = (with_ask, with_sync_session, with_runtime_session, with_reopened_session, with_fork)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wire=st.sampled_from(WIRES),
    way=st.sampled_from(WAYS),
    alias=st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
    prefix=st.sampled_from(["", "/proxy", "/a/b"]),
    header=st.sampled_from(["x-team", "x-trace-id"]),
    has_own_key=st.booleans(),
)
def test_the_default_model_is_asked_at_its_own_address_with_its_own_key_and_headers(
    tmp_path_factory: pytest.TempPathFactory,
    wire: str,
    way: Way,
    alias: str,
    prefix: str,
    header: str,
    has_own_key: bool,
) -> None:
    folder: Path = tmp_path_factory.mktemp("home")

    def answer(request: Request) -> Reply:
        return speak(wire, "Here.") if is_question(request) else refusal(404, {"error": "not found"})

    async def run() -> None:
        async with far_side(answer) as server:
            platform, name = PLATFORMS[wire]
            entry: dict[str, Any] = {"provider": platform, "model": name, "base_url": f"{server.url}{prefix}"}
            entry["headers"] = {header: "blue"}
            flags: dict[str, Any] = {"model": alias, "models": {alias: entry}}
            if has_own_key:
                entry["api_key"] = KEY
            else:
                flags["keys"] = dict.fromkeys(("anthropic", "openai", "gemini"), KEY)
            config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder)}, flags=flags)
            assert await way(config) == "Here."
            questions = [request for request in server.requests if is_question(request)]
            assert len(questions) == 1
            assert questions[0].target.startswith(f"{prefix}/")
            assert questions[0].headers[header] == "blue"
            if wire != "ollama":  # it has no keys
                assert any(KEY in value for value in questions[0].headers.values())

    asyncio.run(run())


@pytest.mark.parametrize("name", ["tools", "providers", "config", "rule", "mcp", "media", "describer", "anything"])
async def test_nothing_of_a_runtime_is_assigned_from_outside(name: str) -> None:
    async with memory_runtime() as runtime:
        with pytest.raises(AttributeError, match=r"keyword|setter"):
            setattr(runtime, name, {})
        for mapping in (runtime.toolbox.tools, runtime.models.given_providers):
            with pytest.raises(TypeError):
                mapping["x"] = None  # pyright: ignore[reportIndexIssue]
