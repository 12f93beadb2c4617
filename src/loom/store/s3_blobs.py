"""S3Blobs: a blob store in an S3 bucket, through obstore (extra `s3`).

`put` is one conditional request if the server supports those. Other servers overwrite bytes with equal bytes, because
keys are made from content. S3 cannot change the modification time of an object, so refreshing one rewrites it.

Every operation has a deadline: `timeout_seconds` plus the time for its bytes at the lowest acceptable speed. After a
missed deadline or a failed connection, operations fail at once for a few seconds: a request that needs twenty media
waits once, not twenty times.
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
    BlobHead,
    Checksum,
    ChecksumOf,
    FileStamp,
    KeyOf,
    damaged_blob,
    missing_blob,
)
from loom.store.directories import translate_os_errors

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, S3Config, S3Store

_log = logging.getLogger(__name__)

PEEKED_AT_ONCE: Final = 16
WINDOW_BYTES: Final = 7 * BLOCK_BYTES
"""The bytes of one read request: enough for most images, and little enough to hold in memory."""

PART_BYTES: Final = 8 * 1024 * 1024
PARTS_AT_ONCE: Final = 2
OPTIONS: Final = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
SLOWEST_BYTES_PER_SECOND: Final = 256 * 1024
"""The lowest acceptable speed; it sets how long an operation may take for its bytes."""
CONNECT_SECONDS: Final = 5.0
RETRY_AFTER_SECONDS: Final = 5.0
"""How long operations fail at once after the bucket did not answer."""
_CLOCK_TICK: Final = timedelta(seconds=1)  # S3 truncates times to whole seconds
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

    async def write(self, key: str, data: bytes | memoryview, checksum: Checksum, *, durable: bool = True) -> None:
        del checksum, durable  # a confirmed PUT is durable, and the server verifies the hash in the signed request
        state = await self._state(key, len(data))
        if state != "young":
            await self._put(key, data, size_bytes=len(data), absent=state == "absent")

    async def open_temp(self) -> S3TempBlob:
        return await asyncio.to_thread(S3TempBlob, self)

    async def load(self, key: str, checksum: Checksum) -> bytes:
        data = (await self._fetch(key, least_bytes=checksum.start))[checksum.start :]
        if (await asyncio.to_thread(hashlib.sha256, data)).hexdigest() != checksum.sha256:
            raise self._damage_error(key)
        return data

    async def _fetch(self, key: str, *, least_bytes: int) -> bytes:
        """Return a whole object. The size in the response headers sets the deadline for the body."""
        async with self._request("read", key):
            answer = await self._store.get_async(key)
        size_bytes = answer.meta["size"]
        if not least_bytes <= size_bytes <= MAX_BLOB_BYTES:
            raise self._damage_error(key)
        async with self._request("read", key, size_bytes=size_bytes):
            return bytes(await answer.bytes_async())

    async def peek(self, keys: Sequence[str], length: int, checksum_of: ChecksumOf) -> dict[str, BlobHead]:
        found: dict[str, BlobHead] = {}
        slots = asyncio.Semaphore(PEEKED_AT_ONCE)

        async def peek_one(key: str) -> None:
            async with slots:
                with suppress(NotFound, Corrupt):
                    data, entry = await self.head_bytes(key, length)
                    checksum_of(key, data, entry)
                    found[key] = data, entry

        await asyncio.gather(*map(peek_one, keys))
        return found

    async def head_bytes(self, key: str, length: int) -> BlobHead:
        return await self._window(key, 0, length)

    async def open_local(self, key: str, checksum: Checksum) -> io.FileIO | None:
        del key, checksum
        return None

    async def blocks(self, key: str, checksum: Checksum, block_bytes: int) -> AsyncIterator[bytes]:
        """Yield the bytes in blocks. The last window is yielded only after the whole is verified, so that damaged bytes
        are never delivered completely."""
        window_bytes = max(1, WINDOW_BYTES // block_bytes) * block_bytes
        hasher, position, end = hashlib.sha256(), checksum.start, checksum.start + 1
        while position < end:
            window, entry = await self._window(key, position, window_bytes)
            end = entry.size_bytes
            await asyncio.to_thread(hasher.update, window)
            position += len(window)
            if (position >= end and hasher.hexdigest() != checksum.sha256) or (position < end and not window):
                raise self._damage_error(key)
            for start in range(0, len(window), block_bytes):
                yield window[start : start + block_bytes]

    async def stat(self, key: str) -> BlobEntry | None:
        async with self._request("read", key):
            try:
                return _entry(await self._store.head_async(key))
            except FileNotFoundError:
                # The response to HEAD has no body, so a missing bucket looks like a missing object. A list request
                # raises if the bucket is missing.
                await anext(self._list("none/such"), None)
                return None

    def file_stamp(self, key: str) -> FileStamp | None:
        del key  # a stamp would need a request
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
            except NotFound:  # deleted in the meantime
                return False
            await self._put(key, data, size_bytes=len(data), absent=False)
        return True

    async def delete(self, key: str, *, unless_since: datetime | None = None) -> bool:
        """Delete an object. Unlike in a folder, a write between the age check and the deletion goes unnoticed."""
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
        """List an empty prefix: it fails if the bucket, the network or the credentials do."""
        async with self._request("read"):
            await anext(self._list("none/such"), None)

    async def upload(self, key: str, file: IO[bytes], size_bytes: int) -> None:
        """Upload a file, in parts if it is large."""
        if size_bytes <= PART_BYTES:
            file.seek(0)
            await self.write(key, await asyncio.to_thread(file.read), Checksum(""))
        elif await self._state(key, size_bytes) != "young":
            file.seek(0)
            await self._put(key, file, size_bytes=size_bytes, absent=False)

    async def _state(self, key: str, size_bytes: int) -> Literal["absent", "young", "stale"]:
        """Return "absent", "young" or "stale". A young object has the right size, and no sweep deletes it soon:
        it need not be sent."""
        from obstore.exceptions import PermissionDeniedError

        async with self._request("write", key):
            try:
                entry = _entry(await self._store.head_async(key))
            except FileNotFoundError:
                return "absent"
            except PermissionDeniedError:  # without s3:ListBucket, a missing object is reported as 403
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
        """Put an object on condition that it does not exist. Return False if it must be sent unconditionally."""
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
        return await self._state(key, len(data)) == "young"  # another process may have put the same bytes

    async def _window(self, key: str, start: int, length: int) -> BlobHead:
        from obstore.exceptions import GenericError

        async with self._request("read", key, size_bytes=length):
            try:
                answer = await self._store.get_async(key, options={"range": (start, start + length)})
                return bytes(await answer.bytes_async()), _entry(answer.meta)
            except GenericError as error:
                if _status(error) != "416":  # the object ends before `start`
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
        """Run the block with a deadline, and translate its errors."""
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
            raise fault from None  # the text of `error` contains the whole request
        else:
            self._outage.end()


class _Outage:
    """Tracks whether the bucket has stopped answering; logs the start and the end of each outage once."""

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
            _log.warning("the bucket of the media store does not respond: %s", reason)
        self._retry_at = now + RETRY_AFTER_SECONDS
        self._reason = reason
        return _no_answer(reason)

    def end(self) -> None:
        if self._began_at is not None:
            _log.warning(
                "the bucket of the media store responds again, after %.0f s", time.monotonic() - self._began_at
            )
            self._began_at = None


class S3TempBlob:
    """An unnamed local file that is uploaded at the end, when its hash and so its key are known."""

    def __init__(self, bucket: S3Blobs) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._size_bytes = 0
        with translate_os_errors("write"):
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by discard

    def append(self, data: bytes | bytearray | memoryview) -> None:
        with self._lock, translate_os_errors("write"):
            self._size_bytes += self._file.write(data)

    async def keep(self, key: str, checksum: Checksum) -> None:
        del checksum
        await self._bucket.upload(key, self._file, self._size_bytes)

    def discard(self) -> None:
        with self._lock:
            self._file.close()


def open_bucket(url: str, *, timeout_seconds: float) -> S3Blobs:
    """Open `s3://bucket/prefix?endpoint=…&region=…`; options that the URL lacks come from the AWS_* environment."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in given:
        if option not in OPTIONS:
            raise _invalid_url(f"{option!r} is not an option; available: {', '.join(OPTIONS)}")
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise _invalid_url("it names no bucket")
    endpoint = given.get("endpoint", "")
    if "endpoint" in given and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        raise _invalid_url("endpoint must look like https://s3.example.com")
    try:
        from obstore.store import S3Store
    except ImportError:
        raise ExtraMissing(
            "Media in a bucket need the package obstore.", hint="Install it: pip install 'loom-runtime[s3]'"
        ) from None
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, timeout_seconds)),
        "read_timeout": timedelta(seconds=timeout_seconds),
        # The longest that any request may take; `S3Blobs` sets a deadline for each by its bytes.
        "timeout": timedelta(seconds=timeout_seconds + MAX_BLOB_BYTES / SLOWEST_BYTES_PER_SECOND),
    }
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    return S3Blobs(
        S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            # Loom deletes one object at a time, and not every server supports bulk deletion.
            config=cast("S3Config", {**given, "disable_bulk_delete": True}),
            client_options=client,
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=timeout_seconds)},
        ),
        timeout_seconds=timeout_seconds,
    )


