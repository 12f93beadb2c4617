"""Typical mistakes in a first program: each is one `LoomError` that names the argument and the next step."""

from __future__ import annotations

import re
from typing import Any

import pytest

import loom
from loom.errors import ConfigError, ContentError, LoomError


class Plain:
    pass


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"model": None}, ConfigError, 'model=None is neither a name nor a custom provider. Write model="platform'),
        ({"model": 3}, ConfigError, "model=3 is neither"),
        ({"tools": [3]}, ConfigError, "Not a tool: 3. A tool is a function, a Tool, or the name of a built-in"),
        ({"approve": True}, ConfigError, "approve is not a function: True. def approve(request): return"),
        ({"output": "Bill"}, ContentError, "'Bill' cannot be the type of an answer. Use a dataclass"),
        ({"output": Plain}, ContentError, "Plain cannot be the type of an answer. Use a dataclass"),
    ],
)
def test_a_wrong_argument_is_named_with_the_next_step(
    keywords: dict[str, Any], error: type[LoomError], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)) as caught:
        loom.ask("hello", **{"model": "spark", **keywords})
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_mapping_is_not_a_configuration() -> None:
    with pytest.raises(ConfigError, match=r"config is a dict, not a loom\.config\.Config\. Load one with"):
        loom.Loom(config={"model": "spark"})  # pyright: ignore[reportArgumentType]
