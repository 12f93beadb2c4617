"""Sweeping: what nobody refers to goes; what anybody refers to, or is about to, stays."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from loom.content.media import digest_of
from loom.content.recipes import Low, Thumb
from loom.formats.facts import Rendered
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media
from loom.store.sweep import SweepReport, delete_unused, sweep
from s3_server import moto_server, new_bucket

SMALL = Rendered(data=b"small" * 100, media_type="image/png", width=5, height=5)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(params=["folder", "bucket"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> MediaStore:
    if request.param == "folder":
        return open_media(tmp_path)
    return open_media(new_bucket(request.getfixturevalue("endpoint")))


def now() -> datetime:
    return datetime.now(UTC)


def used(*digests: str) -> Callable[[Collection[str]], Awaitable[Collection[str]]]:
    async def in_use(asked: Collection[str]) -> Collection[str]:
        return set(digests).intersection(asked)

    return in_use


def references(*digests: str) -> Callable[[], Awaitable[set[str]]]:
    async def read() -> set[str]:
        return set(digests)

    return read


def age(root: Path, digest: str, *, days: float) -> None:
    name = digest.removeprefix("sha256:")
    then = time.time() - days * 86_400
    os.utime(root / "media" / name[:2] / name[2:], (then, then))


async def stored(media: MediaStore) -> set[str]:
    return {entry.digest async for entry in media.listing()}


async def test_old_unreferenced_media_go_with_what_was_derived_from_them(media: MediaStore) -> None:
    derived = DerivedCache(media.place)
    used, unused = await media.put(b"used"), await media.put(b"unused!")
    kept = await derived.put(used, Low(), SMALL)
    await derived.put(unused, Low(), SMALL)
    in_a_week = now() + timedelta(days=7, minutes=1)

    early = await sweep(media, references(used), now=in_a_week - timedelta(days=1), derived=derived)
    report = await sweep(media, references(used), now=in_a_week, derived=derived)

    assert early == SweepReport(kept=2, kept_bytes=11)
    assert report.deleted == (unused,)
    assert report.freed_bytes > 7 + len(SMALL.data)
    assert (report.kept, report.kept_bytes) == (1, 4)
    assert await stored(media) == {used}
    assert await derived.get(unused, Low()) is None
    assert await derived.get(used, Low()) == kept


async def test_over_the_size_the_oldest_unreferenced_go_first(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digests = [await media.put(bytes([number]) * 1000) for number in range(6)]
    for number, digest in enumerate(digests):
        age(tmp_path, digest, days=6 - number)

    report = await sweep(media, references(digests[0]), now=now(), cleanup_after_days=30, max_bytes=3500)

    assert report.deleted == tuple(digests[1:4])
    assert report.kept_bytes == 3000


async def test_what_is_referenced_stays_even_over_the_size(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digests = [await media.put(bytes([number]) * 1000) for number in range(3)]
    for digest in digests:
        age(tmp_path, digest, days=400)

    report = await sweep(media, references(*digests), now=now(), max_bytes=0)

    assert report.deleted == ()
    assert await stored(media) == set(digests)


@pytest.mark.parametrize("renew", ["put", "refresh"])
async def test_what_was_put_or_refreshed_just_now_stays_even_at_zero_days_and_bytes(tmp_path: Path, renew: str) -> None:
    media = open_media(tmp_path)
    digest = await media.put(b"about to be said")
    age(tmp_path, digest, days=100)
    assert await (media.put(b"about to be said") if renew == "put" else media.refresh(digest))

    report = await sweep(media, references(), now=now(), cleanup_after_days=0, max_bytes=0)

    assert report.deleted == ()


async def test_a_reference_that_appears_during_the_sweep_counts(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(b"found again")
    age(tmp_path, digest, days=100)
    looks: list[int] = []

    async def referenced() -> set[str]:
        looks.append(1)
        return {digest} if len(looks) > 1 else set()

    report = await sweep(media, referenced, now=now())

    assert report.deleted == ()
    assert await media.load(digest) == b"found again"


async def test_bytes_put_between_the_last_look_and_the_deletion_stay(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(b"said again")
    age(tmp_path, digest, days=100)
    looks: list[int] = []

    async def referenced() -> set[str]:
        looks.append(1)
        if len(looks) > 1:
            await media.put(b"said again")
        return set()

    report = await sweep(media, referenced, now=now())

    assert report.deleted == ()
    assert await media.load(digest) == b"said again"


async def test_a_clock_that_was_set_back_deletes_nothing(media: MediaStore) -> None:
    digest = await media.put(b"from the future")

    await sweep(media, references(), now=now() - timedelta(days=1), cleanup_after_days=0, max_bytes=0)

    assert await stored(media) == {digest}


async def test_many_unreferenced_media_go_in_one_sweep(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digests = [await media.put(b"%d" % number) for number in range(120)]

    report = await sweep(media, references(digests[60]), now=now() + timedelta(days=8))

    assert len(report.deleted) == 119
    assert await stored(media) == {digests[60]}


async def test_forgetting_deletes_at_once_with_what_was_derived(media: MediaStore) -> None:
    derived = DerivedCache(media.place)
    gone, kept = await media.put(b"only here"), await media.put(b"also elsewhere")
    for digest in (gone, kept):
        await derived.put(digest, Thumb(), SMALL)

    later = now() + timedelta(seconds=5)
    freed = await delete_unused(
        media, derived, [gone, kept, digest_of(b"was gone already")], used(kept), unless_since=later
    )

    assert freed > len(b"only here") + len(SMALL.data)
    assert await stored(media) == {kept}
    assert await derived.get(gone, Thumb()) is None
    assert await derived.get(kept, Thumb()) is not None


async def test_forgetting_spares_what_was_said_again_since_the_references_were_counted(tmp_path: Path) -> None:
    media, counted_at = open_media(tmp_path), now()
    derived = DerivedCache(media.place)
    again, gone = await media.put(b"said again"), await media.put(b"not said again")
    await derived.put(again, Thumb(), SMALL)
    age(tmp_path, gone, days=0.001)

    await delete_unused(media, derived, [again, gone], used(), unless_since=counted_at)

    assert await stored(media) == {again}
    assert await derived.get(again, Thumb()) is not None


async def test_forgetting_asks_again_before_each_batch_and_keeps_what_is_used_by_then(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digests = sorted([await media.put(b"%d" % number) for number in range(120)])
    said: set[str] = set()

    async def in_use(asked: Collection[str]) -> Collection[str]:
        found = said.intersection(asked)
        said.add(digests[-1])  # by another session, while the first of them go
        return found

    await delete_unused(media, DerivedCache(media.place), digests, in_use, unless_since=now() + timedelta(seconds=5))

    assert await stored(media) == {digests[-1]}


class Sweeping(RuleBasedStateMachine):
    """Random histories of putting, referencing, forgetting, aging and sweeping. What is referenced always loads."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.media = open_media(self.root)
        self.derived = DerivedCache(self.media.place, max_bytes=3000)
        self.referenced: dict[str, bytes] = {}
        self.known: dict[str, bytes] = {}
        self.runner = asyncio.Runner()

    def teardown(self) -> None:
        self.runner.close()
        self.folder.cleanup()

    @rule(number=st.integers(0, 5), said=st.booleans())
    def put(self, number: int, said: bool) -> None:
        data = bytes([number]) * (100 + number)
        digest = self.runner.run(self.media.put(data))
        self.known[digest] = data
        if said:
            self.referenced[digest] = data

    @precondition(lambda self: self.known)
    @rule(choice=st.data())
    def say_what_was_put_before(self, choice: st.DataObject) -> None:
        digest = choice.draw(st.sampled_from(sorted(self.known)))
        if self.runner.run(self.media.refresh(digest)):
            self.referenced[digest] = self.known[digest]

    @precondition(lambda self: self.referenced)
    @rule(choice=st.data())
    def unsay(self, choice: st.DataObject) -> None:
        del self.referenced[choice.draw(st.sampled_from(sorted(self.referenced)))]

    @precondition(lambda self: self.referenced)
    @rule(choice=st.data())
    def derive(self, choice: st.DataObject) -> None:
        digest = choice.draw(st.sampled_from(sorted(self.referenced)))
        self.runner.run(self.derived.put(digest, Low(), SMALL))

    @rule(days=st.sampled_from([0.01, 1, 8]))
    def time_passes(self, days: float) -> None:
        for path in (*self.root.glob("media/*/*"), *self.root.glob("derived/*/*")):
            then = path.stat().st_mtime - days * 86_400
            os.utime(path, (then, then))

    @rule(
        days=st.sampled_from([0, 1, 7]),
        max_bytes=st.sampled_from([None, 0, 300]),
        said_meanwhile=st.lists(st.integers(0, 5), max_size=2),
    )
    def sweep(self, days: float, max_bytes: int | None, said_meanwhile: list[int]) -> None:
        async def referenced() -> set[str]:
            before = set(self.referenced)
            for number in said_meanwhile:  # a message that arrives while the sweep holds older references
                data = bytes([number]) * (100 + number)
                self.referenced[await self.media.put(data)] = data
            return before

        before = set(self.referenced)
        report = self.runner.run(
            sweep(
                self.media,
                referenced,
                now=now(),
                derived=self.derived,
                cleanup_after_days=days,
                max_bytes=max_bytes,
            )
        )
        assert not before & set(report.deleted)

    @rule(days=st.just(9))
    def everything_unreferenced_goes_in_the_end(self, days: int) -> None:
        self.time_passes(days)
        self.sweep(days=7, max_bytes=None, said_meanwhile=[])
        assert self.runner.run(stored(self.media)) == set(self.referenced)

    @invariant()
    def what_is_referenced_loads(self) -> None:
        for digest, data in self.referenced.items():
            assert self.runner.run(self.media.load(digest)) == data

    @invariant()
    def the_cache_never_lies(self) -> None:
        for digest in self.known:
            found = self.runner.run(self.derived.get(digest, Low()))
            assert found is None or self.runner.run(self.derived.load(found)) == SMALL.data


TestSweeping = Sweeping.TestCase
TestSweeping.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
