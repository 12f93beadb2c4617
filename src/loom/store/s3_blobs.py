"""Bucket: a place behind the S3 protocol, through obstore (extra `s3`).

A put is one conditional request where the server knows them. Servers that do not, or that ignore the condition,
overwrite bytes with equal bytes, because keys are made from content. A bucket cannot change an object's age, so to
refresh one is to write it again.

Every operation has a deadline: `timeout_seconds`, and time for its bytes at the slowest useful speed. A bucket that
missed one, or that could not be connected to, is not tried again for a moment: a request that needs twenty media waits
once, not twenty times.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import re
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Final, Literal, cast
from urllib.parse import parse_qsl, urlsplit

from loom.errors import (
    BlobsUnavailable,
    ConfigError,
    Corrupt,
    ExtraMissing,
    Full,
    LoomError,
    NotFound,
    ReadOnly,
    StoreError,
)
from loom.store.blobs import (
    BLOCK_BYTES,
    GRACE,
    MAX_BLOB_BYTES,
    BlobEntry,
    Checksum,
    FileStamp,
    KeyOf,
    SealOf,
    damaged_blob,
    missing_blob,
)
from loom.store.directories import faults

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config, S3Store

_log = logging.getLogger(__name__)

PEEKED_AT_ONCE: Final = 16
WINDOW_BYTES: Final = 7 * BLOCK_BYTES
"""Read with one request: most pictures, and little enough to hold."""

PART_BYTES: Final = 8 * 1024 * 1024
PARTS_AT_ONCE: Final = 2
OPTIONS: Final = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
SLOWEST_BYTES_PER_SECOND: Final = 256 * 1024
"""What an operation's deadline allows for its bytes."""
CONNECT_SECONDS: Final = 5.0
RETRY_AFTER_SECONDS: Final = 5.0
"""How long a bucket that did not answer is left alone."""
_CLOCK_TICK: Final = timedelta(seconds=1)  # S3 cuts times to whole seconds
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_BAD_CREDENTIALS: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
_ALLOW: Final = "Allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket."


