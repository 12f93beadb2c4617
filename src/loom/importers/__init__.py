"""Importers: convert older and foreign formats to today's values. No other module knows these formats.

    upgrade        a conversation: Loom's older messages, OpenAI Chat and Responses, Anthropic, Bedrock Converse,
                   Gemini, Ollama, Loom's export; formats may be mixed within one list
    upgrade_tree   a tree that was stored as one JSON file per node

Importers do no IO. The caller passes `lift`, which stores bytes and returns a block, and `fetch`, which returns the
bytes of a file that an old block refers to, if the caller permits it. Bytes never stay in the text. No content is lost:
what cannot be read becomes a text that describes it, and `notices` list the changes.

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
