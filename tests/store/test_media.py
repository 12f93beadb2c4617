"""One suite for the media store in a folder and in a bucket (moto, over a socket)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.content.media import digest_of
from loom.errors import ConfigError, ContentError, ExtraMissing, NotFound, TooLarge
from loom.store.blobs import BLOCK_BYTES
from loom.store.media import MediaStore, open_media
from s3_server import moto_server, new_bucket

ABSENT = digest_of(b"never stored")
HOSTILE = [
    "",
    "sha256:",
    "sha256:../../etc/passwd",
    "sha256:" + "a" * 63,
    "sha256:" + "A" * 64,
    "sha256:" + "a" * 64 + "\n",
    "sha256:" + "a" * 61 + "/..",
    "sha256:" + "%2e" * 21 + "a",
    "sha256:" + "．" * 64,
    "md5:" + "a" * 64,
    "/etc/passwd",
    "..\\..\\secret",
    "file:///etc/passwd",
    "//host/share",
    "sha256:" + "a" * 4096,
    "sha256:" + "a" * 32 + "\0" + "a" * 31,
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(params=["folder", "bucket"])
def media(request: pytest.FixtureRequest, tmp_path: Path) -> MediaStore:
    if request.param == "folder":
        return open_media(tmp_path / "data")
    return open_media(new_bucket(request.getfixturevalue("endpoint")))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def digests(media: MediaStore) -> list[str]:
    return sorted([stored.digest async for stored in media.listing()])


async def streamed(media: MediaStore, digest: str, block_bytes: int = BLOCK_BYTES) -> list[bytes]:
    return [block async for block in media.read_blocks(digest, block_bytes)]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "lock")


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(100_000)], ids=["empty", "one byte", "100 kB"])
async def test_what_was_put_is_loaded_streamed_and_measured(media: MediaStore, data: bytes) -> None:
    digest = await media.put(data)

    assert digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert await media.load(digest) == data
    assert b"".join(await streamed(media, digest)) == data
    assert await media.size(digest) == len(data)
    assert await media.exists(digest)


async def test_the_same_bytes_are_stored_once_however_they_come(media: MediaStore) -> None:
    data = os.urandom(50_000)

    first = await media.put(data)
    again = await media.put(memoryview(data).cast("I"))
    in_pieces, size = await media.put_stream(pieces(data[:7], b"", data[7:]), max_bytes=50_000)

    assert first == again == in_pieces
    assert size == 50_000
    assert await digests(media) == [first]


async def test_many_at_once_are_all_kept(media: MediaStore) -> None:
    things = [f"thing {number % 20}".encode() for number in range(60)]

    given = await asyncio.gather(*(media.put(thing) for thing in things))

    assert await digests(media) == sorted(set(given))
    assert [await media.load(digest) for digest in given[:20]] == things[:20]


async def test_blocks_are_of_one_size_so_that_each_becomes_base64_on_its_own(media: MediaStore) -> None:
    data = os.urandom(BLOCK_BYTES * 8 + 5)
    digest = await media.put(data)

    blocks = await streamed(media, digest)

    assert [len(block) for block in blocks] == [BLOCK_BYTES] * 8 + [5]
    assert b"".join(base64.b64encode(block) for block in blocks) == base64.b64encode(data)
    assert [len(block) for block in await streamed(media, digest, BLOCK_BYTES * 8 + 5)] == [BLOCK_BYTES * 8 + 5]


async def test_a_local_file_is_handed_out_open_and_checked_or_not_at_all(media: MediaStore, tmp_path: Path) -> None:
    digest = await media.put(b"a picture")

    opened = await media.open_local(digest)

    if (tmp_path / "data").exists():
        assert opened is not None
        with opened as file:
            assert file.read() == b"a picture"
    else:
        assert opened is None


async def test_a_large_stream_arrives_whole(media: MediaStore) -> None:
    block = os.urandom(1_000_000)

    digest, size = await media.put_stream(pieces(*[block] * 20), max_bytes=20_000_000)

    assert size == await media.size(digest) == 20_000_000
    assert digest == digest_of(block * 20)
    assert hashlib.sha256(b"".join(await streamed(media, digest))).hexdigest() == digest.removeprefix("sha256:")


async def test_a_stream_over_the_limit_is_refused_and_leaves_nothing(media: MediaStore, tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match=r"larger than the limit of 2\.0 MB"):
        await media.put_stream(pieces(*[b"x" * 999_999] * 3), max_bytes=2_000_000)

    assert await digests(media) == []
    assert files_in(tmp_path) == []


async def test_a_stream_that_breaks_off_leaves_nothing(media: MediaStore, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 3_000_000
        raise ConnectionResetError("the sender is gone")

    with pytest.raises(ConnectionResetError):
        await media.put_stream(broken(), max_bytes=10_000_000)

    assert await digests(media) == []
    assert files_in(tmp_path) == []


async def test_a_cancelled_stream_leaves_nothing(media: MediaStore, tmp_path: Path) -> None:
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            started.set()

    upload = asyncio.create_task(media.put_stream(endless(), max_bytes=10**9))
    await started.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload

    assert await digests(media) == []
    assert files_in(tmp_path) == []


async def test_what_is_not_there_is_not_found(media: MediaStore) -> None:
    await media.put(b"something else")

    assert not await media.exists(ABSENT)
    assert not await media.refresh(ABSENT)
    assert not await media.delete(ABSENT)
    for attempt in (media.load(ABSENT), media.size(ABSENT), streamed(media, ABSENT)):
        with pytest.raises(NotFound, match=r"are missing\. Supply the file again"):
            await attempt


async def test_an_empty_store_that_was_never_written_can_be_asked(media: MediaStore) -> None:
    assert await digests(media) == []
    assert not await media.exists(ABSENT)
    assert not await media.delete(ABSENT)


@pytest.mark.parametrize("text", HOSTILE)
async def test_what_is_no_digest_never_becomes_a_path(tmp_path: Path, text: str) -> None:
    media = open_media(tmp_path / "data")
    await media.put(b"x")
    before = files_in(tmp_path)

    for attempt in (media.load, media.size, media.exists, media.delete, media.refresh, media.open_local):
        with pytest.raises(ContentError, match="A digest is"):
            await attempt(text)
    with pytest.raises(ContentError, match="A digest is"):
        media.read_blocks(text)

    assert files_in(tmp_path) == before


async def test_what_is_deleted_is_gone_and_can_be_put_again(media: MediaStore) -> None:
    digest = await media.put(b"short-lived")

    assert await media.delete(digest)
    assert not await media.exists(digest)
    assert not await media.delete(digest)

    assert await media.put(b"short-lived") == digest
    assert await media.load(digest) == b"short-lived"


async def test_a_deletion_spares_what_was_put_since(media: MediaStore) -> None:
    digest = await media.put(b"just said")
    now = datetime.now(UTC)

    assert not await media.delete(digest, unless_since=now - timedelta(minutes=5))
    assert await media.exists(digest)
    assert await media.delete(digest, unless_since=now + timedelta(minutes=5))
    assert not await media.exists(digest)


async def test_the_listing_tells_size_and_age(media: MediaStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    digest = await media.put(b"12345")

    (stored,) = [stored async for stored in media.listing()]

    assert (stored.digest, stored.size_bytes) == (digest, 5)
    assert before <= stored.modified_at <= datetime.now(UTC) + timedelta(seconds=2)


async def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(b"ours")
    (tmp_path / "media" / "README").write_text("theirs")
    (tmp_path / "media" / "ab").mkdir(exist_ok=True)
    (tmp_path / "media" / "ab" / ".DS_Store").write_text("theirs")

    assert await digests(media) == [digest]
    assert (tmp_path / "media" / "README").read_text() == "theirs"


async def test_putting_or_refreshing_makes_old_bytes_young(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(b"said again")
    (path,) = (tmp_path / "media").rglob("*/*")
    inode = path.stat().st_ino
    started = datetime.now(UTC)

    for renew in (
        media.put(b"said again"),
        media.put_stream(pieces(b"said again"), max_bytes=99),
        media.refresh(digest),
    ):
        os.utime(path, (1, 1))
        await renew
        (stored,) = [stored async for stored in media.listing()]
        assert stored.modified_at >= started

    assert path.stat().st_ino == inode, "the bytes were written again"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=5000), cuts=st.lists(st.integers(0, 5000), max_size=6), block_bytes=st.integers(1, 6000))
def test_any_bytes_cut_anyhow_come_back_the_same(
    tmp_path: Path, data: bytes, cuts: list[int], block_bytes: int
) -> None:
    async def there_and_back() -> bytes:
        media = open_media(tmp_path)
        edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        parts = [data[start:end] for start, end in pairwise(edges)]
        digest, size = await media.put_stream(pieces(*parts), max_bytes=len(data))
        assert (digest, size) == (digest_of(data), len(data))
        return b"".join(await streamed(media, digest, block_bytes))

    assert asyncio.run(there_and_back()) == data


@pytest.mark.parametrize(
    "spell", [str, lambda path: path.as_uri(), lambda path: path], ids=["text", "file URL", "Path"]
)
async def test_a_folder_is_named_by_path_or_url(tmp_path: Path, spell) -> None:
    folder = tmp_path / "with space ü"

    digest = await open_media(spell(folder)).put(b"x")

    assert await open_media(folder).load(digest) == b"x"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://host/folder", "ftp://host"),
        ("file://otherhost/folder", "file://otherhost"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket?color=red", "'color' is not an option"),
        ("s3://bucket?endpoint=nonsense", "endpoint must look like"),
        ("s3://bucket?endpoint=", "endpoint must look like"),
    ],
)
def test_an_address_that_makes_no_sense_is_refused_with_what_to_write(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_media(address)


def test_an_address_that_is_refused_does_not_show_its_secrets() -> None:
    with pytest.raises(ConfigError) as caught:
        open_media("s3://bucket?secret_access_key=hush&color=red")

    assert "hush" not in str(caught.value)


def test_without_the_extra_a_bucket_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(ExtraMissing, match=r"loom-runtime\[s3\]"):
        open_media("s3://bucket")


def test_opening_a_folder_loads_no_bucket_code() -> None:
    code = "import sys; from loom.store.media import open_media; open_media('.'); print('obstore' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert done.stdout.strip() == "False"
