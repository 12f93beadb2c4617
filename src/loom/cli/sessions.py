"""`loom sessions`: list, search, rename, delete and export conversations."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from loom.api_types import SearchResult, SessionView
from loom.atomic_file import write_file_whole
from loom.cli.shared.command_group import CommandGroup
from loom.cli.shared.exit_codes import FAILED, OK
from loom.cli.shared.options import complete_sessions
from loom.cli.shared.questions import confirm
from loom.cli.shared.session_options import find_or_last
from loom.cli.shared.terminal import ProgressLine, is_plain, one_line, print_line, safe_text, width
from loom.client import local_client
from loom.content.media import size_label
from loom.errors import ConfigError, Full, ReadOnly
from loom.formats import ocr
from loom.library import Library, all_sessions
from loom.runtime import Runtime
from loom.runtime.export import FORMS
from loom.session import ExportFormat
from loom.store.text_index import IndexReport
from loom.tools.number_text import count_text

_PLACES: Final = 3
"""The maximum number of search hits that are shown per conversation."""
_PASSING_SECONDS: Final = 5.0
_MARKS: Final = {"text": " ", "document": "▤", "picture": "▣"}


@click.group("sessions", cls=CommandGroup, invoke_without_command=True)
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many to list."
)
@click.option("--here", is_flag=True, help="Only sessions of this folder.")
@click.option("--folder", metavar="NAME", help="Only sessions in this folder of the session list.")
@click.option("--tag", default="", metavar="NAME", help="Only sessions with this tag.")
@click.option("--pinned", is_flag=True, help="Only pinned sessions.")
@click.option("--archived", is_flag=True, help="Archived sessions instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.pass_context
def sessions_command(ctx: click.Context, count: int, here: bool, as_json: bool, **chosen: Any) -> None:
    """List sessions, newest first. Use their numbers or ids with -r."""
    if ctx.invoked_subcommand is None:
        chosen["pinned"] = chosen["pinned"] or None
        asyncio.run(_list(count, here, as_json, chosen))


async def _list(count: int, here: bool, as_json: bool, chosen: Mapping[str, Any]) -> None:
    shown = 0
    async with Runtime.open() as runtime:
        number = 0
        async for session in all_sessions(runtime.library, page=min(count, 100), **chosen):
            number += 1
            if here and session.workspace != str(Path.cwd()):
                continue
            if shown >= count:
                break
            shown += 1
            click.echo(
                msgspec.json.encode({"id": session.id, **_session_facts(session)}) if as_json else _row(number, session)
            )
    if not shown and not as_json:
        click.echo('No sessions yet. Start one: `loom "hello"`.', err=True)


@click.command("search")
@click.argument("words", nargs=-1)
@click.option(
    "-n",
    "--number",
    "count",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="The maximum number of sessions.",
)
@click.option("--index", is_flag=True, help="First index all unread media, including images.")
@click.option("--json", "as_json", is_flag=True, help="Print each match as a JSON line.")
def search_command(words: tuple[str, ...], count: int, index: bool, as_json: bool) -> None:
    """Search titles, messages, tool results, file names, and the text of documents and images.

    Documents are indexed by the first search. Text in images needs an OCR engine and time: it is indexed with
    --index, or when a model needed it. --index alone only indexes.
    """
    asyncio.run(_search(" ".join(words), count, index, as_json))


sessions_command.add_command(search_command)


@sessions_command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.argument("title")
def rename(session: str, title: str) -> None:
    """Rename a session."""
    asyncio.run(_rename(session, title))


@sessions_command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.option(
    "--folder", metavar="NAME", help="Move it to a folder, such as Work/Invoices; '' removes it from its folder."
)
@click.option("--tag", "add", multiple=True, metavar="NAME", help="Add a tag.")
@click.option("--untag", "remove", multiple=True, metavar="NAME", help="Remove a tag.")
@click.option("--pin/--unpin", "pinned", default=None, help="Pin it to the top of lists.")
@click.option(
    "--archive/--unarchive", "archived", default=None, help="Hide it from lists and searches, or show it again."
)
def organize(session: str, add: tuple[str, ...], remove: tuple[str, ...], **chosen: Any) -> None:
    """Move a session to a folder, tag, pin or archive it."""
    asyncio.run(_organize(session, add, remove, chosen))


@sessions_command.command()
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option(
    "--days", type=click.FloatRange(min=0), default=0, help="How long the link is valid. Default: until --revoke."
)
@click.option("--list", "listed", is_flag=True, help="List its links.")
@click.option("--revoke", metavar="ID", help="Delete a link.")
def share(session: str, days: float, listed: bool, revoke: str | None) -> None:
    """Create a link to a read-only copy of the conversation that needs no sign-in.

    The daemon serves it (`loom serve`). For a file instead of a link: loom sessions export -f html.
    """
    asyncio.run(_share(session, days, listed, revoke))


@sessions_command.command()
@click.argument("session", shell_complete=complete_sessions)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(session: str, yes: bool) -> int:
    """Delete a session and the media that only it used."""
    found = asyncio.run(_find_session(session))
    title = one_line(found.title or found.id)
    # Prompt outside of the event loop, where Ctrl+C ends the prompt at once.
    if not yes and not _is_sure(title):
        click.echo(f'kept "{title}"', err=True)
        return FAILED
    asyncio.run(_delete(found.id, title))
    return OK


@click.command("export")
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("-f", "--format", "form", type=click.Choice(FORMS), default="md", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The output file. Default: stdout."
)
def export_command(session: str, form: ExportFormat, output: Path | None) -> None:
    """Export a session as Markdown, as one HTML page with its images, as JSON that `loom import` reads, or as a
    zip of all three with the original files.

    Default: the last session of this folder.
    """
    asyncio.run(_export(session, form, output))


sessions_command.add_command(export_command)


async def _organize(wanted: str, add: Sequence[str], remove: Sequence[str], chosen: Mapping[str, Any]) -> None:
    async with Runtime.open() as runtime:
        found = await runtime.library.find(wanted)
        tags = sorted({*found.tags, *add} - set(remove)) if add or remove else None
        session = await runtime.library.open(found.id)
        view = await session.change(tags=tags, **chosen)
    facts = [
        f"folder {view.folder}" if view.folder else "no folder",
        f"tags {', '.join(view.tags)}" if view.tags else "no tags",
        *(["pinned"] if view.pinned else []),
        *(["archived"] if view.archived else []),
    ]
    click.echo(f'"{one_line(view.title or view.id)}": {safe_text(", ".join(facts))}')


async def _share(wanted: str, days: float, listed: bool, revoke: str | None) -> None:
    async with Runtime.open() as runtime:
        found = await find_or_last(runtime.library, wanted)
        if revoke:
            await runtime.library.unshare(found.id, revoke)
            click.echo(f"link {safe_text(revoke)} deleted")
            return
        if listed:
            links = await runtime.library.shares(found.id)
            if not links:
                print_line("No links. Create one: `loom sessions share SESSION`.")
            for link in links:
                until = f"until {_day(link.expires_at)}" if link.expires_at else "until deleted"
                click.echo(f"{link.id}  made {_day(link.created_at)}, {until}")
            return
        made = await runtime.library.share(found.id, days=days)
        daemon = await local_client(runtime.config)
        address = ""
        if daemon is not None:
            async with daemon:
                address = daemon.url.rstrip("/")
    click.echo(f"{address}{made.path}")
    if not address:
        print_line("No daemon responds. The link works while `loom serve` runs.")


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment))


async def _search(words: str, count: int, index: bool, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        indexed = await _index_media(runtime, index)
        if not words.strip() and index:
            click.echo(f"{count_text(indexed.read, 'medium', 'media')} read{_not_read(indexed.left)}", err=True)
            return
        found = await runtime.library.search(words, limit=count * _PLACES, per_session=_PLACES)
        numbers = await _number_sessions(runtime.library, {hit.session for hit in found})
    if as_json:
        for hit in found:
            session = numbers[hit.session][1]
            facts = msgspec.to_builtins(hit)
            facts["media"] = facts.pop("media") or ""
            click.echo(msgspec.json.encode({**facts, **_session_facts(session)}))
    else:
        _show_found(found, numbers, count)
        if indexed.left:
            left, it = ("1 medium is", "it") if indexed.left == 1 else (f"{indexed.left:,} media are", "them")
            print_line(f"{left} not indexed yet: `loom search --index` indexes {it}")


def _show_found(found: Sequence[SearchResult], numbers: dict[str, tuple[int, SessionView]], count: int) -> None:
    if not found:
        click.echo("No results.", err=True)
    for session in list(dict.fromkeys(hit.session for hit in found))[:count]:
        click.echo(_row(*numbers[session]))
        for hit in found:
            if hit.session == session and hit.snippet != numbers[session][1].title:
                click.echo(f"      {_MARKS[hit.where]} {one_line(hit.snippet, width() - 9)}")


async def _index_media(runtime: Runtime, everything: bool) -> IndexReport:
    """Index documents for a few seconds before a search; with `everything`, all media. Without it, a store that is
    read-only or full is searched as it is."""
    async with ProgressLine(plain=is_plain()) as progress:
        try:
            return await runtime.library.index_media(
                pictures=everything,
                seconds=None if everything else _PASSING_SECONDS,
                on_progress=lambda done, of: progress.show(f"reading media, {done} of {of}"),
            )
        except (ReadOnly, Full):
            if everything:
                raise
            return IndexReport()


def _not_read(left: int) -> str:
    if not left:
        return ""
    why = "their files are missing" if ocr.is_available() else "text in images needs: pip install 'loom-runtime[ocr]'"
    return f", {left} not read ({why})"


async def _number_sessions(library: Library, wanted: Collection[str]) -> dict[str, tuple[int, SessionView]]:
    """Return the sessions `wanted` with their numbers in `loom sessions`."""
    found: dict[str, tuple[int, SessionView]] = {}
    number = 0
    async for session in all_sessions(library):
        if len(found) == len(wanted):
            break
        number += 1
        if session.id in wanted:
            found[session.id] = number, session
    return found


async def _rename(wanted: str, title: str) -> None:
    async with Runtime.open() as runtime:
        session = await runtime.library.open((await runtime.library.find(wanted)).id)
        renamed = await session.change(title=title)
        click.echo(
            f'{renamed.id} is now "{one_line(renamed.title)}"'
            if renamed.title
            else f"{renamed.id} no longer has a title"
        )


async def _find_session(wanted: str) -> SessionView:
    async with Runtime.open() as runtime:
        return await runtime.library.find(wanted)


async def _delete(session_id: str, title: str) -> None:
    async with Runtime.open() as runtime:
        freed = await runtime.library.delete(session_id)
        click.echo(f'deleted "{title}"' + (f", {size_label(freed)} freed" if freed else ""))


def _is_sure(title: str) -> bool:
    """Ask for confirmation. Ctrl+C on a terminal raises `click.Abort`; without a terminal, the end of the input raises
    `ConfigError`."""
    try:
        return confirm(f'Delete "{title}"? This cannot be undone')
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise ConfigError(
            "Not confirmed: nothing was deleted.", hint="Use --yes to delete without confirmation."
        ) from None


async def _export(wanted: str, form: ExportFormat, output: Path | None) -> None:
    if form == "zip" and output is None and sys.stdout.isatty():
        raise ConfigError("A zip file cannot be written to a terminal.", hint="Use -o chat.zip")
    async with Runtime.open() as runtime:
        found = await find_or_last(runtime.library, wanted)
        data = await (await runtime.library.open(found.id)).export(form)
    if output is None:
        click.echo(data, nl=False)
        return
    _write(output, data)
    click.echo(f"{safe_text(str(output))}, {size_label(len(data))}", err=True)


def _write(file: Path, data: bytes) -> None:
    if not file.parent.is_dir():  # a mistyped path must not create folders
        raise ConfigError(f"{file.parent} is not a folder.", hint="Choose another path.")
    try:
        write_file_whole(file, data, mode=0o666)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.", hint="Choose another path.") from None


def _session_facts(session: SessionView) -> dict[str, Any]:
    return {
        "title": session.title,
        "model": session.model,
        "workspace": session.workspace,
        "head": session.head,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
    }


def _row(number: int, session: SessionView) -> str:
    room = max(width() - 58, 20)
    marks = ("★ " if session.pinned else "") + (f"{session.folder}/ " if session.folder else "")
    title = one_line(f"{marks}{session.title or '(untitled)'}", room)
    if session.damage:
        title = one_line("(damaged: loom doctor)", room)
    model = one_line(session.model.removeprefix("loom/"), 18)
    return f"{number:>3}  {session.id}  {ago(session.updated_at):>6}  {title:<{room}}  {model}"


def ago(moment: float) -> str:
    """Return `now`, `5 min`, `3 h` or `2 d`."""
    seconds = time.time() - moment
    if seconds < 60:
        return "now"
    if seconds < 3_600:
        return f"{seconds // 60:.0f} min"
    if seconds < 86_400:
        return f"{seconds // 3_600:.0f} h"
    return f"{seconds // 86_400:.0f} d"
