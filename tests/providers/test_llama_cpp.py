"""Three wires against a program that we did not write: llama.cpp with a small real model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from compile.world import said
from loom.compile.policy import Request
from loom.compile.request import RequestInput
from loom.content.messages import Message, assistant, user
from loom.errors import CapabilityMissing, ContextOverflow, Refused
from loom.models import Model
from loom.prompt import Prompt
from loom.providers import catalog
from loom.providers.catalog import ModelOverrides
from loom.providers.connections import Connections, Timeouts
from loom.providers.discovery import Discovery, local_servers
from loom.providers.http import HttpProvider
from loom.runtime import Runtime
from loom.sampling import Sampling
from loom.store.model_facts import ModelFacts
from loom.testing import memory_runtime, sample_png
from providers.llama_server import CONTEXT_TOKENS, llama_server
from providers.worlds import answer as folded_answer

pytestmark = pytest.mark.xdist_group("llama")
WIRES = ("openai_chat", "openai_responses", "anthropic")
SHORT = Request(system="You are brief.", sampling=Sampling(max_tokens=12, temperature=0.0))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with llama_server() as address:
        yield address


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with memory_runtime() as runtime:
        yield runtime


@pytest.fixture
async def provider(runtime: Runtime) -> AsyncIterator[HttpProvider]:
    patience = Timeouts(silence_seconds=60, deadline_seconds=120, attempts=3)
    provider = HttpProvider(runtime.stores.renditions, lambda model: None, patience=patience)
    yield provider
    await provider.close()


def small(url: str, wire: Any, *, vision: bool = True) -> Model:
    told = ModelOverrides(base_url=f"{url}/v1", vision=vision, context_tokens=CONTEXT_TOKENS, max_output_tokens=64)
    return msgspec.structs.replace(catalog.model("compatible/smollm2", told), wire=wire)


async def compiled(runtime: Runtime, model: Model, *messages: Message) -> Prompt:
    request = RequestInput(path=tuple(said(*messages)), model=model, system=SHORT.system, sampling=SHORT.sampling)
    return (await runtime.settler.settle(request, "preview")).prompt


@pytest.mark.parametrize("wire", WIRES)
async def test_a_conversation_streams(wire: str, url: str, runtime: Runtime, provider: HttpProvider) -> None:
    model = small(url, wire)
    first = user("Say the word: blue.")
    answer = await folded_answer(provider, await compiled(runtime, model, first))
    assert answer.complete
    assert answer.stop in ("end", "max_tokens")
    assert answer.message is not None
    assert answer.message.text.strip()
    assert 0 < answer.usage.output_tokens <= 12
    longer = [first, assistant(answer.message.text), user("And again?")]
    again = await folded_answer(provider, await compiled(runtime, model, *longer))
    assert again.complete
    assert again.usage.input_tokens > answer.usage.input_tokens


@pytest.mark.parametrize("wire", WIRES)
async def test_a_picture_is_refused_learned_and_sent_as_text_from_then_on(
    wire: str, url: str, runtime: Runtime, provider: HttpProvider
) -> None:
    ingested = await runtime.library.ingest("What is this?", sample_png())
    question = user(*ingested.blocks)
    connections = Connections()
    discovery = Discovery(ModelFacts(runtime.stores.database), lambda model: None, connections=connections)
    model = small(url, wire)
    prompt = await compiled(runtime, model, question)
    assert len(prompt.media()) == 1
    with pytest.raises(CapabilityMissing) as caught:
        await anext(provider.stream(prompt))  # no outage that is waited for: the same would be refused again
    assert caught.value.status in (400, 500)
    blind = await discovery.learn(model, without="image/")
    degraded = await compiled(runtime, blind, question)
    assert degraded.media() == ()
    assert (await folded_answer(provider, degraded)).complete
    lessons = await ModelFacts(runtime.stores.database).list_facts(model.reference, model.base_url)
    assert lessons[0].facts == {"vision": False}
    await connections.close()


@pytest.mark.parametrize("wire", WIRES)
async def test_too_long_a_conversation_is_an_overflow(
    wire: str, url: str, runtime: Runtime, provider: HttpProvider
) -> None:
    generous = msgspec.structs.replace(small(url, wire), limits=catalog.model("anthropic/claude-opus-5").limits)
    prompt = await compiled(runtime, generous, user("the cat sat on the mat. " * 600))
    with pytest.raises(ContextOverflow):
        await folded_answer(provider, prompt)


async def test_the_server_is_found_and_says_what_its_model_takes(url: str, runtime: Runtime) -> None:
    (server,) = await local_servers([("llama.cpp", f"{url}/v1")])
    assert server.models[0].endswith(".gguf")
    connections = Connections()
    discovery = Discovery(ModelFacts(runtime.stores.database), lambda model: None, connections=connections)
    model = catalog.model("compatible/mystery", ModelOverrides(base_url=f"{url}/v1"))
    assert model.capabilities.vision  # a guess
    informed = await discovery.resolve_live(model)
    assert not informed.capabilities.vision
    assert informed.capabilities.origins["vision"] == "asked"
    assert informed.limits.context_tokens == CONTEXT_TOKENS
    await connections.close()


async def test_an_address_that_is_the_servers_but_not_the_apis_is_said(url: str, runtime: Runtime) -> None:
    provider = HttpProvider(runtime.stores.renditions, lambda model: None)
    model = msgspec.structs.replace(small(url, "openai_chat"), base_url=f"{url}/nowhere")
    prompt = await compiled(runtime, model, user("Hello?"))
    with pytest.raises(Refused, match="server URL"):
        await folded_answer(provider, prompt)
    await provider.close()