class S3Blobs:
    def __init__(self, store: S3Store, *, timeout_seconds: float) -> None:
        self._store = store
        self._timeout_seconds = timeout_seconds
        self._conditional = True
        self._suspect: set[str] = set()
        self._outage = _Outage()

    async def put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str = "") -> str:
        sha256 = sha256 or (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        await self.write(key_of(sha256), data, Checksum(sha256))
        return sha256

    async def write(self, key: str, data: bytes | memoryview, seal: Checksum, *, durable: bool = True) -> None:
        del seal, durable  # an answered PUT is durable, and the server checks the hash that signs the request
        state = await self._state(key, len(data))
        if state != "young":
            await self._put(key, data, size_bytes=len(data), absent=state == "absent")

    async def open_temp(self) -> S3TempBlob:
        return await asyncio.to_thread(S3TempBlob, self)

    async def load(self, key: str, seal: Checksum) -> bytes:
        data = (await self._fetch(key, least_bytes=seal.start))[seal.start :]
        if (await asyncio.to_thread(hashlib.sha256, data)).hexdigest() != seal.sha256:
            raise self._damage_error(key)
        return data

    async def _fetch(self, key: str, *, least_bytes: int) -> bytes:
        """Return a whole object. Its size, which the answer begins with, says how long the rest may take."""
        async with self._request("read", key):
            answer = await self._store.get_async(key)
        size_bytes = answer.meta["size"]
        if not least_bytes <= size_bytes <= MAX_BLOB_BYTES:
            raise self._damage_error(key)
        async with self._request("read", key, size_bytes=size_bytes):
            return bytes(await answer.bytes_async())

    async def peek(self, keys: Sequence[str], length: int, seal_of: SealOf) -> dict[str, tuple[bytes, BlobEntry]]:
        found: dict[str, tuple[bytes, BlobEntry]] = {}
        places = asyncio.Semaphore(PEEKED_AT_ONCE)

        async def peek_one(key: str) -> None:
            async with places:
                with suppress(NotFound, Corrupt):
                    data, entry = await self.head_bytes(key, length)
                    seal_of(key, data, entry)
                    found[key] = data, entry

        await asyncio.gather(*map(peek_one, keys))
        return found

    async def head_bytes(self, key: str, length: int) -> tuple[bytes, BlobEntry]:
        return await self._window(key, 0, length)

    async def open_local(self, key: str, seal: Checksum) -> io.FileIO | None:
        del key, seal
        return None

    async def blocks(self, key: str, seal: Checksum, block_bytes: int) -> AsyncIterator[bytes]:
        """Nothing leaves of the last window before the whole is checked, so damaged bytes are never sent whole."""
        window_bytes = max(1, WINDOW_BYTES // block_bytes) * block_bytes
        hasher, position, end = hashlib.sha256(), seal.start, seal.start + 1
        while position < end:
            window, entry = await self._window(key, position, window_bytes)
            end = entry.size_bytes
            await asyncio.to_thread(hasher.update, window)
            position += len(window)
            if (position >= end and hasher.hexdigest() != seal.sha256) or (position < end and not window):
                raise self._damage_error(key)
            for start in range(0, len(window), block_bytes):
                yield window[start : start + block_bytes]

    async def stat(self, key: str) -> BlobEntry | None:
        async with self._request("read", key):
            try:
                return _entry(await self._store.head_async(key))
            except FileNotFoundError:
                # The answer to HEAD has no body, so a missing bucket looks like a missing object; listing tells.
                await anext(self._list("none/such"), None)
                return None

    def file_stamp(self, key: str) -> FileStamp | None:
        del key  # only the network could tell
        return ()

    async def touch(self, key: str) -> bool:
        async with self._request("read", key):
            try:
                entry = _entry(await self._store.head_async(key))
            except FileNotFoundError:
                return False
        if not _is_young(entry):
            try:
                data = await self._fetch(key, least_bytes=0)
            except NotFound:  # deleted since
                return False
            await self._put(key, data, size_bytes=len(data), absent=False)
        return True

    async def delete(self, key: str, *, unless_since: datetime | None = None) -> bool:
        """Unlike in a folder, a write that falls between the check of the age and the deletion is not seen."""
        entry = await self.stat(key)
        if entry is None or (unless_since is not None and entry.modified_at + _CLOCK_TICK > unless_since):
            return False
        async with self._request("write", key):
            await self._store.delete_async(key)
        return True

    async def listing(self, under: str) -> AsyncIterator[BlobEntry]:
        pages = self._list(under)
        while True:
            async with self._request("read"):
                page = await anext(pages, None)
            if page is None:
                return
            for meta in page:
                yield _entry(meta)

    async def check(self) -> None:
        """Ask for a list of nothing: the answer needs the bucket, the network and the credentials."""
        async with self._request("read"):
            await anext(self._list("none/such"), None)

    async def upload(self, key: str, file: IO[bytes], size_bytes: int) -> None:
        """A spooled file, in parts when it is large."""
        if size_bytes <= PART_BYTES:
            file.seek(0)
            await self.write(key, await asyncio.to_thread(file.read), Checksum(""))
        elif await self._state(key, size_bytes) != "young":
            file.seek(0)
            await self._put(key, file, size_bytes=size_bytes, absent=False)

    async def _state(self, key: str, size_bytes: int) -> Literal["absent", "young", "stale"]:
        """Return whether the bytes have to be sent: not when they are there, of the right size and not about to be
        swept."""
        from obstore.exceptions import PermissionDeniedError

        async with self._request("write", key):
            try:
                entry = _entry(await self._store.head_async(key))
            except FileNotFoundError:
                return "absent"
            except PermissionDeniedError:  # who may write but not list is refused the answer "absent"
                return "stale"
        whole = entry.size_bytes == size_bytes and key not in self._suspect
        return "young" if whole and _is_young(entry) else "stale"

    async def _put(self, key: str, data: bytes | memoryview | IO[bytes], *, size_bytes: int, absent: bool) -> None:
        if absent and self._conditional and isinstance(data, bytes | memoryview) and await self._create(key, data):
            return
        async with self._request("write", key, size_bytes=size_bytes):
            await self._store.put_async(key, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        self._suspect.discard(key)

    async def _create(self, key: str, data: bytes | memoryview) -> bool:
        """Put an object that must not exist. Return False if it has to be sent without that condition."""
        from obstore.exceptions import AlreadyExistsError, GenericError, NotSupportedError

        async with self._request("write", key, size_bytes=len(data)):
            try:
                await self._store.put_async(key, data, mode="create")
            except (NotSupportedError, GenericError) as error:
                if not isinstance(error, NotSupportedError) and _status(error) not in ("400", "501"):
                    raise
                self._conditional = False
                return False
            except AlreadyExistsError:
                pass
            else:
                return True
        return await self._state(key, len(data)) == "young"  # another process may have put the same bytes meanwhile

    async def _window(self, key: str, start: int, length: int) -> tuple[bytes, BlobEntry]:
        from obstore.exceptions import GenericError

        async with self._request("read", key, size_bytes=length):
            try:
                answer = await self._store.get_async(key, options={"range": (start, start + length)})
                return bytes(await answer.bytes_async()), _entry(answer.meta)
            except GenericError as error:
                if _status(error) != "416":  # nothing lies at or after `start`
                    raise
                return b"", _entry(await self._store.head_async(key))

    def _list(self, under: str) -> AsyncIterator[Sequence[ObjectMeta]]:
        return self._store.list(under, chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]  # an untyped overload

    def _damage_error(self, key: str) -> LoomError:
        self._suspect.add(key)
        return damaged_blob(key)

    @asynccontextmanager
    async def _request(
        self, doing: Literal["read", "write"], key: str = "", *, size_bytes: int = 0
    ) -> AsyncGenerator[None]:
        """Give what is done inside a deadline, and translate its errors."""
        from obstore.exceptions import BaseError

        self._outage.refuse_during()
        seconds = self._timeout_seconds + size_bytes / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise self._outage.begin(f"no answer within {seconds:.1f} s") from None
        except (BaseError, OSError) as error:
            fault = _fault(error, doing, key)
            if fault is None:
                raise self._outage.begin(type(error).__name__) from None
            self._outage.end()
            raise fault from None  # the foreign text holds the whole request
        else:
            self._outage.end()


class _Outage:
    """Whether a bucket has stopped answering. Its beginning and its end are logged once each."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._retry_at = 0.0
        self._reason = ""

    def refuse_during(self) -> None:
        if self._began_at is not None and time.monotonic() < self._retry_at:
            raise _no_answer(self._reason)

    def begin(self, reason: str) -> BlobsUnavailable:
        now = time.monotonic()
        if self._began_at is None:
            self._began_at = now
            _log.warning("the bucket of the media store does not answer: %s", reason)
        self._retry_at = now + RETRY_AFTER_SECONDS
        self._reason = reason
        return _no_answer(reason)

    def end(self) -> None:
        if self._began_at is not None:
            _log.warning("the bucket of the media store answers again, after %.0f s", time.monotonic() - self._began_at)
            self._began_at = None


class S3TempBlob:
    """A nameless local file: the key is a hash that is only known at the end."""

    def __init__(self, bucket: S3Blobs) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._size_bytes = 0
        with faults("write"):
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by discard

    def append(self, data: bytes | bytearray | memoryview) -> None:
        with self._lock, faults("write"):
            self._size_bytes += self._file.write(data)

    async def keep(self, key: str, seal: Checksum) -> None:
        del seal
        await self._bucket.upload(key, self._file, self._size_bytes)

    def discard(self) -> None:
        with self._lock:
            self._file.close()


def open_bucket(url: str, *, timeout_seconds: float) -> S3Blobs:
    """Open `s3://bucket/prefix?endpoint=…&region=…`; what the address does not say comes from the AWS_* environment."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in given:
        if option not in OPTIONS:
            raise _wrong(f"{option!r} is not an option; available: {', '.join(OPTIONS)}")
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
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, timeout_seconds)),
        "read_timeout": timedelta(seconds=timeout_seconds),
        # As a whole a request may take what its bytes need: `S3Blobs` sets the deadline.
        "timeout": timedelta(seconds=timeout_seconds + MAX_BLOB_BYTES / SLOWEST_BYTES_PER_SECOND),
    }
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    return S3Blobs(
        S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            # One object at a time is deleted anyway, and not every server knows the request that deletes many.
            config=cast("S3Config", {**given, "disable_bulk_delete": True}),
            client_options=client,
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=timeout_seconds)},
        ),
        timeout_seconds=timeout_seconds,
    )


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        f"the s3:// address of the media store cannot be used: {what}.",
        hint="It looks like s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-central-1.",
    )


