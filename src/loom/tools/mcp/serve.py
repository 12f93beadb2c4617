"""Loom as an MCP server: `read_file` and `look` for any MCP client. Images are returned as image contents, documents as
their text; `look` shows their pages, parts and images.

There is no user who could approve, so calls that need an approval are refused: files outside the workspace (unless the
server was started with that permission) and files that may contain secrets (always).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

import msgspec

from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    UnknownBlock,
    VideoBlock,
)
from loom.content.inputs import Content
from loom.content.media import Media
from loom.content.messages import text_of
from loom.content.moments import choose_times, time_label
from loom.content.recipes import Fit, Frame, Scenes, Text
from loom.errors import LoomError, NotFound, ToolError
from loom.formats import render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.models import Capabilities
from loom.struct_types import decode_json
from loom.tools.base import Tool
from loom.tools.file_read import read_file
from loom.tools.look import look
from loom.tools.workspace import OpenFile

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server

PICTURE_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Types that MCP clients can be expected to show."""
_VIDEO_FRAMES: Final = 8
KEPT_BYTES: Final = 128 * 1024 * 1024
INSTRUCTIONS: Final = (
    "read_file reads what is in the workspace: text with line numbers, images, sound, the text of PDFs and office "
    "files. look shows the same again or a part of it: full=true gives the pages of a document as images."
)


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options with which the server was started."""

    workspace: Path
    allow_outside: bool = False
    limits: IntakeLimits = IntakeLimits()


class ServedMedia:
    """The media that were read or created over this connection, so that `look` can show them again; the oldest is
    dropped first."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Media, bytes]] = {}

    def put(self, media: Media, data: bytes) -> None:
        self._held.pop(media.digest, None)
        self._held[media.digest] = (media, data)
        while len(self._held) > 1 and sum(len(data) for _, data in self._held.values()) > KEPT_BYTES:
            del self._held[next(iter(self._held))]

    def media(self) -> list[Media]:
        return [media for media, _ in self._held.values()]

    def bytes_of(self, digest: str) -> bytes:
        if digest not in self._held:
            raise NotFound("it is no longer stored", hint="Read the file again.")
        return self._held[digest][1]


class ServedCall:
    """The ToolContext of one call: it refuses everything that needs an approval."""

    capabilities = Capabilities(accepts=PICTURE_TYPES, result_accepts=PICTURE_TYPES)

    def __init__(self, serving: ServeOptions, kept: ServedMedia) -> None:
        self.workspace = serving.workspace
        self.limits = serving.limits
        self._allow_outside = serving.allow_outside
        self._kept = kept

    async def attach(
        self, data: bytes | Path, *, name: str = "", source: str = "", pages: str = ""
    ) -> Sequence[ContentBlock]:
        if isinstance(data, Path):
            raise ToolError("files are read by read_file only")
        admitted = await asyncio.to_thread(accept, data, name, source=source, pages=pages, limits=self.limits)
        if admitted.data is not None and not isinstance(admitted.block, TextBlock | UnknownBlock):
            self._kept.put(admitted.block.media, admitted.data)
        return [admitted.block, *(TextBlock(f"({notice})") for notice in admitted.notices)]

    async def approve_file(self, opened: OpenFile, action: str, *, why: str) -> None:
        """Check the open file alone: its path may have led elsewhere a moment ago."""
        if opened.sensitive or not (opened.inside or self._allow_outside):
            how = "" if opened.inside else " The server allows this with --allow-outside."
            raise ToolError(f"{_refusal_text(action, why)}{how}")

    async def approve(self, action: str, *, why: str, url: str = "") -> None:
        raise ToolError(_refusal_text(action, why))

    async def confirm(self, action: str, *, why: str, schema: dict[str, Any] | None = None) -> str:
        raise ToolError(_refusal_text(action, why))

    def may_read(self, *places: Path) -> bool:
        """Return True: a served call has no rules."""
        return True

    @property
    def reads_all(self) -> bool:
        return True

    async def inject(self, *content: Content) -> None:
        raise ToolError("No conversation here: this server has files only")

    async def emit(self, text: str, *, fraction: float | None = None) -> None:
        """Do nothing: progress is not shown."""

    async def media(self) -> Sequence[Media]:
        return self._kept.media()

    async def load(self, digest: str) -> bytes:
        return self._kept.bytes_of(digest)


