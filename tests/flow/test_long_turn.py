"""A turn of many steps with many pictures whose process dies again and again ends with the tree of an undisturbed one.
`python -m benchmarks.long_turn` does it with 300 steps, 100 pictures and thirty deaths."""

from __future__ import annotations

from pathlib import Path

from flow.long_turner import random_lengths, run_long_turn

STEPS, PICTURES, DEATHS = 40, 12, 6


async def test_a_long_turn_ends_with_the_same_tree_however_often_its_process_dies(tmp_path: Path) -> None:
    calm = await run_long_turn(tmp_path / "calm", steps=STEPS, pictures=PICTURES)
    lengths = random_lengths(calm.points, DEATHS, 20261117)
    killed = await run_long_turn(tmp_path / "killed", steps=STEPS, pictures=PICTURES, lengths=lengths)
    assert (calm.deaths, killed.deaths) == (0, DEATHS)
    assert killed.head == calm.head, "the id of a node is a hash of all that is said above it"
    assert (killed.nodes, killed.pictures) == (calm.nodes, calm.pictures) == (2 * STEPS + 1, PICTURES)
    assert calm.requests == STEPS
    assert killed.requests <= STEPS + DEATHS, "a death costs at most one request"
