"""Import of conversations: convert a JSON file in any known format to messages whose bytes are in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from loom.compile.ports import MediaWriter
from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, clean_text
from loom.content.json_values import first_text, sanitize_json
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
from loom.importers.conversation import PROMPT_FIELDS, ConversationReading, conversation_items, read_prompts
from loom.importers.forms import BodyProtocol
from loom.importers.prefix_readings import PrefixReadings, hash_prefixes
from loom.importers.reader import LegacyReader
from loom.tools.workspace import open_file, read_whole

_LONG_BYTES: Final = 256_000
"""Larger requests are read in a thread."""


class KnownMedium(msgspec.Struct, frozen=True):
    """A medium that was already stored or refused: its digest, and its block or the error."""

    digest: str
    outcome: ContentBlock | MediaError


KnownMedia: TypeAlias = Mapping[bytes, KnownMedium]
"""Maps bytes as they occur in a request to the medium that they represent."""


class _Intake:
    """Provides `lift` to an importer. It collects bytes, which `store` writes after reading, and the reasons of
    refusals."""

    def __init__(self, limits: IntakeLimits, known: KnownMedia | None = None) -> None:
        self._limits = limits
        self._known = known or {}
        self._kept: dict[str, bytes] = {}
        self.refused: list[str] = []

    def lift(self, found: bytes, name: str, _declared: str) -> ContentBlock | None:
        if (known := self._known.get(found)) is not None:
            if isinstance(known.outcome, MediaError):
                self.refused.append(known.outcome.message)
                return None
            return with_name(known.outcome, name)
        try:
            admitted = accept(found, name, limits=self._limits)
        except (MediaError, ExtraMissing) as error:
            self.refused.append(error.message)
            return None
        if admitted.data is not None:
            self._kept[digest_of(admitted.data)] = admitted.data
        self.refused.extend(admitted.notices)
        return admitted.block

    def identify(self, found: bytes) -> str:
        """Return the digest of the bytes, or of the medium that they represent."""
        known = self._known.get(found)
        return digest_of(found) if known is None else known.digest

    @property
    def has_known_only(self) -> bool:
        """Whether every lifted medium had been stored before."""
        return not self._kept and not self.refused

    async def store(self, writer: MediaWriter) -> tuple[str, ...]:
        """Write the collected bytes to the store; return the reasons of refusals and other notices."""
        for found in self._kept.values():
            await writer.put(found)
        return tuple(dict.fromkeys(self.refused))


async def read_foreign_conversation(
    data: bytes,
    writer: MediaWriter,
    *,
    limits: IntakeLimits = IntakeLimits(),
    roots: Sequence[Path] = (),
) -> UpgradedConversation:
    """Read a conversation from JSON and store its media. Raise `ContentError` if it is not a conversation.

    Old blocks may refer to files inside the folders `roots`; references to other files become text.
    """
    intake = _Intake(limits)

    def fetch(source_path: str) -> bytes | None:
        for root in roots:
            try:
                with open_file(root, source_path) as opened:
                    if opened.inside and not opened.sensitive:
                        return read_whole(opened, limits)
            except MediaError as error:
                intake.refused.append(error.message)
        return None

    upgraded = await asyncio.to_thread(_upgrade, data, intake.lift, fetch)
    refused = await intake.store(writer)
    return msgspec.structs.replace(upgraded, notices=(*upgraded.notices, *refused))


async def read_request(
    body: dict[str, Any],
    protocol: BodyProtocol,
    writer: MediaWriter,
    readings: PrefixReadings,
    *,
    limits: IntakeLimits,
    known: KnownMedia,
    holds_bytes: bool = False,
) -> UpgradedConversation:
    """Read the conversation of a client's request and store its media. Raise `ContentError` if there is none. Messages
    that an earlier request held are taken from `readings`.

    `known` are media of the request that are already stored; `holds_bytes` means that it may hold others.
    """
    intake = _Intake(limits, known)
    model = first_text(body, "model")
    items = hash_prefixes(conversation_items(body), protocol, model)

    def reader() -> LegacyReader:
        return LegacyReader(lift=intake.lift, fetch=lambda _: None, model=model, identify=intake.identify)

    def read() -> UpgradedConversation:
        before, own = reader(), reader()
        prompts = read_prompts({key: sanitize_json(body[key]) for key in PROMPT_FIELDS if key in body}, before)
        count, found = readings.find(items)
        reading = ConversationReading(own, protocol, shares_texts=False) if found is None else found.copy(own)
        for at in range(count, len(items.items)):
            reading.add(items.clean(at))
        if intake.has_known_only:
            readings.keep(items, reading)
        return reading.finish(prompts, before.notices)

    is_short = bool(items.names) and items.count_bytes(readings.find(items)[0]) < _LONG_BYTES
    upgraded = read() if is_short and not holds_bytes else await asyncio.to_thread(read)
    refused = await intake.store(writer)
    return msgspec.structs.replace(upgraded, notices=(*upgraded.notices, *refused))


async def read_foreign_tree(
    nodes: Sequence[Any], writer: MediaWriter, fetch: FetchLegacyMedia, *, limits: IntakeLimits = IntakeLimits()
) -> LegacyTree:
    """Read a conversation with branches and store its media. `fetch` returns files that nodes refer to."""
    intake = _Intake(limits)
    tree = await asyncio.to_thread(upgrade_tree, nodes, lift=intake.lift, fetch=fetch)
    refused = await intake.store(writer)
    return msgspec.structs.replace(tree, notices=(*tree.notices, *refused))


def with_name(block: ContentBlock, name: str) -> ContentBlock:
    """Return the block with another name for its media; text is returned unchanged."""
    if not name or not isinstance(block, ImageBlock | DocumentBlock | AudioBlock):
        return block
    return msgspec.structs.replace(block, media=msgspec.structs.replace(block.media, name=clean_name(clean_text(name))))


def _upgrade(data: bytes, lift: StoreLegacyMedia, fetch: FetchLegacyMedia) -> UpgradedConversation:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ContentError(
            f"This is not JSON: {error}", hint="Use a conversation: a list of messages, or an object that has one."
        ) from None
    return upgrade(value, lift=lift, fetch=fetch)
