"""Files that were changed under a media store: damaged bytes are never handed out, and nothing leads outside."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from loom.content.media import digest_of
from loom.errors import Corrupt, NotFound, StoreError
from loom.store.media import MediaStore, open_media

DATA = bytes(range(256)) * 4000


def path_of(root: Path, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return root / "media" / name[:2] / name[2:]


async def streamed(media: MediaStore, digest: str) -> bytes:
    return b"".join([block async for block in media.read_blocks(digest)])


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def swap(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"#!/bin/sh\n" + b"x" * (len(DATA) - 10))


def make_sparse(path: Path) -> None:
    os.truncate(path, 100 * 2**30)


def make_link(path: Path) -> None:
    secret = path.parents[3] / "secret"
    secret.write_bytes(DATA)
    path.unlink()
    path.symlink_to(secret)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


HARM = [truncate, flip, grow, swap, make_sparse, make_link, make_pipe, empty]


@pytest.mark.parametrize("seen_before", [False, True], ids=["first read", "read before"])
@pytest.mark.parametrize("harm", HARM)
async def test_damaged_bytes_are_never_handed_out_and_heal_when_put_again(
    tmp_path: Path, harm: Callable[[Path], None], seen_before: bool
) -> None:
    root = tmp_path / "data"
    digest = await open_media(root).put(DATA)
    media = open_media(root)
    if seen_before:
        assert await streamed(media, digest) == DATA
    harm(path_of(root, digest))

    for attempt in (media.load(digest), media.open_local(digest), streamed(media, digest)):
        with pytest.raises(Corrupt) as caught:
            await attempt
        assert str(tmp_path) not in str(caught.value)

    assert await media.put(DATA) == digest
    assert await media.load(digest) == await streamed(media, digest) == DATA
    assert stat.S_ISREG(path_of(root, digest).lstat().st_mode)


async def test_a_file_that_vanishes_is_not_found_and_one_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(DATA)
    path_of(tmp_path, digest).unlink()
    for attempt in (media.load(digest), media.open_local(digest), streamed(media, digest), media.size(digest)):
        with pytest.raises(NotFound):
            await attempt

    path_of(tmp_path, digest).mkdir()
    for attempt in (media.load(digest), media.put(DATA), media.delete(digest)):
        with pytest.raises(StoreError):
            await attempt


@pytest.mark.parametrize("part", ["media", "shard", "tmp"])
async def test_a_planted_link_to_a_directory_is_not_followed(tmp_path: Path, part: str) -> None:
    root, outside = tmp_path / "data", tmp_path / "outside"
    digest = digest_of(DATA)
    target = {"media": root / "media", "shard": path_of(root, digest).parent, "tmp": root / "tmp"}[part]
    outside.mkdir()
    target.parent.mkdir(parents=True)
    target.symlink_to(outside)

    with pytest.raises(Corrupt, match="did not create"):
        await open_media(root).put(DATA)

    assert list(outside.iterdir()) == []


async def test_bytes_change_under_a_reader_without_it_seeing_them(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(DATA)
    opened = await media.open_local(digest)
    assert opened is not None

    swap(path_of(tmp_path, digest))

    with opened:
        assert opened.read() == DATA
    with pytest.raises(Corrupt):
        await media.open_local(digest)


async def test_a_file_cut_while_it_is_streamed_ends_in_an_error(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    digest = await media.put(DATA)
    blocks = media.read_blocks(digest)
    await anext(blocks)

    truncate(path_of(tmp_path, digest))

    with pytest.raises(Corrupt):
        async for _ in blocks:
            pass
