"""Each request that was paid for is counted, also if its answer repeats an earlier one word for word."""

from __future__ import annotations

import pytest

from flow.far_models import far_model
from loom.store.usage import read_answers

WAYS: dict[str, tuple[str, ...]] = {
    "the same question": ("send", "send", "send"),
    "another answer": ("send", "again", "again"),
    "several answers": ("send", "three", "again"),
    "from a fork": ("send", "fork", "again", "send"),
}


@pytest.mark.parametrize("words", ["ok", "one|two|three|four|five|six"])
@pytest.mark.parametrize("way", WAYS)
async def test_usage_counts_as_many_answers_as_the_provider_was_asked_for(way: str, words: str) -> None:
    async with far_model("anthropic", *words.split("|")) as far:
        session = await far.runtime.session(model="far")
        for step in WAYS[way]:
            match step:
                case "send":
                    await session.send("Again?")
                case "three":
                    await session.send("Again?", n=3)
                case "fork":
                    session = await session.fork()
                case _:
                    await session.regenerate().finish()
        rows = (await far.runtime.library.usage(1)).rows
        stored = await read_answers(far.runtime.stores.database, 0.0)
        later = await read_answers(far.runtime.stores.database, stored[-1].created_at + 1)
    assert sum(row.answers for row in rows) == len(stored) == len(far.requests)
    assert all(answer.meta["usage"]["input_tokens"] for answer in stored)
    assert later == ()
