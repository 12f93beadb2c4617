"""A session cannot brick: for every history and every model, the compiled request is one that the platform takes."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flow.histories import TARGETS, History, history
from flow.judge import problems
from loom.compile.prepare import Prepared
from loom.compile.trim import fits
from loom.models import Model
from loom.providers.catalog import model, platforms

CASES = int(os.environ.get("LOOM_BRICK_CASES", "45"))
"""For each of the models; raise it for a long run."""


def test_every_family_of_the_catalog_is_among_the_targets() -> None:
    """But for the built-in model, which has no wire."""
    families = {
        (platform, family["name"])
        for platform, facts in platforms().items()
        if platform != "loom"
        for family in facts.get("families", [])
    }
    covered = {(reference.split("/")[0], model(reference).family) for reference in TARGETS}
    assert families <= covered
    assert len({model(reference).provider for reference in TARGETS}) == 12


def accept(told: History, prepared: Prepared) -> None:
    assert problems(prepared) == []
    receipt = prepared.receipt
    places = [(row.message, row.block, row.inner) for row in receipt.rows]
    blocks = sum(len(getattr(block, "blocks", (block,))) for said in told.path for block in said.message.blocks)
    assert len(set(places)) == len(places) == blocks, "a block has no row of its own in the receipt"
    lost = [row for row in receipt.rows if row.rendition != "full" and not row.reason]
    assert not lost, "a block was reduced and nobody says why"
    if told.policy.max_tokens is None and told.policy.max_bytes is None and receipt.budgets.tokens > 20_000:
        assert fits(receipt.totals, receipt.budgets), "a budget is broken"


@pytest.mark.parametrize("reference", TARGETS)
@settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**64))
def test_whatever_was_said_the_request_is_one_that_the_platform_takes(reference: str, seed: int) -> None:
    """Wide: from a number to a long history with everything in it. A smaller number makes no smaller history, so none
    is looked for."""
    target: Model = model(reference)
    told = history(Random(f"{reference} {seed}"), target)
    accept(told, told.settled(target))


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(source=st.randoms(use_true_random=False), reference=st.sampled_from(TARGETS))
def test_what_hypothesis_finds_is_taken_too(source: Random, reference: str) -> None:
    """Deep: every choice is Hypothesis's own, and what fails is made as small as it can be."""
    target = model(reference)
    told = history(source, target)
    accept(told, told.settled(target))
