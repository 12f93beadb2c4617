"""Settling a request: render the renditions and descriptions that the prompt lacks, and prepare it again with the
facts.

This connects `prepare`, which is pure, with the store. A medium whose bytes are lost, or whose store is unavailable, is
sent as text; the request is sent anyway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from loom.compile.descriptions import DescribedImages, Describer
from loom.compile.media_facts import FactCache, MediaFacts, WorkingSet
from loom.compile.policy import DerivedFacts, Need
from loom.compile.ports import FileUploads
from loom.compile.prepare import Prepared
from loom.compile.renditions import SLOW, Renditions
from loom.compile.request import RequestInput, SettleMode
from loom.content.media import Media
from loom.content.recipes import Ocr, Scenes, SpokenText, Text, recipe_key
from loom.errors import Corrupt, ExtraMissing, LoomError, MediaError, NotFound, StoreError
from loom.prompt import Prompt, Receipt, ReceiptRow

LATE: Final = "Reading {} takes too long for this request: its text is sent with a later one."
ESTIMATED: Final = (
    "Some pages are rendered or read only when the request is sent; until then their size is an estimate."
)
PREPARING: Final = "Images are being prepared; until then their size is an estimate."
_ROUNDS: Final = 48
"""The maximum number of rounds. Each one renders what the last one lacked; the longest known history needed six."""
_QUIET_SECONDS: Final = 0.3
"""How long background work waits after an estimate began."""
_MADE_FOR_ESTIMATE: Final = 4
"""How many renditions an estimate waits for; a draft with a few new files is exact."""
_WANTED: Final = ("wanted",)
_DESCRIBED_PER_REQUEST: Final = 24
"""How many images are described for one request, newest first; the others are described for the next one."""
_AWAY_SECONDS: Final = 10.0
"""How long a media store that failed is not tried again."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Settler:
    """Settles requests. `describer` returns None while descriptions are off; `uploads` is None if no provider stores
    files."""

    def __init__(
        self,
        renditions: Renditions[Any],
        *,
        facts: FactCache | None = None,
        describer: Callable[[], Describer | None] = lambda: None,
        uploads: FileUploads | None = None,
    ) -> None:
        self._renditions = renditions
        self._facts = facts if facts is not None else FactCache()
        self._describer = describer
        self._uploads = uploads
        self._missing: set[str] = set()
        self._away_until = 0.0
        self._late: dict[tuple[str, ...], asyncio.Future[Any]] = {}
        """Renditions and descriptions that are still in progress for requests that did not wait for them, by name."""
        self._wanted: dict[tuple[str, str], Need] = {}
        """Renditions that an estimate did not wait for, made in the background."""
        self._estimated_at = -_QUIET_SECONDS
        self._unmeasured: set[tuple[str, str]] = set()
        """Documents without a text that could be measured."""

    def with_renditions(self, renditions: Renditions[Any]) -> Settler:
        """Return a settler that reads media from another store, for a conversation that is not stored."""
        return Settler(renditions, describer=self._describer, uploads=self._uploads)

    async def settle(
        self, request: RequestInput, mode: SettleMode = "send", *, patience_seconds: float | None = None
    ) -> Prepared:
        """Prepare `request` until it lacks nothing that `mode` may render. The same facts give the same prompt.

        With `patience_seconds`, OCR and descriptions that take longer in total continue in the background, for a later
        request. The receipt has a notice about them.
        """
        digests = request.digests
        job = _SettleState(request, mode, WorkingSet.of(self._facts, digests))
        if patience_seconds is not None:
            job.deadline = time.monotonic() + patience_seconds
        describer = self._describer() if digests else None
        if describer is not None:
            _start_describing(job, describer)
        if missing := digests & self._missing:
            await self._check_missing(job, missing)
        if mode == "estimate":
            self._estimated_at = time.monotonic()
        prepared = await _prepare(request, job.working)
        for _ in range(_ROUNDS):
            needs = [need for need in prepared.needs if job.lacks(need)]
            is_known = True
            if needs:
                is_known = await self._make_all(job, needs)
            elif prepared.undescribed and describer is not None and job.working.describes:
                await self._describe(job, describer, prepared.undescribed)
            else:
                break
            if is_known:
                prepared = await _prepare(request, job.working)
        if digests and self._uploads is not None:
            prompt = await self._uploads.apply(prepared.prompt, upload=mode == "send")
            receipt = _without_uploaded_bytes(prepared.receipt, prompt)
            prepared = msgspec.structs.replace(prepared, prompt=prompt, receipt=receipt)
        return _with_notices(job, prepared)

    async def recheck(self, prompt: Prompt) -> frozenset[str]:
        """Forget the facts about the media of a prompt that could not be read. Return the media that are gone."""
        digests = {ref.digest for ref in prompt.media()}
        self._facts.drop(digests)
        for digest in digests:
            if not await self._is_readable(digest):
                self._missing.add(digest)
        return frozenset(digests & self._missing)

    async def close(self) -> None:
        """Cancel background work for later requests."""
        late, self._late = list(self._late.values()), {}
        self._wanted.clear()
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _wait(self, job: _SettleState, name: tuple[str, ...], make: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of `make`, or None at the request's deadline; the work then continues in the background."""
        if job.deadline is None:
            return await make()
        task = self._late.get(name)
        if task is None:
            task = self._late[name] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._end_late(name, done))
        done, _ = await asyncio.wait([task], timeout=max(0.0, job.deadline - time.monotonic()))
        return task.result() if done else None

    def _end_late(self, name: tuple[str, ...], task: asyncio.Future[Any]) -> None:
        self._late.pop(name, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("work for a later request failed: %s", error)

    def drop(self, digests: Collection[str]) -> None:
        """Forget deleted media."""
        self._facts.drop(digests)
        self._missing.difference_update(digests)
        self._unmeasured = {name for name in self._unmeasured if name[0] not in digests}
        for name in [name for name in self._wanted if name[0] in digests]:
            del self._wanted[name]

    # Renditions ------------------------------------------------------------------------------------------------------

    async def _check_missing(self, job: _SettleState, digests: Collection[str]) -> None:
        """Check whether missing bytes are available again: attached again, or in a store that is back."""
        for digest in digests:
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
        return time.monotonic() < self._away_until

    def _note_away(self, error: StoreError) -> None:
        if not self._is_away():
            _log.warning("the media store cannot be read (%s); media are sent as text for now", error.code)
        self._away_until = time.monotonic() + _AWAY_SECONDS

    async def _make_all(self, job: _SettleState, needs: Sequence[Need]) -> bool:
        """Render what is missing; return whether more is known than before. An estimate that lacks many renditions
        leaves them to the background, so that a preview of hundreds of photographs does not wait until all are
        decoded."""
        learned: Mapping[tuple[str, str], Any] = {}
        if len(needs) > 1 and not self._is_away():
            with suppress(StoreError):  # each of them then reports the error
                learned = await self._renditions.learn((need.digest, need.recipe) for need in needs)
        ordered = sorted(needs, key=lambda need: not need.is_for_cost)  # what the prompt uses replaces a mere estimate
        named = {(need.digest, recipe_key(need.recipe)): need for need in ordered}
        lacking = [name for name, need in named.items() if name not in learned and not isinstance(need.recipe, SLOW)]
        if job.mode == "estimate" and len(lacking) > _MADE_FOR_ESTIMATE:
            job.estimated.update(lacking)
            job.is_preparing = True
            self._wanted.update((name, named.pop(name)) for name in lacking)
        for name, need in named.items():
            await self._make(job, need, learned.get(name))
        if self._wanted and _WANTED not in self._late:
            self._late[_WANTED] = task = asyncio.ensure_future(self._make_wanted())
            task.add_done_callback(lambda done: self._end_late(_WANTED, done))
        return bool(named)

    async def _make_wanted(self) -> None:
        """Render what estimates left out, one at a time, so that requests that are sent do not queue behind them, and
        after the estimates for other models that the user waits for at the same time."""
        while self._wanted:
            await asyncio.sleep(max(0.0, self._estimated_at + _QUIET_SECONDS - time.monotonic()))
            if not self._wanted:
                break
            need = self._wanted.pop(next(iter(self._wanted)))
            with suppress(LoomError):  # the request that needs it reports the error
                await self._renditions.get_quick(need.digest, need.media_type, need.recipe)

    async def _make(self, job: _SettleState, need: Need, entry: Any = None) -> None:
        """Render one rendition and record the outcome. `entry` is its cache entry, if it was just read."""
        digest, key = need.digest, recipe_key(need.recipe)
        facts = job.working.facts.setdefault(digest, self._facts.put(digest))
        if isinstance(need.recipe, Ocr) and not self._renditions.reads_images:
            facts.texts[key] = ""
            return
        if isinstance(need.recipe, SpokenText):
            await self._write_down(job, need, facts)
            return
        if need.is_for_cost:
            await self._measure_text(job, need, facts, entry)
            return
        if self._is_away():
            job.note_away(digest)
            return
        try:
            get = self._renditions.get_quick if job.mode == "estimate" else self._renditions.get
            make = partial(get, digest, need.media_type, need.recipe)
            if entry is None:
                entry = await (self._wait(job, (digest, key), make) if isinstance(need.recipe, Text | Ocr) else make())
            if entry is None:
                job.estimated.add((digest, key))
                job.late += job.mode == "send"
            elif isinstance(need.recipe, Text | Ocr | Scenes):
                facts.texts[key] = await self._renditions.text(digest, entry)
            else:
                facts.derived[key] = DerivedFacts(
                    media_type=entry.media_type, size_bytes=entry.size_bytes, width=entry.width, height=entry.height
                )
        except (NotFound, Corrupt):
            self._missing.add(digest)
            job.working.missing.add(digest)
        except StoreError as error:
            self._note_away(error)
            job.note_away(digest)
        except (MediaError, ExtraMissing) as error:
            facts.failed[key] = error.message
        self._facts.resize(digest)

    async def _measure_text(self, job: _SettleState, need: Need, facts: MediaFacts, entry: Any) -> None:
        """Read the text layer of a document that is sent as it is, because its model is billed for the text. Without a
        layer, or if it cannot be read, the text stays a guess: the document may still be sent."""
        name = need.digest, recipe_key(need.recipe)
        job.given_up.add(name)
        if name in self._unmeasured or self._is_away():
            return
        try:
            entry = entry or await self._renditions.get_quick(need.digest, need.media_type, need.recipe)
            if entry is not None:
                facts.texts[name[1]] = await self._renditions.text(need.digest, entry)
                self._facts.resize(need.digest)
                return
        except LoomError as error:
            _log.debug("the text of a document could not be measured: %s", error)
        self._unmeasured.add(name)

    async def _write_down(self, job: _SettleState, need: Need, facts: MediaFacts) -> None:
        """Transcribe a recording. A service that is unavailable is tried again with the next request."""
        digest, key = need.digest, recipe_key(need.recipe)
        try:
            if not self._renditions.transcribes:
                facts.texts[key] = ""
                return
            get = self._renditions.get_quick if job.mode == "estimate" else self._renditions.get
            entry = await get(digest, need.media_type, need.recipe)
            if entry is None:
                job.estimated.add((digest, key))
            else:
                facts.texts[key] = await self._renditions.text(digest, entry)
                self._facts.resize(digest)
        except LoomError as error:
            job.given_up.add((digest, key))
            job.notices.append(f"A recording could not be transcribed: {error.message}")

    # Descriptions ----------------------------------------------------------------------------------------------------

    async def _describe(self, job: _SettleState, describer: Describer, images: Sequence[Media]) -> None:
        """Load existing descriptions; request the others if this request is sent."""
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
        name = ("describe", *(media.digest for media in asked))
        outcome = await self._wait(job, name, partial(describer.describe_all, asked))
        if outcome is None:
            job.late += len(asked)
            outcome = DescribedImages({})
        job.notices += outcome.notices
        for digest, description in outcome.descriptions.items():
            job.working.facts.setdefault(digest, self._facts.put(digest)).descriptions[author] = description
            self._facts.resize(digest)
        job.working.undescribable.update(media.digest for media in lacking if media.digest not in outcome.descriptions)

    # Finish ----------------------------------------------------------------------------------------------------------


class _SettleState:
    """The state of one request while it is settled."""

    def __init__(self, request: RequestInput, mode: SettleMode, working: WorkingSet) -> None:
        self.request = request
        self.mode: SettleMode = mode
        self.working = working
        self.notices: list[str] = []
        self.estimated: set[tuple[str, str]] = set()
        self.given_up: set[tuple[str, str]] = set()
        """Recordings that could not be transcribed for this request, and texts that need not be measured again."""
        self.is_preparing = False
        """Whether renditions are made in the background."""
        self.away: set[str] = set()
        self.described = 0
        self.undescribed = 0
        self.late = 0
        """How many texts of images this request does not wait for."""
        self.deadline: float | None = None

    def lacks(self, need: Need) -> bool:
        return not self.working.has(need.digest, need.recipe) and (
            (need.digest, recipe_key(need.recipe)) not in self.estimated | self.given_up
        )

    def note_away(self, digest: str) -> None:
        self.working.missing.add(digest)
        self.away.add(digest)


def _start_describing(job: _SettleState, describer: Describer) -> None:
    author, problem = describer.author()
    if problem:
        job.notices.append(problem)
    job.working.describes, job.working.author = bool(author), author


async def _prepare(request: RequestInput, working: WorkingSet) -> Prepared:
    """Prepare a request; a long one in a thread, so that it does not block other sessions."""
    known = working.to_known()
    if not request.is_short:
        return await asyncio.to_thread(request.prepare, known)
    prepared = request.prepare(known)
    await asyncio.sleep(0)
    return prepared


def _with_notices(job: _SettleState, prepared: Prepared) -> Prepared:
    """Return what was prepared, with notices about what the work on the request found out."""
    notices = [*job.notices]
    if job.away:
        count = "1 attachment is" if len(job.away) == 1 else f"{len(job.away)} attachments are"
        notices.append(f"The media store cannot be reached: {count} sent as text this time.")
    if job.late:
        notices.append(LATE.format("an image" if job.late == 1 else f"{job.late} images"))
    elif job.is_preparing:
        notices.append(PREPARING)
    elif job.estimated:
        notices.append(ESTIMATED)
    if job.mode != "send" and job.undescribed and job.working.author:
        images = "1 image" if job.undescribed == 1 else f"{job.undescribed} images"
        notices.append(f"{job.working.author} describes {images} when the request is sent.")
    if not notices:
        return prepared
    receipt = msgspec.structs.replace(prepared.receipt, notices=(*prepared.receipt.notices, *notices))
    return msgspec.structs.replace(prepared, receipt=receipt)


def _without_uploaded_bytes(receipt: Receipt, prompt: Prompt) -> Receipt:
    """Subtract the bytes of uploaded media from the receipt: a file id takes almost no bytes on the wire."""
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
