"""Reads older and foreign shapes into today's values; the only place that knows them. Values in, values out.

    upgrade        a conversation: Loom's older messages, OpenAI Chat and Responses, Anthropic, Bedrock Converse,
                   Gemini, Ollama, our own export; mixed within one list, too
    upgrade_tree   a tree that was stored as one JSON file per node

Bytes never stay in the text and no file is opened here: the caller lends `lift` (stores bytes, gives a block) and
`fetch` (the bytes of a file that an old block points at, if the caller permits it). Nothing that was said is lost: what
cannot be read becomes a text that says so, and `notices` tell what was changed.

Read `conversation`, then `messages` (a message → a draft), `blocks` (its content), `assembly` (drafts → messages).
"""

from __future__ import annotations

from loom.content.nested_media import StoreLegacyMedia
from loom.importers.conversation import UpgradedConversation, upgrade
from loom.importers.reader import FetchLegacyMedia
from loom.importers.tree import LegacyNode, LegacyTree, seconds_of, upgrade_tree

__all__ = [
    "FetchLegacyMedia",
    "LegacyNode",
    "LegacyTree",
    "StoreLegacyMedia",
    "UpgradedConversation",
    "seconds_of",
    "upgrade",
    "upgrade_tree",
]
