"""Conversations from elsewhere: a JSON file in any shape that we know → messages whose bytes are in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from loom.compile.ports import MediaWriter
from loom.content.blocks import ContentBlock
from loom.errors import ContentError, ExtraMissing, MediaError
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.importers import FetchLegacyMedia, StoreLegacyMedia, UpgradedConversation, upgrade
from loom.tools.workspace import open_file, read_whole


async def read_conversation(
    data: bytes | dict[str, Any],
    shelf: MediaWriter,
    *,
    limits: IntakeLimits = IntakeLimits(),
    roots: Sequence[Path] = (),
) -> UpgradedConversation:
    """Read a conversation from JSON, as text or parsed, and store its media. Raise `ContentError` if it is none.

    `roots` are the folders from which old blocks may still take their files; outside of them they become text.
    """
    kept: list[bytes] = []
    refused: list[str] = []

    def lift(found: bytes, name: str, _declared: str) -> ContentBlock | None:
        try:
            admitted = accept(found, name, limits=limits)
        except (MediaError, ExtraMissing) as error:
            refused.append(error.message)
            return None
        if admitted.data is not None:
            kept.append(admitted.data)
        refused.extend(admitted.notices)
        return admitted.block

    def fetch(source_path: str) -> bytes | None:
        for root in roots:
            try:
                with open_file(root, source_path) as opened:
                    if opened.inside and not opened.sensitive:
                        return read_whole(opened, limits)
            except MediaError as error:
                refused.append(error.message)
        return None

    upgraded = await asyncio.to_thread(_upgrade, data, lift, fetch)
    for found in kept:
        await shelf.put(found)
    return msgspec.structs.replace(upgraded, notices=(*upgraded.notices, *dict.fromkeys(refused)))


def _upgrade(data: bytes | dict[str, Any], lift: StoreLegacyMedia, fetch: FetchLegacyMedia) -> UpgradedConversation:
    try:
        value = data if isinstance(data, dict) else msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ContentError(
            f"this is not JSON: {error}", hint="Give a conversation: a list of messages, or an object that has one."
        ) from None
    return upgrade(value, lift=lift, fetch=fetch)
