"""What goes wrong under a media store in a folder: kills, full and read-only disks, races."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loom.content.media import digest_of
from loom.content.recipes import Low, Thumb
from loom.errors import Full, ReadOnly, StoreError
from loom.formats.facts import Rendered
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media

DATA = bytes(range(256)) * 4000
DERIVED = Rendered(data=DATA, media_type="image/png", width=512, height=288)


def names(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "none", folder]
        if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            return False
        subprocess.run(["umount", folder], check=True)
        return True


MOUNTS = can_mount()
NOBODY = 65534


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def plain_folder(folder: Path) -> Iterator[None]:
    folder.mkdir()
    yield


@contextmanager
def no_room_on_disk(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    filler.write_bytes(b"x" * (os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize - 300_000))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def no_room_by_limit(folder: Path) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def folder_that_all_may_enter() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def mounted_read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)


@contextmanager
def without_write_permission(folder: Path) -> Iterator[None]:
    """Root may write anywhere, so root becomes nobody for a while."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        if path.is_dir():
            path.chmod(0o500)
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)
        for path in paths:
            path.chmod(0o700 if path.is_dir() else 0o600)


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def path_of(root: Path, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return root / "media" / name[:2] / name[2:]


def leftovers(root: Path) -> list[Path]:
    return list((root / "tmp").iterdir()) if (root / "tmp").exists() else []


async def stored(media: MediaStore) -> set[str]:
    return {entry.digest async for entry in media.listing()}


async def streamed(media: MediaStore, digest: str) -> bytes:
    return b"".join([block async for block in media.read_blocks(digest)])


async def test_a_kill_at_any_point_of_a_write_leaves_all_or_nothing(tmp_path: Path) -> None:
    done = python(
        """
        import asyncio, os, signal, sys
        from loom.store.media import open_media

        def counted(name, before):
            real = getattr(os, name)
            def call(*arguments, **named):
                before()
                return real(*arguments, **named)
            setattr(os, name, call)

        def put(number, before):
            for name in ("open", "fsync", "utime", "replace", "stat", "close", "mkdir"):
                counted(name, before)
            asyncio.run(open_media(sys.argv[1]).put(b"%d" % number * 200_000))

        def calls_of_one_put():
            calls = []
            reader, writer = os.pipe()
            if os.fork() == 0:
                put(99, lambda: calls.append(1))
                os.write(writer, b"%d" % len(calls))
                os._exit(0)
            os.wait()
            return int(os.read(reader, 99))

        calls = calls_of_one_put()
        for number in range(calls):
            child = os.fork()
            if child == 0:
                fuse = iter(range(number))
                put(number, lambda: next(fuse, None) is None and os.kill(os.getpid(), signal.SIGKILL))
                os._exit(0)
            os.waitpid(child, 0)
        print(calls)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    calls = int(done.stdout)
    assert calls >= 30

    media = open_media(tmp_path)
    visible = await stored(media)

    assert {digest_of(await media.load(digest)) for digest in visible} == visible
    assert visible <= {digest_of(b"%d" % number * 200_000) for number in (*range(calls), 99)}
    assert 3 <= len(visible) <= calls - 3, "the kills fell all before or all after the rename"
    for number in range(calls):
        assert await streamed(media, await media.put(b"%d" % number * 200_000)) == b"%d" % number * 200_000


async def test_what_a_killed_process_left_is_cleared_after_an_hour(tmp_path: Path) -> None:
    await open_media(tmp_path).put(b"x")
    old, young = tmp_path / "tmp" / "old", tmp_path / "tmp" / "young"
    for path in (old, young):
        path.write_bytes(b"half a pict")
    os.utime(old, (time.time() - 3700, time.time() - 3700))

    open_media(tmp_path)

    assert leftovers(tmp_path) == [young]


@pytest.mark.parametrize("way", ["limit", "small disk"] if MOUNTS else ["limit"])
async def test_a_full_disk_stores_nothing_by_halves_and_works_again_with_space(tmp_path: Path, way: str) -> None:
    root = tmp_path / "disk"
    disk, no_room = (small_disk, no_room_on_disk) if way == "small disk" else (plain_folder, no_room_by_limit)

    async def upload() -> AsyncIterator[bytes]:
        yield DATA
        yield DATA

    with disk(root):
        media = open_media(root)
        small = await media.put(b"stored before")
        picture = await media.put(DATA[1:])
        with no_room(root):
            with pytest.raises(Full, match=r"No disk space left.*Free some space") as caught:
                await media.put(DATA)
            with pytest.raises(Full):
                await media.put_stream(upload(), max_bytes=10**9)
            assert str(root) not in str(caught.value)
            assert await media.load(small) == b"stored before"
            for again in (media, open_media(root)):
                assert await again.put(DATA[1:]) == picture, "what is there already needs no space"
        assert await stored(media) == {small, picture}
        assert leftovers(root) == []

        assert await media.load(await media.put(DATA)) == DATA


@pytest.mark.parametrize("way", ["permissions", "mount"] if MOUNTS else ["permissions"])
async def test_a_read_only_folder_is_read_and_refuses_to_be_written(way: str) -> None:
    make, forbid = (small_disk, mounted_read_only) if way == "mount" else (plain_folder, without_write_permission)
    with folder_that_all_may_enter() as outer, make(outer / "disk"):
        root = outer / "disk"
        media = open_media(root)
        digest = await media.put(b"readable")
        with forbid(root):
            assert await open_media(root).load(digest) == b"readable"
            for attempt in (media.put(b"new"), media.delete(digest)):
                with pytest.raises(ReadOnly, match=r"cannot be written.*write access"):
                    await attempt
            assert await stored(media) == {digest}
        assert await media.load(await media.put(b"new")) == b"new"


@pytest.mark.parametrize("way", ["permissions", "mount"] if MOUNTS else ["permissions"])
async def test_what_is_derived_from_media_that_can_only_be_read_is_kept_elsewhere(way: str) -> None:
    make, forbid = (small_disk, mounted_read_only) if way == "mount" else (plain_folder, without_write_permission)
    with folder_that_all_may_enter() as outer, make(outer / "disk"):
        media = open_media(outer / "disk")
        digest = await media.put(b"a picture")
        made = await DerivedCache(media.place).put(digest, Low(), DERIVED)
        before = names(outer / "disk")
        with forbid(outer / "disk"):
            cache = DerivedCache(open_media(outer / "disk").place)
            assert await cache.get(digest, Low()) == made
            derived = await cache.put(digest, Thumb(), DERIVED)
            assert await cache.get(digest, Thumb()) == derived
            assert await cache.load(derived) == DERIVED.data
            assert names(outer / "disk") == before


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StoreError), (errno.ENOSPC, Full)])
async def test_a_disk_that_fails_to_sync_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    media = open_media(tmp_path)
    before = await media.put(b"stored before")

    def failing(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        with pytest.raises(kind):
            await media.put(DATA)

    assert await stored(media) == {before}
    assert leftovers(tmp_path) == []
    assert await media.load(await media.put(DATA)) == DATA


@pytest.mark.parametrize("data", [b"small", DATA], ids=["small", "picture"])
async def test_what_is_acknowledged_is_synced_with_every_new_name_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    really = os.fsync
    synced: list[tuple[Path, set[Path]]] = []

    def seen(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path, set(path.iterdir()) if path.is_dir() else set()))
        really(descriptor)

    root = tmp_path / "new" / "data"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", seen)
        file = path_of(root, await open_media(root).put(data))

    assert synced[2][0].parent == root / "tmp", "after the folders of the store itself, the bytes"
    for name in (file, file.parent, file.parent.parent, root, root.parent):
        assert any(name in names for _, names in synced), name


async def test_pictures_of_one_size_are_told_apart_and_written_once(tmp_path: Path) -> None:
    media = open_media(tmp_path)
    pictures = [number.to_bytes(2) + DATA for number in range(4)]

    digests = await asyncio.gather(*(media.put(picture) for picture in (*pictures, *pictures)))
    again = await open_media(tmp_path).put(pictures[0])

    assert digests == [digest_of(picture) for picture in (*pictures, *pictures)]
    assert again == digests[0]
    assert await stored(media) == set(digests)
    assert leftovers(tmp_path) == []


def test_running_out_of_file_handles_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    done = python(
        """
        import asyncio, os, resource, sys
        from loom.errors import StoreError
        from loom.store.media import open_media

        async def main():
            media = open_media(sys.argv[1])
            digest = await media.put(b"first")
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) - 1, before[1]))
            for attempt in (media.put(b"second"), media.load(digest)):
                try:
                    await attempt
                except StoreError as error:
                    print(error)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            print(await media.load(await media.put(b"second")))

        asyncio.run(main())
        """,
        tmp_path,
    )

    assert done.stderr == ""
    assert done.stdout.count("Too many open files") == 2
    assert done.stdout.endswith("b'second'\n")


async def test_nobody_else_may_read_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        media = open_media(tmp_path / "data")
        digest = await media.put(b"private")
        spool = await media.place.open_temp()
        spool.append(b"on its way")
        modes = {
            stat.S_IMODE(path.stat().st_mode) | (0o1000 if path.is_dir() else 0)
            for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]
        }
        spool.discard()
    finally:
        os.umask(before)

    assert modes == {0o600, 0o1700}
    assert await media.load(digest) == b"private"


def test_temporary_names_cannot_be_guessed(tmp_path: Path) -> None:
    async def names() -> list[str]:
        place = open_media(tmp_path).place
        spools = [await place.open_temp() for _ in range(3)]
        found = [path.name for path in leftovers(tmp_path)]
        for spool in spools:
            spool.discard()
        return found

    found = asyncio.run(names())

    assert len(set(found)) == 3
    assert all(len(name) == 32 for name in found)


def test_several_processes_put_the_same_bytes_at_once_into_one_file(tmp_path: Path) -> None:
    code = """
        import asyncio, sys
        from loom.store.media import open_media

        async def main():
            media = open_media(sys.argv[1])
            sys.stdin.read()
            for number in range(40):
                print(await media.put(b"%d" % number * 20_000))

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = [process.communicate()[0].decode().split() for process in processes]

    assert [process.returncode for process in processes] == [0] * 4
    assert said == [[digest_of(b"%d" % number * 20_000) for number in range(40)]] * 4
    assert asyncio.run(stored(open_media(tmp_path))) == set(said[0])
    assert leftovers(tmp_path) == []


