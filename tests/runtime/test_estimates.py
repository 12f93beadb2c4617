"""The cost of a request before it is sent: the same in every interface, right about the cache, and honest about cheaper
models."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.loom_command import Loom
from daemon.running import TOKEN, serving
from loom.client import RemoteLibrary
from loom.estimates import Estimate
from loom.runtime.estimator import estimate_request
from loom.runtime.session import LocalSession
from runtime.billed import CACHING, GPT, OPUS, SONNET, billed_session


async def estimate_of(session: LocalSession, *models: str, **how: Any) -> Estimate:
    receipt, *_ = await session.plan(models, **how)
    assert receipt.estimate is not None
    return receipt.estimate


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", [OPUS, SONNET, GPT, "loom/spark"])
async def test_library_command_and_api_state_one_and_the_same_estimate(tmp_path: Path, model: str, seed: int) -> None:
    loom, words = Loom(tmp_path), random.Random(seed)
    at = words.choice(CACHING)
    async with billed_session(loom.home, at, words, image=bool(seed % 2)) as (runtime, session, _):
        found = await estimate_of(session, model, cheaper=True)
        async with serving(runtime) as daemon, RemoteLibrary(daemon.url, TOKEN) as library:
            remote = await library.open(session.id)
            (over_http,) = await remote.plan([model], cheaper=True)
            planned = (await remote.plan_table([model], cheaper=True)).models[model]
        printed = await asyncio.to_thread(loom, "context", session.id, "-m", model, "--json")
        assert over_http.estimate == planned.estimate == found
        assert planned.usd == found.usd
        assert msgspec.convert(msgspec.json.decode(printed.out)["estimate"], Estimate) == found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("model", CACHING)
async def test_what_is_expected_to_be_cached_is_the_last_prompt_if_the_next_one_extends_it(
    tmp_path: Path, model: str, seed: int
) -> None:
    words = random.Random(seed)
    async with billed_session(tmp_path, model, words, turns=1 + seed % 3) as (_, session, biller):
        found = await estimate_of(session)
        assert found.cached_tokens == min(biller.billed[-1].input_tokens, found.input_tokens) > 0
        assert found.cached_tokens + found.new_tokens == found.input_tokens
        assert found.discards is None
        assert found.last is not None
        assert found.last.billed_tokens == biller.billed[-1].input_tokens

        await session.send("And now?")
        assert biller.billed[-1].cache_read_tokens == pytest.approx(found.cached_tokens, rel=0.02)

        request = await session.previews.next_request()
        price = session._services.price  # pyright: ignore[reportPrivateUsage]
        life = request.input.model.cache.seconds
        sent_at = request.input.watermark.billed_at
        assert estimate_request(request, price, now=sent_at + life - 1).cached_tokens > 0
        late = estimate_request(request, price, now=sent_at + life + 1)
        assert late.cached_tokens == 0
        assert late.usd is not None
        assert found.usd is not None
        assert late.usd > found.usd


@pytest.mark.parametrize("model", CACHING)
async def test_a_change_that_discards_a_warm_cache_says_how_many_tokens_and_how_much_more(
    tmp_path: Path, model: str
) -> None:
    async with billed_session(tmp_path, model, random.Random(1), turns=3) as (_, session, _biller):
        kept = await estimate_of(session)
        path = (await session.snapshot()).path
        other = next(it for it in CACHING if it != model)
        actions: dict[str, dict[str, Any]] = {
            "switch": {"models": [other]},
            "edit": {"at": path[1].id, "content": ["Another question"]},
            "system": {"system": "Answer at length."},
            "tools": {"tools": ["*"]},
            "hide": {"overrides": {f"{path[0].id}/0": "omitted"}},
        }
        for action, how in actions.items():
            (planned,) = (await session.plan_table(**how)).models.values()
            found = planned.estimate
            assert found is not None, action
            if action == "switch":
                assert found.cached_tokens == 0
            assert found.discards is not None, action
            assert 0 < found.discards.tokens <= kept.cached_tokens, action
            assert kept.usd is not None
            assert found.usd is not None
            more = found.usd - kept.usd
            assert found.discards.usd == (pytest.approx(more, rel=0.05) if more > 0 else None), action
        (summary,) = (await session.plan_table(compact=True)).models.values()
        assert summary.estimate is not None
        assert summary.estimate.discards is not None
        assert summary.estimate.discards.tokens == kept.cached_tokens
        assert (await estimate_of(session)) == kept  # planning changes nothing


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("model", [OPUS, SONNET, GPT])
async def test_a_cheaper_model_costs_less_when_compiled_and_loses_no_block(
    tmp_path: Path, model: str, image: bool
) -> None:
    async with billed_session(tmp_path, OPUS, random.Random(2), image=image) as (_, session, _biller):
        assert (await estimate_of(session, model)).cheaper is None  # it was not searched
        found = await estimate_of(session, model, cheaper=True)
        offer = found.cheaper
        assert offer is not None
        assert offer.model == ("small" if image else "blind")
        mine, other = await session.plan([model, offer.model])
        assert other.estimate is not None
        assert found.usd is not None
        assert other.estimate.usd == pytest.approx(offer.usd)
        assert offer.usd < found.usd
        assert {row.rendition for row in mine.rows} == {row.rendition for row in other.rows} == {"full"}


async def test_a_model_without_tools_is_no_alternative_for_a_request_with_tools(tmp_path: Path) -> None:
    async with billed_session(tmp_path, OPUS, random.Random(3)) as (_, session, _biller):
        await session.change(tools=("*",))
        offer = (await estimate_of(session, cheaper=True)).cheaper
        assert offer is not None
        assert offer.model == "small"
