"""What goes wrong under a media store in a bucket: servers that misbehave, refuse, lie or are gone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from loom.content.media import digest_of
from loom.content.recipes import Low
from loom.errors import Corrupt, Full, ReadOnly, StoreError, Unreachable
from loom.formats.facts import Rendered
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media
from s3_server import OddServer, address, moto_server, new_bucket, odd_server

DATA = bytes(range(256)) * 4000


async def stored(media: MediaStore) -> set[str]:
    return {entry.digest async for entry in media.listing()}


async def streamed(media: MediaStore, digest: str) -> bytes:
    return b"".join([block async for block in media.read_blocks(digest)])


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def odd() -> Iterator[tuple[OddServer, str]]:
    with odd_server() as world:
        yield world


async def test_a_server_that_ignores_conditions_still_ends_up_with_the_right_bytes(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    one, two = open_media(url), open_media(url)

    digests = await asyncio.gather(*(media.put(DATA) for media in (one, two) for _ in range(4)))

    assert set(digests) == {digest_of(DATA)}
    assert world.objects[world.one_key()][0] == DATA
    assert await one.load(digests[0]) == await streamed(two, digests[0]) == DATA


@pytest.mark.parametrize("refusal", [(501, "NotImplemented"), (400, "InvalidArgument")])
async def test_a_server_that_refuses_conditions_is_asked_without(
    odd: tuple[OddServer, str], refusal: tuple[int, str]
) -> None:
    world, url = odd
    world.refuse = {"create": refusal}
    media = open_media(url)

    assert await media.load(await media.put(DATA)) == DATA
    asked = world.count_requests("PUT")
    await media.put(b"the next one")

    assert world.count_requests("PUT") == asked + 1, "it was asked with a condition again"


async def test_a_server_that_claims_to_have_the_bytes_but_has_not_gets_them(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    world.refuse = {"create": (412, "PreconditionFailed")}
    media = open_media(url)

    assert await media.load(await media.put(DATA)) == DATA


async def test_a_server_that_can_only_delete_one_at_a_time_is_enough(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    media = open_media(url)
    digest = await media.put(DATA)

    assert await media.delete(digest)

    assert world.objects == {}
    assert not await media.exists(digest)


async def test_bytes_in_a_bucket_are_sent_again_only_when_old_or_of_another_size(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    media = open_media(url)
    digest = await media.put(DATA)
    await media.put(DATA)
    await media.refresh(digest)
    assert world.count_requests("PUT") == 1

    for renew in (media.put(DATA), media.refresh(digest)):
        world.age(world.one_key(), datetime.now(UTC) - timedelta(days=3))
        await renew
        (_, modified_at) = world.objects[world.one_key()]
        assert modified_at > datetime.now(UTC) - timedelta(minutes=1)
    world.spoil(world.one_key(), DATA[:-1])
    await media.put(DATA)

    assert await media.load(digest) == DATA


@pytest.mark.parametrize(
    "spoiled",
    [b"", DATA[:-1], DATA + b"x", b"x" * len(DATA), b"\xff" + DATA[1:]],
    ids=["empty", "cut", "long", "other", "flip"],
)
async def test_an_object_that_was_tampered_with_is_never_handed_out_whole(
    odd: tuple[OddServer, str], spoiled: bytes
) -> None:
    world, url = odd
    media = open_media(url)
    digest = await media.put(DATA)
    world.spoil(world.one_key(), spoiled)

    with pytest.raises(Corrupt):
        await media.load(digest)
    with pytest.raises(Corrupt):
        await streamed(media, digest)

    await media.put(DATA)
    assert await media.load(digest) == DATA


async def test_a_large_object_that_was_tampered_with_never_ends_well(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    media = open_media(url)
    large = os.urandom(5_000_000)
    digest = await media.put(large)
    world.spoil(world.one_key(), b"\0" + large[1:])
    blocks: list[bytes] = []

    async def receive() -> None:
        async for block in media.read_blocks(digest):
            blocks.append(block)  # noqa: PERF401  # what came before the error is looked at

    with pytest.raises(Corrupt):
        await receive()
    assert sum(map(len, blocks)) < len(large)


@pytest.mark.parametrize(
    ("refuse", "kind", "words"),
    [
        ({"PUT": (403, "AccessDenied")}, ReadOnly, "s3:PutObject"),
        ({"PUT": (403, "InvalidAccessKeyId")}, Unreachable, "AWS_ACCESS_KEY_ID"),
        ({"PUT": (404, "NoSuchBucket")}, Unreachable, "Create it"),
        ({"PUT": (507, "XMinioStorageFull")}, Full, "Free some space"),
        ({"PUT": (405, "MethodNotAllowed")}, StoreError, "MethodNotAllowed, 405"),
        ({"HEAD": (403, ""), "PUT": (403, "AccessDenied")}, ReadOnly, "s3:PutObject"),
        ({"HEAD": (401, ""), "PUT": (401, "")}, Unreachable, "AWS_ACCESS_KEY_ID"),
    ],
)
async def test_a_refused_write_says_what_to_do(
    odd: tuple[OddServer, str], refuse: dict[str, tuple[int, str]], kind: type[StoreError], words: str
) -> None:
    world, url = odd
    world.refuse = refuse
    media = open_media(url)

    with pytest.raises(kind) as caught:
        await media.put(DATA)

    assert words in str(caught.value)
    assert "RetryError" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    world.refuse = {}
    assert await media.load(await media.put(DATA)) == DATA


async def test_who_may_write_but_not_list_can_still_put(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    world.refuse = {"HEAD": (403, "")}

    await open_media(url).put(DATA)

    assert world.objects[world.one_key()][0] == DATA


async def test_a_refused_read_is_not_a_missing_medium(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    media = open_media(url)
    digest = await media.put(DATA)
    world.refuse = {"GET": (403, "AccessDenied"), "HEAD": (403, "")}

    for attempt in (media.load(digest), streamed(media, digest), media.size(digest), media.exists(digest)):
        with pytest.raises(Unreachable, match="s3:GetObject"):
            await attempt


async def test_derived_bytes_that_were_tampered_with_are_dropped_and_made_again(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    cache = DerivedCache(open_media(url).place)
    rendered = Rendered(data=DATA, media_type="image/png", width=640, height=480)
    made = await cache.put(digest_of(b"a photo"), Low(), rendered)
    whole, _ = world.objects[world.one_key()]

    for spoiled in (whole[:-1], whole[:-1] + b"!", whole.replace(b'"width":640', b'"width":641'), b""):
        world.spoil(world.one_key(), spoiled)
        fresh = DerivedCache(open_media(url).place)
        with pytest.raises(StoreError):
            await fresh.load(made)
        assert await fresh.get(digest_of(b"a photo"), Low()) is None
        assert world.objects == {}
        assert await fresh.put(digest_of(b"a photo"), Low(), rendered) == made
        assert await fresh.load(made) == DATA


async def test_a_bucket_that_is_gone_is_unreachable_for_every_question(endpoint: str) -> None:
    media = open_media(address(endpoint, "never-made"))
    digest = digest_of(DATA)

    for attempt in (
        media.put(DATA),
        media.load(digest),
        media.size(digest),
        media.exists(digest),
        media.delete(digest),
        streamed(media, digest),
        stored(media),
    ):
        with pytest.raises(Unreachable, match="does not exist"):
            await attempt


async def test_a_server_that_is_gone_is_unreachable() -> None:
    with odd_server() as (_, url):
        pass  # now its port is closed

    with pytest.raises(Unreachable, match="does not respond"):
        await open_media(url).load(digest_of(DATA))


async def test_a_server_that_fails_for_a_while_is_used_again(odd: tuple[OddServer, str]) -> None:
    world, url = odd
    media = open_media(url)
    digest = await media.put(DATA)
    world.refuse = {"GET": (503, "SlowDown")}

    with pytest.raises(Unreachable, match="SlowDown, 503"):
        await media.load(digest)

    world.refuse = {}
    assert await media.load(digest) == DATA


async def test_a_bucket_takes_a_stream_without_holding_it_in_memory(endpoint: str) -> None:
    code = """
        import asyncio, os, resource, sys
        from loom.store.media import open_media

        piece = os.urandom(64_000)

        async def pieces(count):
            for _ in range(count):
                yield piece

        async def main():
            media = open_media(sys.argv[1])
            await media.put_stream(pieces(2), max_bytes=10**9)
            idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            digest, size = await media.put_stream(pieces(800), max_bytes=10**9)
            assert await media.size(digest) == size == 51_200_000
            print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) // 1024)

        asyncio.run(main())
        """
    command = [sys.executable, "-c", textwrap.dedent(code), new_bucket(endpoint)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40
