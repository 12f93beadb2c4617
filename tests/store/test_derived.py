"""The cache of derived bytes, in a folder and in a bucket."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loom.content.media import digest_of
from loom.content.recipes import Crop, Fit, Low, Recipe, Slice, Text, Thumb
from loom.errors import ContentError, Corrupt, NotFound
from loom.formats.facts import Rendered
from loom.store.blobs import BlobStore
from loom.store.derived import Derived, DerivedCache
from loom.store.media import open_media
from s3_server import moto_server, new_bucket

PHOTO, OTHER = digest_of(b"a photo"), digest_of(b"another")
SMALL = Rendered(
    data=b"\x89PNG" + bytes(range(256)) * 40,
    media_type="image/png",
    width=512,
    height=288,
    pages=None,
    notices=("turned upright",),
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "folder":
        return open_media(tmp_path).place
    return open_media(new_bucket(request.getfixturevalue("endpoint"))).place


@pytest.fixture
def folder(tmp_path: Path) -> BlobStore:
    return open_media(tmp_path).place


def only_entry(root: Path) -> Path:
    (path,) = (path for path in (root / "derived").rglob("*") if path.is_file())
    return path


def entries(root: Path) -> int:
    return sum(1 for path in (root / "derived").rglob("*") if path.is_file())


async def streamed(cache: DerivedCache, derived: Derived, block_bytes: int = 999) -> bytes:
    return b"".join([block async for block in cache.read_blocks(derived, block_bytes)])


async def test_what_was_made_once_is_found_with_its_facts_and_bytes(place: BlobStore) -> None:
    made = await DerivedCache(place).put(PHOTO, Low(), SMALL)
    cache = DerivedCache(place)

    found = await cache.get(PHOTO, Low())

    assert found == made
    assert (found.media_type, found.width, found.height, found.pages) == ("image/png", 512, 288, None)
    assert (found.size_bytes, found.notices) == (len(SMALL.data), ("turned upright",))
    assert found.sha256 == digest_of(SMALL.data).removeprefix("sha256:")
    assert await cache.load(found) == await streamed(cache, found) == SMALL.data
    opened = await cache.open_local(found)
    if opened is not None:
        with opened:
            assert opened.read() == SMALL.data


def test_no_fact_that_rendering_gives_is_lost() -> None:
    assert set(Rendered.__struct_fields__) - {"data"} <= set(Derived.__struct_fields__)


async def test_every_fact_is_kept(place: BlobStore) -> None:
    everything = Rendered(
        data=b"words",
        media_type="text/plain",
        width=1,
        height=2,
        pages=3,
        pages_without_text=(1, 3),
        notices=("one", "two"),
    )

    await DerivedCache(place).put(PHOTO, Text(), everything)
    found = await DerivedCache(place).get(PHOTO, Text())

    for name in set(Rendered.__struct_fields__) - {"data"}:
        assert getattr(found, name) == getattr(everything, name)


async def test_each_medium_and_each_recipe_has_its_own_bytes(place: BlobStore) -> None:
    cache = DerivedCache(place)
    recipes: list[Recipe] = [Low(), Low(side_px=256), Fit(), Thumb(), Crop(box=(0, 0, 5, 5)), Slice("1-3"), Text()]
    for digest in (PHOTO, OTHER):
        for number, recipe in enumerate(recipes):
            data = f"{digest} {number}".encode()
            await cache.put(digest, recipe, Rendered(data=data, media_type="text/plain"))

    for digest in (PHOTO, OTHER):
        for number, recipe in enumerate(recipes):
            found = await cache.get(digest, recipe)
            assert found is not None
            assert await cache.load(found) == f"{digest} {number}".encode()
    assert await cache.get(PHOTO, Low(side_px=100)) is None


async def test_bytes_may_be_empty_and_recipes_and_notices_long(place: BlobStore) -> None:
    recipe = Fit(formats=tuple(f"image/x-format-{number}" for number in range(200)))
    rendered = Rendered(data=b"", media_type="application/pdf", pages=450, notices=("x" * 9000, "ü" * 500))

    made = await DerivedCache(place).put(PHOTO, recipe, rendered)
    cache = DerivedCache(place)
    found = await cache.get(PHOTO, recipe)

    assert found == made
    assert found.notices == rendered.notices
    assert await cache.load(found) == await streamed(cache, found) == b""


async def test_what_is_cached_of_many_media_is_learned_at_once(place: BlobStore) -> None:
    earlier = DerivedCache(place)
    made = await earlier.put(PHOTO, Low(), SMALL)
    same = await earlier.put(OTHER, Fit(), SMALL, is_original=True)
    cache = DerivedCache(place)

    await cache.learn([(PHOTO, Low()), (OTHER, Fit()), (OTHER, Low())])

    assert [cache.facts(PHOTO, Low()), cache.facts(OTHER, Fit()), cache.facts(OTHER, Low())] == [made, same, None]
    assert await cache.get(OTHER, Low()) is None


async def test_what_is_damaged_is_not_learned(folder: BlobStore, tmp_path: Path) -> None:
    await DerivedCache(folder).put(PHOTO, Low(), SMALL)
    file = only_entry(tmp_path)
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    cache = DerivedCache(open_media(tmp_path).place)

    await cache.learn([(PHOTO, Low())])

    assert cache.facts(PHOTO, Low()) is None and await cache.get(PHOTO, Low()) is None


async def test_a_second_lookup_takes_less_than_a_tenth_of_a_millisecond(place: BlobStore) -> None:
    await DerivedCache(place).put(PHOTO, Low(), SMALL)
    cache = DerivedCache(place)
    await cache.get(PHOTO, Low())
    times: list[float] = []

    for _ in range(200):
        started = time.perf_counter()
        await cache.get(PHOTO, Low())
        times.append(time.perf_counter() - started)

    assert sorted(times)[20] < 0.0001


async def test_dropping_a_medium_drops_all_that_was_made_of_it_and_nothing_else(place: BlobStore) -> None:
    cache = DerivedCache(place)
    gone = [await cache.put(PHOTO, recipe, SMALL) for recipe in (Low(), Fit(), Thumb())]
    kept = await cache.put(OTHER, Low(), SMALL)

    freed = await cache.drop(PHOTO)

    assert freed > 3 * len(SMALL.data)
    assert await cache.get(PHOTO, Low()) is None
    assert cache.facts(PHOTO, Fit()) is None
    with pytest.raises(NotFound):
        await cache.load(gone[0])
    assert await cache.get(OTHER, Low()) == kept
    assert await cache.drop(PHOTO) == 0


async def test_another_process_may_drop_what_this_one_remembers(place: BlobStore) -> None:
    cache = DerivedCache(place)
    made = await cache.put(PHOTO, Low(), SMALL)
    await DerivedCache(place).drop(PHOTO)

    with pytest.raises(NotFound):
        await cache.load(made)

    assert await cache.get(PHOTO, Low()) is None
    assert await cache.put(PHOTO, Low(), SMALL) == made
    assert await cache.load(made) == SMALL.data


def harm_magic(data: bytes) -> bytes:
    return b"x" + data[1:]


def harm_length(data: bytes) -> bytes:
    return data[:8] + b"\xff\xff\xff\xff" + data[12:]


def harm_facts(data: bytes) -> bytes:
    assert b'"width":512' in data
    return data.replace(b'"width":512', b'"width":513')


def harm_bytes(data: bytes) -> bytes:
    return data[:-10] + b"!" + data[-9:]


def cut(data: bytes) -> bytes:
    return data[:-1]


def cut_to_nothing(data: bytes) -> bytes:
    return b""


def grow(data: bytes) -> bytes:
    return data + b"\0"


HARM = [harm_magic, harm_length, harm_facts, harm_bytes, cut, cut_to_nothing, grow]


@pytest.mark.parametrize("known", [False, True], ids=["new process", "remembered"])
@pytest.mark.parametrize("harm", HARM)
async def test_a_damaged_entry_is_dropped_and_made_again(
    folder: BlobStore, tmp_path: Path, harm: Callable[[bytes], bytes], known: bool
) -> None:
    writer = DerivedCache(folder)
    made = await writer.put(PHOTO, Low(), SMALL)
    cache = writer if known else DerivedCache(open_media(tmp_path).place)
    path = only_entry(tmp_path)
    path.write_bytes(harm(path.read_bytes()))

    assert await cache.get(PHOTO, Low()) is None
    assert entries(tmp_path) == 0

    assert await cache.put(PHOTO, Low(), SMALL) == made
    assert await cache.load(made) == SMALL.data


async def test_a_damaged_entry_that_is_noticed_late_is_not_handed_out(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder)
    for read in (cache.load, cache.open_local, lambda derived: streamed(cache, derived)):
        made = await cache.put(PHOTO, Low(), SMALL)
        path = only_entry(tmp_path)
        path.write_bytes(harm_bytes(path.read_bytes()))

        with pytest.raises(Corrupt):
            await read(made)

        assert entries(tmp_path) == 0
        assert cache.facts(PHOTO, Low()) is None


async def test_an_entry_under_the_name_of_another_is_not_believed(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder)
    await cache.put(PHOTO, Low(), SMALL)
    low = only_entry(tmp_path)
    content = low.read_bytes()
    await cache.drop(PHOTO)
    await cache.put(PHOTO, Fit(), SMALL)
    only_entry(tmp_path).write_bytes(content)

    assert await DerivedCache(folder).get(PHOTO, Fit()) is None


async def test_the_least_recently_used_go_first_when_there_is_too_much(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder, max_bytes=100_000)
    rendered = Rendered(data=os.urandom(10_000), media_type="image/png")
    for number in range(1, 10):
        await cache.put(PHOTO, Slice(str(number)), rendered)
        age(only_new(tmp_path, number), days=100 - number)
    restarted = DerivedCache(open_media(tmp_path).place, max_bytes=100_000)
    assert await restarted.get(PHOTO, Slice("1")) is not None

    for number in range(10, 15):
        await restarted.put(PHOTO, Slice(str(number)), rendered)

    left = [number for number in range(1, 15) if await restarted.get(PHOTO, Slice(str(number)))]
    assert 1 in left, "it was used last of the old ones"
    assert left[-5:] == [10, 11, 12, 13, 14]
    assert 2 not in left
    assert sum(path.stat().st_size for path in (tmp_path / "derived").rglob("*.*")) <= 100_000


def only_new(root: Path, number: int) -> Path:
    """The entry written last; those before were made old."""
    paths = sorted((root / "derived").rglob("*.*"), key=lambda path: path.stat().st_mtime)
    assert len(paths) == number
    return paths[-1]


def age(path: Path, *, days: int) -> None:
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


async def test_use_is_recorded_for_other_processes_once_a_day(folder: BlobStore, tmp_path: Path) -> None:
    await DerivedCache(folder).put(PHOTO, Low(), SMALL)
    age(only_entry(tmp_path), days=3)
    started = datetime.now(UTC).timestamp()
    cache = DerivedCache(folder)

    await cache.get(PHOTO, Low())

    assert only_entry(tmp_path).stat().st_mtime >= started
    touched = only_entry(tmp_path).stat().st_mtime
    assert await cache.get(PHOTO, Low()) is not None
    assert only_entry(tmp_path).stat().st_mtime == touched


async def test_one_entry_larger_than_the_limit_is_kept_until_the_next(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder, max_bytes=1000)

    first = await cache.put(PHOTO, Low(), SMALL)
    assert await cache.load(first) == SMALL.data
    second = await cache.put(PHOTO, Fit(), SMALL)

    assert await cache.load(second) == SMALL.data
    assert entries(tmp_path) == 1


async def test_orphans_go_unless_they_are_young(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder)
    await cache.put(PHOTO, Low(), SMALL)
    hour_ago = datetime.now(UTC) - timedelta(hours=1)

    assert await cache.drop_orphans({OTHER}, unless_since=hour_ago) == 0
    age(only_entry(tmp_path), days=1)
    assert await cache.drop_orphans({PHOTO}, unless_since=hour_ago) == 0
    assert await cache.drop_orphans({OTHER}, unless_since=hour_ago) > 0
    assert entries(tmp_path) == 0


async def test_files_of_others_are_neither_read_nor_deleted(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder, max_bytes=1)
    await cache.put(PHOTO, Low(), SMALL)
    foreign = only_entry(tmp_path).parent / "notes.txt"
    foreign.write_text("x" * 5000)
    age(foreign, days=900)

    await cache.trim()
    await cache.drop_orphans(set(), unless_since=datetime.now(UTC) + timedelta(days=1))

    assert foreign.exists()


async def test_many_puts_at_once_stay_within_the_limit(folder: BlobStore, tmp_path: Path) -> None:
    cache = DerivedCache(folder, max_bytes=60_000)
    rendered = Rendered(data=os.urandom(9_000), media_type="image/png")

    await asyncio.gather(*(cache.put(PHOTO, Slice(str(number)), rendered) for number in range(1, 40)))
    await cache.trim()

    assert sum(path.stat().st_size for path in (tmp_path / "derived").rglob("*.*")) <= 60_000


async def test_what_is_no_digest_never_becomes_a_path(folder: BlobStore) -> None:
    with pytest.raises(ContentError):
        await DerivedCache(folder).get("../../etc/passwd", Low())


async def test_a_recipe_that_leaves_the_medium_as_it_was_keeps_no_second_copy(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    cache = DerivedCache(media.place)
    picture = b"\x89PNG" + bytes(100_000)
    digest = await media.put(picture)
    derived = await cache.put(digest, Low(), Rendered(data=picture, media_type="image/png", width=8, height=8))
    assert derived.is_original
    assert derived.size_bytes == len(picture)
    again = DerivedCache(open_media(tmp_path).place)
    assert await again.get(digest, Low()) == derived
    kept = sum(path.stat().st_size for path in (tmp_path / "derived").rglob("*") if path.is_file())
    assert kept < 2_000
