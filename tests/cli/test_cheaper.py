"""`loom context` names a cheaper model, if one has a key and would receive no less."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from cli.loom_command import Loom
from loom.content.labels import tokens_label
from loom.testing import sample_png
from runtime.billed import GPT, OPUS, billed_session

KEY = {"ANTHROPIC_API_KEY": "sk-ant-0123456789"}
CHEAP = """
[models.cheap]
provider = "compatible"
model = "small"
base_url = "http://127.0.0.1:9/v1"
price = {{ input = 0.01, output = 0.01 }}
capabilities = {{ vision = {vision} }}
"""


@pytest.mark.parametrize("vision", ["true", "false"])
@pytest.mark.parametrize("with_image", [True, False])
def test_a_cheaper_model_is_named_only_if_it_receives_as_much(tmp_path: Path, with_image: bool, vision: str):
    loom = Loom(tmp_path, **KEY)
    (loom.home / "loom.toml").write_text(CHEAP.format(vision=vision))
    loom("!echo hello", *([str(loom.file("a.png", sample_png()))] if with_image else []))

    named = "sonnet" if with_image and vision == "false" else "cheap"
    shown = loom("context", "-m", "anthropic/claude-opus-5").out
    assert shown.splitlines()[-1].startswith(
        f"  cheaper: {'anthropic/claude-sonnet-5' if named == 'sonnet' else named} "
    )


def test_where_there_is_nothing_cheaper_none_is_named(tmp_path: Path):
    loom = Loom(tmp_path, **KEY)
    loom("!echo hello")
    for model in ("anthropic/claude-sonnet-5", "loom/spark", "anthropic/claude-opus-5,loom/spark"):
        assert "cheaper" not in loom("context", "-m", model).out


def test_a_model_that_cannot_be_used_is_no_alternative_and_no_error(tmp_path: Path):
    loom = Loom(tmp_path, **KEY)
    (loom.home / "loom.toml").write_text('[models.broken]\nprovider = "nosuch"\nmodel = "x"\n')
    loom("!echo hello", "-m", "loom/spark")
    shown = loom("context", "-m", "anthropic/claude-opus-5")
    assert shown.code == 0 and "cheaper: anthropic/claude-sonnet-5 " in shown.out


async def test_an_action_that_discards_a_warm_cache_says_so_first(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    async with billed_session(loom.home, OPUS, random.Random(1)) as (_, session, _biller):
        kept = (await session.plan())[0].estimate
        assert kept is not None and kept.cached_tokens > 1_000
        warning = f"This discards about {tokens_label(kept.cached_tokens)} cached tokens"
        assert warning not in (await asyncio.to_thread(loom, "context", session.id)).out
        switched = await asyncio.to_thread(loom, "context", session.id, "-m", GPT)
        assert warning in switched.out
        hidden = await asyncio.to_thread(loom, "context", session.id, "--hide", "1")
        assert warning in hidden.err + hidden.out


async def test_a_switch_says_what_it_costs_before_it_is_sent(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    async with billed_session(loom.home, OPUS, random.Random(2)) as (_, session, _biller):
        kept = (await session.plan())[0].estimate
        assert kept is not None
    shown = await asyncio.to_thread(loom, "ask", "-r", session.id, "-m", "loom/spark", "And now?")
    assert f"This discards about {tokens_label(kept.cached_tokens)} cached tokens" in shown.err
