"""`loom read`, `transcribe` and `speak`: how Loom reads files, and speech to and from text."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from loom.cli.shared.exit_codes import OK
from loom.cli.shared.terminal import safe_text, sentence
from loom.config import load_config
from loom.content.blocks import ContentBlock, DocumentBlock, TextBlock, clean_text
from loom.content.messages import text_of
from loom.content.recipes import Text
from loom.errors import ContentError, ExtraMissing, LoomError, Unreadable, Unsupported
from loom.formats import render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.runtime import Runtime
from loom.runtime.attachments import existing_file
from loom.tools.file_read import read_file


class _Context:
    """The tool context of `loom read`. Everything is approved: the user names the files."""

    def __init__(self, limits: IntakeLimits) -> None:
        self.workspace = Path.cwd()
        self.limits = limits
        self.data: dict[str, bytes] = {}
        self.notices: list[str] = []
        self.refused: Unsupported | None = None
        """The error of a binary file. A model reads a text about it; for the user it is an error, as for an
        attachment."""

    async def attach(self, data: bytes, *, name: str, source: str, pages: str = "") -> Sequence[ContentBlock]:
        try:
            admitted = await asyncio.to_thread(accept, data, name, source=source, pages=pages, limits=self.limits)
        except Unsupported as error:
            self.refused = error
            raise
        self.notices.extend(admitted.notices)
        if admitted.data is not None and not isinstance(admitted.block, TextBlock):
            media = getattr(admitted.block, "media", None)
            if media is not None:
                self.data[media.digest] = admitted.data
        return [admitted.block]

    async def approve(self, action: str, *, why: str) -> None:
        self.notices.append(clean_text(f"{action}: {why}"))


@click.command("read")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option("--pages", default="", help='Pages, slides or sheets: "3" or "21-40".')
@click.option("--offset", default=1, show_default=True, help="First line of a text file.")
@click.option("--limit", type=int, default=None, help="How many lines of a text file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def read_command(paths: tuple[str, ...], pages: str, offset: int, limit: int | None, as_json: bool) -> None:
    """Show how Loom reads files: their blocks, their text and any error. A bad file does not stop the rest.

    FILE#3-7 is pages 3 to 7.
    """
    failed = False
    limits = load_config().media_limits()
    for path in paths:
        found = asyncio.run(_read(path, pages, offset, limit, limits))
        failed = failed or found["error"] is not None
        said = found.pop("said", "")
        click.echo(msgspec.json.encode(found).decode() if as_json else safe_text(_for_people(found, said)))
    if failed:
        raise SystemExit(5)


async def _read(path: str, pages: str, offset: int, limit: int | None, limits: IntakeLimits) -> dict[str, Any]:
    context = _Context(limits)
    named = existing_file(path)
    file, pages = (str(named.source), named.pages or pages) if named is not None else (path, pages)
    shown = clean_text(path)  # a file name may be no valid UTF-8
    found: dict[str, Any] = {"path": shown, "blocks": [], "text": "", "notices": context.notices, "error": None}
    try:
        if await asyncio.to_thread(Path(file).is_dir):
            raise Unreadable(f"{shown} is a folder.", hint="Name the files in it.")
        blocks = await read_file(context, file, offset=offset, limit=limit, pages=pages)
        if context.refused is not None:
            raise context.refused
        found["blocks"] = blocks
        found["text"] = "\n".join([_text(block, context) for block in blocks])
    except LoomError as error:
        found["error"] = {"code": error.code, "message": clean_text(error.message), "hint": clean_text(error.hint)}
        found["said"] = sentence(error)
    return found


def _text(block: ContentBlock, context: _Context) -> str:
    """Return the text of a document rather than its label, if it can be extracted."""
    if not isinstance(block, DocumentBlock):
        return text_of(block)
    try:
        words = render(context.data[block.media.digest], block.media, Text(pages=block.pages), context.limits)
    except ExtraMissing as error:
        context.notices.append(str(error))
        return text_of(block)
    context.notices.extend(words.notices)
    return words.data.decode()


def _for_people(found: dict[str, Any], error: str) -> str:
    lines = [f"── {found['path']}"]
    lines += [f"note: {notice}" for notice in found["notices"]]
    if error:
        lines.append(error)
    else:
        labels = [text_of(block) for block in found["blocks"] if not isinstance(block, TextBlock)]
        lines += [label for label in labels if label not in found["text"]]
        lines.append(found["text"])
    return "\n".join(lines)


@click.command("transcribe")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def transcribe_command(files: tuple[Path, ...]) -> int:
    """Print a transcript of recordings and videos, made with `audio.transcriber` or `audio.transcribe_command`."""
    return asyncio.run(_transcribe(files))


@click.command("speak")
@click.argument("text", required=False, default="")
@click.option("-o", "--output", required=True, metavar="FILE", help="The audio file to write; - is standard output.")
def speak_command(text: str, output: str) -> int:
    """Convert TEXT, or standard input, to speech with `audio.speaker` or `audio.speak_command`."""
    words = text or ("" if sys.stdin.isatty() else sys.stdin.read())
    if not words.strip():
        raise ContentError("No text to speak.", hint='Example: loom speak "Hello" -o hello.mp3')
    return asyncio.run(_speak(words, output))


async def _transcribe(files: tuple[Path, ...]) -> int:
    async with Runtime.open(tools=(), mcp=False) as runtime:
        for file in files:
            words = await runtime.speech.transcribe(await asyncio.to_thread(file.read_bytes), file.name)
            if len(files) > 1:
                click.echo(f"── {safe_text(str(file))}")
            click.echo(safe_text(words or "(no speech)"))
    return OK


async def _speak(words: str, output: str) -> int:
    async with Runtime.open(tools=(), mcp=False) as runtime:
        sound = await runtime.speech.speak(words)
    if output == "-":
        sys.stdout.buffer.write(sound)
    else:
        await asyncio.to_thread(Path(output).write_bytes, sound)
    return OK
