"""Upload large media that are sent repeatedly, and refer to them by the provider's id instead of sending the bytes.

A medium is uploaded if it is large and an earlier request already contained it; a medium that is sent once is cheaper
inline. An id belongs to the bytes, the provider and the account (base URL and key), and is never used with others. If
the provider no longer has an id, its record is deleted and the bytes are sent inline. If an upload fails, the
conversation continues with inline bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from loom.content.recipes import recipe_key
from loom.errors import LoomError, ProviderError
from loom.models import Model
from loom.prompt import MediaRef, Prompt, ShownBlock, ShownMedia, ShownMessage, ShownResult
from loom.providers.connections import Connections, KeyLookup
from loom.providers.file_services import SERVICES, FileService, UploadFailed
from loom.providers.media_body import MediaSource, RawBody, sha256_of

MIN_BYTES: Final = 1_000_000
PENDING: Final = "(uploaded when the request is sent)"
"""Replaces the id of a file that is not uploaded yet, in previews."""
_AT_ONCE: Final = 4
_REST_SECONDS: Final = 600.0
_DELETE_SECONDS: Final = 20.0

_Medium: TypeAlias = tuple[str, str]
"""A digest and a recipe."""


class ProviderFile(Protocol):
    """A file that a provider stores for Loom."""

    @property
    def provider(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def file_id(self) -> str: ...


class UploadRecord(ProviderFile, Protocol):
    @property
    def content(self) -> str: ...


class UnwantedFile(ProviderFile, Protocol):
    """A file to delete at its provider."""

    @property
    def model(self) -> str: ...


class UploadStore(Protocol):
    """The records of uploaded files (`store.uploads`)."""

    async def find(self, provider: str, account: str, digest: str, recipe: str) -> UploadRecord | None: ...

    async def keep(
        self,
        *,
        provider: str,
        account: str,
        digest: str,
        recipe: str,
        file_id: str,
        content: str,
        expires_at: float,
        model: str = "",
    ) -> None: ...

    async def forget(self, provider: str, account: str, file_ids: Collection[str]) -> None: ...

    async def list_unwanted(self) -> Sequence[UnwantedFile]: ...

    async def settle_unwanted(self, upload: Any, problem: str) -> None: ...


ObserveUpload: TypeAlias = Callable[[Model, MediaRef], AbstractContextManager[None]]
"""Entered during an upload; sees the error of one that fails."""


class ProviderUploads:
    """Replaces the bytes of large media in prompts by file ids (`apply`), and deletes files at providers."""

    def __init__(
        self,
        store: UploadStore,
        source: MediaSource,
        key: KeyLookup,
        *,
        connections: Connections,
        observe: ObserveUpload = lambda _model, _media: nullcontext(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._source, self._key = store, source, key
        self._connections = connections
        self._observe = observe
        self._clock = clock
        self._resting: dict[str, float] = {}
        self._locks: WeakValueDictionary[tuple[str, _Medium], asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def apply(self, prompt: Prompt, *, upload: bool = True) -> Prompt:
        """Return the prompt with file ids instead of bytes for media that the provider has.

        With `upload`, upload media that are due; without it, mark them with `PENDING`.
        """
        model = prompt.model
        service, key = SERVICES.get(model.provider), self._key(model)
        if service is None or not key:
            return prompt
        # Messages in original form keep their bytes.
        blocks = tuple(message for message in prompt.messages if message.form is None)
        written = prompt if len(blocks) == len(prompt.messages) else msgspec.structs.replace(prompt, messages=blocks)
        large = {_medium(ref): ref for ref in written.media() if ref.size_bytes >= MIN_BYTES and ref.exact}
        if not large:
            return prompt
        said_before = {_medium(ref) for ref in _media_before_answer(written)}
        account = _account(model, key)
        ids: dict[_Medium, str] = {}

        async def look(medium: _Medium, ref: MediaRef) -> None:
            try:
                is_due = medium in said_before
                file_id = await self._id(service, model, account, ref, upload=is_due and upload)
                if not file_id and is_due and not upload and not self._is_resting(account):
                    file_id = PENDING
            except LoomError:  # missing bytes, a full disk: if it matters, the request itself fails with the error
                return
            if file_id:
                ids[medium] = file_id

        async with asyncio.TaskGroup() as group:
            for medium, ref in large.items():
                group.create_task(look(medium, ref))
        return _with_ids(prompt, ids) if ids else prompt

    async def forget(self, model: Model, file_ids: Collection[str]) -> None:
        """Delete the records of ids that the provider no longer has."""
        await self._store.forget(model.provider, _account(model, self._key(model) or ""), file_ids)

    async def delete_unwanted(self, resolve: Callable[[str], Model]) -> tuple[int, int]:
        """Delete unwanted files at their providers; return the numbers of deleted and remaining files.

        `resolve` returns the model of a reference. A file whose provider is unavailable, or whose key is no longer
        configured, stays recorded with its problem until a later try, or until it expires.
        """
        deleted = left = 0
        for upload in await self._store.list_unwanted():
            problem = await self._delete(upload, resolve)
            await self._store.settle_unwanted(upload, problem)
            deleted, left = deleted + (not problem), left + bool(problem)
        return deleted, left

    async def _delete(self, upload: UnwantedFile, resolve: Callable[[str], Model]) -> str:
        """Delete a file; return the problem, or an empty text if it is deleted."""
        try:
            model = resolve(upload.model)
            service, key = SERVICES.get(upload.provider), self._key(model)
            if service is None or not key or _account(model, key) != upload.account:
                return "the key with which it was uploaded is not configured"
            async with asyncio.timeout(_DELETE_SECONDS):
                await service.delete(self._connections, model, key, upload.file_id)
        except (UploadFailed, TimeoutError, LoomError) as error:
            return str(error) or type(error).__name__
        return ""

    async def _id(self, service: FileService, model: Model, account: str, ref: MediaRef, *, upload: bool) -> str | None:
        medium = _medium(ref)
        lock = self._locks.setdefault((account, medium), asyncio.Lock())
        async with lock, self._slots:
            known = await self._store.find(model.provider, account, *medium)
            if known is not None and await self._is_same(known, model, ref):
                return known.file_id
            if not upload or self._is_resting(account):
                return None
            return await self._upload(service, model, account, ref)

    def _is_resting(self, account: str) -> bool:
        return self._clock() < self._resting.get(account, 0.0)

    async def _is_same(self, known: UploadRecord, model: Model, ref: MediaRef) -> bool:
        """Return whether an upload has the current bytes. It matters only for derived bytes, which a later version may
        make differently, and for models whose thinking is bound to the exact bytes before it."""
        if ref.recipe is None or model.thinking.replay != "bound":
            return True
        return known.content == await sha256_of(RawBody(ref, self._source))

    async def _upload(self, service: FileService, model: Model, account: str, ref: MediaRef) -> str | None:
        content = await sha256_of(RawBody(ref, self._source))
        now = self._clock()
        try:
            with self._observe(model, ref):
                async with asyncio.timeout(self._connections.patience.deadline_seconds):
                    file_id = await service.upload(self._connections, model, self._key(model), ref, self._source)
        except (UploadFailed, TimeoutError):
            self._resting[account] = self._clock() + _REST_SECONDS
            return None
        digest, recipe = _medium(ref)
        await self._store.keep(
            provider=model.provider,
            account=account,
            digest=digest,
            recipe=recipe,
            file_id=file_id,
            content=content,
            expires_at=now + service.lifetime_seconds,
            model=model.reference,
        )
        return file_id


_LOST: Final = re.compile(
    r"file_expired|image_file_not_found|files? (?:\S+ )?(?:was |were |is |could )?not (?:be )?found|no such file|"
    r"no file found|file.{0,80}(?:has expired|expired|does not exist|may not exist|no longer)",
    re.IGNORECASE | re.DOTALL,
)


def lost_files(error: ProviderError, prompt: Prompt) -> tuple[str, ...]:
    """Return the file ids of a prompt that an error reports as missing: those that it names, else all; empty for other
    errors."""
    ids = tuple({ref.file_id for ref in prompt.media() if ref.file_id})
    if not ids or error.status not in (400, 403, 404, 410):
        return ()
    named = tuple(file_id for file_id in ids if file_id.rsplit("/", 1)[-1] in error.message)
    return named or (ids if error.status == 404 or _LOST.search(error.message) else ())


def _medium(ref: MediaRef) -> _Medium:
    return ref.digest, recipe_key(ref.recipe) if ref.recipe else ""


def _account(model: Model, key: str) -> str:
    """Return a hash that identifies the account (base URL and key) without revealing the key."""
    return hashlib.sha256(f"loom upload\0{model.base_url}\0{key}".encode()).hexdigest()[:32]


def _media_before_answer(prompt: Prompt) -> tuple[MediaRef, ...]:
    """Return the media before the last answer: an earlier request contained them, and the next one will again."""
    answers = [at for at, message in enumerate(prompt.messages) if message.role == "assistant"]
    return msgspec.structs.replace(prompt, messages=prompt.messages[: answers[-1]]).media() if answers else ()


def _with_ids(prompt: Prompt, ids: Mapping[_Medium, str]) -> Prompt:
    def apply_to_media(block: ShownMedia) -> ShownMedia:
        file_id = ids.get(_medium(block.ref))
        replace = msgspec.structs.replace
        return replace(block, ref=replace(block.ref, file_id=file_id)) if file_id else block

    def apply_to_block(block: ShownBlock) -> ShownBlock:
        match block:
            case ShownMedia():
                return apply_to_media(block)
            case ShownResult():
                blocks = tuple(
                    apply_to_media(inner) if isinstance(inner, ShownMedia) else inner for inner in block.blocks
                )
                return msgspec.structs.replace(block, blocks=blocks)
            case _:
                return block

    messages = tuple(
        message
        if message.form is not None
        else ShownMessage(message.role, tuple(apply_to_block(block) for block in message.blocks))
        for message in prompt.messages
    )
    return msgspec.structs.replace(prompt, messages=messages)
