"""What is known about media is bounded, dropped with its digest, and complete for the request that is being settled."""

from __future__ import annotations

from loom.compile.media_facts import FactCache, WorkingSet
from loom.content.recipes import Text, recipe_key

KEY = recipe_key(Text())


def learn(cache: FactCache, digest: str, chars: int) -> None:
    cache.put(digest).texts[KEY] = "x" * chars
    cache.resize(digest)


def test_a_thousand_documents_take_no_more_room_than_the_bounds() -> None:
    cache = FactCache(max_digests=100, max_chars=10_000)
    for number in range(1_000):
        learn(cache, f"sha256:{number}", 300)
        assert cache.chars <= 10_000 and len(cache) <= 100
    assert cache.get("sha256:999") is not None
    assert cache.get("sha256:0") is None


def test_deleted_media_leave_nothing_behind() -> None:
    cache = FactCache()
    for number in range(50):
        learn(cache, f"sha256:{number}", 1_000)
    cache.drop([f"sha256:{number}" for number in range(50)])
    assert (len(cache), cache.chars) == (0, 0)


def test_what_one_request_needs_stays_together_whatever_is_evicted() -> None:
    cache = FactCache(max_digests=2, max_chars=1_000)
    learn(cache, "sha256:one", 100)
    working = WorkingSet.of(cache, ["sha256:one"])
    for number in range(20):
        learn(cache, f"sha256:{number}", 900)
    assert cache.get("sha256:one") is None
    assert working.to_known().texts["sha256:one", KEY] == "x" * 100
