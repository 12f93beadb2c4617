"""Expansion of a message: slash commands (the user's own, and prompts of MCP servers) and mentioned resources."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loom.agent.file_commands import ExpandedMessage, FileCommandRunner
from loom.agent.tracked_files import mentions, split_pages, tracked_name
from loom.api_types import CommandView
from loom.config.approval import action_of
from loom.config.schema import ApprovalSettings
from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.inputs import Attachment, Content, flatten
from loom.errors import ContentError, MediaError
from loom.formats.intake import accept
from loom.formats.sniff import sniff
from loom.runtime.agent_files import allowed_commands
from loom.runtime.skills import OwnCommand, find_commands
from loom.tools.mcp.servers import ServerPrompt
from loom.tools.shell_arguments import insert_arguments
from loom.tools.workspace import is_folder, open_file

if TYPE_CHECKING:
    from loom.runtime import Runtime

_COMMAND: Final = re.compile(r"/(?P<name>\S+)(?P<arguments>(?:\s.*)?)", re.DOTALL)
_HEAD_BYTES: Final = 65_536
_ATTACHED: Final = ("image", "pdf", "office", "audio")
"""Kinds of files that a mention attaches."""


def list_commands(runtime: Runtime, workspace: Path) -> tuple[CommandView, ...]:
    """Return the slash commands of a workspace: the user's own, and prompts of servers that are ready. It reads
    files."""
    own = find_commands(runtime.config, workspace).values()
    found = [CommandView(name=it.name, description=it.description, text=it.text) for it in own]
    for prompt in runtime.mcp.prompts():
        text = f"/{prompt.command} $ARGUMENTS"  # the session replaces it with the prompt
        found.append(CommandView(name=prompt.command, description=prompt.description, text=text))
    return tuple(found)


async def expand_message(
    runtime: Runtime, content: Sequence[Content], workspace: Path, runner: FileCommandRunner | None
) -> ExpandedMessage:
    """Return the content with its slash command expanded, and with the resources (`@SERVER:URI`) and media that the
    text mentions before it. `runner` runs the shell commands of a command file; None leaves them as text. Raise
    `ToolError` if a server does not return what is mentioned, or if a shell command may not run."""
    leaves = list(flatten(list(content)))
    texts = [leaf.text if isinstance(leaf, TextBlock) else leaf for leaf in leaves if isinstance(leaf, str | TextBlock)]
    if len(texts) == 1 and (typed := _COMMAND.fullmatch(texts[0])) is not None:
        others = [leaf for leaf in leaves if not isinstance(leaf, str | TextBlock)]
        own = (await asyncio.to_thread(find_commands, runtime.config, workspace)).get(typed["name"])
        if own is not None:
            arguments = typed["arguments"].strip()
            outputs = await _run_commands(own, arguments, runner) if runner is not None else None
            # The output of a command mentions nothing: it may contain text of anyone, such as commit messages.
            texts = [own.fill(arguments, dict.fromkeys(own.shell_commands(), ""))]
            leaves = [*others, own.fill(arguments, outputs)]
        elif (prompt := await _server_prompt(runtime, typed["name"])) is not None:
            # What a server writes mentions nothing of the user's.
            found = await prompt.blocks(typed["arguments"].strip(), _Attach(runtime))
            return ExpandedMessage([*others, *found], "")
    blocks: list[ContentBlock] = []
    for name in mentions("\n".join(texts)):
        read = runtime.mcp.mentioned_resource(name) or runtime.mcp.mentioned_resource(name.rstrip(".,;:!?)"))
        if read is not None:
            blocks += await read(_Attach(runtime))
    files = await asyncio.to_thread(_mentioned_media, mentions("\n".join(texts)), leaves, workspace)
    return ExpandedMessage([*blocks, *files, *leaves], "\n".join(texts))


async def _run_commands(command: OwnCommand, arguments: str, runner: FileCommandRunner) -> dict[str, str]:
    """Return the output of each shell command of the file. Raise `ToolError` if one of them may not run."""
    lines = {written: insert_arguments(written, arguments) for written in command.shell_commands()}
    allowed = ApprovalSettings(default="ask", rules=allowed_commands(command.allowed_tools))
    outputs = await runner.run(
        list(lines.values()), lambda tool, subject: action_of(allowed, tool, subject) == "allow", command.file
    )
    return {written: outputs[line] for written, line in lines.items()}


def _mentioned_media(names: Sequence[str], leaves: Sequence[Content], workspace: Path) -> list[Attachment]:
    """Return the images, documents and recordings of the workspace that the text mentions and that are not attached
    yet. Text files stay mentions: they are tracked instead."""
    sources = [leaf.source if isinstance(leaf, Attachment) else leaf for leaf in leaves]
    attached = {os.path.realpath(source) for source in sources if isinstance(source, Path)}
    attached |= {leaf.media.source for leaf in leaves if isinstance(leaf, ImageBlock | DocumentBlock | AudioBlock)}
    found: list[Attachment] = []
    for name in names:
        place, pages = tracked_name(workspace, name), ""
        if place is None:
            with suppress(ContentError):  # an invalid page range: the turn reports it
                file, pages = split_pages(name)
                place = tracked_name(workspace, file)
        if place is None or is_folder(workspace, place):
            continue
        try:
            with open_file(workspace, place) as opened:
                kind = sniff(opened.file.read(_HEAD_BYTES), opened.path.name).category
                is_new = os.path.realpath(opened.path) not in attached
                if kind in _ATTACHED and is_new and opened.inside and not opened.sensitive:
                    found.append(Attachment(source=opened.path, pages=pages))
        except MediaError:
            continue  # it cannot be read: the turn reports it
    return found


async def _server_prompt(runtime: Runtime, name: str) -> ServerPrompt | None:
    server, _, prompt_name = name.partition(":")
    if not prompt_name or server not in [status.name for status in runtime.mcp.status()]:
        return None
    await runtime.mcp.wait_ready()
    return next((it for it in runtime.mcp.prompts() if it.command == name), None)


class _Attach:
    """Stores content of a server as an attachment of the user's message."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, data: bytes, *, name: str, source: str) -> Sequence[ContentBlock]:
        limits = self._runtime.config.media_limits()
        admitted = await asyncio.to_thread(accept, data, name, source=source, limits=limits)
        if admitted.data is not None:
            await self._runtime.stores.media.put(admitted.data)
        return [admitted.block, *(TextBlock(f"({notice})") for notice in admitted.notices)]
