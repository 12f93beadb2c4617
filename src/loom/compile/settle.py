"""Settles a request: makes the renditions and descriptions that the prompt lacks, and prepares it again with the facts.

This is where `prepare`, which is pure, meets the store. A medium whose bytes are lost, or whose store is away, is sent
as text; the request still goes out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from loom.compile.descriptions import Describer
from loom.compile.media_facts import FactCache, WorkingSet
from loom.compile.policy import DerivedFacts, Need
from loom.compile.ports import FileUploads
from loom.compile.prepare import Prepared
from loom.compile.renditions import Renditions
from loom.compile.request import RequestInput, SettleMode
from loom.content.media import Media
from loom.content.recipes import Ocr, Text, recipe_key
from loom.errors import Corrupt, ExtraMissing, MediaError, NotFound, StoreError
from loom.prompt import Prompt, Receipt, ReceiptRow

ESTIMATED: Final = "Some pages are drawn or read only when the request is sent; until then their size is an estimate."
_ROUNDS: Final = 48
"""Each round makes what the last one lacked; a history that needed six is the longest known."""
_DESCRIBED_PER_REQUEST: Final = 24
"""How many images are described for one request, the newest first; the others with the next request."""
_AWAY_SECONDS: Final = 10.0
"""How long a media store that failed is not asked again."""
_log = logging.getLogger(__name__)


class Settler:
    """`describer` returns None while images are not described; `uploads` is None where no provider keeps files."""

    def __init__(
        self,
        renditions: Renditions[Any],
        *,
        facts: FactCache | None = None,
        describer: Callable[[], Describer | None] = lambda: None,
        uploads: FileUploads | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renditions = renditions
        self._facts = facts if facts is not None else FactCache()
        self._describer = describer
        self._uploads = uploads
        self._clock = clock
        self._missing: set[str] = set()
        self._away_until = 0.0

    async def settle(self, request: RequestInput, mode: SettleMode = "send") -> Prepared:
        """Prepare `request` until it lacks nothing that `mode` may make. The same facts give the same prompt."""
        job = _Job(request, mode, WorkingSet.of(self._facts, request.digests))
        describer = self._describer()
        _start_describing(job, describer)
        await self._check_missing(job)
        for _ in range(_ROUNDS):
            prepared = await _prepare(request, job.working)
            needs = [need for need in prepared.needs if job.lacks(need)]
            if needs:
                for need in needs:
                    await self._make(job, need)
            elif prepared.undescribed and describer is not None and job.working.describes:
                await self._describe(job, describer, prepared.undescribed)
            else:
                break
        else:
            prepared = await _prepare(request, job.working)
        return await self._finish(job, prepared)

    async def recheck(self, prompt: Prompt) -> frozenset[str]:
        """Forget what is known about the media of a prompt that could not be read. Return those that are gone."""
        digests = {ref.digest for ref in prompt.media()}
        self._facts.drop(digests)
        for digest in digests:
            if not await self._is_readable(digest):
                self._missing.add(digest)
        return frozenset(digests & self._missing)

    def drop(self, digests: Collection[str]) -> None:
        """Forget deleted media."""
        self._facts.drop(digests)
        self._missing.difference_update(digests)

    # Renditions ------------------------------------------------------------------------------------------------------

    async def _check_missing(self, job: _Job) -> None:
        """Bytes that were gone may have been attached again, a store that was away may be back."""
        for digest in job.request.digests & self._missing:
            if await self._is_readable(digest):
                self._missing.discard(digest)
            else:
                job.working.missing.add(digest)

    async def _is_readable(self, digest: str) -> bool:
        if self._is_away():
            return False
        try:
            await self._renditions.load(digest)
        except (NotFound, Corrupt):
            return False
        except StoreError as error:
            self._note_away(error)
            return False
        return True

    def _is_away(self) -> bool:
        return self._clock() < self._away_until

    def _note_away(self, error: StoreError) -> None:
        if not self._is_away():
            _log.warning("the media store cannot be read (%s); media are sent as text for now", error.code)
        self._away_until = self._clock() + _AWAY_SECONDS

    async def _make(self, job: _Job, need: Need) -> None:
        """Make one rendition and note what came of it."""
        digest, key = need.digest, recipe_key(need.recipe)
        facts = job.working.facts.setdefault(digest, self._facts.put(digest))
        if isinstance(need.recipe, Ocr) and not self._renditions.reads_images:
            facts.texts[key] = ""
            return
        if self._is_away():
            job.note_away(digest)
            return
        try:
            get = self._renditions.get_quick if job.mode == "estimate" else self._renditions.get
            entry = await get(digest, need.media_type, need.recipe)
            if entry is None:
                job.estimated.add((digest, key))
            elif isinstance(need.recipe, Text | Ocr):
                facts.texts[key] = await self._renditions.text(digest, entry)
            else:
                facts.derived[key] = msgspec.convert(entry, DerivedFacts, from_attributes=True)
        except (NotFound, Corrupt):
            self._missing.add(digest)
            job.working.missing.add(digest)
        except StoreError as error:
            self._note_away(error)
            job.note_away(digest)
        except (MediaError, ExtraMissing) as error:
            facts.failed[key] = error.message
        self._facts.resize(digest)

    # Descriptions ----------------------------------------------------------------------------------------------------

    async def _describe(self, job: _Job, describer: Describer, images: Sequence[Media]) -> None:
        """Load descriptions that exist; ask for the others if this request is sent."""
        author = job.working.author
        lacking: list[Media] = []
        for media in images:
            kept = await describer.load(media.digest)
            if kept is None:
                lacking.append(media)
            else:
                job.working.facts.setdefault(media.digest, self._facts.put(media.digest)).descriptions[author] = kept
                self._facts.resize(media.digest)
        left = _DESCRIBED_PER_REQUEST - job.described if job.mode == "send" else 0
        asked = [media for media in lacking if not describer.is_resting(media.digest)][:left]
        job.undescribed += len(lacking) - len(asked)
        job.described += len(asked)
        outcome = await describer.describe_all(asked)
        job.notices += outcome.notices
        for digest, description in outcome.descriptions.items():
            job.working.facts.setdefault(digest, self._facts.put(digest)).descriptions[author] = description
            self._facts.resize(digest)
        job.working.undescribable.update(media.digest for media in lacking if media.digest not in outcome.descriptions)

    # The end ---------------------------------------------------------------------------------------------------------

    async def _finish(self, job: _Job, prepared: Prepared) -> Prepared:
        notices = [*job.notices]
        if job.away:
            count = "1 attachment is" if len(job.away) == 1 else f"{len(job.away)} attachments are"
            notices.append(f"The media store cannot be reached: {count} sent as text this time.")
        if job.estimated:
            notices.append(ESTIMATED)
        if job.mode != "send" and job.undescribed and job.working.author:
            images = "1 image" if job.undescribed == 1 else f"{job.undescribed} images"
            notices.append(f"{job.working.author} describes {images} when the request is sent.")
        if self._uploads is not None:
            prompt = await self._uploads.apply(prepared.prompt, upload=job.mode == "send")
            prepared = msgspec.structs.replace(
                prepared, prompt=prompt, receipt=_without_uploaded_bytes(prepared.receipt, prompt)
            )
        if not notices:
            return prepared
        receipt = msgspec.structs.replace(prepared.receipt, notices=(*prepared.receipt.notices, *notices))
        return msgspec.structs.replace(prepared, receipt=receipt)


class _Job:
    """One request while it is settled."""

    def __init__(self, request: RequestInput, mode: SettleMode, working: WorkingSet) -> None:
        self.request = request
        self.mode: SettleMode = mode
        self.working = working
        self.notices: list[str] = []
        self.estimated: set[tuple[str, str]] = set()
        self.away: set[str] = set()
        self.described = 0
        self.undescribed = 0

    def lacks(self, need: Need) -> bool:
        return not self.working.has(need.digest, need.recipe) and (
            (need.digest, recipe_key(need.recipe)) not in self.estimated
        )

    def note_away(self, digest: str) -> None:
        self.working.missing.add(digest)
        self.away.add(digest)


def _start_describing(job: _Job, describer: Describer | None) -> None:
    if describer is None:
        return
    author, problem = describer.author()
    if problem:
        job.notices.append(problem)
    job.working.describes, job.working.author = bool(author), author


async def _prepare(request: RequestInput, working: WorkingSet) -> Prepared:
    """Thousands of messages are prepared in a thread, so that they hold up no other session."""
    known = working.to_known()
    if not request.is_short:
        return await asyncio.to_thread(request.prepare, known)
    prepared = request.prepare(known)
    await asyncio.sleep(0)
    return prepared


def _without_uploaded_bytes(receipt: Receipt, prompt: Prompt) -> Receipt:
    """Media that go by file id weigh next to nothing on the wire."""
    saved: dict[str, int] = {}
    for ref in prompt.media():
        if ref.file_id:
            saved[ref.digest] = saved.get(ref.digest, 0) + ref.encoded_bytes
    if not saved:
        return receipt
    rows: list[ReceiptRow] = []
    total = 0
    for row in receipt.rows:
        less = min(saved.get(row.digest, 0), row.wire_bytes) if row.rendition != "text" else 0
        if less:
            saved[row.digest] -= less
            total += less
            detail = "; ".join(part for part in (row.detail, "by file id") if part)
            rows.append(msgspec.structs.replace(row, wire_bytes=row.wire_bytes - less, detail=detail))
        else:
            rows.append(row)
    totals = msgspec.structs.replace(receipt.totals, wire_bytes=receipt.totals.wire_bytes - total)
    return msgspec.structs.replace(receipt, rows=tuple(rows), totals=totals)
