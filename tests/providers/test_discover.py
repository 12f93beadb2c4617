"""Asking endpoints what their models take, in every server's own shape, and remembering what refusals teach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loom.models import Model
from loom.providers import catalog
from loom.providers.catalog import ModelOverrides
from loom.providers.connections import Connections
from loom.providers.discovery import Discovery, local_servers
from loom.store.database import Database, open_database
from loom.store.model_facts import ModelFacts
from providers.far_side import FarSide, Reply, Request, far_side

JSON = "application/json"


class World:
    def __init__(self, database: Database) -> None:
        self.now = 1_000_000.0
        self.shelf = ModelFacts(database, clock=lambda: self.now)
        self.connections = Connections()
        self.keys: dict[str, str] = {"anthropic": "sk-ant-0123456789", "gemini": "AIza-0123456789"}
        self.discovery = Discovery(
            self.shelf,
            lambda model: self.keys.get(model.provider),
            connections=self.connections,
            clock=lambda: self.now,
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    database = await open_database(":memory:")
    world = World(database)
    yield world
    await world.connections.close()
    await database.close()


def site(**pages: Any) -> Any:
    """A server with these JSON pages; everything else is 404."""
    known = {path.replace("__", "/"): page for path, page in pages.items()}

    def serve(request: Request) -> Reply:
        page = known.get(request.target.strip("/"))
        if page is None:
            return Reply(status=404, body=b"not found", content_type="text/plain")
        return Reply(body=json.dumps(page).encode(), content_type=JSON)

    return serve


def model(reference: str, server: FarSide, path: str = "", **told: Any) -> Model:
    return catalog.model(reference, ModelOverrides(base_url=server.url + path, **told))


OLLAMA_VISION = {
    "capabilities": ["completion", "vision", "tools"],
    "model_info": {"general.architecture": "qwen", "qwen.context_length": 131072},
    "parameters": 'stop    "<|im_end|>"\nnum_ctx    16384\n',
}


async def test_ollama_says_what_a_model_takes_and_its_own_setting_of_the_context_is_kept(world: World) -> None:
    async with far_side(site(api__show=OLLAMA_VISION)) as server:
        found = await world.discovery.resolve_live(model("ollama/mystery", server))
    assert server.requests[0].json == {"model": "mystery"}
    capabilities = found.capabilities
    assert (capabilities.vision, capabilities.tools, capabilities.thinking, capabilities.audio) == (
        True, True, False, False)  # fmt: skip
    assert capabilities.origins["vision"] == "asked"
    assert found.limits.context_tokens == 16384


async def test_the_length_a_model_was_trained_for_does_not_raise_what_the_machine_is_asked_for(world: World) -> None:
    said = {**OLLAMA_VISION, "parameters": ""}
    async with far_side(site(api__show=said)) as server:
        assert (await world.discovery.resolve_live(model("ollama/mystery", server))).limits.context_tokens == 8192
    short = {**said, "model_info": {"qwen.context_length": 2048}}
    async with far_side(site(api__show=short)) as server:
        assert (await world.discovery.resolve_live(model("ollama/mystery", server))).limits.context_tokens == 2048


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (
            {
                "v1__models": {"data": [{"id": "m", "object": "model", "owned_by": "llamacpp"}]},
                "props": {
                    "default_generation_settings": {"n_ctx": 4096},
                    "modalities": {"vision": True, "audio": False},
                },
            },
            (True, False, True, 4096),
        ),
        (
            {
                "v1__models": {"data": [{"id": "m", "object": "model", "owned_by": "organization_owner"}]},
                "api__v1__models": {
                    "models": [
                        {
                            "key": "m",
                            "capabilities": {"vision": False, "trained_for_tool_use": False},
                            "max_context_length": 131072,
                            "loaded_instances": [{"id": "m", "config": {"context_length": 8192}}],
                        }
                    ]
                },
            },
            (False, False, False, 8192),
        ),
        (
            {
                "v1__models": {
                    "data": [
                        {
                            "id": "m",
                            "context_length": 200000,
                            "architecture": {"input_modalities": ["text", "image", "file"]},
                            "supported_parameters": ["tools", "reasoning"],
                            "top_provider": {"max_completion_tokens": 64000},
                        }
                    ]
                }
            },
            (True, True, True, 200000),
        ),
        (
            {"v1__models": {"data": [{"id": "m", "max_model_len": 65536, "owned_by": "vllm"}]}},
            (True, False, True, 65536),
        ),
    ],
    ids=["llama.cpp", "LM Studio", "OpenRouter", "vLLM"],
)
async def test_every_compatible_server_is_understood_in_its_own_shape(
    pages: dict[str, Any], expected: tuple[bool, bool, bool, int], world: World
) -> None:
    async with far_side(site(**pages)) as server:
        found = await world.discovery.resolve_live(model("compatible/m", server, "/v1"))
    capabilities = found.capabilities
    assert (capabilities.vision, capabilities.native_pdf, capabilities.tools, found.limits.context_tokens) == expected


async def test_a_model_of_anthropic_that_the_catalog_does_not_know_is_asked_for_with_the_key(world: World) -> None:
    said = {
        "id": "claude-next",
        "max_input_tokens": 2_000_000,
        "max_tokens": 256_000,
        "capabilities": {
            "image_input": {"supported": True},
            "pdf_input": {"supported": False},
            "citations": {"supported": True},
            "thinking": {"supported": True, "types": {}},
        },
    }
    async with far_side(site(**{"v1__models__claude-next": said})) as server:
        found = await world.discovery.resolve_live(model("anthropic/claude-next", server))
        await world.discovery.resolve_live(model("anthropic/claude-opus-5", server))
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer sk-ant-0123456789"
    assert (found.limits.context_tokens, found.limits.max_output_tokens) == (2_000_000, 256_000)
    assert (found.capabilities.vision, found.capabilities.native_pdf) == (True, False)


async def test_gemini_says_its_limits(world: World) -> None:
    said = {"inputTokenLimit": 5000, "outputTokenLimit": 700, "thinking": True}
    async with far_side(site(**{"v1beta__models__gemini-9": said})) as server:
        found = await world.discovery.resolve_live(model("gemini/gemini-9", server, "/v1beta"))
    assert (found.limits.context_tokens, found.limits.max_output_tokens) == (5000, 700)


async def test_an_answer_is_remembered_and_asked_again_when_it_is_old(world: World) -> None:
    async with far_side(site(api__show=OLLAMA_VISION)) as server:
        for _ in range(3):
            assert (await world.discovery.resolve_live(model("ollama/mystery", server))).capabilities.vision
        assert len(server.requests) == 1
        world.now += 3601
        await world.discovery.resolve_live(model("ollama/mystery", server))
        assert len(server.requests) == 2
        (lesson,) = await world.shelf.list_facts("ollama/mystery", server.url)
        assert lesson.at == world.now


async def test_the_same_name_at_another_address_is_another_model(world: World) -> None:
    blind = {"capabilities": ["completion"], "model_info": {}}
    async with far_side(site(api__show=OLLAMA_VISION)) as one, far_side(site(api__show=blind)) as other:
        assert (await world.discovery.resolve_live(model("ollama/mystery", one))).capabilities.vision
        assert not (await world.discovery.resolve_live(model("ollama/mystery", other))).capabilities.vision


async def test_what_the_user_says_is_not_overruled_by_the_endpoint(world: World) -> None:
    async with far_side(site(api__show=OLLAMA_VISION)) as server:
        told = model("ollama/mystery", server, vision=False, context_tokens=1000)
        found = await world.discovery.resolve_live(told)
    assert not found.capabilities.vision
    assert found.capabilities.origins["vision"] == "user"
    assert found.limits.context_tokens == 1000


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=404),
        Reply(status=500, body=b"{}"),
        Reply(body=b"<html>", content_type="text/html"),
        Reply(body=b"[1, 2]", content_type=JSON),
        Reply(body=b'{"capabilities": "yes", "model_info": 7}', content_type=JSON),
        Reply(body=b'{"data": {"id": 3}}', content_type=JSON),
        Reply(before="reset"),
        Reply(status=302, headers={"location": "http://169.254.169.254/"}),
    ],
)
@pytest.mark.parametrize("reference", ["ollama/mystery", "compatible/mystery"])
async def test_an_endpoint_that_does_not_help_changes_nothing_and_is_left_alone_for_a_while(
    reference: str, reply: Reply, world: World
) -> None:
    async with far_side(reply) as server:
        asked = model(reference, server)
        assert await world.discovery.resolve_live(asked) == asked
        before = len(server.requests)
        assert await world.discovery.resolve_live(asked) == asked
        assert len(server.requests) == before
        assert await world.shelf.list_facts(asked.reference, asked.base_url) == ()


async def test_a_server_that_is_down_leaves_the_last_answer_standing(world: World) -> None:
    async with far_side(site(api__show=OLLAMA_VISION)) as server:
        asked = model("ollama/mystery", server)
        await world.discovery.resolve_live(asked)
    world.now += 10_000
    assert (await world.discovery.resolve_live(asked)).capabilities.vision


async def test_a_refusal_is_remembered_over_what_the_endpoint_says_until_it_is_a_week_old(world: World) -> None:
    async with far_side(site(api__show=OLLAMA_VISION)) as server:
        asked = model("ollama/mystery", server)
        seeing = await world.discovery.resolve_live(asked)
        blind = await world.discovery.learn(seeing, without="image/")
        assert not blind.capabilities.vision
        again = await world.discovery.resolve_live(asked)
        assert not again.capabilities.vision
        assert again.capabilities.origins["vision"] == "learned"
        assert again.capabilities.tools
        await world.discovery.learn(seeing, without="application/pdf")
        (lesson,) = [
            one for one in await world.shelf.list_facts(asked.reference, asked.base_url) if one.origin == "learned"
        ]
        assert lesson.facts == {"vision": False, "native_pdf": False}
        world.now += 8 * 24 * 3600
        assert (await world.discovery.resolve_live(asked)).capabilities.vision


async def test_facts_of_another_version_are_asked_for_anew(world: World) -> None:
    async with far_side(site(api__show=OLLAMA_VISION)) as server:
        asked = model("ollama/mystery", server)
        await world.shelf.keep(asked.reference, asked.base_url, "asked", {"vision": "a lot", "taste": True})
        assert (await world.discovery.resolve_live(asked)).capabilities.origins["vision"] == "asked"


async def test_the_key_is_sent_to_the_models_own_address_only(world: World) -> None:
    world.keys["openai-compatible"] = "sk-local-0123456789"
    pages = {"v1__models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}, "props": {"modalities": {"vision": True}}}
    async with far_side(site(**pages)) as server:
        await world.discovery.resolve_live(model("compatible/m", server, "/v1"))
    assert [request.target for request in server.requests] == ["/v1/models", "/props"]
    assert {request.headers["host"] for request in server.requests} == {f"127.0.0.1:{server.port}"}


async def test_the_servers_that_run_here_are_found_and_strangers_on_their_ports_are_not() -> None:
    tags = {"models": [{"name": "llava:7b"}, {"name": "qwen3"}, {"odd": 1}]}
    listed = {"data": [{"id": "smollm2", "owned_by": "llamacpp"}]}
    async with (
        far_side(site(api__tags=tags)) as ollama,
        far_side(site(v1__models=listed)) as llama,
        far_side(Reply(body=b"<html>my blog</html>", content_type="text/html")) as stranger,
        far_side(Reply(before="hang")) as silent,
    ):
        found = await local_servers(
            [
                ("ollama", ollama.url),
                ("llama.cpp", llama.url + "/v1"),
                ("lm-studio", stranger.url + "/v1"),
                ("lm-studio", silent.url + "/v1"),
                ("ollama", "http://127.0.0.1:9"),
            ]
        )
    assert [(server.kind, server.models) for server in found] == [
        ("ollama", ("ollama/llava:7b", "ollama/qwen3")),
        ("llama.cpp", ("compatible/smollm2",)),
    ]
