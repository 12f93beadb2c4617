"""`loom doctor`: checks the set-up and the store, or a foreign transcript, and repairs what it can."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click
import msgspec

from loom.cli import checks
from loom.cli.checks import Finding
from loom.cli.exits import FAILED, exit_code
from loom.cli.import_ import import_file, report, said_of
from loom.cli.terminal import harmless, say, sentence
from loom.cli.transcripts import Transcript, read_transcripts
from loom.config import load_config
from loom.content.media import size_label
from loom.content.messages import media_of
from loom.errors import Corrupt, LoomError
from loom.runtime import Runtime
from loom.store.media import open_media
from loom.tools.words import counted

_GLYPHS = {"ok": "✔", "open": "○", "warning": "!", "problem": "✖"}


@click.command("doctor")
@click.argument("transcripts", nargs=-1, metavar="[TRANSCRIPT]...")
@click.option("--fix", is_flag=True, help="Repair what can be repaired; a transcript becomes a session that can go on.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(transcripts: tuple[str, ...], fix: bool, as_json: bool) -> int:
    """Check the set-up and the store. With TRANSCRIPT, a conversation of another program instead.

    ✔ works  ○ not there, with the command that changes it  ! worth a look  ✖ broken
    """
    if transcripts:
        return asyncio.run(_transcripts(transcripts, fix, as_json))
    return asyncio.run(_set_up(fix, as_json))


async def _set_up(fix: bool, as_json: bool) -> int:
    findings = [checks.python(), *checks.configuration(fix=fix)]
    try:
        async with Runtime.open() as runtime:
            findings += [
                *await checks.store(runtime, fix=fix),
                *await checks.media(runtime),
                *await checks.models(runtime),
                await checks.daemon(runtime.config),
            ]
    except LoomError as error:
        if isinstance(error, Corrupt):
            step = f"{checks.BACKUP}, or save what `sqlite3 FILE .recover` finds in it"
            findings.append(Finding("store", "problem", error.message, step))
        else:
            findings.append(Finding("store", "problem", sentence(error)))
    findings += [*checks.formats(), *checks.extras(), *checks.terminal(), checks.clipboard()]
    for finding in findings:
        click.echo(msgspec.json.encode(finding) if as_json else _row(finding))
    return FAILED if any(finding.state == "problem" for finding in findings) else 0


def _row(finding: Finding) -> str:
    fix = f"  → {finding.fix}" if finding.fix else ""
    return f"{_GLYPHS[finding.state]} {finding.name:<12} {harmless(finding.text)}{fix}"


async def _transcripts(names: tuple[str, ...], fix: bool, as_json: bool) -> int:
    code = 0
    for name in names:
        try:
            if fix:
                async with Runtime.open() as runtime:
                    for imported in await import_file(runtime, Path(name)):
                        click.echo(msgspec.json.encode(imported) if as_json else report(imported))
            else:
                for found in await _looked_at(Path(name)):
                    click.echo(_diagnosis_json(name, found) if as_json else _diagnosis(name, found))
                    code = code or (FAILED if found.repairs or not found.messages else 0)
        except LoomError as error:
            code = exit_code(error)
            say(said_of(name, error))
    return code


async def _looked_at(file: Path) -> list[Transcript]:
    """Read into a folder that vanishes: looking leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        return await read_transcripts(file, open_media(Path(folder)), limits=load_config().media_limits())


def _diagnosis(name: str, found: Transcript) -> str:
    media = {medium.digest: medium for message in found.messages for medium in media_of(message)}
    size = (
        f", {counted(len(media), 'medium', 'media')} ({size_label(sum(m.size_bytes for m in media.values()))})"
        if media
        else ""
    )
    head = f"{harmless(Path(name).name)} ({found.kind}): {counted(len(found.messages), 'message')}{size}"
    repairs = [f"  ~ {harmless(notice)}" for notice in found.repairs]
    if not found.messages:
        return "\n".join([f"! {head}, nothing to import", *repairs])
    if not repairs:
        return f"✔ {head}, nothing to repair"
    return "\n".join([f"! {head}", *repairs, f"  → loom doctor --fix {name}"])


def _diagnosis_json(name: str, found: Transcript) -> bytes:
    return msgspec.json.encode(
        {
            "file": Path(name).name,
            "kind": found.kind,
            "messages": len(found.messages),
            "repairs": found.repairs,
        }
    )
