"""A session as a file: Markdown, one HTML page with its images inside, JSON with everything in it, or a zip of these
with every medium as a file. `loom import` restores JSON and zip exactly.

`conversation_page.py` writes the HTML page. In the zip, media are named by their digest: the name of a file never
becomes a path.
"""

from __future__ import annotations

import asyncio
import base64
import io
import mimetypes
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, assert_never

import msgspec

from loom.agent.file_undo import UNDONE
from loom.agent.tracked_files import KNOWN_FILES, TRACKED
from loom.content.archive import ArchivedMedium, SessionArchive, encode_archive
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
    VideoBlock,
)
from loom.content.codec import decode_message
from loom.content.media import Media
from loom.content.messages import media_blocks, media_of, sources_of, text_of
from loom.content.recipes import Fit
from loom.content.terminal_safe import safe_text
from loom.errors import Corrupt, LoomError, NotFound
from loom.formats import render
from loom.runtime.conversation_page import Mask, PageImage, conversation_page
from loom.runtime.session_settings import system_prompt_of
from loom.session import PARENT_SESSION, ExportFormat
from loom.store.exchange import WORKSPACE, SessionExchange
from loom.store.nodes import Node, digests_of
from loom.store.session_rows import StoredSession

if TYPE_CHECKING:
    from loom.runtime import Runtime

FORMS: Final[tuple[ExportFormat, ...]] = ("md", "html", "json", "zip")

ARCHIVE_FILE: Final = "conversation.json"
LOCAL_SETTINGS: Final = frozenset({"running", "always", PARENT_SESSION, TRACKED, KNOWN_FILES, UNDONE})
"""Session settings that are valid only on this machine, and permissions, which a file must not grant."""
NOT_CARRIED: Final = (
    "the event log, queued messages and the running turn",
    "the workspace folder, and the files that tools tracked in it for undo",
    "permissions that were granted permanently",
)

_SIDE_PX: Final = 1_200
_ENDINGS: Final = {
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "video/quicktime": ".mov",
}
"""Extensions that systems define differently, or not at all."""


async def export_session(runtime: Runtime, session: StoredSession, form: ExportFormat) -> bytes:
    """Return a session as a file. JSON and zip contain all of it, with every branch, and can be restored exactly;
    Markdown and HTML show the conversation up to the head. Configured secrets are masked, including those stored before
    they were configured."""
    match form:
        case "zip":
            return await _zip_export(runtime, session)
        case "json":
            archive = await read_archive(runtime, session.id)
            return encode_archive(await _with_bytes(runtime, archive))
        case "md" | "html":
            return await export_page(runtime, session, session.head_id, form)


async def export_page(
    runtime: Runtime, session: StoredSession, node_id: str, form: Literal["md", "html"], *, with_system: bool = True
) -> bytes:
    """Return the conversation down to a node, for people to read. Secrets and the path of the workspace are masked."""

    def mask(text: str) -> str:
        text = text.replace(session.workspace, WORKSPACE) if len(session.workspace) > 1 else text
        return runtime.secrets.mask(text)

    root, *nodes = await runtime.stores.forest.path(node_id)
    system = system_prompt_of(session.settings, root.system) if with_system else ""
    if form == "html":
        return (await _html(runtime, session.title, system, nodes, mask)).encode()
    return mask(_markdown(session.title, system, nodes)).encode()


async def read_archive(runtime: Runtime, session_id: str) -> SessionArchive:
    """Return a session with all its branches, and the digests of its media."""
    archive = await SessionExchange(runtime.stores.database, runtime.secrets.mask).read(
        session_id, without=LOCAL_SETTINGS
    )
    messages = [decode_message(bytes(node.message)) for node in archive.nodes if node.parent is not None]
    files = {digest: "" for message in messages for digest in sorted(digests_of(message))}
    for message in messages:
        files |= {media.digest: media_file(media) for media in media_of(message)}
    media = tuple(
        ArchivedMedium(digest=digest, file=file or f"media/{digest.partition(':')[2]}")
        for digest, file in sorted(files.items())
    )
    return msgspec.structs.replace(archive, media=media, left_out=(*NOT_CARRIED, *archive.left_out))