def test_a_put_that_falls_into_a_deletion_of_old_bytes_is_not_undone_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media = open_media(tmp_path)
    digest = asyncio.run(media.put(DATA))
    os.utime(path_of(tmp_path, digest), (1, 1))
    putting = threading.Thread(target=lambda: asyncio.run(open_media(tmp_path).put(DATA)))
    unlink = os.unlink

    def unlink_late(*arguments: object, **named: object) -> None:
        if not putting.ident:
            putting.start()
            putting.join(0.5)  # as long as a put may take that nothing holds up
        unlink(*arguments, **named)

    monkeypatch.setattr(os, "unlink", unlink_late)
    assert asyncio.run(media.delete(digest, unless_since=datetime.now(UTC) - timedelta(hours=1)))
    putting.join()

    assert asyncio.run(media.load(digest)) == DATA


def test_100_mb_are_stored_in_constant_memory(tmp_path: Path) -> None:
    done = python(
        """
        import asyncio, json, os, resource, sys
        from loom.store.media import open_media

        piece = os.urandom(64_000)

        async def pieces(count):
            for _ in range(count):
                yield piece

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

        async def main():
            media = open_media(sys.argv[1])
            await media.put_stream(pieces(20), max_bytes=10**9)
            idle = peak()
            digest, size = await media.put_stream(pieces(1600), max_bytes=10**9)
            stored = peak()
            total = 0
            async for block in media.read_blocks(digest):
                total += len(block)
            print(json.dumps([size, total, stored - idle, peak() - idle]))

        asyncio.run(main())
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    size, total, put_mb, read_mb = json.loads(done.stdout)

    assert size == total == 1600 * 64_000
    assert put_mb < 20
    assert read_mb < 20