def _refusal_text(action: str, why: str) -> str:
    return f"not allowed: {action} ({why}). This server has no user to ask."


def make_server(serving: ServeOptions) -> Server[Any]:
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext

    tools = {tool.name: tool for tool in (Tool(read_file), look)}
    kept = ServedMedia()

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.spec.description,
                    input_schema=tool.spec.parameters,
                    annotations=hints,
                )
                for tool in tools.values()
            ]
        )

    async def call_tool(_: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return types.CallToolResult(content=await _answer(asked.name, asked.arguments or {}))
        except LoomError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)

    async def _answer(name: str, arguments: dict[str, Any]) -> list[types.ContentBlock]:
        tool = tools.get(name)
        if tool is None:
            raise ToolError(f"Tool {name!r} not found; available: {', '.join(tools)}")
        blocks = cast("list[ContentBlock]", await tool.run(ServedCall(serving, kept), arguments))
        return await asyncio.to_thread(_contents, blocks, kept, serving.limits)

    return Server(
        "loom",
        version=version("loom-runtime"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(serving: ServeOptions) -> None:
    """Serve until the client closes standard input."""
    from mcp.server.stdio import stdio_server

    server = make_server(serving)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _contents(blocks: Sequence[ContentBlock], kept: ServedMedia, limits: IntakeLimits) -> list[types.ContentBlock]:
    import mcp_types as types

    found: list[types.ContentBlock] = []
    for block in blocks:
        match block:
            case TextBlock() | UnknownBlock():
                found.append(types.TextContent(text=text_of(block)))
            case ImageBlock():
                found += _picture(kept.bytes_of(block.media.digest), block.media, limits)
            case AudioBlock():
                data = _base64(kept.bytes_of(block.media.digest))
                found.append(types.AudioContent(data=data, mime_type=block.media.media_type))
            case VideoBlock():
                found += _video(kept.bytes_of(block.media.digest), block.media, limits)
            case DocumentBlock():
                found += _document(kept.bytes_of(block.media.digest), block, limits)
            case _:
                assert_never(block)
    return found


def _document(data: bytes, block: DocumentBlock, limits: IntakeLimits) -> list[types.ContentBlock]:
    import mcp_types as types

    text = render(data, block.media, Text(block.pages), limits)
    said = (
        text.data.decode().strip() or f"[{block.media.label}: it contains no text; look with full=true shows its pages]"
    )
    return [types.TextContent(text=words) for words in (said, *(f"({notice})" for notice in text.notices))]


def _video(data: bytes, media: Media, limits: IntakeLimits) -> list[types.ContentBlock]:
    """Return a few frames with their times: the protocol has no video."""
    import mcp_types as types

    scenes = decode_json(render(data, media, Scenes(), limits).data, list[float])
    found: list[types.ContentBlock] = [types.TextContent(text=f"[video: {media.label}]")]
    for at in choose_times(media.duration_seconds or 0.0, scenes, _VIDEO_FRAMES):
        frame = render(data, media, Frame(round(at * 1000), formats=PICTURE_TYPES), limits)
        found.append(types.TextContent(text=f"[{time_label(at)}]"))
        found.append(types.ImageContent(data=_base64(frame.data), mime_type=frame.media_type))
    return found


def _picture(data: bytes, media: Media, limits: IntakeLimits) -> list[types.ContentBlock]:
    """Return the original bytes if every client can show them and they fit, else a copy that does."""
    import mcp_types as types

    shown = render(data, media, Fit(formats=PICTURE_TYPES), limits)
    picture = types.ImageContent(data=_base64(shown.data), mime_type=shown.media_type)
    return [picture, *(types.TextContent(text=f"({notice})") for notice in shown.notices)]


def _base64(data: bytes) -> str:
    import pybase64

    return pybase64.b64encode_as_string(data)
