"""Thinking, sampling and other options: each platform is asked in its own words, by the facts of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from loom.content.blocks import TextBlock
from loom.models import ThinkingLevel
from loom.prompt import Prompt, ShownMessage
from loom.providers import catalog
from loom.sampling import OutputSchema, Sampling, unsupported_options
from loom.wire.table import wire_of
from wire.prompts import LOOK, compare
from wire.rules import check as refusals
from wire.sdk_types import (
    check_anthropic,
    check_converse,
    check_gemini,
    check_mistral,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)

Check = Callable[[dict[str, Any]], None]

CITY = OutputSchema(
    name="a city",
    schema={
        "type": "object",
        "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["name", "people"],
        "additionalProperties": False,
    },
)
EVERYTHING = Sampling(
    max_tokens=4_000,
    temperature=0.5,
    top_p=0.9,
    seed=7,
    stop=("END",),
    tool_choice="any",
    tool_name="look",
    parallel_calls=False,
    service_tier="auto",
    user="user-1",
    cache_key="session-1",
)


def chat(*beyond: str) -> Check:
    return lambda body: check_openai_chat(body, beyond=beyond)


def bedrock(body: dict[str, Any]) -> None:
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    assert "temperature" not in body
    plain = {name: value for name, value in body.items() if name not in ("anthropic_version", "top_p")}
    check_anthropic({**plain, "model": "x", "stream": True})


MODELS: dict[str, Check] = {
    "anthropic/claude-opus-5": check_anthropic,
    "anthropic/claude-opus-5-5": check_anthropic,
    "anthropic/claude-opus-4-6": check_anthropic,
    "anthropic/claude-haiku-4-5": check_anthropic,
    "bedrock/anthropic.claude-opus-5-v1:0": bedrock,
    "bedrock/us.amazon.nova-2-lite-v1:0": check_converse,
    "bedrock/openai.gpt-oss-120b-1:0": check_converse,
    "bedrock/meta.llama4-maverick-17b-instruct-v1:0": check_converse,
    "openai/gpt-6-astra": check_openai_responses,
    "openai/gpt-5-mini": check_openai_responses,
    "openai/o3": check_openai_responses,
    "openai/gpt-4.1": check_openai_responses,
    "openai-chat/gpt-5.4": chat(),
    "openai-chat/gpt-4o": chat(),
    "gemini/gemini-4-argon": check_gemini,
    "gemini/gemini-2.5-pro": check_gemini,
    "gemini/gemini-2.5-flash": check_gemini,
    "ollama/qwen3-vl:8b": check_ollama,
    "ollama/gpt-oss:20b": check_ollama,
    "deepseek/deepseek-flash": chat("thinking"),
    "mistral/mistral-medium-latest": check_mistral,
    "compatible/qwen3-vl": chat(),
}
LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)


def request(reference: str, sampling: Sampling, *, tools: bool = True) -> dict[str, Any]:
    model = catalog.model(reference)
    message = ShownMessage("user", (TextBlock("Which city is this?"),))
    prompt = Prompt(model=model, messages=(message,), tools=(LOOK,) if tools else (), sampling=sampling)
    return wire_of(model).encode(prompt)


@pytest.mark.parametrize("reference", MODELS)
def test_every_platform_is_asked_in_its_own_words(reference: str) -> None:
    """Reviewed requests: one for each level of thinking, one with every option, one with a schema."""
    bodies: dict[str, Any] = {f"thinking {level}": request(reference, Sampling(thinking=level)) for level in LEVELS}
    bodies["every option"] = request(reference, EVERYTHING)
    bodies["a schema"] = request(reference, Sampling(output_schema=CITY), tools=False)
    bodies["a schema and tools"] = request(reference, Sampling(output_schema=CITY))
    for body in bodies.values():
        MODELS[reference](body)
        model = catalog.model(reference)
        assert list(refusals(model.provider, model.name, body)) == []
    lacking = unsupported_options(catalog.model(reference), EVERYTHING)
    changing = {
        name: {k: v for k, v in body.items() if k not in ("messages", "input", "contents", "tools")}
        for name, body in bodies.items()
    }
    if "system" in str(bodies["a schema"].get("messages")):
        changing["a schema"]["system message"] = bodies["a schema"]["messages"][0]
    name = reference.replace("/", "_").replace(":", "_").replace(".", "_")
    compare(f"options/{name}", {"not sent": list(lacking), **changing})


@pytest.mark.parametrize("reference", MODELS)
def test_what_is_named_as_unsupported_is_what_does_not_leave(reference: str) -> None:
    """Each option alone either changes the request or is named."""
    model, plain = catalog.model(reference), request(reference, Sampling())
    for name in Sampling.__struct_fields__:
        value = getattr(EVERYTHING, name)
        if value == getattr(Sampling(), name) or name in ("tool_name", "tool_choice"):
            continue
        alone = msgspec.structs.replace(Sampling(), **{name: value})
        named = name in unsupported_options(model, alone)
        assert named == (request(reference, alone) == plain), name


def test_free_fields_are_merged_deep_and_cannot_replace_the_conversation() -> None:
    extra = {"generationConfig": {"topK": 3}, "contents": [], "labels": {"team": "x"}}
    body = request("gemini/gemini-4-argon", Sampling(temperature=0.1, extra_body=extra))
    assert body["generationConfig"] == {"temperature": 0.1, "thinkingConfig": {"includeThoughts": True}, "topK": 3}
    assert body["contents"]
    assert body["labels"] == {"team": "x"}


def test_a_schema_switches_citations_off_and_closes_objects_for_claude() -> None:
    loose = OutputSchema(schema={"type": "object", "properties": {"a": {"type": "string"}}})
    body = request("anthropic/claude-opus-5", Sampling(output_schema=loose))
    assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert request("openai/gpt-6-astra", Sampling(output_schema=loose))["text"]["format"]["strict"] is False


def test_without_a_number_as_much_is_asked_for_as_the_model_can_say() -> None:
    assert request("anthropic/claude-opus-5", Sampling())["max_tokens"] == 128_000
    assert request("anthropic/claude-haiku-4-5", Sampling())["max_tokens"] == 64_000
