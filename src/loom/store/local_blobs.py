"""LocalBlobs: a blob store in a local folder.

Bytes are written to a file with a random temporary name, synced and renamed, and then the directory is synced; images
are hashed while the disk writes them. Every directory and file is opened relative to its parent without following
links, so that a planted link cannot lead outside the folder. A lock file makes "refresh existing bytes" and "delete old
bytes" mutually exclusive, across processes.
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
from loom.store.blobs import (
    MAX_BLOB_BYTES,
    BlobEntry,
    BlobHead,
    Checksum,
    ChecksumOf,
    FileStamp,
    KeyOf,
    damaged_blob,
)
from loom.store.directories import Directories, translate_os_errors

TEMPORARY: Final = "tmp"
LEFTOVER_SECONDS: Final = 3600
HASH_STEP_BYTES: Final = 1 << 20
HASHED_ASIDE: Final = range(1 << 18, 1 << 23)
"""Sizes in bytes that are hashed while they are written. Smaller data is hashed before another thread could start;
larger data takes long to write, which is wasted if it is stored already."""
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
        with translate_os_errors("write"):
            self._clear_leftovers()

    async def put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str = "") -> str:
        return await asyncio.to_thread(self._put, data, key_of, sha256)

    async def write(self, key: str, data: bytes | memoryview, checksum: Checksum, *, durable: bool = True) -> None:
        await asyncio.to_thread(self._write, key, data, checksum, durable)

    async def open_temp(self) -> LocalTempBlob:
        return await asyncio.to_thread(LocalTempBlob, self)

    async def load(self, key: str, checksum: Checksum) -> bytes:
        return await asyncio.to_thread(self._load, key, checksum)

    async def head_bytes(self, key: str, length: int) -> BlobHead:
        return await asyncio.to_thread(self._head_bytes, key, length)

    async def peek(self, keys: Sequence[str], length: int, checksum_of: ChecksumOf) -> dict[str, BlobHead]:
        return await asyncio.to_thread(self._peek, keys, length, checksum_of)

    async def open_local(self, key: str, checksum: Checksum) -> io.FileIO:
        """Return a verified file. One that was verified before and has not changed is opened without a thread."""
        with translate_os_errors("read", key):
            file = self._open(key)
            try:
                if not self._is_remembered(file, key, checksum):
                    await asyncio.to_thread(self._check, file, key, checksum)
                file.seek(checksum.start)
            except BaseException:
                file.close()
                raise
            return file

    async def blocks(self, key: str, checksum: Checksum, block_bytes: int) -> AsyncIterator[bytes]:
        with await self.open_local(key, checksum) as file:
            position, end = checksum.start, os.fstat(file.fileno()).st_size
            while position < end:
                with translate_os_errors("read", key):
                    block = await asyncio.to_thread(os.pread, file.fileno(), min(block_bytes, end - position), position)
                if not block:
                    raise damaged_blob(key)
                position += len(block)
                yield block

    async def stat(self, key: str) -> BlobEntry | None:
        return await asyncio.to_thread(self._stat, key)

    def file_stamp(self, key: str) -> FileStamp | None:
        with translate_os_errors("read", key):
            found = self._lstat(key)
        return _stamp(found) if found else None

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

    # The methods below block; they run in threads.

    def _check_writable(self) -> None:
        """Write a small file and sync it: a full disk may fail only at the sync."""
        with translate_os_errors("write"):
            self._write_temp(bytes(PROBE_BYTES), durable=True).discard()

    def _put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str) -> str:
        # Bytes of a known size may be stored already, and then there is nothing to write: hash them first.
        if not sha256 and len(data) in HASHED_ASIDE and len(data) not in self._sizes:
            with suppress(Full):  # bytes that are stored already need no space: hash them first, below
                return self._put_aside(data, key_of)
        sha256 = sha256 or hashlib.sha256(data).hexdigest()
        self._write(key_of(sha256), data, Checksum(sha256), durable=True)
        return sha256

    def _put_aside(self, data: bytes | memoryview, key_of: KeyOf) -> str:
        """Write and sync to a temporary file while another thread hashes; then rename it, unless the bytes are stored
        already."""
        hashing = self._hashers.submit(hashlib.sha256, data)
        temp = self._write_temp(data, durable=True)
        try:
            sha256 = hashing.result().hexdigest()
            key, checksum = key_of(sha256), Checksum(sha256)
            with translate_os_errors("write", key):
                if not self.refresh(key, checksum, len(data), durable=True):
                    temp.rename(key, checksum, durable=True)
        finally:
            temp.discard()
        return sha256

    def _write_temp(self, data: bytes | memoryview, *, durable: bool) -> LocalTempBlob:
        temp = LocalTempBlob(self)
        try:
            temp.append(data)
            if durable:
                temp.sync()
        except BaseException:
            temp.discard()
            raise
        return temp

    def _write(self, key: str, data: bytes | memoryview, checksum: Checksum, durable: bool) -> None:
        with translate_os_errors("write", key):
            if self.refresh(key, checksum, len(data), durable=durable):
                return
            temp = self._write_temp(data, durable=durable)
            try:
                temp.rename(key, checksum, durable=durable)
            finally:
                temp.discard()

    def refresh(self, key: str, checksum: Checksum, size_bytes: int, *, durable: bool) -> bool:
        """If the key already holds the right bytes, set their modification time to now and return True."""
        try:
            file = self._open(key)
        except (FileNotFoundError, Corrupt):
            return False
        with file:
            if os.fstat(file.fileno()).st_size != size_bytes:
                return False
            known = self._is_remembered(file, key, checksum)
            try:
                self._check(file, key, checksum)
            except Corrupt:
                return False
            with self.tree.lock(fcntl.LOCK_SH):
                current = self._lstat(key)
                if current is None or not os.path.samestat(current, os.fstat(file.fileno())):
                    return False
                _make_young(file.fileno())
            if durable and not known:  # another process may have renamed it but not synced the directory yet
                with self.tree.directory_of(key) as (directory, _):
                    self.tree.sync(directory, key)
            self.remember(file.fileno(), key, frozenset({checksum}))
        return True

    def _load(self, key: str, checksum: Checksum) -> bytes:
        with translate_os_errors("read", key), self._open(key) as file:
            size = os.fstat(file.fileno()).st_size
            if not checksum.start <= size <= MAX_BLOB_BYTES:
                raise damaged_blob(key)
            file.seek(checksum.start)
            data = file.read(size - checksum.start)
            if hashlib.sha256(data).hexdigest() != checksum.sha256:
                raise damaged_blob(key)
            return data

    def _head_bytes(self, key: str, length: int) -> BlobHead:
        with translate_os_errors("read", key), self._open(key) as file:
            return file.read(length), _entry(key, os.fstat(file.fileno()))

    def _peek(self, keys: Sequence[str], length: int, checksum_of: ChecksumOf) -> dict[str, BlobHead]:
        found: dict[str, BlobHead] = {}
        for key in keys:
            with suppress(NotFound, Corrupt), translate_os_errors("read", key), self._open(key) as file:
                data, entry = file.read(length), _entry(key, os.fstat(file.fileno()))
                self._check(file, key, checksum_of(key, data, entry))
                found[key] = data, entry
        return found

    def _open(self, key: str) -> io.FileIO:
        with self.tree.directory_of(key) as (directory, leaf):
            try:
                file = io.FileIO(os.open(leaf, _READ_FILE, dir_fd=directory), "rb")
            except OSError as error:
                if error.errno == errno.ELOOP:  # a link, which Loom never writes
                    raise damaged_blob(key) from error
                raise
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise damaged_blob(key)
        return file

    def _is_remembered(self, file: io.FileIO, key: str, checksum: Checksum) -> bool:
        stamp, checksums = self._whole.get(key, ((), frozenset[Checksum]()))
        return checksum in checksums and stamp == _stamp(os.fstat(file.fileno()))

    def _check(self, file: io.FileIO, key: str, checksum: Checksum) -> None:
        if self._is_remembered(file, key, checksum):
            return
        before = os.fstat(file.fileno())
        if not checksum.start <= before.st_size <= MAX_BLOB_BYTES:
            raise damaged_blob(key)
        hasher, position = hashlib.sha256(), checksum.start
        while step := os.pread(file.fileno(), HASH_STEP_BYTES, position):
            hasher.update(step)
            position += len(step)
        if hasher.hexdigest() != checksum.sha256 or _stamp(before) != _stamp(os.fstat(file.fileno())):
            raise damaged_blob(key)
        self.remember(file.fileno(), key, frozenset({checksum}))

    def remember(self, descriptor: int, key: str, checksums: frozenset[Checksum]) -> None:
        stamp = _stamp(os.fstat(descriptor))
        with self._whole_lock:
            known, others = self._whole.pop(key, (stamp, frozenset[Checksum]()))
            self._whole[key] = (stamp, checksums | others if known == stamp else checksums)
            if len(self._whole) > REMEMBERED_FILES:
                self._whole.pop(next(iter(self._whole)))
            if len(self._sizes) > REMEMBERED_FILES:
                self._sizes.clear()
            self._sizes.add(stamp[2])

    def _lstat(self, key: str) -> os.stat_result | None:
        try:
            with self.tree.directory_of(key) as (directory, leaf):
                found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    def _stat(self, key: str) -> BlobEntry | None:
        with translate_os_errors("read", key):
            found = self._lstat(key)
        return _entry(key, found) if found else None

    def _touch(self, key: str) -> bool:
        with translate_os_errors("write", key):
            try:
                file = self._open(key)
            except FileNotFoundError:
                return False
            with file, self.tree.lock(fcntl.LOCK_SH):
                current, opened = self._lstat(key), os.fstat(file.fileno())
                if current is None or not os.path.samestat(current, opened):
                    return False
                stamp, checksums = self._whole.get(key, ((), frozenset[Checksum]()))
                _make_young(file.fileno())
                if stamp == _stamp(opened):
                    self.remember(file.fileno(), key, checksums)
        return True

    def _delete(self, key: str, unless_since: datetime | None) -> bool:
        with translate_os_errors("write", key):
            try:
                with self.tree.directory_of(key) as (directory, leaf):
                    with self.tree.lock(fcntl.LOCK_EX):
                        found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
                        if unless_since is not None and _modified_at(found) >= unless_since:
                            return False
                        os.unlink(leaf, dir_fd=directory)
                        with self._whole_lock:
                            self._whole.pop(key, None)
                    os.fsync(directory)
            except FileNotFoundError:
                return False
        return True

    def _directories(self, under: str) -> list[str]:
        """Return the directories that hold files: the children of a top-level one (`media`), or just `under` itself
        (`media/ab`)."""
        with translate_os_errors("read"):
            try:
                with self.tree.directory(under.split("/")) as directory, os.scandir(directory) as found:
                    names = sorted(entry.name for entry in found)
            except FileNotFoundError:
                return []
        return [f"{under}/{name}" for name in names] if "/" not in under else [under]

    def _files(self, directories: list[str]) -> list[BlobEntry]:
        entries: list[BlobEntry] = []
        with translate_os_errors("read"):
            for under in directories:
                # Skip files, which Loom does not write at this level, and directories deleted since.
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    self.tree.directory(under.split("/")) as directory,
                ):
                    entries += _regular_files(directory, under)
        return entries

    def _clear_leftovers(self) -> None:
        """Delete temporary files of killed processes, once they are an hour old."""
        oldest = time.time() - LEFTOVER_SECONDS
        try:
            with self.tree.directory([TEMPORARY]) as directory, os.scandir(directory) as files:
                for file in files:
                    found = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_mtime < oldest:
                        os.unlink(file.name, dir_fd=directory)
        except OSError as error:
            # There is no store yet, another process clears it too, or it is opened read-only.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM):
                raise


class LocalTempBlob:
    def __init__(self, folder: LocalBlobs) -> None:
        self._folder = folder
        self._name = secrets.token_hex(16)
        self._lock = threading.Lock()
        with translate_os_errors("write"), folder.tree.directory([TEMPORARY], create=True) as directory:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = io.FileIO(os.open(self._name, flags, 0o600, dir_fd=directory), "r+b")

    def append(self, data: bytes | bytearray | memoryview) -> None:
        # The lock keeps `discard`, after a cancelled upload, from closing the file during a write.
        with self._lock, translate_os_errors("write"):
            rest = memoryview(data).cast("B")
            while rest:
                rest = rest[self._file.write(rest) :]

    async def keep(self, key: str, checksum: Checksum) -> None:
        await asyncio.to_thread(self._keep, key, checksum)

    def _keep(self, key: str, checksum: Checksum) -> None:
        with translate_os_errors("write", key):
            size = os.fstat(self._file.fileno()).st_size
            if self._folder.refresh(key, checksum, size, durable=True):
                self.discard()
            else:
                self.sync()
                self.rename(key, checksum, durable=True)

    def sync(self) -> None:
        with self._lock, translate_os_errors("write"):
            os.fsync(self._file.fileno())

    def rename(self, key: str, checksum: Checksum, *, durable: bool) -> None:
        """Publish synced bytes under `key`; with `durable`, sync the directory too."""
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
            self._folder.remember(descriptor, key, frozenset({checksum}))
            self._file.close()

    def discard(self) -> None:
        with self._lock, translate_os_errors("write"):
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


def _stamp(found: os.stat_result) -> FileStamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def _make_young(descriptor: int) -> None:
    now = time.time_ns()  # the clock that callers compare with; the kernel's own time may lag by a tick
    os.utime(descriptor, ns=(now, now))


def _modified_at(found: os.stat_result) -> datetime:
    return _EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)


def _entry(key: str, found: os.stat_result) -> BlobEntry:
    return BlobEntry(key=key, size_bytes=found.st_size, modified_at=_modified_at(found))
