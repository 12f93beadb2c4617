"""Typical mistakes in a first program: each is one `LoomError` that names the argument and the next step."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

import loom
from loom.errors import ConfigError, ContentError, LoomError, ProviderError


class Plain:
    pass


class Slashed:
    name = "my/model"
    capabilities = loom.Capabilities()

    async def stream(self, prompt: loom.Prompt) -> AsyncIterator[Any]:
        yield 3


class Counting(Slashed):
    name = "counting"


class Unfinished:
    name = "unfinished"


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"model": None}, ConfigError, 'model=None is neither a name nor a custom provider. Write model="platform'),
        ({"model": 3}, ConfigError, "model=3 is neither"),
        ({"model": Slashed()}, ConfigError, "Invalid provider name: 'my/model'. Use a lower-case letter, then"),
        (
            {"model": Unfinished()},
            ConfigError,
            "Not a provider: Unfinished. A provider has `name`, `capabilities` and a method",
        ),
        ({"tools": [3]}, ConfigError, "Not a tool: 3. A tool is a function, a Tool, or the name of a built-in"),
        ({"approve": True}, ConfigError, "approve is not a function: True. def approve(request): return"),
        ({"output": "Bill"}, ContentError, "'Bill' cannot be used as an output type. Use a dataclass"),
        ({"output": Plain}, ContentError, "Plain cannot be used as an output type. Use a dataclass"),
    ],
)
def test_a_wrong_argument_is_named_with_the_next_step(
    keywords: dict[str, Any], error: type[LoomError], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)) as caught:
        loom.ask("hello", **{"model": "spark", **keywords})
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_what_a_provider_yields_by_mistake_is_named() -> None:
    with pytest.raises(
        ProviderError, match=r"counting failed: TypeError: stream\(\) yielded int; yield text or events"
    ):
        loom.ask("hello", model=Counting())


def test_a_mapping_is_not_a_configuration() -> None:
    with pytest.raises(ConfigError, match=r"config is a dict, not a loom\.config\.Config\. Load one with"):
        loom.Loom(config={"model": "spark"})  # pyright: ignore[reportArgumentType]
