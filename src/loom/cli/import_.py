"""`loom import`: conversations from elsewhere become sessions that can go on. The files are not changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click
import msgspec

from loom.cli.shared.exit_codes import exit_code
from loom.cli.shared.session_lookup import all_sessions
from loom.cli.shared.terminal import one_line, print_line, safe_text, sentence
from loom.cli.shared.transcripts import Transcript, read_transcripts
from loom.content.messages import media_of
from loom.errors import LoomError, Unreadable
from loom.runtime import Runtime
from loom.store.session_rows import StoredSession
from loom.tools.number_text import count_text

_SAY_SOMETHING: Final = "Give a conversation with at least one message."


class ImportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: the session that holds it now, and what was repaired on the way."""

    file: str
    kind: str
    session: str
    title: str
    messages: int
    media: int
    shared: int
    """How many of its messages Loom held already."""
    is_new: bool
    repairs: tuple[str, ...]


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def import_command(files: tuple[str, ...], as_json: bool) -> int:
    """Import conversations from other programs, and repair what providers would reject.

    \b
    *.json    Loom's export, OpenAI, Anthropic, Gemini or Ollama messages
    *.jsonl   sessions of Claude Code (~/.claude/projects) and Codex (~/.codex/sessions)
    logs.db   every conversation of llm

    Embedded files go to the media store. Importing the same file twice changes nothing.
    """
    return asyncio.run(_import(files, as_json))


async def _import(files: tuple[str, ...], as_json: bool) -> int:
    code = 0
    async with Runtime.open() as runtime:
        for name in files:
            try:
                for found in await import_file(runtime, Path(name)):
                    click.echo(msgspec.json.encode(found) if as_json else report(found))
            except LoomError as error:
                code = code or exit_code(error)
                print_line(import_summary(name, error))
    return code


def import_summary(name: str, error: LoomError) -> str:
    """What is wrong with a file, which is named once."""
    said = sentence(error)
    return said if said.startswith(Path(name).name) else f"{name}: {said}"


async def import_file(runtime: Runtime, file: Path) -> list[ImportedSession]:
    transcripts = await read_transcripts(file, runtime.media, limits=runtime.config.media_limits())
    empty = [found for found in transcripts if not found.messages]
    for notice in (notice for found in empty for notice in found.repairs):
        print_line(f"{file.name}: {notice}")
    if len(empty) == len(transcripts):
        raise Unreadable(f"{file.name} contains no messages.", name=file.name, hint=_SAY_SOMETHING)
    if empty:
        print_line(f"{file.name}: {count_text(len(empty), 'conversation')} without messages skipped")
    return [await _store_transcript(runtime, file, found) for found in transcripts if found.messages]


async def _store_transcript(runtime: Runtime, file: Path, found: Transcript) -> ImportedSession:
    """As a session. Messages that are there already are shared; a session that is there already is found again."""
    root = await runtime.forest.root(found.system)
    shared = await _count_shared(runtime, root.id, found)
    nodes = await runtime.forest.append(root.id, found.messages)
    existing = await _with_head(runtime, nodes[-1].id)
    session = existing or await _session(runtime, found)
    return ImportedSession(
        file=file.name,
        kind=found.kind,
        session=session.id,
        title=session.title,
        messages=len(found.messages),
        media=len({media.digest for message in found.messages for media in media_of(message)}),
        shared=shared,
        is_new=existing is None,
        repairs=found.repairs,
    )


async def _session(runtime: Runtime, found: Transcript) -> StoredSession:
    folder = _folder(found.workspace)
    model = await runtime.default_model()
    session = await runtime.sessions.create(system=found.system, title=found.title, model=model, workspace=folder)
    await runtime.sessions.append_to_head(session.id, found.messages)
    return await runtime.sessions.get(session.id)


def _folder(workspace: str) -> str:
    """Where its tools worked, if that folder is on this machine."""
    return workspace if workspace and Path(workspace).is_dir() else str(Path.cwd())


async def _count_shared(runtime: Runtime, root_id: str, found: Transcript) -> int:
    """How many messages, from the first on, are in the forest already."""
    at, count = root_id, 0
    for message in found.messages:
        known = next((node for node in await runtime.forest.children(at) if node.message == message), None)
        if known is None:
            break
        at, count = known.id, count + 1
    return count


async def _with_head(runtime: Runtime, head_id: str) -> StoredSession | None:
    async for session in all_sessions(runtime):
        if session.head_id == head_id:
            return session
    return None


def report(found: ImportedSession) -> str:
    state = "imported" if found.is_new else "already here"
    media = f", {count_text(found.media, 'medium', 'media')}" if found.media else ""
    shared = f", {found.shared} shared" if found.is_new and found.shared else ""
    lines = [
        f"✔ {safe_text(found.file)} ({found.kind}): {state} as {found.session}",
        f'  "{one_line(found.title, 60)}", {count_text(found.messages, "message")}{media}{shared}',
        *(f"  ~ {safe_text(repair)}" for repair in found.repairs),
        f"  continue: loom -r {found.session}",
    ]
    return "\n".join(lines)
