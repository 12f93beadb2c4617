"""The catalog: references become models; what the user says wins; every fact has a date."""

from __future__ import annotations

import re
from datetime import date

import pytest

from loom.errors import ConfigError
from loom.models import PDF
from loom.providers import catalog
from loom.providers.catalog import ModelOverrides, model
from loom.providers.connections import authorization, endpoint
from loom.providers.http import WIRES


@pytest.mark.parametrize("platform", list(catalog.platforms()))
def test_every_platform_gives_a_model_of_any_name_with_the_day_on_which_its_facts_were_true(platform: str) -> None:
    name = catalog.platforms()[platform].get("names", ["some-model"])[0]
    found = model(f"{platform}/{name}")
    assert found.name == name
    assert date.fromisoformat(found.limits.as_of) <= date.today()  # noqa: DTZ011  a day, not a moment
    assert set(found.capabilities.result_accepts) <= set(found.capabilities.accepts) or platform == "openai"


@pytest.mark.parametrize("platform", list(catalog.platforms()))
def test_every_family_has_a_name_and_a_pattern(platform: str) -> None:
    for family in catalog.platforms()[platform].get("families", []):
        assert re.compile(family["match"])
        assert family["name"]


@pytest.mark.parametrize(
    ("reference", "context_tokens"),
    [
        ("anthropic/claude-opus-5-5", 1_000_000),
        ("anthropic/claude-haiku-4-5", 200_000),
        ("bedrock/anthropic.claude-opus-4-6-v1:0", 1_000_000),
        ("bedrock/eu.anthropic.claude-opus-4-6-v1:0", 1_000_000),
        ("bedrock/arn:aws:bedrock:eu-central-1:1:inference-profile/eu.anthropic.claude-opus-4-6-v1:0", 1_000_000),
        ("openai/gpt-5.4-mini", 272_000),
        ("openai/GPT-5.4", 1_050_000),
        ("openai/o3-mini", 200_000),
    ],
)
def test_a_name_finds_the_family_that_it_belongs_to(reference: str, context_tokens: int) -> None:
    assert model(reference).family
    assert model(reference).limits.context_tokens == context_tokens
    assert model(reference).name == reference.partition("/")[2]


def test_a_name_of_no_family_keeps_the_facts_of_its_platform() -> None:
    assert model("openai/gpt-99").family == ""
    assert model("openai/gpt-99").capabilities.vision


@pytest.mark.parametrize("alias", ["openai-responses/gpt-5.4", "openai/gpt-5.4"])
def test_a_platform_may_be_written_as_its_provider(alias: str) -> None:
    assert model(alias).reference == "openai-responses/gpt-5.4"
    assert model(model(alias).reference) == model(alias)


@pytest.mark.parametrize("reference", ["gpt-5", "/gpt-5", "openai/", "", "nobody/x", "loom/anything"])
def test_what_is_no_reference_is_said_with_an_example_or_the_known_ones(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"platform/name|Known: "):
        model(reference)


def test_chat_completions_takes_no_pictures_inside_tool_results_whatever_the_family_says() -> None:
    assert model("openai/gpt-6-astra").capabilities.result_accepts
    assert model("openai-chat/gpt-6-astra").capabilities.result_accepts == ()


def test_an_unknown_local_model_is_guessed_and_a_listed_one_declared() -> None:
    assert model("compatible/mystery").capabilities.origins["vision"] == "guessed"
    assert model("anthropic/claude-opus-5").capabilities.origins["vision"] == "declared"


def test_what_the_user_says_wins_and_is_marked_as_theirs() -> None:
    told = ModelOverrides(vision=False, native_pdf=True, tools=False, context_tokens=4096, base_url="http://x/v1")
    found = model("anthropic/claude-opus-5", told)
    capabilities = found.capabilities
    assert not capabilities.vision
    assert capabilities.native_pdf
    assert capabilities.result_accepts == (PDF,)
    assert not capabilities.tools
    assert (found.limits.context_tokens, found.base_url) == (4096, "http://x/v1")
    assert {capabilities.origins[name] for name in ("vision", "native_pdf", "tools", "context_tokens")} == {"user"}
    assert model("anthropic/claude-opus-5").capabilities.vision  # the shared value is untouched


def test_turning_vision_on_gives_a_text_model_the_portable_formats() -> None:
    found = model("deepseek/deepseek-v4-pro", ModelOverrides(vision=True))
    assert found.capabilities.accepts == ("image/png", "image/jpeg")


