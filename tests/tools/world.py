"""A ToolContext that remembers: what was asked, told, injected and stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loom.content.blocks import ContentBlock, ImageBlock, TextBlock, ToolResult
from loom.content.inputs import Content
from loom.content.media import Media, digest_of
from loom.content.messages import media_blocks, text_of
from loom.errors import NotFound, ToolError
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.models import Capabilities
from loom.tools.base import Tool


class Context:
    """`allow`: what the user says when asked. `stored` is what the session refers to."""

    def __init__(self, workspace: Path, *, allow: bool = False, limits: IntakeLimits | None = None) -> None:
        self.workspace = workspace
        self.limits = limits or IntakeLimits()
        self.capabilities = Capabilities()
        self.asked: list[str] = []
        self.told: list[str] = []
        self.stored: list[Media] = []
        self.bytes: dict[str, bytes] = {}
        self._allow = allow

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        assert isinstance(data, bytes), "built-in tools attach bytes that they have read themselves"
        admitted = accept(data, name, source=source, pages=pages, limits=self.limits)
        if admitted.data is not None:
            self.bytes[digest_of(admitted.data)] = admitted.data
        return [admitted.block, *(TextBlock(f"({notice})") for notice in admitted.notices)]

    async def inject(self, *content: Content) -> None:
        raise AssertionError("no built-in tool injects")

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        self.told.append(text)

    @property
    def reads_all(self) -> bool:
        return True

    def may_read(self, *places: Path) -> bool:
        return True

    async def approve(self, action: str, *, why: str, url: str = "") -> None:
        self.asked.append(f"{action}: {why}")
        if not self._allow:
            raise ToolError("the user denied it")

    async def media(self) -> Sequence[Media]:
        return list(self.stored)

    async def load(self, digest: str) -> bytes:
        if digest not in self.bytes:
            raise NotFound("it is not there")
        return self.bytes[digest]

    async def say(self, data: bytes, name: str) -> Media:
        """Put a medium into the session, as if a user had attached it."""
        (block,) = list(media_blocks(await self.attach(data, name=name)))
        self.stored.append(block.media)
        return block.media

    def keep(self, text: str, name: str) -> Media:
        data = text.encode()
        media = Media(digest=digest_of(data), media_type="text/plain", size_bytes=len(data), name=name)
        self.bytes[media.digest] = data
        self.stored.append(media)
        return media


async def said(tool: Tool, context: Context, **arguments: object) -> str:
    """The text of what a tool answers."""
    value = await tool.run(context, arguments)
    if isinstance(value, str):
        return value
    blocks = value.blocks if isinstance(value, ToolResult) else value
    return "\n".join(text_of(block) for block in blocks)


def pictures(blocks: Sequence[ContentBlock]) -> list[ImageBlock]:
    return [block for block in blocks if isinstance(block, ImageBlock)]
