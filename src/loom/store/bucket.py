"""Bucket: a place behind the S3 protocol, through obstore (extra `s3`).

A put is one conditional request where the server knows them. Servers that do not, or that ignore the condition,
overwrite bytes with equal bytes, because keys are made from content. A bucket cannot change an object's age, so to
refresh one is to write it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import tempfile
import threading
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Final, Literal, cast
from urllib.parse import parse_qsl, urlsplit

from loom.errors import ConfigError, ExtraMissing, Full, LoomError, ReadOnly, StoreError, Unreachable
from loom.store.directories import faults
from loom.store.place import BLOCK_BYTES, GRACE, MAX_BLOB_BYTES, Entry, KeyOf, Mark, Seal, damaged, missing

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config, S3Store

WINDOW_BYTES: Final = 7 * BLOCK_BYTES
"""Read with one request: most pictures, and little enough to hold."""

PART_BYTES: Final = 8 * 1024 * 1024
PARTS_AT_ONCE: Final = 2
OPTIONS: Final = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
_CLOCK_TICK: Final = timedelta(seconds=1)  # S3 cuts times to whole seconds
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_BAD_CREDENTIALS: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
_ALLOW: Final = "Allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket."


class Bucket:
    def __init__(self, store: S3Store) -> None:
        self._store = store
        self._conditional = True
        self._suspect: set[str] = set()

    async def put(self, data: bytes | memoryview, key_of: KeyOf) -> str:
        sha256 = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        await self.write(key_of(sha256), data, Seal(sha256))
        return sha256

    async def write(self, key: str, data: bytes | memoryview, seal: Seal, *, durable: bool = True) -> None:
        del seal, durable  # an answered PUT is durable, and the server checks the hash that signs the request
        state = await self._state(key, len(data))
        if state != "young":
            await self._put(key, data, absent=state == "absent")

    async def spool(self) -> BucketSpool:
        return await asyncio.to_thread(BucketSpool, self)

    async def load(self, key: str, seal: Seal) -> bytes:
        with self._faults("read", key):
            answer = await self._store.get_async(key)
            if not seal.start <= answer.meta["size"] <= MAX_BLOB_BYTES:
                raise self._damaged(key)
            data = bytes(await answer.bytes_async())[seal.start :]
        if (await asyncio.to_thread(hashlib.sha256, data)).hexdigest() != seal.sha256:
            raise self._damaged(key)
        return data

    async def head_bytes(self, key: str, length: int) -> tuple[bytes, Entry]:
        return await self._window(key, 0, length)

    async def open_local(self, key: str, seal: Seal) -> io.FileIO | None:
        del key, seal
        return None

    async def blocks(self, key: str, seal: Seal, block_bytes: int) -> AsyncIterator[bytes]:
        """Nothing leaves of the last window before the whole is checked, so damaged bytes are never sent whole."""
        window_bytes = max(1, WINDOW_BYTES // block_bytes) * block_bytes
        hasher, position, end = hashlib.sha256(), seal.start, seal.start + 1
        while position < end:
            window, entry = await self._window(key, position, window_bytes)
            end = entry.size_bytes
            await asyncio.to_thread(hasher.update, window)
            position += len(window)
            if (position >= end and hasher.hexdigest() != seal.sha256) or (position < end and not window):
                raise self._damaged(key)
            for start in range(0, len(window), block_bytes):
                yield window[start : start + block_bytes]

    async def stat(self, key: str) -> Entry | None:
        with self._faults("read", key):
            try:
                return _entry(await self._store.head_async(key))
            except FileNotFoundError:
                # The answer to HEAD has no body, so a missing bucket looks like a missing object; listing tells.
                await anext(self._list("none/such"), None)
                return None

    def mark(self, key: str) -> Mark | None:
        del key  # only the network could tell
        return ()

    async def touch(self, key: str) -> bool:
        with self._faults("read", key):
            try:
                entry = _entry(await self._store.head_async(key))
                if _is_young(entry):
                    return True
                data = bytes(await (await self._store.get_async(key)).bytes_async())
            except FileNotFoundError:
                return False
        await self._put(key, data, absent=False)
        return True

    async def delete(self, key: str, *, unless_since: datetime | None = None) -> bool:
        """Unlike in a folder, a write that falls between the check of the age and the deletion is not seen."""
        entry = await self.stat(key)
        if entry is None or (unless_since is not None and entry.modified_at + _CLOCK_TICK > unless_since):
            return False
        with self._faults("write", key):
            await self._store.delete_async(key)
        return True

    async def listing(self, under: str) -> AsyncIterator[Entry]:
        with self._faults("read"):
            async for chunk in self._list(under):
                for meta in chunk:
                    yield _entry(meta)

    async def upload(self, key: str, file: IO[bytes], size_bytes: int) -> None:
        """A spooled file, in parts when it is large."""
        if size_bytes <= PART_BYTES:
            file.seek(0)
            await self.write(key, await asyncio.to_thread(file.read), Seal(""))
        elif await self._state(key, size_bytes) != "young":
            file.seek(0)
            await self._put(key, file, absent=False)

    async def _state(self, key: str, size_bytes: int) -> Literal["absent", "young", "stale"]:
        """Whether the bytes have to be sent: not when they are there, of the right size and not about to be swept."""
        from obstore.exceptions import PermissionDeniedError

        with self._faults("write", key):
            try:
                entry = _entry(await self._store.head_async(key))
            except FileNotFoundError:
                return "absent"
            except PermissionDeniedError:  # who may write but not list is refused the answer "absent"
                return "stale"
        whole = entry.size_bytes == size_bytes and key not in self._suspect
        return "young" if whole and _is_young(entry) else "stale"

    async def _put(self, key: str, data: bytes | memoryview | IO[bytes], *, absent: bool) -> None:
        from obstore.exceptions import AlreadyExistsError, GenericError, NotSupportedError

        if absent and self._conditional and isinstance(data, bytes | memoryview):
            with self._faults("write", key):
                try:
                    await self._store.put_async(key, data, mode="create")
                except (NotSupportedError, GenericError) as error:
                    if not isinstance(error, NotSupportedError) and _status(error) not in ("400", "501"):
                        raise
                    self._conditional = False  # sent again below, without the condition
                except AlreadyExistsError:
                    if await self._state(key, len(data)) == "young":
                        return  # somebody put the same bytes in the meantime
                else:
                    return
        with self._faults("write", key):
            await self._store.put_async(key, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        self._suspect.discard(key)

    async def _window(self, key: str, start: int, length: int) -> tuple[bytes, Entry]:
        from obstore.exceptions import GenericError

        with self._faults("read", key):
            try:
                answer = await self._store.get_async(key, options={"range": (start, start + length)})
                return bytes(await answer.bytes_async()), _entry(answer.meta)
            except GenericError as error:
                if _status(error) != "416":  # nothing lies at or after `start`
                    raise
                return b"", _entry(await self._store.head_async(key))

    def _list(self, under: str) -> AsyncIterator[Sequence[ObjectMeta]]:
        return self._store.list(under, chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]  # an untyped overload

    def _damaged(self, key: str) -> LoomError:
        self._suspect.add(key)
        return damaged(key)

    @contextmanager
    def _faults(self, doing: Literal["read", "write"], key: str = "") -> Generator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            raise _fault(error, doing, key) from None  # the foreign text holds the whole request


class BucketSpool:
    """A nameless local file: the key is a hash that is only known at the end."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._size_bytes = 0
        with faults("write"):
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by discard

    def append(self, data: bytes | bytearray | memoryview) -> None:
        with self._lock, faults("write"):
            self._size_bytes += self._file.write(data)

    async def keep(self, key: str, seal: Seal) -> None:
        del seal
        await self._bucket.upload(key, self._file, self._size_bytes)

    def discard(self) -> None:
        with self._lock:
            self._file.close()