def test_local_platforms_need_no_key_and_services_name_the_variable_of_theirs() -> None:
    assert {platform for platform in catalog.platforms() if not catalog.key_env(platform)} == {
        "ollama",
        "compatible",
        "vllm",
        "llama.cpp",
        "lm-studio",
        "loom",
    }
    assert catalog.key_env("openai-responses") == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("reference", "address"),
    [
        ("anthropic/claude-opus-5", "https://api.anthropic.com/v1/messages"),
        ("openai/gpt-5.5", "https://api.openai.com/v1/responses"),
        ("openai-chat/gpt-5.5", "https://api.openai.com/v1/chat/completions"),
        (
            "gemini/gemini-4-argon",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-4-argon:streamGenerateContent?alt=sse",
        ),
        ("ollama/llava", "http://127.0.0.1:11434/api/chat"),
        ("deepseek/deepseek-flash", "https://api.deepseek.com/chat/completions"),
        ("mistral/mistral-large-latest", "https://api.mistral.ai/v1/chat/completions"),
        ("compatible/qwen3-vl", "http://127.0.0.1:8080/v1/chat/completions"),
    ],
)
def test_a_request_goes_where_the_services_own_sdk_sends_it(reference: str, address: str) -> None:
    found = model(reference)
    assert endpoint(found.base_url, WIRES[found.wire].path(found)).url == address


def test_the_services_own_sdks_say_the_same_addresses() -> None:
    from anthropic import Anthropic
    from mistralai.client.sdkconfiguration import SERVERS
    from openai import OpenAI

    spoken = {
        "anthropic/claude-opus-5": str(Anthropic(api_key="k").base_url),
        "openai/gpt-5.5": str(OpenAI(api_key="k").base_url),
        "mistral/mistral-large-latest": f"{next(iter(SERVERS.values()))}/v1",
    }
    for reference, address in spoken.items():
        assert model(reference).base_url == address.rstrip("/"), reference


def test_a_platform_that_is_not_known_is_answered_with_those_that_may_be_written() -> None:
    with pytest.raises(ConfigError) as refused:
        model("nobody/x")
    known = refused.value.hint.removeprefix("Known: ").rstrip(".").split(", ")
    assert set(known) == {*catalog.platforms(), "lm-studio", "llama.cpp"} and len(known) == len(set(known))


@pytest.mark.parametrize(
    ("variable", "value", "reference", "address"),
    [
        ("OPENAI_BASE_URL", "http://gateway:4000/v1/", "openai/gpt-5.5", "http://gateway:4000/v1"),
        ("OPENAI_BASE_URL", "http://gateway:4000/v1", "openai-chat/gpt-5.5", "http://gateway:4000/v1"),
        ("ANTHROPIC_BASE_URL", "http://gateway:4000", "anthropic/claude-opus-5", "http://gateway:4000"),
        ("OLLAMA_HOST", "0.0.0.0:4242", "ollama/qwen3", "http://127.0.0.1:4242"),
        ("OLLAMA_HOST", "box", "ollama/qwen3", "http://box:11434"),
        ("OLLAMA_HOST", ":8000", "ollama/qwen3", "http://127.0.0.1:8000"),
        ("OLLAMA_HOST", "https://box/", "ollama/qwen3", "https://box"),
        ("AZURE_OPENAI_ENDPOINT", "https://x.openai.azure.com/", "azure/gpt-5", "https://x.openai.azure.com/openai/v1"),
        ("OPENAI_BASE_URL", " ", "openai/gpt-5.5", "https://api.openai.com/v1"),
        ("OPENAI_BASE_URL", "http://gateway:4000/v1", "deepseek/deepseek-flash", "https://api.deepseek.com"),
        ("ANTHROPIC_BASE_URL", "http://gateway", "bedrock/x", "https://bedrock-runtime.{region}.amazonaws.com"),
    ],
)
def test_the_variables_of_the_services_say_where_requests_go(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reference: str, address: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert model(reference).base_url == address
    assert model(reference, ModelOverrides(base_url="http://mine")).base_url == "http://mine"


def test_keys_are_found_under_every_name_that_a_service_gives_them() -> None:
    assert catalog.env_key("gemini", {"GOOGLE_API_KEY": "b"}) == "b"
    assert catalog.env_key("gemini", {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}) == "a"
    assert catalog.env_key("anthropic", {"ANTHROPIC_AUTH_TOKEN": "t"}) == "t"
    assert catalog.env_key("bedrock", {"ANTHROPIC_API_KEY": "t"}) == ""
    assert catalog.env_key("openai-responses", {"OPENAI_API_KEY": "o"}) == "o"


@pytest.mark.parametrize("platform", ["openrouter", "groq", "xai", "vllm", "llama.cpp", "lm-studio", "azure", "vertex"])
def test_each_platform_has_its_own_key_and_header(platform: str) -> None:
    found = model(f"{platform}/some-model")
    assert found.provider == platform
    variable = catalog.key_env(platform)
    assert bool(variable) == (platform not in ("vllm", "llama.cpp", "lm-studio"))
    header = {"azure": "api-key", "vertex": "x-goog-api-key"}.get(platform, "authorization")
    assert list(authorization(found, "secret-key")) == [header]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("claude-sonnet", "anthropic/claude-sonnet-5"),
        ("antropic/claude-opus-5", "anthropic/claude-opus-5"),
        ("lmstudio/qwen3", "lm-studio/qwen3"),
        ("gemini-4-argo", "gemini/gemini-4-argon"),
    ],
)
def test_a_near_name_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        model(typed)
    assert meant in caught.value.hint