def _entry(meta: ObjectMeta) -> BlobEntry:
    return BlobEntry(key=meta["path"], size_bytes=meta["size"], modified_at=meta["last_modified"])


def _is_young(entry: BlobEntry) -> bool:
    return datetime.now(UTC) - entry.modified_at < GRACE / 2


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found.group(1) if found else ""


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found.group(1) if found else ""


def _message_text(error: Exception) -> str:
    """Return the server's error code and status; without any, the kind of the error."""
    return ", ".join(part for part in (_code(error), _status(error)) if part) or type(error).__name__


def _no_answer(reason: str) -> BlobsUnavailable:
    return BlobsUnavailable(
        f"The bucket of the media store does not answer ({reason}).",
        hint="Check endpoint and network; it is tried again in a moment.",
    )


def _fault(error: Exception, doing: Literal["read", "write"], key: str) -> LoomError | None:
    """From obstore's exceptions, whose texts quote the server's XML, to ours, which keep only its error code. None if
    the server did not answer at all."""
    text = str(error)
    code, status, said = _code(error), _status(error), _message_text(error)
    if code == "NoSuchBucket":
        return BlobsUnavailable("The bucket of the media store does not exist.", hint="Create it, or correct its name.")
    if isinstance(error, FileNotFoundError) and key:
        return missing_blob(key)
    if "169.254.169.254" in text or code in _BAD_CREDENTIALS or status == "401":
        return BlobsUnavailable(
            f"The bucket of the media store does not take the credentials ({said}).",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if status == "403":
        return (
            ReadOnly(f"The bucket refuses to be written ({said}); nothing was stored.", hint=_ALLOW)
            if (doing == "write")
            else BlobsUnavailable(f"The bucket refuses to be read ({said}).", hint=_ALLOW)
        )
    if status == "507" or "StorageFull" in code or "Quota" in code:
        return Full(f"The bucket is full ({said}); nothing was stored.", hint="Free some space, then try again.")
    if "builder error" in text:
        return BlobsUnavailable(
            "The endpoint of the bucket is plain http, which is not allowed.", hint="Set AWS_ALLOW_HTTP=true."
        )
    if status.startswith("4"):
        return StoreError(f"The bucket refused the request ({said}).", hint="Check the address of the media store.")
    return _no_answer(said) if code or status else None
