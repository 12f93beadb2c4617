"""Upkeep: automatic cleanup. It deletes media without references after `cleanup_after_days`, and files at providers of
sessions that are gone.

A daemon checks every ten minutes, a command when it ends. The process that claims the work first does it for all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from loom.errors import LoomError
from loom.models import Model
from loom.runtime.stores import Stores
from loom.store.sweep import SweepReport, sweep
from loom.store.upkeep import UpkeepTimes
from loom.store.uploads import UploadRecords

if TYPE_CHECKING:
    from loom.providers.files import ProviderUploads

_SWEEP_SECONDS: Final = 24 * 3600.0
_UPLOADS_SECONDS: Final = 3600.0
_CHECK_SECONDS: Final = 600.0
_PATIENCE_SECONDS: Final = 5.0
"""How long deleting a session, or the end of a command, waits for a provider; the rest is retried later."""
_log = logging.getLogger(__name__)


class Upkeep:
    """Cleans up the stores. `uploads` opens the client for the providers' file services; `resolve` returns the model of
    a reference."""

    def __init__(
        self,
        stores: Stores,
        cleanup_after_days: Callable[[], float],
        uploads: Callable[[], ProviderUploads],
        resolve: Callable[[str], Model],
    ) -> None:
        self._stores = stores
        self._cleanup_after_days = cleanup_after_days
        self._open_uploads = uploads
        self._resolve = resolve
        self._records = UploadRecords(stores.database)
        self._times = UpkeepTimes(stores.database)

    async def sweep(self, *, max_bytes: int | None = None) -> SweepReport:
        """Delete media that no message refers to and that are old enough, or exceed `max_bytes`, here and at
        providers."""

        async def list_referenced() -> set[str]:
            return set(await self._stores.sessions.referenced_digests())

        report = await sweep(
            self._stores.media,
            list_referenced,
            now=datetime.fromtimestamp(time.time(), UTC),
            derived=self._stores.derived,
            cleanup_after_days=self._cleanup_after_days(),
            max_bytes=max_bytes,
        )
        await self._records.condemn(report.deleted)
        deleted, left = await self._delete_uploads()
        return msgspec.structs.replace(report, uploads_deleted=deleted, uploads_left=left)

    async def delete_uploads_of(self, digests: Collection[str]) -> None:
        """Delete the providers' copies of media that no session refers to any more. Those that cannot be deleted now
        are recorded and retried."""
        in_use = await self._stores.sessions.media_in_use(digests)
        if await self._records.condemn([digest for digest in digests if digest not in in_use]):
            await self._try_uploads()

    async def run_if_due(self) -> None:
        """Do the work that is due and that no other process has claimed. A failure is logged, and the work is retried
        later."""
        try:
            if await self._times.claim("sweep", every_seconds=_SWEEP_SECONDS):
                report = await self.sweep()
                if report.deleted or report.uploads_deleted:
                    _log.info(
                        "cleaned up: %d media, %d bytes, %d files at providers",
                        len(report.deleted),
                        report.freed_bytes,
                        report.uploads_deleted,
                    )
            elif await self._times.claim("uploads", every_seconds=_UPLOADS_SECONDS):
                await self._try_uploads()
        except LoomError as error:
            _log.warning("cleaning up failed and is tried again later: %s", error.message)

    async def run(self) -> None:
        """Check every ten minutes, until cancelled."""
        while True:
            await self.run_if_due()
            await asyncio.sleep(_CHECK_SECONDS)

    async def _try_uploads(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                _, left = await self._delete_uploads()
        except TimeoutError:
            _log.info("a provider takes long to delete a file; it is tried again later")
        else:
            if left:
                _log.info("%d files are still at their providers; deleting them is tried again later", left)

    async def _delete_uploads(self) -> tuple[int, int]:
        if not await self._records.list_unwanted():
            return 0, 0
        return await self._open_uploads().delete_unwanted(self._resolve)
