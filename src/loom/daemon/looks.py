"""Looks: a plan without the work of sending. What is quick to make is made, so that sizes are exact; pages that would
have to be drawn and words that would have to be read from pictures wait until something is sent, and are estimated."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, TypeAlias

import msgspec

from loom.agent.mend import Asking
from loom.content.media import Media
from loom.content.recipes import Ocr, Page, Text, recipe_key
from loom.context.policy import Known, Need
from loom.context.prepare import Prepared
from loom.errors import ExtraMissing, MediaError, StoreError
from loom.formats import ocr, render
from loom.models import PDF
from loom.runtime import Runtime

REMEMBERED: Final = 1_000
ESTIMATED: Final = "some pages are drawn or read only when they are sent; until then their size is estimated"

_Key: TypeAlias = tuple[str, str]


class Looks:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._slow: OrderedDict[_Key, None] = OrderedDict()

    async def prepared(self, asking: Asking) -> Prepared:
        """What would be sent, as far as that is known at once."""
        judged: dict[_Key, bool] = {}
        doubtful: dict[_Key, Need] = {}

        def prepare(known: Known) -> Prepared:
            prepared = asking.prepared(known)
            doubtful.update({_key(need): need for need in prepared.needs if isinstance(need.recipe, Ocr | Text | Page)})
            needs = tuple(need for need in prepared.needs if judged.get(_key(need), _key(need) not in doubtful))
            return msgspec.structs.replace(prepared, needs=needs)

        while True:
            prepared = await self._runtime.look(prepare)
            fresh = [key for key in doubtful if key not in judged]
            for key in fresh:
                judged[key] = await self._is_quick(key, doubtful[key])
            if not any(judged[key] for key in fresh):
                break
        if all(judged.values()):
            return prepared
        notices = (*prepared.receipt.notices, ESTIMATED)
        return msgspec.structs.replace(prepared, receipt=msgspec.structs.replace(prepared.receipt, notices=notices))

    async def _is_quick(self, key: _Key, need: Need) -> bool:
        """Whether it is there already, or can be made without drawing and without reading pictures."""
        if await self._runtime.derived.get(need.digest, need.recipe) is not None:
            return True
        if key in self._slow:
            return False
        match need.recipe:
            case Text() if need.media_type == PDF and ocr.available():
                is_quick = await self._has_words(need)
            case Text():
                is_quick = True
            case Ocr():
                is_quick = not ocr.available()
            case _:
                is_quick = False
        if not is_quick:
            self._slow[key] = None
            if len(self._slow) > REMEMBERED:
                self._slow.popitem(last=False)
        return is_quick

    async def _has_words(self, need: Need) -> bool:
        """Whether no page of it is just a picture."""
        try:
            data = await self._runtime.media.load(need.digest)
            media = Media(digest=need.digest, media_type=need.media_type, size_bytes=len(data))
            limits = self._runtime.config.media_limits()
            found = await asyncio.to_thread(render, data, media, need.recipe, limits)
        except (MediaError, ExtraMissing, StoreError):
            return True  # the plan says the same, in its own place
        return not found.pages_without_text


def _key(need: Need) -> _Key:
    return need.digest, recipe_key(need.recipe)