async def _load(runtime: Runtime, digest: str) -> bytes | None:
    """Return the bytes of a medium; None if they are gone or damaged. The export names them."""
    try:
        return await runtime.stores.media.load(digest)
    except (NotFound, Corrupt):
        return None


async def _with_bytes(runtime: Runtime, archive: SessionArchive) -> SessionArchive:
    media: list[ArchivedMedium] = []
    for medium in archive.media:
        data = await _load(runtime, medium.digest)
        encoded = "" if data is None else base64.b64encode(data).decode()
        media.append(ArchivedMedium(digest=medium.digest, base64=encoded))
    return msgspec.structs.replace(archive, media=tuple(media))


async def _zip_export(runtime: Runtime, session: StoredSession) -> bytes:
    archive = await read_archive(runtime, session.id)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        media: list[ArchivedMedium] = []
        for medium in archive.media:
            data = await _load(runtime, medium.digest)
            media.append(medium if data is not None else ArchivedMedium(digest=medium.digest))
            if data is not None:
                _add_file(packed, medium.file, data, zipfile.ZIP_STORED)
        archive = msgspec.structs.replace(archive, media=tuple(media))
        _add_file(packed, ARCHIVE_FILE, encode_archive(archive))
        for form in ("md", "html"):
            page = await export_page(runtime, session, session.head_id, form)
            _add_file(packed, f"conversation.{form}", page)
    return file.getvalue()


def _add_file(packed: zipfile.ZipFile, name: str, data: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
    """Add a file without a timestamp, so that equal sessions give equal exports."""
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    info.external_attr = 0o644 << 16
    packed.writestr(info, data)


def media_file(media: Media) -> str:
    """Return the name of a medium in the zip: `media/9f2c….png`."""
    ending = _ENDINGS.get(media.media_type) or mimetypes.guess_extension(media.media_type, strict=False) or ""
    return f"media/{media.digest.partition(':')[2]}{ending}"


def author_name(node: Node) -> str:
    """Return `you`, `tool`, or the name of the model."""
    if node.message is None or node.message.role == "user":
        return "you"
    return "tool" if node.message.role == "tool" else str(node.meta.get("model") or "model")


def _markdown(title: str, system: str, nodes: Sequence[Node]) -> str:
    parts = [f"# {' '.join(title.split()) or 'Conversation'}"]
    if system:
        parts.append(f"> {system}".replace("\n", "\n> "))
    for node in nodes:
        if node.message is not None:
            parts += [f"## {author_name(node)}", *(_markdown_block(block) for block in node.message.blocks)]
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
        case ImageBlock() | DocumentBlock() | AudioBlock() | VideoBlock() | UnknownBlock():
            return text_of(block)
        case _:
            assert_never(block)


async def _html(runtime: Runtime, title: str, system: str, nodes: Sequence[Node], mask: Mask) -> str:
    blocks = [block for node in nodes if node.message is not None for block in media_blocks(node.message.blocks)]
    images = {block.media.digest: block for block in blocks if isinstance(block, ImageBlock)}
    embedded = {digest: await _embed(runtime, block) for digest, block in images.items()}
    return await asyncio.to_thread(conversation_page, title, system, nodes, embedded, mask)


async def _embed(runtime: Runtime, block: ImageBlock) -> PageImage:
    try:
        data = await runtime.stores.media.load(block.media.digest)
        made = await asyncio.to_thread(render, data, block.media, Fit(max_side_px=_SIDE_PX))
    except LoomError as error:
        return PageImage(problem=error.message)
    encoded = base64.b64encode(made.data).decode()
    return PageImage(f"data:{made.media_type};base64,{encoded}")
