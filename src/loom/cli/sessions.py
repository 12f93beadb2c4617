"""`loom sessions`: list, search, rename, delete and export conversations."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from loom.cli.choosing import all_sessions, find_session, last_session
from loom.cli.completing import complete_sessions
from loom.cli.terminal import harmless, one_line, width
from loom.content.media import size_label
from loom.content.messages import text_of
from loom.errors import ConfigError
from loom.runtime import Runtime
from loom.store.session_rows import StoredSession


@click.group("sessions", invoke_without_command=True)
@click.option("-n", "--number", "count", default=20, show_default=True, help="How many.")
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
@click.argument("words", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def search(words: tuple[str, ...], as_json: bool) -> None:
    """Find conversations by their words: titles, questions, answers, tool results, file names."""
    asyncio.run(_search(words, as_json))


@command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.argument("title")
def rename(session: str, title: str) -> None:
    """Give a conversation another title."""
    asyncio.run(_rename(session, title))


@command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(session: str, yes: bool) -> None:
    """Delete a conversation and the media that only it used."""
    asyncio.run(_delete(session, yes))


@command.command()
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("-f", "--format", "form", type=click.Choice(["md", "html", "json"]), default="md", show_default=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file; without it, stdout.")
def export(session: str, form: Literal["md", "html", "json"], output: Path | None) -> None:
    """Write a conversation as Markdown, as one HTML page with its pictures, or as JSON that `loom import` reads.

    With nothing given, the last one of this folder.
    """
    asyncio.run(_export(session, form, output))


async def _search(words: tuple[str, ...], as_json: bool) -> None:
    wanted = [word.casefold() for words_ in words for word in words_.split()]
    if not wanted:
        raise ConfigError("there is nothing to search for.", hint="Give a word or more.")
    found = number = 0
    async with Runtime.open() as runtime:
        async for session in all_sessions(runtime):
            number += 1
            hit = await _hit(runtime, session, wanted)
            if hit is None:
                continue
            found += 1
            if as_json:
                click.echo(msgspec.json.encode({**_facts(session), "node": hit[0], "excerpt": hit[1]}))
            else:
                click.echo(f"{_row(number, session)}\n      {hit[1]}")
    if not found and not as_json:
        click.echo("nothing found.", err=True)


async def _hit(runtime: Runtime, session: StoredSession, wanted: list[str]) -> tuple[str, str] | None:
    """The first message that holds all the words, and the words around the first of them."""
    if all(word in session.title.casefold() for word in wanted):
        return session.head_id, one_line(session.title)
    for node in await runtime.forest.tree(session.id):
        if node.message is None:
            continue
        text = " ".join(" ".join(text_of(block) for block in node.message.blocks).split())
        folded = text.casefold()
        if all(word in folded for word in wanted):
            at = max(folded.find(wanted[0]) - 30, 0)
            return node.id, ("…" if at else "") + one_line(text[at:], 90)
    return None


async def _rename(wanted: str, title: str) -> None:
    async with Runtime.open() as runtime:
        session = await find_session(runtime, wanted)
        renamed = await runtime.sessions.update(session.id, title=title)
        click.echo(f'{renamed.id} is now "{one_line(renamed.title)}"')


async def _delete(wanted: str, yes: bool) -> None:
    async with Runtime.open() as runtime:
        session = await find_session(runtime, wanted)
        title = one_line(session.title or session.id)
        if not yes:
            click.confirm(f'Delete "{title}"? This cannot be undone', abort=True, err=True)
        freed = await runtime.delete_session(session.id)
        click.echo(f'deleted "{title}"' + (f", {size_label(freed)} freed" if freed else ""))


async def _export(wanted: str, form: Literal["md", "html", "json"], output: Path | None) -> None:
    from loom.cli.exporting import exported

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
    return {
        "id": session.id,
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