def _invalid_url(what: str) -> ConfigError:
    return ConfigError(
        f"The s3:// URL of the media store is not valid: {what}.",
        hint="Use s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-central-1.",
    )


def _entry(meta: ObjectMeta) -> BlobEntry:
    return BlobEntry(key=meta["path"], size_bytes=meta["size"], modified_at=meta["last_modified"])


def _is_young(entry: BlobEntry) -> bool:
    return datetime.now(UTC) - entry.modified_at < GRACE / 2


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found.group(1) if found else ""


def _no_answer(reason: str) -> BlobsUnavailable:
    return BlobsUnavailable(
        f"The bucket of the media store does not respond ({reason}).",
        hint="Check the endpoint and the network; Loom tries again in a moment.",
    )


def _fault(error: Exception, doing: Literal["read", "write"], key: str) -> LoomError | None:
    """Return the `LoomError` for an exception of obstore; None if the server did not answer at all. Only the server's
    error code and status are quoted, because obstore's texts contain the request."""
    text = str(error)
    found, status = _CODE.search(text), _status(error)
    code = found.group(1) if found else ""
    reason = ", ".join(part for part in (code, status) if part) or type(error).__name__
    if code == "NoSuchBucket":
        return BlobsUnavailable("The bucket of the media store does not exist.", hint="Create it, or correct its name.")
    if isinstance(error, FileNotFoundError) and key:
        return missing_blob(key)
    if "169.254.169.254" in text or code in _BAD_CREDENTIALS or status == "401":
        return BlobsUnavailable(
            f"The bucket of the media store rejects the credentials ({reason}).",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if status == "403":
        return (
            ReadOnly(f"The bucket denies write access ({reason}); nothing was stored.", hint=_ALLOW)
            if doing == "write"
            else BlobsUnavailable(f"The bucket denies read access ({reason}).", hint=_ALLOW)
        )
    if status == "507" or "StorageFull" in code or "Quota" in code:
        return Full(f"The bucket is full ({reason}); nothing was stored.", hint="Free some space, then try again.")
    if "builder error" in text:
        return BlobsUnavailable(
            "The endpoint of the bucket is plain http, which is not allowed.", hint="Set AWS_ALLOW_HTTP=true."
        )
    if status.startswith("4"):
        return StoreError(f"The bucket refused the request ({reason}).", hint="Check the URL of the media store.")
    return _no_answer(reason) if code or status else None
