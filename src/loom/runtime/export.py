"""A conversation as a document: Markdown, one HTML page with its pictures inside, JSON that `loom import` reads, or a
zip of these with every medium.

The HTML page holds no script and asks no server for anything; every word in it is escaped. In the zip, media are named
by their digest: the name of a file never becomes a path.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import mimetypes
import zipfile
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from loom.content.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
)
from loom.content.codec import Conversation, encode_conversation
from loom.content.media import Media
from loom.content.messages import Message, media_of, sources_of, text_of
from loom.content.recipes import Fit
from loom.content.terminal_safe import safe_text
from loom.errors import Corrupt, LoomError, NotFound
from loom.formats import render
from loom.session import ExportFormat
from loom.store.nodes import Node
from loom.store.session_rows import StoredSession

if TYPE_CHECKING:
    from loom.runtime import Runtime

FORMS: Final[tuple[ExportFormat, ...]] = ("md", "html", "json", "zip")

_SIDE_PX: Final = 1_200
_ENDINGS: Final = {"image/jpeg": ".jpg", "image/webp": ".webp", "audio/mpeg": ".mp3", "audio/wav": ".wav"}
"""Where systems differ, or do not know."""
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "article{margin:1.2rem 0;border-inline-start:3px solid #8884;padding-inline-start:1rem}"
    "h2{font-size:.85rem;margin:0 0 .3rem;opacity:.7}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0;"
    "font:inherit}.code{font-family:ui-monospace,monospace;font-size:.85rem}img{max-width:100%;height:auto}"
)


async def export_session(runtime: Runtime, session: StoredSession, form: ExportFormat) -> bytes:
    """Return the conversation up to the head as a file. Configured secrets in it are masked: what was stored before a
    key was configured leaves no other way either."""
    root, *nodes = await runtime.forest.path(session.head_id)
    system = root.system or ""
    messages = tuple(node.message for node in nodes if node.message is not None)
    match form:
        case "zip":
            return await _zip_export(runtime, session, messages)
        case "json":
            return (
                runtime.mask(encode_conversation(Conversation(messages=messages, system=system)).decode()).encode()
                + b"\n"
            )
        case "md":
            return runtime.mask(_markdown(session.title, system, nodes)).encode()
        case "html":
            return runtime.mask(await _html(runtime, session.title, system, nodes)).encode()


async def _zip_export(runtime: Runtime, session: StoredSession, messages: Sequence[Message]) -> bytes:
    """Media that are gone are left out; the three forms of the conversation tell of them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for form in ("md", "html", "json"):
            archive.writestr(f"conversation.{form}", await export_session(runtime, session, form))
        for media in {medium.digest: medium for message in messages for medium in media_of(message)}.values():
            with contextlib.suppress(NotFound, Corrupt):
                data = await runtime.media.load(media.digest)
                archive.writestr(media_file(media), data, zipfile.ZIP_STORED)
    return file.getvalue()


def media_file(media: Media) -> str:
    """`media/9f2c….png`"""
    ending = _ENDINGS.get(media.media_type) or mimetypes.guess_extension(media.media_type, strict=False) or ""
    return f"media/{media.digest.partition(':')[2]}{ending}"


def speaker(node: Node) -> str:
    """`you`, `tool`, or the name of the model."""
    if node.message is None or node.message.role == "user":
        return "you"
    return "tool" if node.message.role == "tool" else str(node.meta.get("model") or "model")


def _markdown(title: str, system: str, nodes: Sequence[Node]) -> str:
    parts = [f"# {' '.join(title.split()) or 'Conversation'}"]
    if system:
        parts.append(f"> {system}".replace("\n", "\n> "))
    for node in nodes:
        if node.message is not None:
            parts += [f"## {speaker(node)}", *(_markdown_block(block) for block in node.message.blocks)]
            if sources := sources_of(node.message):
                parts.append(f"*Sources: {', '.join(sources)}*")
    return safe_text("\n\n".join(parts)) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return "> *thinking*\n>\n> " + text_of(block).replace("\n", "\n> ")
        case ToolCall():
            return f"`{block.name}`\n\n```json\n{msgspec.json.encode(block.arguments).decode()}\n```"
        case ToolResult():
            return f"```\n{text_of(block)}\n```"
        case ImageBlock() | DocumentBlock() | AudioBlock() | UnknownBlock():
            return text_of(block)
        case _:
            assert_never(block)


async def _html(runtime: Runtime, title: str, system: str, nodes: Sequence[Node]) -> str:
    name = escape(" ".join(title.split()) or "Conversation")
    parts = [
        '<!doctype html><html><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f'<meta name="viewport" content="width=device-width"><title>{name}</title><style>{_STYLE}</style></head>',
        f"<body><h1>{name}</h1>",
    ]
    if system:
        parts.append(f"<article><h2>system</h2><pre>{_escape(system)}</pre></article>")
    for node in nodes:
        if node.message is not None:
            blocks = await _html_blocks(runtime, node.message)
            parts.append(f"<article><h2>{_escape(speaker(node))}</h2>{blocks}</article>")
    return "\n".join([*parts, "</body></html>\n"])


async def _html_blocks(runtime: Runtime, message: Message) -> str:
    blocks = [await _html_block(runtime, block) for block in message.blocks]
    if sources := sources_of(message):
        blocks.append(f"<p><small>Sources: {_escape(', '.join(sources))}</small></p>")
    return "".join(blocks)


async def _html_block(runtime: Runtime, block: Block) -> str:
    match block:
        case TextBlock():
            return f"<pre>{_escape(block.text)}</pre>"
        case ThinkingBlock():
            return f"<details><summary>thinking</summary><pre>{_escape(text_of(block))}</pre></details>"
        case ImageBlock():
            return await _picture(runtime, block)
        case ToolResult():
            inner = "".join([await _html_block(runtime, part) for part in block.blocks])
            return f"<details open><summary>{_escape(block.name or 'result')}</summary>{inner}</details>"
        case ToolCall() | DocumentBlock() | AudioBlock() | UnknownBlock():
            return f'<pre class="code">{_escape(text_of(block))}</pre>'
        case _:
            assert_never(block)


async def _picture(runtime: Runtime, block: ImageBlock) -> str:
    label = _escape(text_of(block))
    try:
        data = await runtime.media.load(block.media.digest)
        made = await asyncio.to_thread(render, data, block.media, Fit(max_side_px=_SIDE_PX))
    except LoomError as error:
        return f"<pre>{label} ({_escape(error.message)})</pre>"
    encoded = base64.b64encode(made.data).decode()
    return f'<p><img alt="{label}" src="data:{made.media_type};base64,{encoded}"></p>'


def _escape(text: str) -> str:
    return escape(safe_text(text))
