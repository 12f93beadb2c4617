"""`loom sessions`: list, search, rename, delete and export conversations."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from loom.cli.choosing import all_sessions, find_session, last_session
from loom.cli.completing import complete_sessions
from loom.cli.exits import FAILED, OK
from loom.cli.progress import Progress
from loom.cli.terminal import harmless, is_plain, one_line, say, width
from loom.content.media import size_label
from loom.errors import ConfigError, Full, ReadOnly
from loom.formats import ocr
from loom.runtime import Runtime
from loom.runtime.exporting import FORMS, Form, exported
from loom.store.indexing import Indexed, index_media
from loom.store.media_text import MediaTexts
from loom.store.search import Found, Search
from loom.store.session_rows import StoredSession
from loom.tools.words import counted

_PLACES: Final = 3
"""How many places of one conversation are shown."""
_PASSING_SECONDS: Final = 5.0
_MARKS: Final = {"text": " ", "document": "▤", "picture": "▣"}


@click.group("sessions", invoke_without_command=True)
@click.option("-n", "--number", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--here", is_flag=True, help="Only those of this folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def command(ctx: click.Context, count: int, here: bool, as_json: bool) -> None:
    """List conversations, newest first. Their numbers and ids are what -r takes.

    A command behind it works on one of them.
    """
    if ctx.invoked_subcommand is None:
        asyncio.run(_list(count, here, as_json))


async def _list(count: int, here: bool, as_json: bool) -> None:
    shown = 0
    async with Runtime.open() as runtime:
        number = 0
        async for session in all_sessions(runtime):
            number += 1
            if here and session.workspace != str(Path.cwd()):
                continue
            if shown >= count:
                break
            shown += 1
            click.echo(msgspec.json.encode(_facts(session)) if as_json else _row(number, session))
    if not shown and not as_json:
        click.echo('no conversations yet. Begin one: loom "hello"', err=True)


@command.command()
@click.argument("words", nargs=-1)
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many conversations."
)
@click.option("--index", is_flag=True, help="First read every medium that was not read yet, pictures too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each place.")
def search(words: tuple[str, ...], count: int, index: bool, as_json: bool) -> None:
    """Find conversations by their words: titles, questions, answers, tool results, file names, and what stands inside
    documents and pictures.

    Documents are read when they are searched for the first time; the words in pictures need an OCR engine and time, so
    they are read with --index, or when a model needed them. --index alone only reads.
    """
    asyncio.run(_search(" ".join(words), count, index, as_json))


@command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.argument("title")
def rename(session: str, title: str) -> None:
    """Give a conversation another title."""
    asyncio.run(_rename(session, title))


@command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: str, yes: bool) -> int:
    """Delete a conversation and the media that only it used."""
    found = asyncio.run(_found(session))
    title = one_line(found.title or found.id)
    # Asked outside of the loop, where Ctrl+C ends the question at once.
    if not yes and not _is_sure(title):
        click.echo(f'kept "{title}"', err=True)
        return FAILED
    asyncio.run(_delete(found.id, title))
    return OK


@command.command()
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("-f", "--format", "form", type=click.Choice(FORMS), default="md", show_default=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file; without it, stdout.")
def export(session: str, form: Form, output: Path | None) -> None:
    """Write a conversation as Markdown, as one HTML page with its pictures, as JSON that `loom import` reads, or as a
    zip of all three with every medium as it was attached.

    With nothing given, the last one of this folder.
    """
    asyncio.run(_export(session, form, output))


async def _search(words: str, count: int, index: bool, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        indexed = await _indexed(runtime, index)
        if not words.strip() and index:
            click.echo(f"{counted(indexed.read, 'medium', 'media')} read{_not_read(indexed.left)}", err=True)
            return
        found = await Search(runtime.database).find(words, limit=count * _PLACES, per_session=_PLACES)
        numbers = {session.id: (number, session) async for number, session in _numbered(runtime)} if found else {}
    if as_json:
        for hit in found:
            session = numbers[hit.session][1]
            click.echo(msgspec.json.encode({**msgspec.to_builtins(hit), **_about(session)}))
    else:
        _show_found(found, numbers, count)
        if indexed.left:
            left, it = ("1 medium was", "it") if indexed.left == 1 else (f"{indexed.left:,} media were", "them")
            say(f"{left} not read yet: `loom sessions search --index` reads {it}")


def _show_found(found: Sequence[Found], numbers: dict[str, tuple[int, StoredSession]], count: int) -> None:
    if not found:
        click.echo("nothing found.", err=True)
    for session in list(dict.fromkeys(hit.session for hit in found))[:count]:
        click.echo(_row(*numbers[session]))
        for hit in found:
            if hit.session == session and hit.snippet != numbers[session][1].title:
                click.echo(f"      {_MARKS[hit.where]} {one_line(hit.snippet, width() - 9)}")


async def _indexed(runtime: Runtime, everything: bool) -> Indexed:
    """Documents in passing and for a few seconds; with --index, everything. A store that cannot be written to is
    searched as it is."""
    async with Progress(plain=is_plain()) as progress:
        try:
            return await index_media(
                MediaTexts(runtime.database),
                runtime.media,
                runtime.derived,
                limits=runtime.config.media_limits(),
                pictures=everything,
                seconds=None if everything else _PASSING_SECONDS,
                told=lambda done, of: progress.show(f"reading media, {done} of {of}"),
            )
        except (ReadOnly, Full):
            if everything:
                raise
            return Indexed()


def _not_read(left: int) -> str:
    if not left:
        return ""
    why = "their bytes are gone" if ocr.available() else "the words in pictures need: pip install 'loom-runtime[ocr]'"
    return f", {left} not read ({why})"


async def _numbered(runtime: Runtime) -> AsyncIterator[tuple[int, StoredSession]]:
    """As `loom sessions` counts them."""
    number = 0
    async for session in all_sessions(runtime):
        number += 1
        yield number, session


async def _rename(wanted: str, title: str) -> None:
    async with Runtime.open() as runtime:
        session = await find_session(runtime, wanted)
        renamed = await runtime.sessions.update(session.id, title=title)
        click.echo(
            f'{renamed.id} is now "{one_line(renamed.title)}"' if renamed.title else f"{renamed.id} has no title now"
        )


async def _found(wanted: str) -> StoredSession:
    async with Runtime.open() as runtime:
        return await find_session(runtime, wanted)


async def _delete(session_id: str, title: str) -> None:
    async with Runtime.open() as runtime:
        freed = await runtime.delete_session(session_id)
        click.echo(f'deleted "{title}"' + (f", {size_label(freed)} freed" if freed else ""))


def _is_sure(title: str) -> bool:
    """Ctrl+C on a terminal interrupts; elsewhere the end of the input is no answer."""
    try:
        return click.confirm(f'Delete "{title}"? This cannot be undone', err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise ConfigError("nobody answered, so nothing was deleted.", hint="--yes deletes without asking.") from None


async def _export(wanted: str, form: Form, output: Path | None) -> None:
    if form == "zip" and output is None and sys.stdout.isatty():
        raise ConfigError("a zip is nothing for a terminal.", hint="Name a file: -o talk.zip")
    async with Runtime.open() as runtime:
        session = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        data = await exported(runtime, session, form)
    if output is None:
        click.echo(data, nl=False)
        return
    _write(output, data)
    click.echo(f"{harmless(str(output))}, {size_label(len(data))}", err=True)


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.", hint="Choose another place.") from None


def _facts(session: StoredSession) -> dict[str, Any]:
    return {"id": session.id, **_about(session)}


def _about(session: StoredSession) -> dict[str, Any]:
    return {
        "title": session.title,
        "model": session.model,
        "workspace": session.workspace,
        "head": session.head_id,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
    }


def _row(number: int, session: StoredSession) -> str:
    room = max(width() - 58, 20)
    title = one_line(session.title or "(untitled)", room)
    if session.damage:
        title = one_line("(damaged: loom doctor)", room)
    model = one_line(session.model.removeprefix("loom/"), 18)
    return f"{number:>3}  {session.id}  {ago(session.updated_at):>6}  {title:<{room}}  {model}"


def ago(moment: float) -> str:
    """`now`, `5 min`, `3 h`, `2 d`, else the day."""
    seconds = time.time() - moment
    if seconds < 60:
        return "now"
    if seconds < 3_600:
        return f"{seconds // 60:.0f} min"
    if seconds < 86_400:
        return f"{seconds // 3_600:.0f} h"
    return f"{seconds // 86_400:.0f} d"
