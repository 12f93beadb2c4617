"""Folder: a place on a local disk.

Bytes are written to an unpredictable temporary name, synced, renamed, and the directory is synced; a picture is hashed
while the disk is busy with it. Every directory and file is opened relative to its parent without following links, so
nothing planted inside leads outside. A lock file orders "refresh what is there" against "delete what is old", across
processes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import io
import os
import secrets
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from loom.errors import Corrupt, Full, NotFound
from loom.store.blobs import MAX_BLOB_BYTES, BlobEntry, Checksum, FileStamp, KeyOf, SealOf, damaged_blob
from loom.store.directories import Directories, faults

TEMPORARY: Final = "tmp"
LEFTOVER_SECONDS: Final = 3600
HASH_STEP_BYTES: Final = 1 << 20
HASHED_ASIDE: Final = range(1 << 18, 1 << 23)
"""Sizes in bytes that are hashed while they are written. Less is hashed before another thread has even begun; more
would take long to write for nothing where it turns out to be there already."""
HASHERS: Final = 2
PROBE_BYTES: Final = 1 << 16
REMEMBERED_FILES: Final = 20_000
LISTED_AT_ONCE: Final = 16

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# O_NONBLOCK: opening a planted FIFO must not hang
_READ_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LocalBlobs:
    def __init__(self, root: Path) -> None:
        self.tree: Final = Directories(root)
        self._whole: dict[str, tuple[FileStamp, frozenset[Checksum]]] = {}
        self._whole_lock = threading.Lock()
        self._sizes: set[int] = set()
        self._hashers = ThreadPoolExecutor(HASHERS, thread_name_prefix="loom-media-hasher")
        with faults("write"):
            self._clear_leftovers()

    async def put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str = "") -> str:
        return await asyncio.to_thread(self._put, data, key_of, sha256)

    async def write(self, key: str, data: bytes | memoryview, seal: Checksum, *, durable: bool = True) -> None:
        await asyncio.to_thread(self._write, key, data, seal, durable)

    async def open_temp(self) -> LocalTempBlob:
        return await asyncio.to_thread(LocalTempBlob, self)

    async def load(self, key: str, seal: Checksum) -> bytes:
        return await asyncio.to_thread(self._load, key, seal)

    async def head_bytes(self, key: str, length: int) -> tuple[bytes, BlobEntry]:
        return await asyncio.to_thread(self._head_bytes, key, length)

    async def peek(self, keys: Sequence[str], length: int, seal_of: SealOf) -> dict[str, tuple[bytes, BlobEntry]]:
        return await asyncio.to_thread(self._peek, keys, length, seal_of)

    async def open_local(self, key: str, seal: Checksum) -> io.FileIO:
        """What was checked before and has not changed is opened without a detour through a thread."""
        with faults("read", key):
            file = self._open(key)
            try:
                if not self._is_remembered(file, key, seal):
                    await asyncio.to_thread(self._check, file, key, seal)
                file.seek(seal.start)
            except BaseException:
                file.close()
                raise
            return file

    async def blocks(self, key: str, seal: Checksum, block_bytes: int) -> AsyncIterator[bytes]:
        with await self.open_local(key, seal) as file:
            position, end = seal.start, os.fstat(file.fileno()).st_size
            while position < end:
                with faults("read", key):
                    block = await asyncio.to_thread(os.pread, file.fileno(), min(block_bytes, end - position), position)
                if not block:
                    raise damaged_blob(key)
                position += len(block)
                yield block

    async def stat(self, key: str) -> BlobEntry | None:
        return await asyncio.to_thread(self._stat, key)

    def file_stamp(self, key: str) -> FileStamp | None:
        with faults("read", key):
            found = self._lstat(key)
        return _mark(found) if found else None

    async def touch(self, key: str) -> bool:
        return await asyncio.to_thread(self._touch, key)

    async def delete(self, key: str, *, unless_since: datetime | None = None) -> bool:
        return await asyncio.to_thread(self._delete, key, unless_since)

    async def listing(self, under: str) -> AsyncIterator[BlobEntry]:
        directories = await asyncio.to_thread(self._directories, under)
        for first in range(0, len(directories), LISTED_AT_ONCE):
            for entry in await asyncio.to_thread(self._files, directories[first : first + LISTED_AT_ONCE]):
                yield entry

    async def check(self) -> None:
        await asyncio.to_thread(self._check_writable)

    # What follows blocks, and runs in threads.

    def _check_writable(self) -> None:
        """Write a small file and sync it: only then does a disk say that it is full."""
        with faults("write"):
            self._write_temp(bytes(PROBE_BYTES), durable=True).discard()

    def _put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str) -> str:
        # Bytes of a size that was seen before may be the same ones, and then there is nothing to write.
        if not sha256 and len(data) in HASHED_ASIDE and len(data) not in self._sizes:
            with suppress(Full):  # what is there already needs no space: the plain way finds it, or fails the same
                return self._put_aside(data, key_of)
        sha256 = sha256 or hashlib.sha256(data).hexdigest()
        self._write(key_of(sha256), data, Checksum(sha256), durable=True)
        return sha256

    def _put_aside(self, data: bytes | memoryview, key_of: KeyOf) -> str:
        """Write and sync while another thread hashes; then the file gets its name, unless there is one already."""
        hashing = self._hashers.submit(hashlib.sha256, data)
        spool = self._write_temp(data, durable=True)
        try:
            sha256 = hashing.result().hexdigest()
            key, seal = key_of(sha256), Checksum(sha256)
            with faults("write", key):
                if not self.refresh(key, seal, len(data), durable=True):
                    spool.rename(key, seal, durable=True)
        finally:
            spool.discard()
        return sha256

    def _write_temp(self, data: bytes | memoryview, *, durable: bool) -> LocalTempBlob:
        spool = LocalTempBlob(self)
        try:
            spool.append(data)
            if durable:
                spool.sync()
        except BaseException:
            spool.discard()
            raise
        return spool

    def _write(self, key: str, data: bytes | memoryview, seal: Checksum, durable: bool) -> None:
        with faults("write", key):
            if self.refresh(key, seal, len(data), durable=durable):
                return
            spool = self._write_temp(data, durable=durable)
            try:
                spool.rename(key, seal, durable=durable)
            finally:
                spool.discard()

    def refresh(self, key: str, seal: Checksum, size_bytes: int, *, durable: bool) -> bool:
        """Return whether the right bytes are there already; if so they are young again."""
        try:
            file = self._open(key)
        except (FileNotFoundError, Corrupt):
            return False
        with file:
            if os.fstat(file.fileno()).st_size != size_bytes:
                return False
            known = self._is_remembered(file, key, seal)
            try:
                self._check(file, key, seal)
            except Corrupt:
                return False
            with self.tree.lock(fcntl.LOCK_SH):
                there = self._lstat(key)
                if there is None or not os.path.samestat(there, os.fstat(file.fileno())):
                    return False
                _make_young(file.fileno())
            if durable and not known:  # the writer may not have come to it yet
                with self.tree.directory_of(key) as (directory, _):
                    self.tree.sync(directory, key)
            self.remember(file.fileno(), key, frozenset({seal}))
        return True

    def _load(self, key: str, seal: Checksum) -> bytes:
        with faults("read", key), self._open(key) as file:
            size = os.fstat(file.fileno()).st_size
            if not seal.start <= size <= MAX_BLOB_BYTES:
                raise damaged_blob(key)
            file.seek(seal.start)
            data = file.read(size - seal.start)
            if hashlib.sha256(data).hexdigest() != seal.sha256:
                raise damaged_blob(key)
            return data

    def _head_bytes(self, key: str, length: int) -> tuple[bytes, BlobEntry]:
        with faults("read", key), self._open(key) as file:
            return file.read(length), _entry(key, os.fstat(file.fileno()))

    def _peek(self, keys: Sequence[str], length: int, seal_of: SealOf) -> dict[str, tuple[bytes, BlobEntry]]:
        found: dict[str, tuple[bytes, BlobEntry]] = {}
        for key in keys:
            with suppress(NotFound, Corrupt), faults("read", key), self._open(key) as file:
                data, entry = file.read(length), _entry(key, os.fstat(file.fileno()))
                self._check(file, key, seal_of(key, data, entry))
                found[key] = data, entry
        return found

    def _open(self, key: str) -> io.FileIO:
        with self.tree.directory_of(key) as (directory, leaf):
            try:
                file = io.FileIO(os.open(leaf, _READ_FILE, dir_fd=directory), "rb")
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link: never ours
                    raise damaged_blob(key) from error
                raise
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise damaged_blob(key)
        return file

    def _is_remembered(self, file: io.FileIO, key: str, seal: Checksum) -> bool:
        mark, seals = self._whole.get(key, ((), frozenset[Checksum]()))
        return seal in seals and mark == _mark(os.fstat(file.fileno()))

    def _check(self, file: io.FileIO, key: str, seal: Checksum) -> None:
        if self._is_remembered(file, key, seal):
            return
        before = os.fstat(file.fileno())
        if not seal.start <= before.st_size <= MAX_BLOB_BYTES:
            raise damaged_blob(key)
        hasher, position = hashlib.sha256(), seal.start
        while step := os.pread(file.fileno(), HASH_STEP_BYTES, position):
            hasher.update(step)
            position += len(step)
        if hasher.hexdigest() != seal.sha256 or _mark(before) != _mark(os.fstat(file.fileno())):
            raise damaged_blob(key)
        self.remember(file.fileno(), key, frozenset({seal}))

    def remember(self, descriptor: int, key: str, seals: frozenset[Checksum]) -> None:
        mark = _mark(os.fstat(descriptor))
        with self._whole_lock:
            known, others = self._whole.pop(key, (mark, frozenset[Checksum]()))
            self._whole[key] = (mark, seals | others if known == mark else seals)
            if len(self._whole) > REMEMBERED_FILES:
                self._whole.pop(next(iter(self._whole)))
            if len(self._sizes) > REMEMBERED_FILES:
                self._sizes.clear()
            self._sizes.add(mark[2])

    def _lstat(self, key: str) -> os.stat_result | None:
        try:
            with self.tree.directory_of(key) as (directory, leaf):
                found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    def _stat(self, key: str) -> BlobEntry | None:
        with faults("read", key):
            found = self._lstat(key)
        return _entry(key, found) if found else None

    def _touch(self, key: str) -> bool:
        with faults("write", key):
            try:
                file = self._open(key)
            except FileNotFoundError:
                return False
            with file, self.tree.lock(fcntl.LOCK_SH):
                there, opened = self._lstat(key), os.fstat(file.fileno())
                if there is None or not os.path.samestat(there, opened):
                    return False
                mark, seals = self._whole.get(key, ((), frozenset[Checksum]()))
                _make_young(file.fileno())
                if mark == _mark(opened):
                    self.remember(file.fileno(), key, seals)
        return True

    def _delete(self, key: str, unless_since: datetime | None) -> bool:
        with faults("write", key):
            try:
                with self.tree.directory_of(key) as (directory, leaf):
                    with self.tree.lock(fcntl.LOCK_EX):
                        found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
                        if unless_since is not None and _modified_at(found) >= unless_since:
                            return False
                        os.unlink(leaf, dir_fd=directory)
                    os.fsync(directory)
            except FileNotFoundError:
                return False
        return True

    def _directories(self, under: str) -> list[str]:
        """Return where the files lie: in the directories of a top one (`media`), or in just this one (`media/ab`)."""
        with faults("read"):
            try:
                with self.tree.directory(under.split("/")) as directory, os.scandir(directory) as found:
                    names = sorted(entry.name for entry in found)
            except FileNotFoundError:
                return []
        return [f"{under}/{name}" for name in names] if "/" not in under else [under]

    def _files(self, directories: list[str]) -> list[BlobEntry]:
        entries: list[BlobEntry] = []
        with faults("read"):
            for under in directories:
                # What is no directory is not of the store's making; what is gone by now is not listed.
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    self.tree.directory(under.split("/")) as directory,
                ):
                    entries += _regular_files(directory, under)
        return entries

    def _clear_leftovers(self) -> None:
        """A killed process leaves its temporary files; they are deleted after an hour."""
        oldest = time.time() - LEFTOVER_SECONDS
        try:
            with self.tree.directory([TEMPORARY]) as directory, os.scandir(directory) as files:
                for file in files:
                    found = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_mtime < oldest:
                        os.unlink(file.name, dir_fd=directory)
        except OSError as error:
            # No store yet, another process that is clearing too, or a store that is opened just to be read.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM):
                raise


class LocalTempBlob:
    def __init__(self, folder: LocalBlobs) -> None:
        self._folder = folder
        self._name = secrets.token_hex(16)
        self._lock = threading.Lock()
        with faults("write"), folder.tree.directory([TEMPORARY], create=True) as directory:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = io.FileIO(os.open(self._name, flags, 0o600, dir_fd=directory), "r+b")

    def append(self, data: bytes | bytearray | memoryview) -> None:
        # The lock keeps a discard, after a cancelled upload, from closing the file under a write.
        with self._lock, faults("write"):
            rest = memoryview(data).cast("B")
            while rest:
                rest = rest[self._file.write(rest) :]

    async def keep(self, key: str, seal: Checksum) -> None:
        await asyncio.to_thread(self._keep, key, seal)

    def _keep(self, key: str, seal: Checksum) -> None:
        with faults("write", key):
            size = os.fstat(self._file.fileno()).st_size
            if self._folder.refresh(key, seal, size, durable=True):
                self.discard()
            else:
                self.sync()
                self.rename(key, seal, durable=True)

    def sync(self) -> None:
        with self._lock, faults("write"):
            os.fsync(self._file.fileno())

    def rename(self, key: str, seal: Checksum, *, durable: bool) -> None:
        """Give synced bytes their name, which lasts if it is to be durable."""
        with (
            self._lock,
            self._folder.tree.directory([TEMPORARY]) as source,
            self._folder.tree.directory_of(key, create=True) as (target, leaf),
        ):
            descriptor = self._file.fileno()
            _make_young(descriptor)
            with self._folder.tree.lock(fcntl.LOCK_SH):
                os.replace(self._name, leaf, src_dir_fd=source, dst_dir_fd=target)
            if durable:
                self._folder.tree.sync(target, key)
            self._folder.remember(descriptor, key, frozenset({seal}))
            self._file.close()

    def discard(self) -> None:
        with self._lock, faults("write"):
            if self._file.closed:
                return
            self._file.close()
            with self._folder.tree.directory([TEMPORARY]) as directory, suppress(FileNotFoundError):  # renamed already
                os.unlink(self._name, dir_fd=directory)


def _regular_files(directory: int, under: str) -> Iterator[BlobEntry]:
    with os.scandir(directory) as files:
        for file in files:
            with suppress(FileNotFoundError):
                found = file.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield _entry(f"{under}/{file.name}", found)


def _mark(found: os.stat_result) -> FileStamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def _make_young(descriptor: int) -> None:
    now = time.time_ns()  # the clock that callers compare with; the kernel's own stamp may lag by a tick
    os.utime(descriptor, ns=(now, now))


def _modified_at(found: os.stat_result) -> datetime:
    return _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)


def _entry(key: str, found: os.stat_result) -> BlobEntry:
    return BlobEntry(key=key, size_bytes=found.st_size, modified_at=_modified_at(found))
