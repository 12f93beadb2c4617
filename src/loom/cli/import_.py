"""`loom import`: imports conversations of other programs as sessions. The files are not changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from loom.cli.shared.exit_codes import exit_code
from loom.cli.shared.terminal import one_line, print_line, safe_text, sentence
from loom.errors import LoomError
from loom.message_types import ImportedSession
from loom.runtime import Runtime
from loom.runtime.imports import import_file
from loom.tools.number_text import count_text

_LISTED: Final = 20
"""Up to this many conversations of one file are listed; more are only counted."""
_NOTICES: Final = 10


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def import_command(files: tuple[str, ...], as_json: bool) -> int:
    """Import conversations from other programs, and repair what providers would reject.

    \b
    *.zip     Loom's export, data exports of ChatGPT and claude.ai
    *.json    the same unpacked, chats of Open WebUI and LibreChat,
              messages of OpenAI, Anthropic, Gemini or Ollama
    *.jsonl   samples of OpenAI (one conversation a line),
              sessions of Claude Code (~/.claude/projects) and Codex (~/.codex/sessions)
    logs.db   every conversation of llm

    Branches, times and files are kept. Importing the same file twice changes nothing.
    """
    return asyncio.run(_import(files, as_json))


async def _import(files: tuple[str, ...], as_json: bool) -> int:
    code = 0
    async with Runtime.open() as runtime:
        for name in files:
            file = path_with_name(name)
            try:
                await print_import(runtime, file, as_json)
            except LoomError as error:
                code = code or exit_code(error)
                print_line(import_summary(file.name, error))
    return code


def path_with_name(text: str) -> Path:
    """Return the path; `.` and `..` become that of their folder, which messages can name."""
    path = Path(text)
    return path if path.name not in ("", "..") else path.resolve()


async def print_import(runtime: Runtime, file: Path, as_json: bool) -> None:
    """Import a file and print the result."""
    found = await import_file(runtime, file, roots=(file.parent, Path.cwd()))
    for notice in found.notices:
        print_line(f"{file.name}: {notice}")
    if as_json:
        for session in found.sessions:
            facts = {"file": file.name, **msgspec.to_builtins(session)}
            facts["repairs"] = facts["notices"]  # the older name of this field
            click.echo(msgspec.json.encode(facts))
    elif len(found.sessions) > _LISTED:
        click.echo(_summary(file.name, found.sessions))
    else:
        for session in found.sessions:
            click.echo(report(file.name, session))


def import_summary(name: str, error: LoomError) -> str:
    """Return the error about a file, with the file's name once."""
    text = sentence(error)
    return text if text.removeprefix("File not found: ").startswith(name) else f"{name}: {text}"


def report(file: str, found: ImportedSession) -> str:
    state = "imported" if found.is_new else "already here"
    media = f", {count_text(found.media, 'medium', 'media')}" if found.media else ""
    shared = f", {found.shared} shared" if found.is_new and found.shared else ""
    lines = [
        f"✔ {safe_text(file)} ({found.kind}): {state} as {found.session}",
        f'  "{one_line(found.title, 60)}", {count_text(found.messages, "message")}{media}{shared}',
        *(f"  ~ {safe_text(notice)}" for notice in found.notices),
        f"  continue: loom -r {found.session}",
    ]
    return "\n".join(lines)


def _summary(file: str, found: Sequence[ImportedSession]) -> str:
    kinds = ", ".join(sorted({session.kind for session in found}))
    new = sum(session.is_new for session in found)
    media = sum(session.media for session in found)
    counts = [
        count_text(sum(session.messages for session in found), "message"),
        *([count_text(media, "medium", "media")] if media else []),
        *([f"{len(found) - new:,} already here"] if new < len(found) else []),
    ]
    notices = [f"{one_line(session.title, 40)}: {notice}" for session in found for notice in session.notices]
    left = len(notices) - _NOTICES
    lines = [
        f"✔ {safe_text(file)} ({kinds}): {count_text(new, 'conversation')} imported, {', '.join(counts)}",
        *(f"  ~ {safe_text(notice)}" for notice in notices[:_NOTICES]),
        *([f"  ~ {left:,} more; see --json"] if left > 0 else []),
        "  list: loom sessions",
    ]
    return "\n".join(lines)
