"""What a user sends → a message: slash commands and mentions are expanded, and attachments are stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from loom.agent.custom_blocks import expand_custom_blocks
from loom.agent.file_commands import ExpandedMessage, FileCommandRunner
from loom.agent.ingest import Prerender, ingest
from loom.agent.ports import SessionRecord
from loom.agent.services import Services, workspace_of
from loom.agent.tracked_files import PUNCTUATION, mentions, split_pages
from loom.content.blocks import TextBlock
from loom.content.inputs import Attachment, Content, Ingested, flatten
from loom.content.messages import Message, media_blocks
from loom.errors import ContentError, LoomError


class ComposedMessage(msgspec.Struct, frozen=True):
    message: Message
    mentioned: tuple[str, ...]
    """The files that its text mentions."""
    notices: tuple[str, ...]
    """About its attachments."""


class MessageComposer:
    """Composes messages of a session that may call `tools` (None: all)."""

    def __init__(self, record: SessionRecord, services: Services, tools: Sequence[str] | None) -> None:
        self._record = record
        self._services = services
        self._tools = tools

    async def compose(self, content: Sequence[Content], model: str) -> ComposedMessage:
        expanded = await self._expand(content)
        found = await self._store(expanded.content, model)
        attached = [block.media.source for block in media_blocks(found.blocks)]
        mentioned = tuple(name for name in mentions(expanded.typed) if not _is_attached(name, attached))
        return ComposedMessage(Message("user", found.blocks), mentioned, found.notices)

    async def draft(self, content: Sequence[Content], model: str = "") -> tuple[Message, ...]:
        """Return the message for `content`, for a preview; return an empty tuple without content. No shell commands
        run."""
        if not content:
            return ()
        expanded = await self._expand(content, is_preview=True)
        return (Message("user", (await self._store(expanded.content, model)).blocks),)

    async def _store(self, content: Content, model: str) -> Ingested:
        services = self._services
        prerender: Prerender | None = None
        if any(isinstance(leaf, Path | bytes | Attachment) for leaf in flatten(content)):
            with suppress(LoomError):  # the turn reports problems with the model
                prerender = services.prerender(services.known_model(model or await self._record.model()))
        return await ingest(content, services.media, limits=services.limits, fetch=services.fetch, prerender=prerender)

    async def _expand(self, content: Sequence[Content], *, is_preview: bool = False) -> ExpandedMessage:
        parts: list[Content] = list(flatten(expand_custom_blocks(list(content))))
        texts = [
            leaf.text if isinstance(leaf, TextBlock) else leaf for leaf in parts if isinstance(leaf, str | TextBlock)
        ]
        if not any(text.startswith("/") or "@" in text for text in texts):
            return ExpandedMessage(parts, "\n".join(texts))
        snapshot, services = await self._record.snapshot(), self._services
        workspace, runner = workspace_of(snapshot), None
        if not is_preview and any(text.startswith("/") for text in texts):
            tools = await services.offered_tools(snapshot, self._tools)
            runner = FileCommandRunner(services, self._record.id, snapshot.settings, workspace, tools)
        return await services.expand(parts, workspace, runner)


def _is_attached(name: str, sources: Sequence[str]) -> bool:
    """Return whether a mention names a file that is attached to the message, or pages of it."""
    with suppress(ContentError):  # an invalid page range: the turn reports it
        name, _ = split_pages(name)
    ending = "/" + os.path.normpath(name.rstrip(PUNCTUATION))
    return any(source.endswith(ending) for source in sources)
