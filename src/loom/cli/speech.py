"""`loom transcribe` and `loom speak`: words of recordings, and words as sound."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from loom.cli.shared.exit_codes import OK
from loom.cli.shared.terminal import safe_text
from loom.errors import ContentError
from loom.runtime import Runtime


@click.command("transcribe")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def transcribe_command(files: tuple[Path, ...]) -> int:
    """Print a transcript of recordings and videos, by `audio.transcriber` or `audio.transcribe_command`."""
    return asyncio.run(_transcribe(files))


@click.command("speak")
@click.argument("text", required=False, default="")
@click.option("-o", "--output", required=True, metavar="FILE", help="The sound file to write; - is standard output.")
def speak_command(text: str, output: str) -> int:
    """Speak TEXT, or standard input, into a sound file, by `audio.speaker` or `audio.speak_command`."""
    words = text or ("" if sys.stdin.isatty() else sys.stdin.read())
    if not words.strip():
        raise ContentError("No text to speak.", hint='Give a text: loom speak "Hello" -o hello.mp3')
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