def open_bucket(url: str) -> Bucket:
    """`s3://bucket/prefix?endpoint=…&region=…`; what the address does not say comes from the AWS_* environment."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in given:
        if option not in OPTIONS:
            raise _wrong(f"{option!r} is no option; there are {', '.join(OPTIONS)}")
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise _wrong("it names no bucket")
    endpoint = given.get("endpoint", "")
    if "endpoint" in given and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        raise _wrong("endpoint must look like https://s3.example.com")
    try:
        from obstore.store import S3Store
    except ImportError:
        raise ExtraMissing(
            "Media in a bucket need the package obstore.", hint="Install it: pip install 'loom-runtime[s3]'"
        ) from None
    client: ClientConfig = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    return Bucket(
        S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            # One object at a time is deleted anyway, and not every server knows the request that deletes many.
            config=cast("S3Config", {**given, "disable_bulk_delete": True}),
            client_options=client,
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=20)},
        )
    )


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        f"the s3:// address of the media store cannot be used: {what}.",
        hint="It looks like s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-central-1.",
    )


def _entry(meta: ObjectMeta) -> Entry:
    return Entry(key=meta["path"], size_bytes=meta["size"], modified_at=meta["last_modified"])


def _is_young(entry: Entry) -> bool:
    return datetime.now(UTC) - entry.modified_at < GRACE / 2


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found.group(1) if found else ""


def _fault(error: Exception, doing: Literal["read", "write"], key: str) -> LoomError:
    """From obstore's exceptions, whose texts quote the server's XML, to ours, which keep only its error code."""
    text = str(error)
    found = _CODE.search(text)
    code = found.group(1) if found else ""
    status = _status(error)
    said = ", ".join(part for part in (code, status) if part) or type(error).__name__
    if code == "NoSuchBucket":
        return Unreachable("The bucket of the media store does not exist.", hint="Create it, or correct its name.")
    if isinstance(error, FileNotFoundError) and key:
        return missing(key)
    if "169.254.169.254" in text or code in _BAD_CREDENTIALS or status == "401":
        return Unreachable(
            f"The bucket of the media store does not take the credentials ({said}).",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if status == "403":
        return (
            ReadOnly(f"The bucket refuses to be written ({said}); nothing was stored.", hint=_ALLOW)
            if (doing == "write")
            else Unreachable(f"The bucket refuses to be read ({said}).", hint=_ALLOW)
        )
    if status == "507" or "StorageFull" in code or "Quota" in code:
        return Full(f"The bucket is full ({said}); nothing was stored.", hint="Free some space, then try again.")
    if "builder error" in text:
        return Unreachable(
            "The endpoint of the bucket is plain http, which is not allowed.", hint="Set AWS_ALLOW_HTTP=true."
        )
    if status.startswith("4"):
        return StoreError(f"The bucket refused the request ({said}).", hint="Check the address of the media store.")
    return Unreachable(f"The bucket of the media store does not answer ({said}).", hint="Check endpoint and network.")
