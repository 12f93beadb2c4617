"""Conversations from elsewhere: a JSON file in any shape that we know → messages whose bytes are in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from loom.compile.ports import MediaWriter
from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, clean_text
from loom.content.media import digest_of
from loom.errors import ContentError, ExtraMissing, MediaError
from loom.formats.facts import IntakeLimits
from loom.formats.file_names import clean_name
from loom.formats.intake import accept
from loom.importers import (
    FetchLegacyMedia,
    LegacyTree,
    StoreLegacyMedia,
    UpgradedConversation,
    upgrade,
    upgrade_tree,
)
from loom.tools.workspace import open_file, read_whole

KnownMedia: TypeAlias = Mapping[bytes, ContentBlock | MediaError]
"""Media that were stored or refused already, by the bytes that stand for them."""


class _Intake:
    """Lends `lift` to an importer: bytes go to the store once reading is over, and refusals are collected."""

    def __init__(self, limits: IntakeLimits, known: KnownMedia | None = None) -> None:
        self._limits = limits
        self._known = known or {}
        self._kept: dict[str, bytes] = {}
        self.refused: list[str] = []

    def lift(self, found: bytes, name: str, _declared: str) -> ContentBlock | None:
        taken = self._known.get(found)
        if isinstance(taken, MediaError):
            self.refused.append(taken.message)
            return None
        if taken is not None:
            return with_name(taken, name)
        try:
            admitted = accept(found, name, limits=self._limits)
        except (MediaError, ExtraMissing) as error:
            self.refused.append(error.message)
            return None
        if admitted.data is not None:
            self._kept[digest_of(admitted.data)] = admitted.data
        self.refused.extend(admitted.notices)
        return admitted.block

    async def store(self, shelf: MediaWriter) -> tuple[str, ...]:
        """Put what was lifted into the store; return what was refused."""
        for found in self._kept.values():
            await shelf.put(found)
        return tuple(dict.fromkeys(self.refused))


async def read_conversation(
    data: bytes | dict[str, Any],
    shelf: MediaWriter,
    *,
    limits: IntakeLimits = IntakeLimits(),
    roots: Sequence[Path] = (),
    known: KnownMedia | None = None,
    in_thread: bool = True,
) -> UpgradedConversation:
    """Read a conversation from JSON, as text or parsed, and store its media. Raise `ContentError` if it is none.

    `roots` are the folders from which old blocks may still take their files; outside of them they become text. `known`
    are media that were stored or refused already, by the bytes that stand for them. Without `in_thread`, nothing is
    decoded that would hold up the event loop.
    """
    intake = _Intake(limits, known)

    def fetch(source_path: str) -> bytes | None:
        for root in roots:
            try:
                with open_file(root, source_path) as opened:
                    if opened.inside and not opened.sensitive:
                        return read_whole(opened, limits)
            except MediaError as error:
                intake.refused.append(error.message)
        return None

    reads = (data, intake.lift, fetch)
    upgraded = await asyncio.to_thread(_upgrade, *reads) if in_thread else _upgrade(*reads)
    refused = await intake.store(shelf)
    return msgspec.structs.replace(upgraded, notices=(*upgraded.notices, *refused))


async def read_tree(
    nodes: Sequence[Any], shelf: MediaWriter, fetch: FetchLegacyMedia, *, limits: IntakeLimits = IntakeLimits()
) -> LegacyTree:
    """Read a conversation with branches and store its media. `fetch` returns files that nodes point at."""
    intake = _Intake(limits)
    tree = await asyncio.to_thread(upgrade_tree, nodes, lift=intake.lift, fetch=fetch)
    refused = await intake.store(shelf)
    return msgspec.structs.replace(tree, notices=(*tree.notices, *refused))


def with_name(block: ContentBlock, name: str) -> ContentBlock:
    """Return the block of the same bytes under another name."""
    if not name or not isinstance(block, ImageBlock | DocumentBlock | AudioBlock):
        return block
    return msgspec.structs.replace(block, media=msgspec.structs.replace(block.media, name=clean_name(clean_text(name))))


def _upgrade(data: bytes | dict[str, Any], lift: StoreLegacyMedia, fetch: FetchLegacyMedia) -> UpgradedConversation:
    try:
        value = data if isinstance(data, dict) else msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ContentError(
            f"this is not JSON: {error}", hint="Give a conversation: a list of messages, or an object that has one."
        ) from None
    return upgrade(value, lift=lift, fetch=fetch)
